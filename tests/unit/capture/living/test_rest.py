"""What is read of mutexes and of handlers of signals: from our own memory, and from made-up trees of /proc."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import struct
import sys
import threading
from pathlib import Path

import pytest

from harness.capture.living.locks.mutexes import find_mutexes
from harness.capture.living.waits.interrupts import has_usual_interrupt
from harness.capture.living.waits.rest import list_handled, read_rest
from harness.evidence.living.look import HeldLock, Wait

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux and its /proc")
WAITER = 999_999_999


def look_at(words: tuple[int, int, int, int, int], operation: int = 0x80, value: int = 2) -> HeldLock | None:
    """One thread that waits at these five words of ours: lock, count, owner, users, kind."""
    buffer = ctypes.create_string_buffer(struct.pack("<5i", *words) + bytes(20))
    arguments = (ctypes.addressof(buffer), operation, value, 0, 0, 0)
    waits = {WAITER: Wait("futex", tuple(map(hex, arguments))), threading.get_native_id(): None}
    return find_mutexes(os.getpid(), waits).get(WAITER)


def test_a_mutex_names_its_owner() -> None:
    tid = threading.get_native_id()
    for words in ((2, 0, tid, 1, 0), (2, 3, tid, 1, 1)):  # a plain one, a recursive one
        found = look_at(words)
        assert found is not None and (found.kind, found.owner_tid, found.waiting) == ("mutex", tid, True)
    # FUTEX_LOCK_PI: the word is the owner, with FUTEX_WAITERS.
    inheriting = look_at((-(1 << 31) | tid, 0, tid, 1, 32), operation=0x86, value=0)
    assert inheriting is not None and inheriting.owner_tid == tid


def test_what_is_no_mutex_names_nobody() -> None:
    tid = threading.get_native_id()
    assert look_at((0, 1, tid, 1, 0), value=0) is None  # a semaphore
    assert look_at((2, 0, 1, 0, 0)) is None  # malloc's lock, with its own words behind it
    assert look_at((2, 0, 999_999_998, 1, 0)) is None  # no such thread lives
    assert look_at((1, 0, tid, 1, 0)) is None  # it is not contended any more
    assert look_at((2, 0, tid, 1, 1 << 20)) is None
    assert find_mutexes(os.getpid(), {WAITER: Wait("futex", ("0x8", "0x80", "0x2", "0x0", "0x0", "0x0"))}) == {}


@pytest.mark.parametrize(
    ("caught", "expected"),
    [
        (1 << 1, ("SIGINT",)),  # what it does cannot be read here
        (1 << 10 | 1 << 6 | 1 << 32 | 1 << 63, ()),  # faulthandler's, glibc's own, our library's
        (1 << 13, ("SIGALRM",)),
        (1 << 14 | 1 << 39, ("SIGTERM", "signal 40")),
    ],
)
def test_handlers_that_could_let_somebody_go_on(tmp_path: Path, caught: int, expected: tuple[str, ...]) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/status").write_text(f"Name:\tpython\nSigCgt:\t{caught:016x}\n")
    assert list_handled(7, tmp_path) == expected
    assert list_handled(8, tmp_path) is None


def test_ctrl_c_is_a_handler_only_where_it_is_not_pythons_own() -> None:
    before = signal.getsignal(signal.SIGINT)
    loop = asyncio.runners.Runner() if sys.version_info >= (3, 11) else None
    try:
        for handler, usual in ((signal.default_int_handler, True), (print, False), (lambda *_: None, False)):
            signal.signal(signal.SIGINT, handler)
            assert has_usual_interrupt(os.getpid()) is usual
            assert ("SIGINT" in (list_handled(os.getpid()) or ())) is not usual
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if loop is not None:
            assert loop.run(ask_of_itself()) is True
    finally:
        signal.signal(signal.SIGINT, before)


async def ask_of_itself() -> bool | None:
    """asyncio.run has a handler of its own, which cancels the main task."""
    assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    return has_usual_interrupt(os.getpid())


def test_all_sleep_together_only_if_none_has_run_meanwhile(tmp_path: Path) -> None:
    for tid in (7, 8):
        (tmp_path / f"7/task/{tid}").mkdir(parents=True)
        write_switches(tmp_path, tid, 5)
    (tmp_path / "7/status").write_text("SigCgt:\t0000000000000002\n")
    lock = Wait("futex", ("0x10", "0x189", "0x0", "0x0", "0x0", "0x0"))
    waits: dict[int, Wait | None] = {7: lock, 8: lock}
    assert read_rest(7, lambda: waits, tmp_path)[1].together
    assert not read_rest(7, lambda: {7: lock}, tmp_path)[1].together  # one was not asked
    runs = iter(range(6, 100))

    def wake() -> dict[int, Wait | None]:
        write_switches(tmp_path, 8, next(runs))
        return waits

    assert not read_rest(7, wake, tmp_path)[1].together


def write_switches(proc: Path, tid: int, count: int) -> None:
    text = f"State:\tS (sleeping)\nvoluntary_ctxt_switches:\t{count}\nnonvoluntary_ctxt_switches:\t0\n"
    (proc / f"7/task/{tid}/status").write_text("Name:\tpython\n" + text)
