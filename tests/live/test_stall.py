"""`harness run --stall-after`: a command that stands still is looked at once, and what was asked for is done.

And Ctrl-\\, the same look by a key.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import textwrap
import threading
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.capture.run.stall.clock import Standstill
from harness.report.schemas import build_schemas
from tests.builders.kept_cases import check_run
from tests.live.processes import DEADLINE_S, open_gate, state_of, until

VERDICT = json.loads(build_schemas()["verdict-1.json"])
STUCK = "import os\ndef work():\n    open({gate!r}).read()\nprint(os.getpid())\nwork()\nprint('natural end')\n"


def read_line_with(process: Any, text: bytes) -> bytes:
    while line := process.stderr.readline():
        if text in line:
            return line
    raise AssertionError(f"{text!r} never came")


def read_stall(case: Path) -> dict[str, Any]:
    document = json.loads((case / "stall.json").read_bytes())
    jsonschema.validate(document, VERDICT)
    check_run(case)
    assert json.loads((case / "look.json").read_bytes())["processes"][0]["pid"] == document["target"]["pid"]
    return document


def test_a_stall_is_told_once_and_the_command_goes_on(harness: Any, script: Any, gate: Path) -> None:
    process = harness.start(*script(STUCK.format(gate=str(gate))), options=("--stall-after", "4s"))
    pid = int(process.stdout.readline())
    read_line_with(process, b"Nothing outside has changed for ")
    assert process.stderr.readline().startswith(b"harness: ")
    read_line_with(process, b"(job.py:3)")
    read_line_with(process, str(harness.case).encode())
    assert state_of(pid) == "S"
    open_gate(gate)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, stdout) == (0, b"natural end\n") and b"Nothing outside" not in stderr
    document = read_stall(harness.case)
    assert document["target"]["pid"] == pid and document["outcome"]["state"] == "alive"
    assert document["verdict"]["python_frame"]["function"] == "work"
    assert json.loads((harness.case / "verdict.json").read_bytes())["verdict"]["kind"] == "clean"


def test_movement_after_a_stall_is_told_and_a_second_stall_too(harness: Any, script: Any, gate: Path) -> None:
    source = STUCK.format(gate=str(gate)).replace("print('natural end')", "print('between', flush=True)\nwork()")
    process = harness.start(*script(source), options=("--stall-after", "1s", "-q"))
    read_line_with(process, b"Nothing outside")
    read_line_with(process, b"(job.py:3)")
    open_gate(gate)
    read_line_with(process, b"It moves again, after ")
    read_line_with(process, b"Nothing outside")
    read_line_with(process, b"(job.py:3)")
    open_gate(gate)
    assert process.wait(DEADLINE_S) == 0
    assert sorted(path.name for path in harness.case.glob("stall*")) == ["stall-2.json", "stall.json"]
    check_run(harness.case)


def test_what_moves_is_left_alone(harness: Any, script: Any, tmp_path: Path) -> None:
    """Output, a file, and memory only: none is a stall, not even with term."""
    for source in (
        "import time\nend = time.time() + 3\nwhile time.time() < end: print('x', flush=True); time.sleep(0.05)",
        "import os, time\nend = time.time() + 3\nfd = os.open('grows', os.O_CREAT | os.O_RDWR)\n"
        "while time.time() < end: os.ftruncate(fd, os.fstat(fd).st_size + 1); time.sleep(0.05)",
        "import harness, time\nend, n = time.time() + 3, 0\nwhile time.time() < end: n += 1; harness.beat(step=n)",
    ):
        process = harness.start(
            *script(source),
            options=("--stall-after", "1s", "--on-stall", "term"),
            cwd=tmp_path,
            env={**harness.env, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        _, stderr = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, stderr) == (0, b"")
    assert harness.kept_cases() == []


def test_what_moves_in_memory_only_is_not_ended(harness: Any, script: Any) -> None:
    source = """
        def spin():
            for _ in range(1_000_000):
                pass
        def train():
            for step in range(10 ** 6):
                spin()
        train()
    """
    options = ("--stall-after", "4s", "--on-stall", "term")
    process = harness.start(*script(textwrap.dedent(source)), options=options)
    read_line_with(process, b"Nothing outside")
    assert b"Not stuck, it moves: step in train" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 143 and b"--on-stall" not in stderr


def test_a_core_is_written_and_the_command_goes_on(harness: Any, script: Any, gate: Path) -> None:
    if shutil.which("gdb") is None:
        pytest.skip("needs gdb")
    options = ("--stall-after", "1s", "--on-stall", "core")
    process = harness.start(*script(STUCK.format(gate=str(gate))), options=options)
    pid = int(process.stdout.readline())
    told = read_line_with(process, b"A core of process %d is in " % pid)
    core = harness.case / f"core.{pid}"
    assert str(core).encode() in told and core.read_bytes()[:4] == b"\x7fELF" and core.stat().st_mode & 0o77 == 0
    until(lambda: state_of(pid) == "S", "let go")
    open_gate(gate)
    assert process.communicate(timeout=DEADLINE_S)[0] == b"natural end\n" and process.returncode == 0


def test_why_there_is_no_core(harness: Any, script: Any, gate: Path, tmp_path: Path) -> None:
    options = ("--stall-after", "1s", "--on-stall", "core")
    env = {**harness.env, "PATH": str(tmp_path)}
    process = harness.start(*script(STUCK.format(gate=str(gate))), options=options, env=env)
    assert b"there is no gdb; to install it" in read_line_with(process, b"No core of process")
    open_gate(gate)
    assert process.wait(DEADLINE_S) == 0 and list(harness.case.glob("core*")) == []


def test_term_ends_it_after_the_report(harness: Any, script: Any, gate: Path) -> None:
    options = ("--stall-after", "1s", "--on-stall", "term")
    process = harness.start(*script(STUCK.format(gate=str(gate))), options=options)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 143
    at = [
        stderr.index(text) for text in (b"Nothing outside", b"(job.py:3)", b"SIGTERM goes to pid", b"Ended by harness")
    ]
    assert at == sorted(at) and b"nothing outside has changed for " in stderr[at[-1] :]
    assert read_stall(harness.case)["verdict"]["python_frame"]["function"] == "work"
    verdict = json.loads((harness.case / "verdict.json").read_bytes())["verdict"]
    stall = read_stall(harness.case)["verdict"]
    said = "Ended by harness with SIGTERM, as --on-stall term says. It stood still: "
    assert (verdict["kind"], verdict["headline"]) == ("terminated", said + stall["headline"])
    assert verdict["user_frame"] == stall["user_frame"] and verdict["user_frame"]["function"] == "work"


def test_one_that_leaves_with_a_status_of_its_own_when_asked_gets_the_cause_too(
    harness: Any, script: Any, gate: Path
) -> None:
    source = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n" + STUCK.format(
        gate=str(gate)
    )
    process = harness.start(*script(source), options=("--stall-after", "1s", "--on-stall", "term"))
    process.communicate(timeout=DEADLINE_S)
    verdict = json.loads((harness.case / "verdict.json").read_bytes())["verdict"]
    assert (process.returncode, verdict["kind"]) == (3, "exit-nonzero")
    assert (
        "left with exit status 3. It stood still: " in verdict["headline"]
        and verdict["user_frame"]["function"] == "work"
    )


BESIDE = """
    import threading, time
    def write():
        log = open("stats.log", "w", buffering=1)
        for n in range(10 ** 6):
            print(n, file=log)
            time.sleep(0.05)
    threading.Thread(target=write, daemon=True).start()
