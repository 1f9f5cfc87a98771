"""The case is the seam: what it holds gives the same verdict again, and what it cannot hold is refused in one way."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.commands.job import judge_case, keep_case
from harness.commands.job_look import keep_look as keep_stall
from harness.commands.looks.case import keep_look
from harness.diagnose.living.document import judge_living
from harness.diagnose.living.group import judge_group
from harness.errors import BadCase
from harness.evidence.case import create_case
from harness.evidence.crash import Cpu
from harness.evidence.gap import Gap
from harness.evidence.kept_case import list_kept, load_evidence, load_look
from harness.evidence.memory import Course, ProcessMemory, Room, Timeline
from harness.evidence.run import Channel, Ending, Evidence, PassedSignal
from harness.evidence.senders import ON_STALL_TERM
from harness.evidence.text import redaction
from harness.evidence.text.answers import MOST_BYTES
from harness.evidence.text.kept_output import read_output
from harness.evidence.text.redaction import Redactor
from tests.builders import looks
from tests.builders.crashes import ILL, LIBC, crash, mapping, native, thread
from tests.builders.evidence import LOGS, read_log, run_evidence, told
from tests.builders.kept_cases import check_look, check_run

SECRET = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
STATUSES = {path.name: read_log(path.name)[1] for path in sorted(LOGS.glob("*.txt"))}


def keep(place: Path, output: bytes, evidence: Evidence) -> Path:
    """As `run` does it: a relay has copied, the copies are read again, the rest is redacted."""
    started_ns = time.monotonic_ns()
    case, _ = create_case(str(place), list(evidence.argv), started_ns)
    (case / "stderr.log").write_bytes(redaction.redact_raw(output))
    (case / "stderr.log.times").write_text(f"0 {started_ns + 9_900_000_000}\n")
    evidence = redaction.redact(evidence)
    transcripts = read_output(case, ["stderr"], started_ns, is_redacted=redaction.is_on())
    channel = Channel("stderr", "pipe", len(output), 9.9)
    judged = replace(evidence, channels=(channel,), transcripts=transcripts)
    assert keep_case(case, judged, judge_case(judged, case), list(evidence.argv), started_ns)
    assert load_evidence(case) == judged
    return case


@pytest.mark.parametrize("name", STATUSES)
def test_a_recorded_output_is_judged_the_same_when_its_case_is_loaded(name: str, tmp_path: Path) -> None:
    text, status = read_log(name)
    code = 1 if status is None else status
    ending = Ending(signo=code - 128) if code > 128 else Ending(exit_code=code)
    check_run(keep(tmp_path, text.encode(), run_evidence("", ending)))


def make_crash() -> Evidence:
    dead = crash(
        thread(100, native("f", LIBC, "0x7ffff7811000", "0x1000")),
        signo=ILL,
        registers={"rip": "0x7ffff7811000"},
        mappings=(mapping(0x7FFFF7810000, 0x7FFFF79F0000, "r-xp", LIBC),),
        raw_frames=("0x7ffff7811000",),
        code="0f0b",
        cpu=Cpu("a processor", ("avx2",), False),
        gaps=(Gap("registers", "they were lost", None),),
    )
    return run_evidence("", Ending(signo=ILL), crashes=(dead,))


def make_timeline() -> Evidence:
    times = tuple(float(n) for n in range(100))
    course = Course(times, tuple(n << 20 for n in range(100)), 99 << 20, 99.0)
    timeline = Timeline(100, course, course, (ProcessMemory(100, rss_bytes=course, cpu_s=0.1 + 0.2),), (), 1 << 34)
    return run_evidence("", Ending(signo=9), timeline=timeline, room=Room(), oom_kills=(), started="now")


def make_strange_words() -> Evidence:
    strange = ("python", os.fsdecode(b"caf\xe9.py"), "\\udcff", "\ud83d", "\u202e", "--token", "x" * 20)
    return run_evidence("", Ending(exit_code=3), argv=strange, cwd=os.fsdecode(b"/\xff"), environment={"A": "\x00é"})


def make_exception() -> Evidence:
    return run_evidence("", Ending(exit_code=1), **told("ValueError"))


@pytest.mark.parametrize("make", [make_crash, make_timeline, make_strange_words, make_exception])
def test_every_part_of_the_evidence_comes_back(make: Callable[[], Evidence], tmp_path: Path) -> None:
    output = b'Traceback (most recent call last):\n  File "/job/train.py", line 3, in work\nValueError: \xff\xfe no\n'
    check_run(keep(tmp_path, output, make()))


OUTPUT = (
    f"\x1b[31m{SECRET}\x1b[0m\n--token {SECRET}\npassword=open-7-sésame\n"
    f"\x1b[1mopen-7-sésame\x1b[0m {SECRET[:9]}\x1b[4m{SECRET[9:]}\nhf_\u200b{'aB3' * 11}\n"
)


def test_what_was_masked_is_masked_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In colours, in the middle of a colour, in words that are not ASCII, and in what an option was given."""
    monkeypatch.setattr(redaction, "_current", Redactor(environment={"DB_PASSWORD": "open-7-sésame"}))
    case = keep(tmp_path, OUTPUT.encode(), run_evidence("", Ending(exit_code=3)))
    check_run(case)
    kept = (case / "stderr.log").read_bytes()
    assert len(kept) == len(OUTPUT.encode()) and kept.count(b"\n") == OUTPUT.count("\n")
    said = "\n".join(load_evidence(case).transcripts[0].parts[0].lines)
    for text in (kept.decode(), said):
        for piece in (SECRET[:9], SECRET[9:], "open-7", "sésame", "aB3"):
            assert piece not in text, (piece, text)


