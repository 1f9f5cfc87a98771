"""`harness ps`, and `harness attach` without a target: the Python processes, and the command that looks closer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.capture.living.activity import Moment
from harness.capture.living.processes import list_python_processes
from harness.evidence.living.processes import ProcessRow, ProcessTable
from harness.report.ps import render_ps
from harness.report.schemas import DIRECTORY
from tests.live.processes import DEADLINE_S, Ended, bare, open_gate, state_of, until

START = "import os, sys, time; os.write(1, b'.'); "
Start = Callable[..., subprocess.Popen]


@pytest.fixture
def start() -> Iterator[Start]:
    """A program that has begun; the word in its command line is the test's own."""
    started: list[subprocess.Popen] = []

    def run(source: str = "time.sleep(100)", word: str = "", python: str = sys.executable) -> subprocess.Popen:
        process = subprocess.Popen(
            [python, "-c", START + source, word], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        started.append(process)
        assert process.stdout and process.stdout.read(1) == b"."
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def ps(*words: str, command: str = "ps") -> Ended:
    return bare(sys.executable, "-m", "harness", command, *words)


def table(*words: str, command: str = "ps", status: int = 0) -> dict[int, dict[str, Any]]:
    ended = ps("--json", *words, command=command)
    assert ended.status == status, ended.stderr
    document = json.loads(ended.stdout)
    jsonschema.validate(document, json.loads((DIRECTORY / "ps-1.json").read_text()))
    assert document["schema"] == "harness.ps/1"
    return {row["pid"]: row for row in document["rows"]}


@pytest.mark.parametrize(("command", "status"), [("ps", 0), ("attach", 2)])
def test_a_process_is_in_the_table_with_its_facts(start: Start, command: str, status: int) -> None:
    process = start()
    row = table(command=command, status=status)[process.pid]
    assert (row["ppid"], row["word"], row["threads"]) == (os.getpid(), "sleeping", 1)
    assert row["argv"][:2] == [sys.executable, "-c"] and 0 <= row["age_s"] < 60 and row["rss_bytes"] > 2**20


def test_the_text_has_the_pid_and_the_command_that_looks_closer(start: Start) -> None:
    process = start("\nwhile True: pass", word="spins-for-test-ps")
    text = ps("--match", "spins-for-test-ps").stdout.decode()
    header, row, following = text.splitlines()
    assert header.split()[:2] == ["PID", "AGE"] and row.split()[0] == str(process.pid) and " busy " in row
    assert following == f"  next: harness attach {process.pid}"
    assert "\x1b" not in text


def test_match_picks_by_the_command_line(start: Start) -> None:
    wanted, other = start(word="train-a.py"), start(word="train-b.py")
    assert set(table("--match", "train-a.py")) == {wanted.pid}
    assert other.pid in table("--match", "train-")


def test_nothing_matches() -> None:
    ended = ps("--match", "no such text anywhere")
    assert (ended.status, ended.stdout) == (0, b"harness: No Python process was found.\n")
    assert table("--match", "no such text anywhere") == {}


def test_one_that_is_stopped_says_so(start: Start) -> None:
    process = start()
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: state_of(process.pid) == "T", "stopped")
    assert table()[process.pid]["word"] == "stopped"
    os.kill(process.pid, signal.SIGCONT)
    until(lambda: state_of(process.pid) == "S", "asleep again")


def test_a_renamed_interpreter_is_found(start: Start, tmp_path: Path) -> None:
    renamed = tmp_path / "trainer"
    renamed.symlink_to(os.path.realpath(sys.executable))
    process = start(python=str(renamed))
    assert table()[process.pid]["argv"][0] == str(renamed)


def test_what_is_not_python_is_not_in_the_table() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert process.pid not in table()
        process.kill()


