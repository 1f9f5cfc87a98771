"""A look at real processes: what moves in them, who they are, what it costs them, and what cannot be looked at."""

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

import pytest

from harness.capture.living.identity import find_rank, is_frozen
from harness.capture.living.look import take_look
from harness.capture.proc import list_tids
from harness.errors import HarnessError
from harness.evidence.living.look import Counter, LivingProcess, Look
from tests.live.processes import state_of, until

PROLOGUE = """
import json, os, subprocess, sys, threading, time
def ready(**told):
    with open(sys.argv[1] + ".part", "w") as file:
        json.dump(told, file)
    os.replace(sys.argv[1] + ".part", sys.argv[1])
"""
Start = Callable[..., subprocess.Popen]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Runs a program until it says ready(); its stdout is a file, and it leaves nothing behind."""
    started: list[subprocess.Popen] = []

    def run(source: str, **environment: str) -> subprocess.Popen:
        script, told = tmp_path / "program.py", tmp_path / f"ready{len(started)}"
        script.write_text(PROLOGUE + textwrap.dedent(source))
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONUNBUFFERED", "RANK")}
        process = subprocess.Popen(
            [sys.executable, script, told],
            stdin=subprocess.DEVNULL,
            stdout=(tmp_path / "stdout").open("wb"),
            stderr=(tmp_path / "stderr").open("wb"),
            env={**kept, "PYTHONPATH": str(Path(__file__).parents[2]), "XDG_RUNTIME_DIR": str(tmp_path), **environment},
            cwd=tmp_path,
            start_new_session=True,
        )
        started.append(process)
        until(lambda: told.exists() or process.poll() is not None, "ready")
        assert process.poll() is None, (tmp_path / "stderr").read_text()
        return process

    yield run
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def look_at(process: Any, for_s: float = 2.0, **options: Any) -> tuple[LivingProcess, Look]:
    look = take_look([process.pid], for_s, **options)
    assert look.processes[0].pid == process.pid
    return look.processes[0], look


def rising(process: LivingProcess, kind: str | None = None) -> list[Counter]:
    return [one for one in process.counters if one.rises and kind in (None, one.kind)]


def test_a_file_that_grows(start: Start, tmp_path: Path) -> None:
    source = """
        def log(file):
            ready()
            while True:
                file.write("line\\n")
                file.flush()
                time.sleep(0.01)
        log(open("train.log", "w"))
    """
    seen, look = look_at(start(source))
    assert str(tmp_path / "train.log") in [one.name for one in rising(seen, "file")]
    assert [one.name for one in rising(seen, "io")] == ["bytes written"]
    assert look.samples >= 3 and 1.5 <= look.looked_s < 4
    assert len(seen.tools) == 2, "what obviously moves is not stopped a second time for its native stacks"


def test_a_local_that_rises_and_one_that_moves(start: Start) -> None:
    source = """
        def spin(length):
            total = 0
            for token in range(length):
                total += token % 7
        def train():
            ready()
            for step in range(10 ** 6):
                spin(2_000_000)
        train()
    """
    seen, _ = look_at(start(source), 4.0)
    assert [one.name.partition(" (")[0] for one in rising(seen, "local")] == ["step in train"]
    step = rising(seen, "local")[0]
    assert step.frame and step.frame.function == "train" and f"(program.py:{step.frame.line})" in step.name
    assert len(step.values) >= 3 and not rising(seen, "io") and not rising(seen, "file")
    assert "token" in {one.name.partition(" ")[0] for one in (*seen.moving, *seen.counters)}
    assert {spot.frame.function for spot in seen.hot} <= {"spin", "train"} and seen.hot[0].of >= 3
    main = seen.threads[0]
    assert (main.name, main.state, main.changed) == ("MainThread", "R", True) and main.cpu_s > 0.2
    assert any(frame.kind == "native" for frame in main.stack) and main.wait is None and main.holds_gil


def test_the_time_of_day_is_no_progress(start: Start) -> None:
    source = """
        def wait():
            ready()
            while True:
                now, stamp, address = int(time.time()), time.time_ns(), 140_000_000_000_000 + time.time_ns() % 10 ** 12
        wait()
    """
    seen, _ = look_at(start(source))
    assert not rising(seen, "local") and not seen.moving


def test_a_sleeping_process_stands_still_whatever_we_do_to_it(start: Start, tmp_path: Path) -> None:
    process = start("print('one line'); ready(); time.sleep(100)")
    seen, _ = look_at(process)
    main = seen.threads[0]
    assert rising(seen) == [] and seen.hot == ()
    assert (main.state, main.changed) == ("S", False) and main.cpu_s <= 0.02, "a stop may cost it a tick"
    assert main.wait and main.wait.syscall == "clock_nanosleep", "what a stop has interrupted is remembered"
    assert [one.text for one in seen.unflushed if one.fd == 1] == ["one line\n"]
    output = seen.outputs[1]
    assert (output.kind, output.path, output.size) == ("file", str(tmp_path / "stdout"), 0)
    assert output.quiet_s is not None and output.quiet_s >= 1.5 and seen.outputs[0].kind == "null"
    assert seen.stopped_ms == 0 and seen.ended is None and state_of(process.pid) == "S"
    assert seen.python and seen.python.startswith("3.") and seen.openmp is not None and seen.role == "main"


def test_the_time_asked_for_is_a_deadline_and_what_stands_is_stopped_for_its_native_stacks_once(start: Start) -> None:
    source = """
        event = threading.Event()
        for _ in range(38):
            threading.Thread(target=event.wait, daemon=True).start()
        ready()
        event.wait()
    """
    seen, look = look_at(start(source), 2.0)
    assert [run.tool for run in seen.tools] == ["own walk", "py-spy locals"]
    assert 1.5 <= look.looked_s < 5, "some seconds for a machine that is busy with other things"
    assert len(seen.threads) == 39 and not any(thread.changed for thread in seen.threads)


def test_what_falls_asleep_elsewhere_during_the_look_is_looked_at_again(start: Start) -> None:
    source = """
        def work(until):
            ready()
            while time.monotonic() < until:
                pass
        def rest():
            time.sleep(100)
        work(time.monotonic() + 2)
        rest()
    """
    main = look_at(start(source), 5.0)[0].threads[0]
    assert [frame.function for frame in main.stack if frame.kind == "python"] == ["rest", "<module>"]
    assert any(frame.kind == "native" for frame in main.stack), "not from Python lines only"


def test_a_buffer_that_grows(start: Start) -> None:
    source = """
        ready()
        while True:
            print("a line"); time.sleep(0.05)
    """
    seen, _ = look_at(start(source))
    assert [one.name for one in rising(seen)] == ["unflushed stdout"]


@pytest.mark.parametrize(("code", "words"), [("sys.exit(3)", "exit status 3"), ("os.kill(os.getpid(), 9)", "SIGKILL")])
def test_one_that_ends_during_the_look(start: Start, code: str, words: str) -> None:
    seen, look = look_at(start(f"ready(); time.sleep(1); {code}"), 20.0)
    assert seen.ended and words in seen.ended
    assert look.looked_s < 10 and seen.threads[0].stack


def test_one_that_becomes_another_program(start: Start) -> None:
    process = start("ready(); time.sleep(1); os.execv('/bin/sleep', ['sleep', '100'])")
    seen, _ = look_at(process)
    assert seen.ended and "another program" in seen.ended and "sleep 100" in seen.ended
    assert process.poll() is None


FIVE_HUNDRED = """
event = threading.Event()
for _ in range(500):
    threading.Thread(target=event.wait, daemon=True).start()