def test_what_was_not_to_be_redacted_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_current", Redactor(is_on=False))
    case = keep(tmp_path, OUTPUT.encode(), run_evidence("", Ending(exit_code=3)))
    assert json.loads((case / "case.json").read_bytes())["redacted"] is False
    monkeypatch.undo()
    check_run(case)
    assert load_evidence(case).transcripts[0].parts[0].lines[0] == SECRET


def stuck(pid: int = 100) -> looks.LivingProcess:
    return looks.process(looks.thread(pid, *looks.CONDITION, looks.line("refill", 88)))


def test_why_it_was_ended_is_told_again(tmp_path: Path) -> None:
    asked = PassedSignal("SIGTERM", 8.0, 1, 0, ON_STALL_TERM, True)
    case, _ = create_case(str(tmp_path), [], 0)
    for number in range(11):  # stall-10 comes after stall-9, whatever their times
        look = looks.look(looks.process(looks.thread(100, *looks.CONDITION, looks.line(f"step_{number}", 88))))
        keep_stall(look, judge_living(look), case)
        os.utime(list_kept(case, "stall")[-1], (5, 5))
    evidence = run_evidence("", Ending(signo=15), signals=(asked,))
    evidence = replace(evidence, transcripts=())
    keep_case(case, evidence, judge_case(evidence, case), [], 0)
    check_run(case)
    frame = json.loads((case / "verdict.json").read_bytes())["verdict"]["user_frame"]
    assert frame["function"] == "step_10" and load_look(case).processes[0].threads[0].stack[-1].function == "step_10"
    (case / "stall-11.json").write_bytes(b"{")
    assert [gap.what for gap in judge_case(load_evidence(case), case).gaps] == ["why it stood still"]


def test_a_look_is_judged_the_same_when_its_case_is_loaded(tmp_path: Path) -> None:
    for number, answer in enumerate((judge_living(looks.look(stuck())), judge_group(*TWO, unseen=[Gap("host c", "")]))):
        seen = [looks.look(stuck())] if number == 0 else TWO
        kept = keep_look(seen, answer, str(tmp_path / str(number)))
        assert kept.case is not None
        check_look(Path(kept.case))


TWO = [looks.look(stuck(pid), host=host) for pid, host in ((100, "a"), (100, "b"))]


@pytest.fixture
def case(tmp_path: Path) -> Path:
    return keep(tmp_path, b"x\n", make_crash())