def test_how_long_ago_it_wrote(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    process = start(f"log = open({str(log)!r}, 'w'); os.write(1, b'.'); time.sleep(100)")
    assert process.stdout and process.stdout.read(1) == b"."
    assert table()[process.pid]["quiet_s"] is None
    log.write_text("a line\n")
    os.utime(log, (0, log.stat().st_mtime - 500))
    assert 499 < table()[process.pid]["quiet_s"] < 600
    quiet = start()
    assert table()[quiet.pid]["quiet_s"] is None


def test_it_never_lists_itself() -> None:
    process = subprocess.Popen([sys.executable, "-m", "harness", "ps", "--json"], stdout=subprocess.PIPE)
    out, _ = process.communicate()
    assert process.pid not in {row["pid"] for row in json.loads(out)["rows"]}


def test_no_process_of_harness_is_listed(harness: Any, script: Any, gate: Path) -> None:
    """Nor is one picked by the words of the command that it supervises; a job may have our name among its words."""
    program, job = script(f"print('ready')\nopen({str(gate)!r}).read()")
    process = harness.start(program, job, "harness")
    assert process.stdout.readline() == b"ready\n"
    rows = table("--match", job).values()
    assert [row["argv"] for row in rows] == [[program, job, "harness"]]
    open_gate(gate)
    assert process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("command", ["attach", "watch"])
def test_a_command_that_was_given_no_process_is_no_success(start: Start, command: str) -> None:
    process = start()
    ended = ps(command=command)
    assert (ended.status, ended.stderr) == (2, b"harness: No process was named.\n")
    assert any(line.startswith(str(process.pid)) for line in ended.stdout.decode().splitlines())


def row(pid: int, word: str, cpu: float = 0.0) -> ProcessRow:
    return ProcessRow(pid, 1, "me", ("python",), 1.0, cpu, 0, 1, None, word)


@pytest.mark.parametrize(
    ("rows", "pid"),
    [
        ([row(1, "busy", 9.0), row(2, "locked"), row(3, "waits for the disk", 0.5)], 2),
        ([row(1, "busy", 9.0), row(2, "stopped")], 2),
        ([row(1, "busy", 9.0), row(2, "waits for the disk")], 2),
        ([row(1, "busy", 1.0), row(2, "busy", 2.0), row(3, "sleeping")], 2),
    ],
)
def test_what_is_most_likely_stuck_is_looked_at_first(rows: list[ProcessRow], pid: int) -> None:
    text = render_ps(ProcessTable("0", None, 0.0, tuple(rows)), width=80, color=False)
    assert text.endswith(f"  next: harness attach {pid}\n")


def test_a_pipe_gets_the_whole_command_a_terminal_what_fits_and_neither_gets_control_characters(start: Start) -> None:
    process = start(word="red-\x1b[31m-" + "x" * 500)
    text = ps("--match", "xxxxx").stdout.decode()
    assert "x" * 500 in text and "\x1b" not in text
    rows = tuple(row for row in list_python_processes("xxxxx", 0.0) if row.pid == process.pid)
    lines = render_ps(ProcessTable("0", None, 0.0, rows), width=80, color=False).splitlines()
    assert all(len(line) <= 80 and "\x1b" not in line for line in lines) and lines[1].startswith(str(process.pid))


CHILD = "(os.close(1), os.close(w), os.read(r, 1), os._exit(0))"  # ends when its parent does
LOCKED = "import threading; a = threading.Lock(); a.acquire(); "
SERVER = "import socket; s = socket.create_server(('127.0.0.1', 0)); "
UNIX = "import socket; s = socket.socket(socket.AF_UNIX); s.bind(chr(0) + str(os.getpid())); s.listen(); "


@pytest.mark.parametrize(
    ("source", "word"),
    [
        (LOCKED + "threading.Thread(target=a.acquire, daemon=True).start(); a.acquire()", "locked"),
        (LOCKED + "threading.Thread(target=time.sleep, args=(100,), daemon=True).start(); a.acquire()", "idle"),
        (LOCKED + "a.acquire(timeout=100)", "idle"),
        (LOCKED + "import signal; signal.signal(signal.SIGUSR1, lambda *_: a.release()); a.acquire()", "idle"),
        ("import multiprocessing; a = multiprocessing.Lock(); a.acquire(); a.acquire()", "idle"),
        (SERVER + "s.accept()", "listening"),
        (SERVER + "import select; select.select([s], [], [])", "listening"),
        (UNIX + "import selectors; e = selectors.DefaultSelector(); e.register(s, 1); e.select()", "listening"),
        (SERVER + "c = socket.create_connection(s.getsockname()); import select; p = select.poll(); p.register(c); "
         "p.modify(c, select.POLLIN); p.poll()", "polling"),
        ("import select; select.epoll().poll()", "polling"),
        ("import signal; signal.pause()", "waits for a signal"),
        ("import subprocess; r, w = os.pipe(); subprocess.run(['cat'], stdin=r)", "waits for a child"),  # until we end
        (f"r, w = os.pipe(); os.fork() or {CHILD}; os.wait()", "waits for a child"),
        ("r, w = os.pipe(); os.read(r, 1)", "reading"),
    ],
)  # fmt: skip
def test_one_word_tells_a_lock_from_a_server(start: Start, source: str, word: str) -> None:
    """Nobody is called a server that takes no connections, and nobody locked whom another process or a signal wakes."""
    process = start(source)
    seen: list[str] = []
    until(lambda: seen.append(word_of(process.pid)) or seen[-1] == word, f"{word}, not {seen[-1:]}")


def word_of(pid: int) -> str:
    return next(row.word for row in list_python_processes(None, 0.05) if row.pid == pid)


def test_one_that_is_stopped_again_and_again_is_not_called_stopped(start: Start) -> None:
    """As cpulimit does: most of 200 ms in state T, and then it has a turn on a CPU, however long that takes."""
    process = start("\nwhile True: os.write(2, b'.')")
    over = threading.Event()

    def limit() -> None:
        while not over.is_set():
            os.kill(process.pid, signal.SIGSTOP)
            over.wait(0.19)
            turns = Moment.of(process.pid).turns
            os.kill(process.pid, signal.SIGCONT)
            until(lambda turns=turns: Moment.of(process.pid).turns != turns, "it had no turn")

    limiter = threading.Thread(target=limit)
    limiter.start()
    try:
        words = {next(row.word for row in list_python_processes(None, 0.3) if row.pid == process.pid) for _ in range(5)}
    finally:
        over.set()
        limiter.join()
    assert "stopped" not in words


def test_a_reader_that_has_gone_costs_nothing() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "harness", "ps"], stdout=write_end, stderr=subprocess.PIPE, check=False
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")
