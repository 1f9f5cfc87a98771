"""`harness attach` as it is typed: answers and exit codes, several targets, bad input, and that it does no harm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.capture.living.look import take_look
from harness.commands import attach
from harness.commands.main import main
from harness.errors import HarnessError
from harness.report.schemas import DIRECTORY
from tests.live.processes import Ended, bare, state_of, until, why_no_namespaces

ROOT = Path(__file__).parents[2]
PROLOGUE = """
import json, multiprocessing, os, signal, sys, threading, time
signal.alarm(150)
def ready(**told):
    with open(sys.argv[1] + ".part", "w") as file:
        json.dump(told, file)
    os.replace(sys.argv[1] + ".part", sys.argv[1])
"""
SLEEP = """
def serve():
    ready()
    time.sleep(200)
serve()
"""
SPIN = """
def spin():
    ready()
    while True:
        pass
spin()
"""
WRITE = """
ready()
with open("train.log", "w") as log:
    while True:
        log.write("a line\\n"); log.flush(); time.sleep(0.02)
"""
# Forked after the import, so that torch is loaded once; the alarm is not inherited.
FOUR_RANKS = """
import torch
import torch.distributed as dist

def refill():
    while True:
        pass

def sync_gradients():
    dist.all_reduce(torch.ones(4))

def run(rank, arrival):
    os.environ.update(RANK=str(rank), WORLD_SIZE="4", GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=rank, world_size=4)
    dist.barrier()
    os.write(arrival, b".")
    refill() if rank == 2 else sync_gradients()

torch.set_num_threads(1)
arrived, arrival = os.pipe()
context = multiprocessing.get_context("fork")
ranks = [context.Process(target=run, args=(rank, arrival), daemon=True) for rank in range(4)]
for rank in ranks:
    rank.start()
for _ in ranks:
    os.read(arrived, 1)
ready(ranks=[rank.pid for rank in ranks])
ranks[0].join()
"""
POOL = """
pool = multiprocessing.get_context("fork").Pool(12)
pool.map(abs, range(100))
ready(workers=[worker.pid for worker in pool._pool])
time.sleep(200)
"""
LONG_S = 150
Start = Callable[..., "Program"]


class Program(subprocess.Popen):
    file: Path
    told: dict[str, Any]

    def line_of(self, text: str) -> int:
        (number,) = [n for n, line in enumerate(self.file.read_text().splitlines(), 1) if line.strip() == text]
        return number


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Runs a program until it says ready(); its stdout is a file, and it leaves nothing behind."""
    started: list[Program] = []

    def run(source: str, *words: str, name: str | None = None, prefix: tuple[str, ...] = ()) -> Program:
        number = len(started)
        script, told = tmp_path / (name or f"program{number}.py"), tmp_path / f"ready{number}"
        script.write_text(PROLOGUE + textwrap.dedent(source))
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONUNBUFFERED", "RANK")}
        with (tmp_path / f"stdout{number}").open("wb") as out, (tmp_path / f"stderr{number}").open("wb") as err:
            process = Program(
                [*prefix, sys.executable, script, told, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=kept,
                cwd=tmp_path,
                start_new_session=True,
            )
        started.append(process)
        until(lambda: told.exists() or process.poll() is not None, "ready")
        assert process.poll() is None, (tmp_path / f"stderr{number}").read_text()
        process.file, process.told = script, json.loads(told.read_text())
        return process

    yield run
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "harness", "attach", *map(str, words)]


def look_at(*words: object, for_s: str = "1") -> Ended:
    return bare(*command(*words, "--for", for_s))


def judge(*words: object, for_s: str = "1") -> tuple[int, dict[str, Any]]:
    """Exit status and the document, which keeps to its schema."""
    ended = look_at(*words, "--json", for_s=for_s)
    assert ended.stdout, ended.stderr.decode()
    document = json.loads(ended.stdout)
    name = document["schema"].removeprefix("harness.").replace("/", "-")
    jsonschema.validate(document, json.loads((DIRECTORY / f"{name}.json").read_text()))
    return ended.status, document


