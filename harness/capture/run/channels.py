"""Where the command's output goes: one pty or pipe per original descriptor, each with a relay of its own.

Descriptors 0, 1 and 2 are judged one by one. stdin is never touched. A pty stands only where there was a terminal.
stdout and stderr share a channel only where the user already sent both to the same place (one terminal, `2>&1`):
there a second channel could only spoil their order. Does not read or interpret the output.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import signal
import struct
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import native
from harness.capture.run.stand_in import call_yourself

HEAD_BYTES = 1024**2
TAIL_BYTES = 1024**2
_PIPE_BYTES = 1024**2
_OPOST_OFLAG = 1
_UNREAD_PATIENCE_S = 30.0


def hold_closed_descriptors() -> frozenset[int]:
    """Which of 0, 1, 2 are closed. Holds their numbers, else the next file we open would become the command's stdin."""
    closed = set()
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            closed.add(fd)
            while (opened := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) < fd:
                pass
            assert opened == fd
    return frozenset(closed)


def say(sentence: str) -> None:
    """One line of our own between the command's, without what must not be shown."""
    from harness.evidence.text.redaction import redact_text
    from harness.evidence.text.transcript import clean_for_terminal

    say_own(clean_for_terminal(redact_text(sentence)))


def say_own(sentence: str) -> None:
    """Words that are ours alone; needs nothing that the machine could refuse.

    stderr may be gone, and then nobody is there to read it. In the background of a terminal with tostop set, it would
    stop the command with us.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    with contextlib.suppress(OSError):
        os.write(2, f"harness: {sentence}\n".encode())
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Channel:
    """One way out of the command, and the relay that carries it."""

    def __init__(self, name: str, child_fds: tuple[int, ...], sink: int | None) -> None:
        self.name = name
        self.child_fds = child_fds
        self.sink = sink
        self.kind = "nowhere" if sink is None else "terminal" if os.isatty(sink) else "pipe"
        self.relay_pid = 0
        self.target: str | None = None  # what the command has there, as in /proc/PID/fd
        self.lifeline = self.lifeline_end = -1
        self._case_errno: int | None = None
        self._shared = mmap.mmap(-1, mmap.PAGESIZE)
        ffi, _ = native.load()
        self.state = ffi.cast("struct harness_channel *", ffi.from_buffer(self._shared))
        self.source = self.write_end = -1
        try:
            self._open()
        except OSError as error:
            self._stand_aside(error)

    def _open(self) -> None:
        if self.kind == "terminal":
            self.source, self.write_end = os.openpty()
            self._pass_output_unchanged()
            self.copy_window_size()
        else:
            self.source, self.write_end = os.pipe()
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(self.source, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        with contextlib.suppress(OSError):  # no /proc: nobody else has one either
            self.target = str(Path(f"/proc/self/fd/{self.write_end}").readlink())

    def _stand_aside(self, error: OSError) -> None:
        """No pty, pipe or process is to be had: the command writes where it would have written without us."""
        self.close_write_end()
        self.close_source()
        self.child_fds, self.kind = (), "direct"
        self.state.case_errno, self.state.ended = error.errno or errno.EIO, 1

    def _pass_output_unchanged(self) -> None:
        """The real terminal turns \\n into \\r\\n already; a second translation would reach the case."""
        attributes = termios.tcgetattr(self.write_end)
        attributes[_OPOST_OFLAG] &= ~termios.OPOST
        termios.tcsetattr(self.write_end, termios.TCSANOW, attributes)

    def copy_window_size(self) -> None:
        if self.kind == "terminal" and self.sink is not None:
            with contextlib.suppress(OSError):  # the terminal may be gone
                size = fcntl.ioctl(self.sink, termios.TIOCGWINSZ, bytes(8))
                fcntl.ioctl(self.source, termios.TIOCSWINSZ, size)

    def start_relay(self, case: Path) -> None:
        """Forks, runs C from there on. The first relay is forked before the command so that no byte waits for it."""
        self.relay_pid = _fork_c(case, lambda lib, case_fd: lib.harness_relay(self.way(self.lifeline), case_fd))

    def way(self, lifeline: int) -> Any:
        """As native/harness.h has it, with one of the ends of the lifeline."""
        ffi, _ = native.load()
        self._name = ffi.new("char[]", self.name.encode())  # must live as long as what points to it
        sink = -1 if self.sink is None else self.sink
        bounds = (HEAD_BYTES, TAIL_BYTES)
        way = (self._name, self.state, bounds, self.source, sink, lifeline, 1 in self.child_fds)
        return ffi.new("struct harness_way *", way)

    def begin(self, case: Path) -> None:
        """Before the command is started."""
        if self.source != -1:
            with contextlib.suppress(OSError):
                self.lifeline_end, self.lifeline = os.pipe()
            try:
                self.start_relay(case)
            except OSError as error:
                self._stand_aside(error)

    @property
    def case_errno(self) -> int:
        """Why not all of it was kept, other than because we have sealed it."""
        return int(self.state.case_errno) if self._case_errno is None else self._case_errno

    def seal(self) -> None:
        """Nothing more is kept in the case, from now on; it is still delivered."""
        if self._case_errno is None:
            self._case_errno = int(self.state.case_errno)
            self.state.case_errno = self._case_errno or errno.ECANCELED

    def close_write_end(self) -> None:
        if self.write_end != -1:
            os.close(self.write_end)
            self.write_end = -1

    def abandon(self) -> None:
        """Nothing was started: returns when the relay has gone, which else may still open files in the case."""
        self.close_write_end()
        if self.relay_pid:
            os.waitpid(self.relay_pid, 0)
        self.close_source()
        for end in (self.lifeline, self.lifeline_end):
            if end != -1:
                os.close(end)

    @property
    def unread(self) -> bool:
        """The reader of stdout has gone: the command must see a broken pipe, as it would without us."""
        return bool(self.state.sink_errno == errno.EPIPE and 1 in self.child_fds)

    def close_source(self) -> None:
        """We hold the source open so that a killed relay does not break the command's pipe; now it may break."""
        if self.source != -1:
            os.close(self.source)
            self.source = -1

    def let_go_of_sink(self) -> None:
        """The command has closed its stdout: the reader gets the end of file now, not when we end."""
        if self.sink == 1 and 2 not in self.child_fds:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.close(nowhere)

    def is_drained(self) -> bool:
        """All that was written has been delivered. The order of the two looks matters, see native/relay.c."""
        if self.state.ended or self.source == -1:
            return True
        waiting = struct.unpack("i", fcntl.ioctl(self.source, termios.FIONREAD, bytes(4)))[0]
        return waiting == 0 and not self.state.busy