def edit(path: Path, **facts: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **facts}))


def put_away(path: Path) -> Path:
    elsewhere = path.with_name(f"{path.name}.elsewhere")
    path.rename(elsewhere)
    return elsewhere


def cut_crash(case: Path, **facts: object) -> None:
    (dead,) = json.loads((case / "evidence.json").read_bytes())["crashes"]
    edit(case / "evidence.json", crashes=[{**dead, **facts}])


TORN = {"samples": 1, "total_rss_bytes": {"values": [1]}, "available_bytes": {}}
DAMAGES: dict[str, Callable[[Path], object]] = {
    "no marker": lambda case: (case / "case.json").unlink(),
    "no evidence": lambda case: (case / "evidence.json").unlink(),
    "torn": lambda case: (case / "evidence.json").write_bytes((case / "evidence.json").read_bytes()[:-9]),
    "no object": lambda case: (case / "evidence.json").write_bytes(b"[]"),
    "deep": lambda case: (case / "evidence.json").write_bytes(b'{"a":' * 200_000),
    "a long number": lambda case: edit(case / "evidence.json", duration_s=10**400),
    "endless": lambda case: os.truncate(case / "evidence.json", MOST_BYTES + 1),
    "a link": lambda case: (case / "evidence.json").symlink_to(put_away(case / "evidence.json")),
    "a FIFO": lambda case: (put_away(case / "evidence.json"), os.mkfifo(case / "evidence.json")),
    "a directory": lambda case: (put_away(case / "evidence.json"), (case / "evidence.json").mkdir()),
    "another version": lambda case: edit(case / "evidence.json", schema="harness.evidence/9"),
    "no start": lambda case: edit(case / "case.json", started_ns=None),
    "a start that is text": lambda case: edit(case / "case.json", started_ns="5"),
    "redacted as text": lambda case: edit(case / "case.json", redacted="no"),
    "output that is a link": lambda case: (case / "stderr.log").symlink_to(put_away(case / "stderr.log")),
    "times that are a link": lambda case: (case / "stderr.log.times").symlink_to(put_away(case / "stderr.log.times")),
    "a link to nothing": lambda case: (case / "stderr.tail").symlink_to("/nowhere"),
    "output that is a FIFO": lambda case: os.mkfifo(case / "stderr.tail"),
    "more output than is kept": lambda case: os.truncate(case / "stderr.log", 5 << 20),
    "output from elsewhere": lambda case: edit(
        case / "evidence.json", channels=[{"name": "../x/stderr", "kind": "pipe", "bytes_in": 1, "last_output_s": None}]
    ),
    "an address that is none": lambda case: cut_crash(case, pc="0xzz"),
    "an offset that is none": lambda case: cut_crash(case, registers={"rip": "1_0"}),
    "a course without times": lambda case: edit(case / "evidence.json", timeline=TORN),
    "code that is none": lambda case: cut_crash(case, code="0f0"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_case_is_refused_with_a_hint(kind: str, case: Path) -> None:
    load_evidence(case)
    DAMAGES[kind](case)
    with pytest.raises(BadCase) as refused:
        load_evidence(case)
    assert refused.value.hint == f"ls {case}" and str(case) in str(refused.value)


def test_a_damaged_look_is_refused_with_a_hint(case: Path, tmp_path: Path) -> None:
    keep_stall(looks.look(stuck()), judge_living(looks.look(stuck())), case)
    file = case / "look.json"
    whole, elsewhere = file.read_bytes(), tmp_path / "look.json"
    assert load_look(case) == load_look(file) == looks.look(stuck())
    for damage in (b"", b"{}", whole[:-1], whole.replace(b'"targets":[100]', b'"targets":[]')):
        file.write_bytes(damage)
        for path in (case, file):
            with pytest.raises(BadCase):
                load_look(path)
    file.unlink()
    elsewhere.write_bytes(whole)
    file.symlink_to(elsewhere)
    for path in (case, file, tmp_path / "none", tmp_path / "none" / "look.json"):
        with pytest.raises(BadCase):
            load_look(path)