"""
HEALTHY = "    done = threading.Event()\n    done.wait()  # work\n"  # the thread may be who trains
RING = """
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)
    def take(one, other):
        with one:
            both.wait()
            other.acquire()
    threading.Thread(target=take, args=(second, first)).start()
    take(first, second)
"""


def test_what_is_not_shown_to_be_stuck_is_ended_only_where_nothing_of_it_stirs(
    harness: Any, script: Any, tmp_path: Path
) -> None:
    process = harness.start(
        *script(textwrap.dedent(BESIDE + HEALTHY)), options=("--stall-after", "2s", "--on-stall", "term"), cwd=tmp_path
    )
    told = read_line_with(process, b"Nothing outside is known to have been changed by its line of work for ")
    assert b"something of it moves" in told
    read_line_with(process, b"It is not ended")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE_S)
    assert read_stall(harness.case)["verdict"]["kind"] == "waiting"
    verdict = json.loads((harness.case / "verdict.json").read_bytes())["verdict"]
    assert verdict["kind"] == "terminated" and "--on-stall" not in verdict["headline"]


def test_what_is_shown_to_be_stuck_is_ended_whatever_stirs_beside_it(harness: Any, script: Any, tmp_path: Path) -> None:
    process = harness.start(
        *script(textwrap.dedent(BESIDE + RING)), options=("--stall-after", "2s", "--on-stall", "term"), cwd=tmp_path
    )
    process.communicate(timeout=DEADLINE_S)
    verdict, stall = json.loads((harness.case / "verdict.json").read_bytes())["verdict"], read_stall(harness.case)
    assert (process.returncode, stall["verdict"]["kind"], stall["verdict"]["status"]) == (
        143,
        "deadlock-lock",
        "established",
    )
    assert f"It was stuck: {stall['verdict']['headline']}" in verdict["headline"]
    assert any("something of it moves" in ground["fact"] for ground in verdict["grounds"])


def test_on_stall_alone_is_a_usage_error(harness: Any) -> None:
    process = harness.start("true", options=("--on-stall", "core"))
    _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2 and b"--stall-after" in stderr


def test_the_end_of_the_command_ends_the_look(harness: Any, script: Any, gate: Path) -> None:
    """Also one that is under way: the case is not written to afterwards."""
    process = harness.start(*script(STUCK.format(gate=str(gate))), options=("--stall-after", "0.3s"))
    process.stdout.readline()
    looker = until(lambda: children_in_sessions_of_their_own(process.pid), "a look under way")
    open_gate(gate)
    assert process.wait(DEADLINE_S) == 0
    assert all(state_of(pid) in (None, "Z") for pid in looker) and harness.kept_cases() == []


def children_in_sessions_of_their_own(pid: int) -> list[int]:
    found = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    names = {one: Path(f"/proc/{one}/stat").read_text() for one in found}
    return [
        one for one, text in names.items() if int(text.rpartition(")")[2].split()[3]) == one and "relay" not in text
    ]


def test_a_killed_supervisor_leaves_it_running(harness: Any, script: Any, gate: Path) -> None:
    process = harness.start(*script(STUCK.format(gate=str(gate))), options=("--stall-after", "0.3s"))
    pid = int(process.stdout.readline())
    until(lambda: children_in_sessions_of_their_own(process.pid), "a look under way")
    process.kill()
    process.wait(DEADLINE_S)
    open_gate(gate)
    assert process.stdout.readline() == b"natural end\n"
    until(lambda: state_of(pid) is None, "its natural end")


def test_what_moves_and_what_is_new(tmp_path: Path) -> None:
    me = {os.getpid(): os.getppid()}
    still = Standstill(10.0)
    assert not still.sample(me, 0, {}), "the first sample has nothing to compare with"
    blind = Standstill(10.0)
    blind.sample({}, 0, {})
    assert blind.sample({}, 1, {}) and not blind.sample({}, 1, {}), "output counts where no bytes can be seen"
    with (tmp_path / "grows").open("wb", buffering=0) as file:
        seen = Standstill(10.0)
        seen.sample(me, 0, {})
        os.ftruncate(file.fileno(), 10)
        assert seen.sample(me, 1, {}) and not seen.sample(me, 2, {}), "the job's output is seen where it is written"
        file.write(b"line")
        assert seen.sample(me, 2, {})
        thread = threading.Thread(target=file.write, args=(b"line",))
        thread.start()
        thread.join()
        assert not seen.sample(me, 2, {}), "another thread's"


def test_it_rests_where_nothing_at_all_has_moved_since_the_quiet_began(tmp_path: Path) -> None:
    me = {os.getpid(): os.getppid()}
    still = Standstill(10.0)
    with (tmp_path / "log").open("wb", buffering=0) as log:
        still.sample(me, 0, {})
        assert still.rests
        log.write(b"step")
        assert still.sample(me, 0, {}) and still.rests, "it is quiet since then"
        thread = threading.Thread(target=log.write, args=(b"alive",))
        thread.start()
        thread.join()
        assert not still.sample(me, 0, {}) and not still.rests
        log.write(b"step")
        assert still.sample(me, 0, {}) and still.rests


def test_what_a_parent_writes_is_believed_after_a_look(tmp_path: Path) -> None:
    me = {os.getpid(): os.getppid(), 1 << 22: os.getpid()}
    still = Standstill(10.0)
    with (tmp_path / "log").open("wb", buffering=0) as log:
        still.sample(me, 0, {})
        log.write(b"all ranks are there")
        assert not still.sample(me, 0, {7: 0}), "nor that a child has ended"
        still.restart()
        log.write(b"all ranks are there")
        assert (
            still.sample(me, 0, {7: 0})
            and still.sample(me, 0, {7: 0, 8: 0})
            and not still.sample(me, 0, {7: 0, 8: 0, 9: 256})
        )


def test_what_one_of_several_writes_is_believed_after_a_look_or_when_all_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    me = {os.getpid(): 1, 1 << 22: 1}
    still = Standstill(10.0)
    with (tmp_path / "log").open("wb", buffering=0) as log:

        def write(after_s: float) -> bool:
            now_s[0] += after_s
            log.write(b"alive")
            return still.sample(me, 0, {})

        still.sample(me, 0, {})
        assert not write(9.0) and still.stirs, "a heartbeat, or a rank: a look has to say whose it is"
        assert not write(2.0) and still.is_over()
        still.told = True
        assert not write(5.0), "it did not stand still with the command"
        assert write(11.0), "it did"
        still.told = False
        still.restart()
        assert write(5.0) and not write(6.0), "a look is trusted for as long again"


def test_who_fails_has_never_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    me, still = os.getpid(), Standstill(10.0)
    with (tmp_path / "log").open("wb", buffering=0) as log:
        still.sample({me: 1}, 0, {})
        log.write(b"Traceback (most recent call last):")
        assert still.sample({me: 1}, 0, {}) and still.quiet_s == 1
        still.sample({}, 0, {me: 256})
        assert still.quiet_s == 5, "since it began"


# Ctrl-\


HANDLES = """
import signal, sys
signal.signal(signal.SIGQUIT, lambda *_: print("mine", flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_the_key_shows_a_look_and_the_job_goes_on(harness: Any, terminal: Any, script: Any, gate: Path) -> None:
    process = terminal.start(harness.line(*script(STUCK.format(gate=str(gate)))), env=harness.env)
    terminal.read_until(b"\n")
    pid = int(terminal.seen.split()[0])
    terminal.type(b"\x1c")
    terminal.read_until(b"(job.py:3)")
    terminal.read_until(b"[")
    assert state_of(pid) in ("S", "t")
    open_gate(gate)
    assert terminal.read_to_end(process) == 0
    assert b"natural end" in terminal.seen and harness.kept_cases() == []


def test_the_key_twice_ends_the_job(harness: Any, terminal: Any, script: Any, gate: Path) -> None:
    process = terminal.start(harness.line(*script(STUCK.format(gate=str(gate)))), env=harness.env)
    terminal.read_until(b"\n")
    terminal.type(b"\x1c")
    terminal.read_until(b"Looking at the command")
    terminal.type(b"\x1c")
    assert terminal.read_to_end(process) == 128 + signal.SIGABRT
    assert b"natural end" not in terminal.seen


def test_a_job_with_a_handler_of_its_own_has_it_called(harness: Any, terminal: Any, script: Any) -> None:
    process = terminal.start(harness.line(*script(HANDLES)), env=harness.env)
    terminal.read_until(b"ready")
    terminal.type(b"\x1c")
    terminal.read_until(b"mine")
    terminal.type(b"\x1c")
    until(lambda: terminal._read_more() and terminal.seen.count(b"mine") == 2, "the second call")
    terminal.type(b"\x03")
    assert terminal.read_to_end(process) == 130


def test_a_sent_sigquit_is_passed_on(harness: Any, terminal: Any, script: Any, gate: Path) -> None:
    """By a process, not by the key: without a terminal as it is, at one in the form that ends the command."""
    process = harness.start(*script("import signal\nprint('ready')\nsignal.pause()"))
    assert process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.SIGQUIT)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + signal.SIGQUIT
    process = terminal.start(harness.line(*script("import signal\nprint('ready')\nsignal.pause()")), env=harness.env)
    terminal.read_until(b"ready")
    os.kill(process.pid, signal.SIGQUIT)
    assert terminal.read_to_end(process) == 128 + signal.SIGABRT