class Holder:
    """Who carries the output when the supervisor and the relays are gone (native/relay.c). `pid` 0: there is none."""

    def __init__(self, channels: list[Channel], case: Path) -> None:
        self._channels, self._case = channels, case
        self.pid = 0
        self.start()

    def start(self) -> None:
        self.pid = 0
        held = [channel for channel in self._channels if channel.lifeline_end != -1 and not channel.state.ended]
        if held:
            with contextlib.suppress(OSError):  # the output comes without it too
                self.pid = _fork_c(self._case, lambda lib, case_fd: _hold(lib, held, case_fd))

    def abandon(self) -> None:
        """Nothing was started."""
        if self.pid:
            os.waitpid(self.pid, 0)


def _hold(lib: Any, channels: list[Channel], case_fd: int) -> None:
    ffi, _ = native.load()
    ways = [channel.way(channel.lifeline_end) for channel in channels]
    lib.harness_hold(ffi.new("struct harness_way[]", [way[0] for way in ways]), len(ways), case_fd)


def _fork_c(case: Path, work: Callable[[Any, int], None]) -> int:
    """A process of ours that is not called harness, so that who ends that by its name does not mean it."""
    _, lib = native.load()
    case_fd = _open_directory(case)
    try:
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(OSError):
                call_yourself(["output"])
            try:
                work(lib, case_fd)
            finally:
                os._exit(1)
    finally:
        if case_fd != -1:
            os.close(case_fd)
    return pid


def _open_directory(case: Path) -> int:
    """-1 where there is none: what cannot be kept is delivered all the same."""
    try:
        return os.open(case, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return -1


def open_channels(closed: frozenset[int]) -> list[Channel]:
    if not closed & {1, 2} and _same_place(1, 2):
        return [Channel("output", (1, 2), sink=1)]
    return [
        Channel("stdout", (1,), sink=None if 1 in closed else 1),
        Channel("stderr", (2,), sink=None if 2 in closed else 2),
    ]


def _same_place(one: int, other: int) -> bool:
    a, b = os.fstat(one), os.fstat(other)
    return (a.st_dev, a.st_ino, a.st_rdev) == (b.st_dev, b.st_ino, b.st_rdev)


def settle(channels: list[Channel], at_least_s: float, patience_s: float = 1.0) -> None:
    """Waits until every relay has delivered what the command wrote.

    Ends early when all relays have ended; ends late, after `patience_s` without a byte moving, when a reader sleeps
    (`| less`): the relays outlive us and deliver the rest. Where nobody reads, only a busy machine can be the reason.
    """
    if all(channel.sink is None for channel in channels):
        patience_s = _UNREAD_PATIENCE_S
    begun = moved_at = time.monotonic()
    delivered = -1
    while not all(channel.state.ended for channel in channels):
        now = time.monotonic()
        if all(channel.is_drained() for channel in channels) and now - begun >= at_least_s:
            return
        total = sum(channel.state.bytes_out for channel in channels)
        if total != delivered:
            delivered, moved_at = total, now
        elif now - moved_at > patience_s:
            return
        time.sleep(0.002)
