"""The same command bare and under `harness run`, a terminal of the test's own, and waiting with a deadline."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DEADLINE_S = 30.0


def until(holds: Callable[[], Any], what: str) -> Any:
    """Polls until `holds()` is true and returns its value; fails with `what` when the deadline has passed."""
    give_up = time.monotonic() + DEADLINE_S
    while time.monotonic() < give_up:
        if value := holds():
            return value
        time.sleep(0.002)
    pytest.fail(f"{what}: not within {DEADLINE_S:.0f} s")


@functools.cache
def why_no_namespaces() -> str | None:
    """Why there can be no mount and pid namespaces here; null: there can."""
    if os.getuid() != 0 or shutil.which("unshare") is None:
        return "needs root and unshare, for namespaces"
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    return f"needs mount namespaces, which a plain chroot has not: {done.stderr.strip()}" if done.returncode else None


def state_of(pid: int) -> str | None:
    """R, S, D, T, Z …; null when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return None


def is_gone(pid: int) -> bool:
    return state_of(pid) in (None, "Z")


def relays_of(pid: int) -> list[int]:
    """The relays among the direct children; one that ends meanwhile is left out."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            name, _, rest = (entry / "stat").read_text(errors="replace").rpartition(")")
            if name.endswith("(output-relay") and int(rest.split()[1]) == pid:
                found.append(int(entry.name))
    return found


def open_gate(gate: Path) -> None:
    """Lets a command go on that is opening the FIFO `gate` for reading."""

    def opened() -> bool:
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            assert error.errno == errno.ENXIO
            return False
        return True

    until(opened, f"nobody reads {gate.name}")


@dataclass
class Ended:
    """A run that is over. `status` as a shell would give it."""

    status: int
    stdout: bytes
    stderr: bytes
    verdict: dict[str, Any] | None


def shell_status(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


def bare(*argv: object, **options: Any) -> Ended:
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    done = subprocess.run([str(word) for word in argv], timeout=DEADLINE_S, check=False, **options)
    return Ended(shell_status(done.returncode), done.stdout, done.stderr, None)


class Harness:
    """`harness run`, with its cases in the test's own directory."""

    def __init__(self, tmp_path: Path) -> None:
        self.cases = tmp_path / "cases"
        self.verdict_file = tmp_path / "verdict.json"
        self.env = {name: value for name, value in os.environ.items() if name not in _UNSET}
        self.env["HARNESS_CASES"] = str(self.cases)
        self._started: list[subprocess.Popen[bytes]] = []

    def line(self, *argv: object, options: tuple[str, ...] = ()) -> list[str]:
        return [sys.executable, "-m", "harness", "run", *options, "--", *(str(word) for word in argv)]

    def __call__(self, *argv: object, options: tuple[str, ...] = (), **popen: Any) -> Ended:
        """Runs to the end. With --verdict the case of a success is looked at before it is removed."""
        self.verdict_file.unlink(missing_ok=True)
        with self.start(*argv, options=("--verdict", str(self.verdict_file), *options), **popen) as process:
            stdout, stderr = process.communicate(timeout=DEADLINE_S)
        return Ended(shell_status(process.returncode), stdout, stderr, self.read_verdict())

    def read_verdict(self) -> dict[str, Any] | None:
        return json.loads(self.verdict_file.read_bytes()) if self.verdict_file.exists() else None

    def start(self, *argv: object, options: tuple[str, ...] = (), **popen: Any) -> subprocess.Popen[bytes]:
        popen = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "env": self.env,
            **popen,
        }
        process = subprocess.Popen(self.line(*argv, options=options), **popen)
        self._started.append(process)
        return process

    def kept_cases(self) -> list[Path]:
        return sorted(self.cases.iterdir()) if self.cases.exists() else []

    @property
    def case(self) -> Path:
        (only,) = self.kept_cases()
        return only

    def end_what_is_left(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()


# PYTHONUNBUFFERED is what harness adds; the others would change what a test means by "bare".
_UNSET = frozenset(
    {"PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", "KMP_DUPLICATE_LIB_OK", "HARNESS_CASES", "NO_COLOR", "COLUMNS", "LINES"}
)


class Terminal:
    """A terminal with the test at its far end. What is started in it leads a session of its own."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.seen = b""
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, argv: list[str], *, ignore: tuple[signal.Signals, ...] = (), **popen: Any) -> subprocess.Popen:
        def take_terminal() -> None:
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            for signo in ignore:
                signal.signal(signo, signal.SIG_IGN)

        popen = {"stdin": self.slave, "stdout": self.slave, "stderr": self.slave, **popen}
        process = subprocess.Popen(argv, start_new_session=True, preexec_fn=take_terminal, **popen)
        self._started.append(process)
        os.close(self.slave)
        self.slave = -1
        return process

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def _read_more(self) -> bool:
        """False at the end: no process has the terminal open any more."""
        if not select.select([self.master], [], [], 0.05)[0]:
            return True
        try:
            self.seen += os.read(self.master, 65536)
        except OSError as error:
            assert error.errno == errno.EIO
            return False
        return True

    def read_until(self, text: bytes) -> None:
        give_up = time.monotonic() + DEADLINE_S
        while text not in self.seen:
            assert self._read_more(), f"{text!r} never came, the terminal has {self.seen!r}"
            assert time.monotonic() < give_up, f"{text!r} not yet there, the terminal has {self.seen!r}"

    def read_to_end(self, process: subprocess.Popen[bytes]) -> int:
        """Everything until the last process has closed the terminal; returns the status of `process`."""
        give_up = time.monotonic() + DEADLINE_S
        while self._read_more():
            assert time.monotonic() < give_up, f"the terminal is still open and has {self.seen!r}"
        return shell_status(process.wait(DEADLINE_S))

    def hang_up(self) -> None:
        os.close(self.master)
        self.master = -1

    def end_what_is_left(self) -> None:
        for fd in (self.master, self.slave):
            if fd != -1:
                os.close(fd)
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()