def runs_on(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None and state_of(process.pid) in ("R", "S")


# One target


def test_one_that_waits(start: Start) -> None:
    process = start(SLEEP)
    status, document = judge(process.pid)
    assert (status, document["verdict"]["kind"], document["schema"]) == (11, "waiting", "harness.verdict/1")
    assert document["verdict"]["user_frame"]["line"] == process.line_of("time.sleep(200)")
    living = document["living"]
    assert living["pid"] == process.pid and len(living["threads"]) == 1 and living["tree"] is None
    assert "clock_nanosleep" in living["threads"][0] and living["stopped_ms"] == 0
    assert runs_on(process)


@pytest.mark.skipif(why_no_namespaces() is not None, reason=str(why_no_namespaces()))
def test_one_in_a_pid_namespace_of_its_own(start: Start) -> None:
    """As in a container: py-spy tells its threads by the numbers they have there."""
    outside = start(SLEEP, prefix=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"))
    (pid,) = map(int, Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split())
    status, document = judge(pid)
    assert (status, document["verdict"]["kind"]) == (11, "waiting")
    assert document["verdict"]["user_frame"]["line"] == outside.line_of("time.sleep(200)")
    assert document["verdict"]["process"]["tid"] == pid
    assert runs_on(outside) and state_of(pid) == "S"


PAUSE_32 = 'void _start(void) { for (;;) __asm__ volatile("int $0x80" : : "a"(29)); }'


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs a processor that runs 32-bit programs of x86")
def test_a_32_bit_program(tmp_path: Path) -> None:
    """Without a C library, which would have to be installed for it; 29 is pause()."""
    (tmp_path / "pause.c").write_text(PAUSE_32)
    flags = ["-m32", "-nostdlib", "-static", "-ffreestanding", "-fno-pic", "-no-pie"]
    subprocess.run(["gcc", *flags, "-o", tmp_path / "pause", tmp_path / "pause.c"], check=True)
    with subprocess.Popen([tmp_path / "pause"]) as process:
        try:
            until(lambda: state_of(process.pid) == "S", "its sleep")
            status, document = judge(process.pid)
            assert (status, document["verdict"]["kind"]) == (11, "waiting")
            assert "pause" in document["verdict"]["headline"]
            assert runs_on(process)
        finally:
            process.kill()


def test_one_that_moves(start: Start, tmp_path: Path) -> None:
    process = start(WRITE)
    status, document = judge(process.pid, for_s="2")
    assert (status, document["verdict"]["kind"], document["progress"]["moving"]) == (0, "progressing", True)
    before = (tmp_path / "train.log").stat().st_size
    until(lambda: (tmp_path / "train.log").stat().st_size > before, "it goes on")


def test_one_that_is_stopped_is_a_fault_and_stays_stopped(start: Start) -> None:
    process = start(SLEEP)
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: state_of(process.pid) == "T", "stopped")
    status, document = judge(process.pid)
    assert (status, document["verdict"]["kind"], document["living"]["stopped_ms"]) == (10, "stopped", 0.0)
    assert state_of(process.pid) == "T"


def test_the_report_for_a_terminal(start: Start) -> None:
    process = start("print('epoch 1'); print('\\x1b[31mloss 0.7')" + SPIN)
    ended = look_at(process.pid, for_s="2")
    text = ended.stdout.decode()
    assert ended.status == 11 and text.startswith("harness: Busy in Python: spin (program0.py:")
    for words in (
        f"process    pid {process.pid}, ",
        "threads    MainThread (",
        "> epoch 1\n",
        "> loss 0.7\n",
        "stopped    for ",
    ):
        assert words in text, text
    assert "\x1b" not in text and "tree" not in text and runs_on(process)


def test_quiet_is_one_line(start: Start) -> None:
    process, other = start(SLEEP), start(SLEEP)
    ended = look_at(process.pid, "-q")
    assert ended.status == 11 and ended.stdout.startswith(b"harness: Waiting: asleep in serve (program0.py:")
    assert b"\n  " not in ended.stdout.replace(b"\n  ", b"", 1), "a verdict line may be wrapped once"
    several = look_at(process.pid, other.pid, "-q")
    assert several.stdout.startswith(b"harness: 2 processes, 2 verdicts, the worst: 1 \xc3\x97 pid")


def test_one_that_ends_during_the_look(start: Start) -> None:
    status, document = judge(start("ready(); time.sleep(1.5); sys.exit(3)").pid, for_s="20")
    assert (status, document["outcome"]["state"], document["verdict"]["kind"]) == (10, "gone", "exit-nonzero")
    assert "exit status 3" in document["verdict"]["headline"] and document["living"] is None


@pytest.mark.parametrize(
    ("command", "status", "kind", "words"),
    [
        ("exit 0", 0, "clean", "exit status 0"),
        ("exit 3", 10, "exit-nonzero", "exit status 3"),
        ("kill -ABRT $$", 10, "abort", "SIGABRT"),
    ],
)
def test_a_zombie_tells_how_it_ended_and_who_has_not_collected_it(
    command: str, status: int, kind: str, words: str
) -> None:
    with subprocess.Popen(["sh", "-c", command]) as dead:
        until(lambda: state_of(dead.pid) == "Z", "dead")
        answer, document = judge(dead.pid)
    verdict = document["verdict"]
    assert (answer, verdict["kind"], verdict["status"]) == (status, kind, "established")
    assert words in verdict["headline"] and f"its parent, process {os.getpid()} (" in verdict["headline"]
    assert (document["outcome"]["state"], verdict["next"]) == ("gone", f"harness attach {os.getpid()}")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")
def test_the_status_of_somebody_elses_zombie_is_not_made_up() -> None:
    """The kernel shows 0 in its place."""
    with subprocess.Popen(["sh", "-c", "exit 3"]) as dead:
        until(lambda: state_of(dead.pid) == "Z", "dead")
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            told = take_look([dead.pid], 0.5).processes[0].ended or ""
            os._exit(0 if "not visible" in told else 1)
        assert os.waitpid(child, 0)[1] == 0


# What moves unseen


def test_a_loop_at_module_level_that_writes_to_a_buffer(start: Start) -> None:
    source = """
    log, kept = open("log.txt", "w"), os.open("kept.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(kept, b"12345"); os.close(kept); kept = os.open("kept.txt", os.O_WRONLY | os.O_APPEND)
    ready()
    while True:
        log.write("a line"); time.sleep(0.1)
    """
    _, document = judge(start(source).pid)
    assert document["verdict"]["kind"] == "waiting" and "sleeps again and again" in document["verdict"]["headline"]
    assert [gap["what"] for gap in document["gaps"]] == [
        "variables at module level",
        "what is still in the buffers of log.txt (0 bytes), kept.txt (5 bytes)",
    ]


def test_one_long_sleep_in_a_function_is_all_there_is_to_see(start: Start) -> None:
    _, document = judge(start(SLEEP).pid)
    assert " s are left" in document["verdict"]["headline"] and document["gaps"] == []


# Several targets, and those below one


def test_two_targets_are_a_group_and_the_worst_decides(start: Start) -> None:
    waits, moves = start(SLEEP), start(WRITE)
    status, group = judge(waits.pid, moves.pid, waits.pid, for_s="2")
    assert (status, group["schema"], group["outlier"], group["gaps"]) == (11, "harness.group/1", None, [])
    assert [one["target"]["pid"] for one in group["targets"]] == [waits.pid, moves.pid]
    assert [one["verdict"]["kind"] for one in group["targets"]] == ["waiting", "progressing"]
    assert group["tree"]["count"] == 2 and runs_on(waits) and runs_on(moves)


def test_one_of_two_is_gone(start: Start) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    status, group = judge(start(SLEEP).pid, gone.pid)
    assert (status, group["schema"], len(group["targets"])) == (3, "harness.group/1", 1)
    assert group["gaps"][0]["why"] == f"There is no process {gone.pid}."


def test_one_that_ends_just_before_the_look(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    process = start(SLEEP)
    monkeypatch.setattr("harness.capture.living.look.check_target", lambda pid: pid)
    with pytest.raises(HarnessError, match=f"There is no process {gone.pid}"):
        take_look([gone.pid], 0.2)
    look = take_look([gone.pid, process.pid], 0.2)
    assert look.targets == (process.pid,) and look.gaps[0].what == f"process {gone.pid}"


def test_more_than_can_be_looked_at(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.capture.living.look._MOST_PROCESSES", 1)
    first, second = start(SLEEP), start(SLEEP)
    look = take_look([first.pid, second.pid], 0.2)
    assert look.targets == (first.pid,) and [gap.what for gap in look.gaps] == ["more processes"]


def test_the_odd_one_of_three(start: Start) -> None:
    source = SPIN.removesuffix("spin()\n") + "if len(sys.argv) > 2: spin()\n"
    odd, *others = [start(source + SLEEP, *words, name="job.py") for words in (["spin"], [], [])]
    ended = look_at(odd.pid, *(one.pid for one in others), for_s="2")
    text = " ".join(ended.stdout.decode().split())
    line = odd.line_of("time.sleep(200)")
    assert ended.status == 11
    assert text.startswith(f"harness: 2 processes wait in serve (job.py:{line}); pid {odd.pid} is in spin (job.py:")
    assert "), busy-python tree 3 × pid" in text and text.endswith(f"next harness attach {odd.pid}")


def test_four_ranks_and_one_is_late(start: Start) -> None:
    pytest.importorskip("torch")
    signal.alarm(LONG_S)
    launcher = start(FOUR_RANKS)
    ranks = launcher.told["ranks"]
    until(lambda: all(state_of(pid) == "S" for pid in ranks if pid != ranks[2]), "three wait")
    status, group = judge(*ranks, for_s="3")
    assert (status, group["schema"], group["tree"]["count"]) == (10, "harness.group/1", 4)
    outlier, late = group["outlier"], launcher.line_of("while True:")
    assert (outlier["who"], outlier["kind"], outlier["pids"]) == ("rank 2", "busy-python", [ranks[2]])
    assert outlier["place"] in (f"refill (program0.py:{late})", f"refill (program0.py:{late + 1})")
    assert (outlier["others"], outlier["others_inside"], outlier["others_kind"]) == (
        3,
        "all_reduce",
        "blocked-collective",
    )
    assert [one["target"]["rank"] for one in group["targets"]] == ["0", "1", "2", "3"]
    below = look_at(launcher.pid, for_s="3")
    text = " ".join(below.stdout.decode().split())
    assert below.status == 10 and "[blocked-collective, established]" in text
    assert text.index("1 × rank 2") < text.index("3 × rank 0-1,3")
    assert "3 ranks wait in all_reduce at sync_gradients (program0.py:" in text and "; rank 2 is in refill" in text
    assert all(state_of(pid) in ("R", "S") for pid in (launcher.pid, *ranks))


def test_twelve_idle_workers_are_one_node(start: Start) -> None:
    process = start(POOL)
    workers = process.told["workers"]
    status, group = judge(*workers)
    assert (status, group["outlier"]) == (11, None)
    tree = group["tree"]
    assert (tree["count"], tree["children"]) == (12, []) and tree["frames"][-1].startswith("worker (pool.py:")
    text = look_at("--match", process.file).stdout.decode()
    assert text.count("12 × pid") == 1 and "13 × pid" in text, text
    assert runs_on(process) and all(state_of(pid) == "S" for pid in workers)


def test_match_takes_the_parent_for_its_workers(start: Start) -> None:
    fork = "worker = os.fork()\nif worker == 0: time.sleep(200)\n"
    process, other = start(fork + SLEEP, "wanted"), start(SLEEP, "wanted-too")
    _, document = judge("--match", process.file)
    assert (document["schema"], document["target"]["pid"]) == ("harness.verdict/1", process.pid)
    _, group = judge("--match", "wanted")
    assert [one["target"]["pid"] for one in group["targets"]] == [process.pid, other.pid]
    assert group["tree"]["count"] == 3


# Bad input


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["abc"], 2, "harness: 'abc' is no process id.\n  next: harness ps\n"),
        (["-7"], 2, ""),
        (["host:x"], 2, "is no process id."),
        (["1", "--for", "x"], 2, "harness: 'x' is no duration.\n"),
        (["--for", "-1"], 2, ""),
        (["4194305"], 3, "harness: There is no process 4194305.\n  next: harness ps\n"),
        (["99999999999999999999"], 3, "harness: There is no process 99999999999999999999.\n"),
        (["2"], 3, "harness: "),
        (
            ["--match", "no such text anywhere"],
            3,
            "has 'no such text anywhere' in its command line.\n  next: harness ps\n",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_the_next_command(words: list[str], status: int, said: str) -> None:
    ended = bare(*command(*words))
    text = ended.stderr.decode()
    assert (ended.status, ended.stdout) == (status, b""), text
    assert said in text and "  next: " in text and "Traceback" not in text


@pytest.mark.parametrize(("words", "status"), [(["abc"], 2), (["4194305"], 3)])
def test_a_failure_is_one_json_document_too(words: list[str], status: int) -> None:
    code, document = judge(*words)
    assert (code, document["schema"], document["next"]) == (status, "harness.failure/1", "harness ps")


def test_somebody_elses_process(start: Start, tmp_path: Path) -> None:
    process = start(SLEEP)
    if os.getuid() != 0:
        pytest.skip("needs root, to become somebody else")
    assert attach.attach_command  # imported while it can be read
    said = tmp_path / "said"
    with said.open("wb") as file:
        child = os.fork()
        if child == 0:
            os.dup2(file.fileno(), 2)
            os.setresuid(65534, 65534, 65534)
            os._exit(main(["attach", str(process.pid)]))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert (
        said.read_text()
        == f"harness: Process {process.pid} belongs to root.\n  next: sudo harness attach {process.pid}\n"
    )


# No harm


@pytest.mark.parametrize("after_s", [0.4, 0.8, 1.2, 2.0])
def test_killing_us_leaves_the_target_running(start: Start, after_s: float) -> None:
    process = start(SPIN)
    looker = subprocess.Popen(command(process.pid), stdout=subprocess.DEVNULL)
    time.sleep(after_s)  # any moment will do
    looker.kill()
    looker.wait()
    until(lambda: state_of(process.pid) == "R", "running again")
    used = cpu_ticks(process.pid)
    until(lambda: cpu_ticks(process.pid) > used + 5, "it works")


def test_ctrl_c_lets_go(start: Start) -> None:
    process = start(SPIN)
    looker = subprocess.Popen(command(process.pid, "--for", "60"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(1.5)  # any moment after the start will do
    looker.send_signal(signal.SIGINT)
    out, err = looker.communicate(timeout=20)
    assert (looker.returncode, out, err) == (130, b"", b"")
    until(lambda: state_of(process.pid) == "R", "running again")


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
