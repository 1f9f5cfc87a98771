"""`harness watch` on real processes: they move, stand still, go on, end; and are none the worse for it."""

from __future__ import annotations

import json
import os
import re
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

from harness.capture.living import watching
from harness.capture.living.own_processes import is_harness
from harness.capture.living.watching import Watching
from harness.report.schemas import build_schemas
from tests.live.processes import DEADLINE_S, open_gate, shell_status, state_of, until

# Writes a line at a time until the FIFO `gate` is there to wait at; `stop` ends it with status 3.
MOVING = """
import os, sys, time
def work(log):
    while not os.path.exists("stop"):
        if os.path.exists("gate"):
            open("gate").read()
        log.write("line\\n")
        log.flush()
        time.sleep(0.02)
work(open("train.log", "w"))
sys.exit(3)
"""
SCHEMA = json.loads(build_schemas()["watch-1.json"])


class Job:
    """The process that is watched, a grandchild's status of which nobody here collects too early."""

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        (folder / "job.py").write_text(textwrap.dedent(source))
        self.process = subprocess.Popen([sys.executable, "job.py"], cwd=folder, stdin=subprocess.DEVNULL)
        self.pid = self.process.pid

    def stand_still(self) -> None:
        os.mkfifo(self.folder / "gate.part")
        (self.folder / "gate.part").rename(self.folder / "gate")

    def go_on(self) -> None:
        gate = self.folder / "opened"
        (self.folder / "gate").rename(gate)
        open_gate(gate)

    def stop(self) -> None:
        (self.folder / "stop").touch()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Watch:
    """`harness watch`, event by event."""

    def __init__(self, pids: list[int], *options: str, **popen: Any) -> None:
        line = [sys.executable, "-m", "harness", "watch", *map(str, pids), "--json-lines", *options]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen)
        self.seen: list[dict[str, Any]] = []

    def next(self) -> dict[str, Any]:
        assert self.process.stdout and self.process.stderr
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read().decode()
        event = json.loads(line)
        jsonschema.validate(event, SCHEMA)
        self.seen.append(event)
        return event

    def expect(self, kind: str) -> dict[str, Any]:
        event = self.next()
        assert event["event"] == kind, event
        return event

    def status(self) -> int:
        return shell_status(self.process.wait(DEADLINE_S))

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def start(source: str = MOVING) -> Job:
        made.append(Job(tmp_path, source))
        return made[-1]

    yield start
    for one in made:
        one.end()


@pytest.fixture
def watch() -> Iterator[Callable[..., Watch]]:
    made: list[Watch] = []

    def start(*words: Any, **popen: Any) -> Watch:
        pids = [word for word in words if isinstance(word, int)]
        made.append(Watch(pids, *(word for word in words if isinstance(word, str)), **popen))
        return made[-1]

    yield start
    for one in made:
        one.end()


def test_it_moves_stalls_recovers_and_ends_with_status_3(job: Any, watch: Any) -> None:
    patient = job()
    watcher = watch(patient.pid, "--stall-after", "2s")
    begun = watcher.expect("watching")
    assert "job.py" in begun["text"] and begun["rule"] == "a stall is 2 s without movement, as --stall-after says"
    moves = watcher.expect("moves")
    assert "bytes written" in moves["moving"] and str(patient.folder / "train.log") in moves["moving"]
    patient.stand_still()
    stall = watcher.expect("stall")
    assert stall["quiet_s"] >= 2 and stall["verdict"]["target"]["pid"] == patient.pid
    assert stall["verdict"]["verdict"]["kind"] == "waiting"
    assert stall["verdict"]["verdict"]["python_frame"]["function"] == "work"
    patient.go_on()
    recovered = watcher.expect("recovered")
    assert "moves again" in recovered["text"]
    patient.stop()
    ended = watcher.expect("ended")
    assert (ended["exit_code"], ended["signal"], ended["pid"]) == (3, None, patient.pid)
    assert watcher.status() == 10
    patient.process.wait(DEADLINE_S)
    assert patient.process.returncode == 3


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGSEGV])
def test_the_signal_that_ended_it_is_named(job: Any, watch: Any, signo: signal.Signals) -> None:
    patient = job("import resource, time; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); time.sleep(100)")
    watcher = watch(patient.pid)
    assert "60 s" in watcher.expect("watching")["rule"]
    until(lambda: state_of(patient.pid) == "S", "asleep")
    os.kill(patient.pid, signo)
    ended = watcher.expect("ended")
    assert (ended["exit_code"], ended["signal"]) == (None, signo.name) and "exit status" in ended["source"]
    assert ended["memory"]["peak_bytes"] > 1 << 20 and ended["memory"]["largest_pid"] == ended["pid"]
    if signo == signal.SIGKILL and os.getuid() == 0:
        assert f"sent by process {os.getpid()} (" in ended["text"]
    assert watcher.status() == 10


