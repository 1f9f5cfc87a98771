"""A status that is certain before the process is gone: read from what the kernel says of it while it falls."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from harness.capture.proc import read_fate
from tests.live.processes import state_of, until


@pytest.fixture
def child() -> Iterator[Callable[..., int]]:
    """Starts one that does as it is told and is collected only at the end."""
    pids = []

    def start(work: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                work()
            finally:
                os._exit(0)
        pids.append(pid)
        return pid

    yield start
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGTERM])
def test_one_that_a_signal_ended(child: Callable[..., int], signo: int) -> None:
    pid = child(signal.pause)
    os.kill(pid, signo)
    until(lambda: state_of(pid) == "Z", "its end")
    status = read_fate(pid)
    assert status is not None and os.WTERMSIG(status) == signo


def test_one_that_left_by_itself_has_no_signal(child: Callable[..., int]) -> None:
    pid = child(lambda: os._exit(11))
    until(lambda: state_of(pid) == "Z", "its end")
    assert read_fate(pid) is None


def test_one_that_only_stands_still(child: Callable[..., int]) -> None:
    """The kernel shows the number of the stop signal where the status will stand."""
    pid = child(signal.pause)
    assert read_fate(pid) is None
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T", "its stop")
    assert read_fate(pid) is None


def test_one_that_is_gone(child: Callable[..., int]) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert read_fate(pid) is None


CRASH = "import ctypes, os; print(os.getpid(), flush=True); ballast = bytearray(300 << 20); ctypes.string_at(0)"


def test_harness_leaves_only_when_the_command_is_gone(harness, script) -> None:
    """It may have told the end before; what the command held (memory, ports, locks) is free when harness returns."""
    ended = harness(*script(CRASH))
    assert ended.status == 128 + signal.SIGSEGV
    assert state_of(int(ended.stdout)) is None
    peak = json.loads((harness.case / "evidence.json").read_bytes())["processes"][0]["peak_rss_bytes"]
    assert 300 << 20 <= peak < 600 << 20


def test_last_words_of_those_who_live_longer_are_waited_for(harness, script) -> None:
    """A child that outlives the crash keeps the answer from being early: what it says next is part of the story."""
    ended = harness(
        *script("""
import ctypes, os
r, w = os.pipe()
if os.fork() == 0:
    os.close(w)
    os.read(r, 1)  # until the parent is dead
    os.write(2, b"the parent is gone\\n")
    os._exit(0)
os.close(r)
ctypes.string_at(0)
""")
    )
    assert ended.status == 128 + signal.SIGSEGV
    assert b"the parent is gone" in ended.stderr.partition(b"harness: ")[0]
