"""One connection to one host: ssh, or any command prefix, with lines in both directions and a deadline on each wait.

Never asks for a password, never weakens the check of host keys, runs no shell on this side. Knows nothing of what is
said over it; whatever comes back is bounded.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shlex
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, Any, NamedTuple

from harness.capture.machine.trust import find_program
from harness.capture.remote.target import Host
from harness.errors import HarnessError, UsageError

_LONGEST_LINE = 64 << 20
_MOST_BYTES = 512 << 20
_MOST_NOISE = 1 << 20
_MOST_WORDS = 4096
_CHUNK = 1 << 16
_SETTLE_S = 1.0
_BEAT_S = 3.0


class Reach(NamedTuple):
    """How hosts are reached. `via`: a command that runs another one on the other side, in place of ssh."""

    via: tuple[str, ...] = ()
    sudo: bool = False
    keep: bool = False
    connect_s: float = 10.0


def parse_via(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--via {text!r}: {error}.", hint="--via 'docker exec -i NAME'") from error
    if not words:
        raise UsageError("--via needs a command.", hint="--via 'docker exec -i NAME'")
    return words


def build_command(host: Host, reach: Reach, script: str) -> list[str]:
    """`script` for sh, on the other side. It holds no single quote: a login shell of any kind passes it on."""
    root = ["sudo", "-n", "--"] if reach.sudo else []
    if host.name is None:
        return [*reach.via, *root, "sh", "-c", script]
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(max(1, round(reach.connect_s))),
        "ServerAliveInterval": "4",
        "ServerAliveCountMax": "3",
        "ClearAllForwardings": "yes",
        "RemoteCommand": "none",
        "ForwardAgent": "no",
    }
    words = ["ssh", "-T", "-e", "none", *(word for name in options for word in ("-o", f"{name}={options[name]}"))]
    words += ["-p", str(host.port)] if host.port else []
    words += ["-l", host.user] if host.user else []
    return [*words, "--", str(host.name), " ".join(["exec", *root, "sh", "-c", f"'{script}'"])]


_OPEN: set[subprocess.Popen[bytes]] = set()


@atexit.register
def _end_open() -> None:
    """Those of hosts that nobody waits for any more: ssh would stay for as long as the other side likes."""
    for process in list(_OPEN):
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SETTLE_S)


class LinkBroken(HarnessError):
    """The other side is gone, or does not answer."""


class Link:
    """`beat`: what is said again and again, so that the other side knows that we live."""

    def __init__(self, name: str, command: Sequence[str], hint: str) -> None:
        self.name, self._hint = name, hint
        self._noise: bytes = b""
        self._words: bytes = b""
        self._received = 0
        self._buffer = bytearray()
        self._lines: deque[bytes] = deque()
        self.beat: Callable[[], bytes] | None = None
        self._beaten = time.monotonic()
        command = [_find(command[0]), *command[1:]]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
            )
        except OSError as error:
            hint = "install the OpenSSH client" if command[0] == "ssh" else f"command -v {command[0]}"
            raise HarnessError(f"{command[0]} cannot be run: {error.strerror}.", hint=hint) from error
        _OPEN.add(self._process)
        self._stdin, self._stdout, self._stderr = (
            _not_null(pipe) for pipe in (self._process.stdin, self._process.stdout, self._process.stderr)
        )
        os.set_blocking(self._stdin.fileno(), False)
        self._open = [self._stdout, self._stderr]

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, data: bytes, deadline: float) -> None:
        rest = memoryview(data)
        while rest:
            _, writable, _ = self._pump(deadline, writing=True)
            if writable:
                try:
                    rest = rest[os.write(self._stdin.fileno(), rest) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise self._describe_end() from error
        self._beaten = time.monotonic()

    def read_line(self, deadline: float, *, wanted: bytes = b"") -> bytes:
        """The next line that starts with `wanted`; others are noise, kept to be told."""
        while True:
            while self._lines:
                line = self._lines.popleft()
                if line.startswith(wanted):
                    return line
                self._note_noise(line)
            self._pump(deadline)

    def _note_noise(self, line: bytes) -> None:
        self._noise = (self._noise + line + b"\n")[-_MOST_WORDS:]
        if self._received > _MOST_NOISE and len(self._noise) == _MOST_WORDS and self.beat is None:
            raise LinkBroken(f"{self.name} prints without end before it answers.", hint=self._hint)

    def _pump(self, deadline: float, *, writing: bool = False) -> tuple[Any, ...]:
        """Waits until there is something to read or room to write. TimeoutError; LinkBroken."""
        now = time.monotonic()
        if self.beat and not writing and now - self._beaten > _BEAT_S:
            self._beaten = now
            self.send(self.beat(), deadline)
        wait_s = min(max(0.0, deadline - now), _BEAT_S)
        ready = select.select(self._open, [self._stdin] if writing else [], [], wait_s)
        for pipe in ready[0]:
            self._read(pipe)
        if not (writing and ready[1]) and not self._lines and time.monotonic() >= deadline:
            raise TimeoutError  # whatever has come meanwhile is no whole line
        if self._stdout not in self._open and not self._lines:
            raise self._describe_end()
        return ready

    def _read(self, pipe: IO[bytes]) -> None:
        data = os.read(pipe.fileno(), _CHUNK)
        if not data:
            self._open.remove(pipe)
        elif pipe is self._stderr:
            self._words = (self._words + data)[-_MOST_WORDS:]
        else:
            self._received += len(data)
            *lines, rest = data.split(b"\n")
            for line in lines:
                self._lines.append(bytes(self._buffer) + line)
                self._buffer.clear()
            self._buffer += rest
            if len(self._buffer) > _LONGEST_LINE or self._received > _MOST_BYTES:
                raise LinkBroken(f"{self.name} sends more than anybody could want.", hint=self._hint)

    def _describe_end(self) -> LinkBroken:
        """In the words of ssh, of whatever stood in its place, or of the other side's shell."""
        deadline = time.monotonic() + _SETTLE_S
        while self._open and time.monotonic() < deadline:
            for pipe in select.select(self._open, [], [], 0.1)[0]:
                self._read(pipe)
        said = [line.strip() for line in self._words.decode(errors="replace").splitlines() if line.strip()]
        said = said or [line.strip() for line in self._noise.decode(errors="replace").splitlines() if line.strip()]
        status = self._process.poll()
        why = said[-1] if said else f"the connection ended{f' with status {status}' if status else ''}"
        return LinkBroken(f"{self.name}: {why}", hint=self._hint)

    def tell_timeout(self, after_s: float) -> LinkBroken:
        return LinkBroken(f"{self.name} has not answered within {after_s:.0f} s.", hint=self._hint)

    def close(self) -> None:
        """Ends ours; the other side ends by itself when its input does."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        try:
            self._process.wait(_SETTLE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _OPEN.discard(self._process)
        for pipe in (self._stdout, self._stderr):
            pipe.close()


def _find(word: str) -> str:
    """What --via names is the user's own word; ssh is ours, and found as all our tools are."""
    if word != "ssh":
        return word
    if found := find_program(word):
        return found
    raise HarnessError("There is no ssh on PATH that only root and you can write.", hint="install the OpenSSH client")


def _not_null(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