def test_a_good_end_is_status_0(job: Any, watch: Any) -> None:
    patient = job(MOVING.replace("sys.exit(3)", ""))
    watcher = watch(patient.pid)
    watcher.expect("watching")
    watcher.expect("moves")
    patient.stop()
    assert watcher.expect("ended")["exit_code"] == 0 and watcher.status() == 0


def test_a_child_of_the_target_moves_for_it_and_its_own_end_is_known(job: Any, watch: Any) -> None:
    source = """
        import os, subprocess, sys
        os.mkfifo("gate")
        child = subprocess.Popen([sys.executable, "-c", "open('gate').read(); raise SystemExit(7)"])
        with open("child.part", "w") as file:
            file.write(str(child.pid))
        os.rename("child.part", "child")
        child.wait()
    """
    patient = job(source)
    until((patient.folder / "child").exists, "its child")
    child = int((patient.folder / "child").read_text())
    outer, inner = watch(patient.pid, child), watch(child)
    assert outer.expect("watching")["pid"] == patient.pid, "what is below a target is watched with it"
    inner.expect("watching")
    open_gate(patient.folder / "gate")
    assert inner.expect("ended")["exit_code"] == 7
    assert outer.expect("ended")["exit_code"] == 0 and (outer.status(), inner.status()) == (0, 10)


def end_unseen(monkeypatch: pytest.MonkeyPatch, news: Any = None) -> watching.Watched:
    """As on a kernel whose pidfds do not tell, with a parent that was faster than we."""
    monkeypatch.setattr(watching, "knows_exits", lambda: False)
    monkeypatch.setattr(watching, "read_exit", lambda pidfd, pid: (None, ""))
    if news is not None:
        monkeypatch.setattr(watching, "open_news", news)
    process = subprocess.Popen(["sh", "-c", "read word; exit 5"], stdin=subprocess.PIPE)
    watcher = Watching([process.pid], 1.0, 2.0)
    process.communicate(b"go\n")
    (ended,) = until(lambda: watcher.wait(0.1), "the end")
    watcher.close()
    return ended


