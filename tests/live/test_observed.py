"""Looking changes nothing: blocking calls return the same, also those that a stop cuts short (man 7 signal).

Each program runs twice at once, one of them looked at. Values and errno are compared, never how long they took.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness.capture.proc import read_status
from harness.capture.stacks.gdb import GDB
from harness.capture.stacks.ladder import take_stacks
from harness.capture.stacks.pystack_engine import print_threads
from tests.live.processes import DEADLINE_S, state_of, until

HERE = Path(__file__).with_name("observed")
CALLS_S = "8"
LOOKS = 2
STOPS, KILLS, AT_ONCE = 30, 100, 20
# What each returns, by its manual page; the rest of the table is the twin that nobody looks at.
TOLD = {
    "recv_all 128 -",
    "write_pipe 1048576 -",
    "send 1048576 -",
    "epoll_wait 0 -",
    "semtimedop -1 EAGAIN",
    "sigtimedwait -1 EAGAIN",
    "futex -1 ETIMEDOUT",
    "nanosleep 0 -",
}
TOLD_PYTHON = {
    "recv_all 128",
    "write_large 1048576",
    "epoll []",
    "wait_for_signal None",
    f"queue_joined (True, {1 << 20}, 0)",
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    program = tmp_path_factory.mktemp("calls") / "calls"
    subprocess.run(["gcc", "-O1", "-o", program, HERE / "calls.c", "-pthread"], check=True)
    return program


def start(*argv: object) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr and process.stderr.readline() == "ready\n"
    return process


def look_at(pid: int) -> dict[str, object]:
    command = [sys.executable, "-m", "harness", "attach", str(pid), "--for", "2", "--json"]
    done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S * 2, check=False)
    return json.loads(done.stdout or b"{}") | {"said": done.stderr.decode()}


def compare(*argv: object) -> set[str]:
    """What the one that was looked at has told, which is what its twin has."""
    twin, seen = start(*argv), start(*argv)
    looks = [look_at(seen.pid) for _ in range(LOOKS) if seen.poll() is None]
    assert looks and all("living" in look for look in looks), looks
    told, alone = (set(process.communicate(timeout=DEADLINE_S)[0].splitlines()) for process in (seen, twin))
    assert told == alone, sorted(told ^ alone)
    assert (seen.returncode, twin.returncode) == (0, 0)
    return told


def test_calls_of_c_return_the_same(calls: Path) -> None:
    told = compare(calls, CALLS_S)
    assert len(told) == 19 and told >= TOLD, sorted(TOLD - told)


def test_calls_of_python_return_the_same() -> None:
    assert compare(sys.executable, HERE / "calls.py", CALLS_S) == TOLD_PYTHON


def test_twenty_looks_at_once_give_twenty_right_verdicts(tmp_path: Path) -> None:
    """None of them takes another one for a debugger, and none counts what another one set free."""
    source = (
        "import sys, time\ndef train():\n    print('ready', file=sys.stderr, flush=True)\n"
        "    for step in range(1_000_000):\n        print(step, flush=True)\n        time.sleep(0.02)\ntrain()"
    )
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen([sys.executable, "-c", source], stdout=log, stderr=subprocess.PIPE)
    try:
        assert job.stderr and job.stderr.readline() == b"ready\n"
        command = [sys.executable, "-m", "harness", "attach", str(job.pid), "--for", "2", "--json"]
        looks = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(AT_ONCE)]
        told = [json.loads(look.communicate(timeout=4 * DEADLINE_S)[0])["verdict"] for look in looks]
        assert [(one["kind"], one["status"]) for one in told] == [("progressing", "established")] * AT_ONCE
        assert job.poll() is None
    finally:
        job.kill()
        job.wait()


def test_a_stop_of_somebody_else_during_a_tool_stays() -> None:
    """A tool that ends by itself has taken back its own."""
    for _ in range(STOPS):
        with subprocess.Popen(["sleep", "60"]) as target:
            try:
                look = threading.Thread(target=take_stacks, args=(target.pid, None, 5.0), kwargs={"ladder": (GDB,)})
                look.start()
                until(lambda pid=target.pid: find_tracer(pid), "no tool has come")
                os.kill(target.pid, signal.SIGSTOP)
                look.join()
                until(lambda pid=target.pid: state_of(pid) == "T", "it was let go")
                assert not find_tracer(target.pid)
            finally:
                target.kill()


def test_nobody_is_left_stopped_by_a_tool_that_is_killed_at_any_moment() -> None:
    with subprocess.Popen(["sleep", "600"]) as target:
        try:
            for n in range(KILLS):
                deadline_s = 0.03 + 0.003 * n
                take_stacks(target.pid, None, deadline_s, ladder=(GDB,))
                until(
                    lambda: state_of(target.pid) == "S" and not find_tracer(target.pid), f"stopped after {deadline_s}"
                )
        finally:
            target.kill()


def test_nobody_is_left_stopped_when_all_of_a_look_is_killed_at_once() -> None:
    """Nobody is left then who could let go: `--native always` holds every thread, and no SIGSTOP is sent for that."""
    pytest.importorskip("pystack")
    source = "import threading, time; [threading.Thread(target=time.sleep, args=(600,)).start() for _ in range(9)]"
    with subprocess.Popen([sys.executable, "-c", f"{source}; print(flush=True)"], stdout=subprocess.PIPE) as target:
        try:
            assert target.stdout and target.stdout.readline()
            for n in range(STOPS):
                look = os.fork()
                if look == 0:
                    with contextlib.suppress(BaseException):
                        print_threads(target.pid, "ALL", DEADLINE_S)
                    os._exit(0)
                until(lambda: find_tracer(target.pid) or has_ended(look), "no tool has come")  # noqa: B023
                time.sleep(0.001 * n)
                os.kill(look, signal.SIGKILL)
                os.waitpid(look, 0)
                until(lambda: runs_freely(target.pid), f"stopped in trial {n}")
        finally:
            target.kill()


def has_ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def runs_freely(pid: int) -> bool:
    return state_of(pid) == "S" and not find_tracer(pid)


def find_tracer(pid: int) -> int | None:
    return read_status(pid).tracer_pid