ready()
"""


def test_five_hundred_threads_that_move(start: Start) -> None:
    process = start(FIVE_HUNDRED + "while True: print('moves', flush=True); time.sleep(0.01)")
    seen, _ = look_at(process, 3.0)
    assert len(seen.threads) == 501 and all(thread.stack for thread in seen.threads)
    assert [run.tool for run in seen.tools] == ["py-spy locals"] and rising(seen, "file")
    assert any("501 threads" in gap.why for gap in seen.gaps) and state_of(process.pid) in "RS"


def test_five_hundred_threads_that_sleep(start: Start) -> None:
    process = start(FIVE_HUNDRED + "event.wait()")
    seen, _ = look_at(process, 2.0)
    assert [(run.tool, run.error) for run in seen.tools] == [("own walk", None), ("py-spy locals", None)]
    assert len(seen.threads) == 501 and all(frame.kind for thread in seen.threads for frame in thread.stack[:1])
    assert state_of(process.pid) == "S" and rising(seen) == []


@pytest.mark.parametrize("after_s", [0.3, 0.45, 0.6, 1.5])
def test_killing_us_leaves_the_target_running(start: Start, tmp_path: Path, after_s: float) -> None:
    process = start("def work():\n    n = 0\n    ready()\n    while True: n += 1\nwork()")
    source = f"from harness.capture.living.look import take_look; take_look([{process.pid}])"
    looker = subprocess.Popen([sys.executable, "-c", source], cwd=Path(__file__).parents[2])
    time.sleep(after_s)  # any moment will do
    looker.kill()
    looker.wait()
    until(lambda: state_of(process.pid) == "R", "running again")


def test_what_is_not_python(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr("harness.capture.living.threads.find_gdb", lambda: None)
        seen, _ = look_at(process, 0.6, native="always")
        process.kill()
    assert (seen.python, seen.name, seen.argv, seen.stopped_ms) == (None, "sleep", ("sleep", "60"), 0.0)
    wait = seen.threads[0].wait
    assert wait and wait.syscall == "clock_nanosleep"
    assert seen.gaps[0].what == "native stacks" and "is not Python" in seen.gaps[0].why


def test_the_stack_of_what_is_not_python_needs_no_tool() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        seen, _ = look_at(process, 0.6)
        until(lambda: state_of(process.pid) == "S", "asleep again")
        process.kill()
    main = seen.threads[0]
    assert main.stack and any("nanosleep" in (frame.function or "") for frame in main.stack) and not main.changed
    assert any((frame.image or "").endswith("/sleep") for frame in main.stack) and seen.gaps == ()
    assert main.wait and main.wait.syscall == "clock_nanosleep" and seen.stopped_ms == 0


@pytest.mark.parametrize("at_a_time", [1, 4])
def test_children_their_roles_and_their_end(start: Start, monkeypatch: pytest.MonkeyPatch, at_a_time: int) -> None:
    source = """
        threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
        other = subprocess.Popen(["sleep", "100"])
        os.environ["RANK"] = "1"
        again = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
        del os.environ["RANK"]
        worker = os.fork()
        if worker == 0:
            time.sleep(100)
        ready(other=other.pid, again=again.pid, worker=worker)
        while True:
            subprocess.run(["true"]); time.sleep(0.05)
    """
    monkeypatch.setattr("harness.capture.living.look._AT_A_TIME", at_a_time)
    process = start(source)
    told = json.loads(Path(process.args[2]).read_text())
    seen, look = look_at(process)
    by_pid = {one.pid: one for one in look.processes}
    other, again, worker = (by_pid[told[name]] for name in ("other", "again", "worker"))
    assert set(told.values()) <= set(seen.children) and worker.ppid == seen.pid
    assert (other.role, other.forked, other.python) == ("child", False, None)
    assert (again.role, again.forked, again.rank) == ("worker", False, "1")
    assert (worker.role, worker.forked, worker.parent_threads) == ("worker", True, 2)
    assert worker.threads[0].stack and worker.images and worker.openmp is None
    assert (rising(seen, "ended") or rising(seen, "child")) and not rising(worker), "most of them nobody saw end"


def test_a_file_that_somebody_else_writes_does_not_move_us(start: Start) -> None:
    source = """
        log = open("shared.log", "w")
        worker = os.fork()
        if worker == 0:
            while True:
                log.write("x" * 100); log.flush(); time.sleep(0.01)
        ready()
        time.sleep(100)
    """
    seen, look = look_at(start(source))
    assert rising(seen) == [] and rising(look.processes[1], "file")


def test_a_rank_that_was_set_after_the_start(start: Start) -> None:
    assert look_at(start("os.environ['RANK'] = '7'; ready(); time.sleep(100)"), 0.2)[0].rank == "7"
    assert look_at(start("ready(); time.sleep(100)", RANK="3"), 0.2)[0].rank == "3"
    assert find_rank([b"LOCAL_RANK=1", b"X=RANK=2"]) is None


def test_a_beat_is_seen_also_in_a_fork(start: Start, tmp_path: Path) -> None:
    source = """
        import harness
        worker = os.fork()
        step = 0
        harness.beat(step=step)
        if worker:
            ready()
        while True:
            step += 2 if worker == 0 else 1
            harness.beat(step=step)
            time.sleep(0.05)
    """
    process = start(source)
    seen, look = look_at(process)
    assert [one.name for one in rising(seen, "beat")] == ["harness.beat"]
    ours, its = (rising(one, "beat")[0].values[-1] for one in look.processes)
    assert its > ours > 0
    assert (tmp_path / f"harness-beat-{process.pid}").stat().st_mode & 0o777 == 0o600


def test_a_beat_that_stands_is_a_counter_that_does_not_rise(start: Start) -> None:
    seen, _ = look_at(start("import harness; harness.beat(step=5); ready(); time.sleep(100)"), 1.0)
    (beat,) = [one for one in seen.counters if one.kind == "beat"]
    assert set(beat.values) == {5} and not beat.rises


def test_a_beat_leaves_no_file_when_its_program_ends(tmp_path: Path) -> None:
    source = "import harness, os; harness.beat(step=1); print(os.getpid())"
    for folder in (tmp_path, tmp_path / "not there"):
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
        out = subprocess.run(
            [sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=True
        )
        assert list(beat_files(int(out.stdout))) == [] and list(tmp_path.iterdir()) == []


def beat_files(pid: int) -> Iterator[Path]:
    folders = (os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm", os.environ.get("TMPDIR"), "/tmp")
    return (path for name in folders if name and (path := Path(name, f"harness-beat-{pid}")).exists())


def test_a_stopped_process_is_not_traced_and_stays_stopped(start: Start) -> None:
    process = start("def work():\n    ready()\n    time.sleep(100)\nwork()")
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: state_of(process.pid) == "T", "stopped")
    seen, _ = look_at(process, 0.5)
    assert (seen.state, seen.stopped_ms, state_of(process.pid)) == ("T", 0.0, "T")
    assert [frame.function for frame in seen.threads[0].stack] == ["work", "<module>"]
    assert [gap.why for gap in seen.gaps if gap.what == "native stacks"] == ["it is stopped"]


def test_uninterruptible_sleep_does_not_hold_us(start: Start, tmp_path: Path) -> None:
    """The parent of a vfork waits uninterruptibly until its child, which opens a FIFO here, runs a program."""
    os.mkfifo(tmp_path / "fifo")
    source = """
        ready()
        def spawn():
            action = (os.POSIX_SPAWN_OPEN, 0, "fifo", os.O_RDONLY, 0)
            os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=[action])
        spawn()
    """
    process = start(source)
    until(lambda: state_of(process.pid) == "D", "in uninterruptible sleep")
    begun = time.monotonic()
    seen, look = look_at(process, 1.0)
    assert time.monotonic() - begun < 8
    assert (seen.state, seen.stopped_ms, state_of(process.pid)) == ("D", 0.0, "D")
    assert seen.threads[0].stack[0].function == "spawn" and len(look.processes) == 2
    assert any("uninterruptible" in gap.why for gap in seen.gaps)


def test_a_zombie_among_the_children(start: Start) -> None:
    process = start("child = os.fork()\nif child == 0: os._exit(3)\nready(); time.sleep(100)")
    _, look = look_at(process, 0.6)
    assert [(one.state, one.role) for one in look.processes] == [("S", "main"), ("Z", "worker")]


def test_who_cannot_be_looked_at() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(HarnessError, match=f"There is no process {gone.pid}") as error:
        take_look([gone.pid])
    assert error.value.hint == "harness ps"
    with pytest.raises(HarnessError, match="kernel"):
        take_look([2])
    with pytest.raises(HarnessError, match="harness itself"):
        take_look([os.getpid()])


def test_one_of_two_is_a_gap(start: Start) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    process = start("ready(); time.sleep(100)")
    look = take_look([gone.pid, process.pid], 0.2)
    assert look.targets == (process.pid,) and look.gaps[0].what == f"process {gone.pid}"


def test_somebody_elses_process(start: Start) -> None:
    process = start("ready(); time.sleep(100)")
    if os.getuid() != 0:
        pytest.skip("needs root, to become somebody else")
    child = os.fork()
    if child == 0:
        os.setresuid(65534, 65534, 65534)
        try:
            take_look([process.pid])
        except HarnessError as error:
            os._exit(0 if f"sudo harness attach {process.pid}" == error.hint and "belongs to" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_thread_names_its_process(start: Start) -> None:
    process = start("threading.Thread(target=time.sleep, args=(100,)).start(); ready(); time.sleep(100)")
    (thread,) = set(list_tids(process.pid)) - {process.pid}
    assert take_look([thread], 0.2).targets == (process.pid,)


def test_each_sample_is_told(start: Start) -> None:
    told: list[Look] = []
    look_at(start("ready(); time.sleep(100)"), 1.5, on_sample=told.append)
    assert len(told) >= 3 and told[-1].samples > told[0].samples and told[-1].processes[0].threads[0].stack


def test_gpus_by_nvidia_smi(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start("ready(); time.sleep(100)")
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(
        f"#!/bin/sh\ncase $1 in\n*compute-apps*) echo '{process.pid}, GPU-1, 300' ;;\n*) echo 'GPU-1, 50' ;;\nesac\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    seen, _ = look_at(process, 3.0)
    busy, memory = [one for one in seen.counters if one.kind == "device"]
    assert busy.name == "busy time of GPU-1, ms" and busy.rises and set(memory.values) == {300}


@pytest.mark.parametrize(
    ("line", "file", "text", "frozen"),
    [
        ("6:freezer:/job", "freezer/job/freezer.state", "FROZEN\n", True),
        ("6:freezer:/job", "freezer/job/freezer.state", "THAWED\n", False),
        ("0::/job", "job/cgroup.events", "populated 1\nfrozen 1\n", True),
        ("0::/job", "unified/job/cgroup.events", "populated 1\nfrozen 1\n", True),
        ("0::/job", "job/cgroup.events", "populated 1\nfrozen 0\n", False),
    ],
)
def test_frozen_control_groups(tmp_path: Path, line: str, file: str, text: str, frozen: bool) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text(f"9:name=systemd:/\n{line}\n")
    state = tmp_path / "sys/fs/cgroup" / file
    state.parent.mkdir(parents=True)
    state.write_text(text)
    assert is_frozen(7, tmp_path) is frozen