def test_without_pidfds_that_tell_the_kernels_news_do(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, for the kernel's process connector")
    ended = end_unseen(monkeypatch)
    if ended.wait_status is None:
        pytest.skip("the process connector is silent here, as outside the first pid namespace")
    assert os.waitstatus_to_exitcode(ended.wait_status) == 5 and "process connector" in ended.how_seen


def test_a_status_that_nobody_saw_is_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = end_unseen(monkeypatch, news=lambda: None)
    assert (ended.wait_status, ended.how_seen) == (None, "status not visible to us")


def test_slow_is_not_a_stall(job: Any, watch: Any) -> None:
    """Nothing outside changes, and a local that only rises shows that it moves."""
    source = """
        def spin():
            for _ in range(2_000_000):
                pass
        def train():
            for step in range(10 ** 6):
                spin()
        train()
    """
    watcher = watch(job(source).pid, "--stall-after", "4s")
    watcher.expect("watching")
    event = watcher.next()
    if event["event"] == "moves":  # the interpreter read its modules
        event = watcher.next()
    assert event["event"] == "slow" and event["verdict"]["verdict"]["kind"] == "progressing", event
    assert "step in train" in event["text"]


def test_ctrl_c_leaves_the_target_running(job: Any, watch: Any) -> None:
    patient = job()
    watcher = watch(patient.pid)
    watcher.expect("watching")
    watcher.process.send_signal(signal.SIGINT)
    while watcher.next()["event"] != "left":
        pass
    assert watcher.status() == 130 and state_of(patient.pid) in ("R", "S")


def test_killed_at_any_moment_it_leaves_the_target_running(job: Any, watch: Any) -> None:
    patient = job()
    moving = watch(patient.pid, "--stall-after", "1s")
    moving.expect("watching")
    moving.expect("moves")
    moving.process.kill()
    patient.stand_still()
    looking = watch(patient.pid, "--stall-after", "1s")
    looking.expect("watching")
    until(lambda: state_of(patient.pid) == "t" or children_of(looking.process.pid), "a look under way")
    looking.process.kill()
    until(lambda: state_of(patient.pid) == "S", "no longer stopped")
    patient.go_on()
    size = (patient.folder / "train.log").stat().st_size
    until(lambda: (patient.folder / "train.log").stat().st_size > size, "the target moves on")


def children_of(pid: int) -> bool:
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def test_plain_lines_have_a_time_and_a_full_verdict(job: Any, tmp_path: Path) -> None:
    patient = job()
    until((tmp_path / "train.log").exists, "its log")
    line = [sys.executable, "-m", "harness", "watch", "--match", str(tmp_path / "never")]
    none = subprocess.run(line, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert none.returncode == 3 and "No Python process" in none.stderr
    line = [sys.executable, "-m", "harness", "watch", str(patient.pid), "--stall-after", "1"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = iter(process.stdout.readline, "")
        assert next(lines)[:9].count(":") == 2
        assert f"{patient.pid} moves: bytes written, {tmp_path / 'train.log'}" in next(lines)
        patient.stand_still()
        assert f"{patient.pid} stall: nothing outside has changed for" in next(lines)
        assert next(lines).startswith("harness: ")
        patient.end()
        assert any("ended by SIGKILL" in text for text in lines)
    assert process.returncode == 10


def test_the_live_view_is_redrawn_and_events_stay(job: Any, terminal: Any, tmp_path: Path) -> None:
    patient = job()
    terminal.resize(100, 30)
    line = [sys.executable, "-m", "harness", "watch", str(patient.pid), "--stall-after", "8"]
    process = terminal.start(line, env={**os.environ, "TERM": "xterm"})
    terminal.read_until(b"bytes written +")
    terminal.read_until(b"\x1b[")
    assert b"MiB" in terminal.seen and b"threads" in terminal.seen and b"%d" % patient.pid in terminal.seen
    patient.stop()
    patient.process.wait(DEADLINE_S)
    assert terminal.read_to_end(process) == 10
    assert b"ended with exit status 3" in terminal.seen
    assert max(len(text) for text in terminal.seen.split(b"\n") if b"threads" in text) <= 130


def test_the_live_view_shows_hot_lines_and_stops_nobody(terminal: Any, tmp_path: Path) -> None:
    script = tmp_path / "spins.py"
    terminal.resize(100, 30)
    script.write_text("def spin():\n    while True:\n        pass\nspin()\n")
    with subprocess.Popen([sys.executable, script]) as patient:
        try:
            line = [sys.executable, "-m", "harness", "watch", str(patient.pid)]
            process = terminal.start(line, env={**os.environ, "TERM": "xterm"})
            terminal.read_until(b"  hot      spin (spins.py:")
            assert re.search(rb"CPU +\d+%, \d+ MiB", terminal.seen) and b" runs" in terminal.seen
        finally:
            patient.kill()
    assert terminal.read_to_end(process) == 10


def test_what_cannot_be_watched(watch: Any) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    watcher = watch(gone.pid)
    assert watcher.status() == 3 and f"There is no process {gone.pid}".encode() in watcher.process.stderr.read()


def test_a_zombie_has_a_name_and_a_status(watch: Any) -> None:
    with subprocess.Popen(["sh", "-c", "exit 3"]) as dead:
        until(lambda: state_of(dead.pid) == "Z", "dead")
        watcher = watch(dead.pid)
        assert watcher.expect("watching")["text"].startswith("sh; ")
        assert watcher.expect("ended")["exit_code"] == 3 and watcher.status() == 10


def test_our_own_processes_do_not_move_for_the_command(harness: Any, script: Any, gate: Path) -> None:
    process = harness.start(*script(f"print('ready')\nopen({str(gate)!r}).read()"))
    assert process.stdout.readline() == b"ready\n"
    assert is_harness(process.pid) and not is_harness(os.getpid())
    watcher = Watching([process.pid], 1.0, 2.0)
    watcher.sample()
    until(lambda: len(watcher.targets[process.pid].tallies) >= 2, "the command below it")
    for _ in range(4):
        watcher.sample()
        assert not watcher.targets[process.pid].moving
        time.sleep(0.1)  # the supervisor scans meanwhile
    watcher.close()
    open_gate(gate)
    assert process.wait(DEADLINE_S) == 0


def test_the_samples_cost_next_to_nothing(job: Any) -> None:
    patient = job(
        "import threading, time\n"
        "for _ in range(40): threading.Thread(target=time.sleep, args=(100,), daemon=True).start()\n" + MOVING
    )
    until(lambda: (patient.folder / "train.log").exists(), "its threads")
    watcher = Watching([patient.pid], 1.0, 2.0)
    for _ in range(3):
        watcher.sample()
    used_s = time.process_time()
    for _ in range(10):
        watcher.sample()
    used_s = (time.process_time() - used_s) / 10
    watcher.close()
    print(f"one sample of 41 threads: {used_s * 1000:.2f} ms, every {watcher.interval_s:.2f} s")
    assert used_s / watcher.interval_s < 0.01
