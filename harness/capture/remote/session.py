"""Asks one host: what it is, then whatever its agent can answer. One connection, nothing installed there.

First a line of shell tells the platform and finds a Python; then our own code goes there, into memory only; then
questions and answers, a JSON line each. What arrives is decoded strictly by its type; anything else ends the session.
"""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from harness.capture.remote import bundle
from harness.capture.remote.connection import Link, LinkBroken, Reach, build_command
from harness.capture.remote.distrust import is_ours, quote_advice
from harness.capture.remote.py_spy_wheel import Tool
from harness.capture.remote.shell_trust import TRUST
from harness.capture.remote.target import Host
from harness.errors import HarnessError, Unreadable
from harness.evidence.gap import Gap
from harness.evidence.living.look import Look, check_look
from harness.evidence.text.numbers import find_number
from harness.evidence.text.undecoded import decode_document

_Fact = TypeVar("_Fact")
_OLDEST = 309
_SEND_S = 60.0
_MOST_SHELL_BYTES, _MOST_SHELL_LINES = 64 << 20, 1 << 19
_MOST_FACTS = 10_000
# One line, and no single quote: it is an argument of sh. Anything that could read the answer's beginning has no stdin.
# On a Mac no Python is looked for: without developer tools its python3 opens a window that offers to install them.
_ASK = (
    't={token}; echo; echo "$t hello"; {trust}for k in s m n r; do echo "$t u$k $(uname -$k)"; done; '
    'echo "$t id $u"; c=; for p in {pids}; do test -d /proc/$p && echo "$t pid $p"; '
    "e=$(readlink /proc/$p/exe 2>/dev/null) || continue; "
    'case ${{e##*/}} in python*) c="$c $e";; esac; done; '
    'case $(uname -s) in Darwin) c=;; *) c="$c python3 python /usr/bin/python3 /usr/local/bin/python3 '
    '/opt/conda/bin/python3";; esac; for q in $c; do '
    'q=$(PATH=$P; command -v $q 2>/dev/null) || continue; ok "$q" && py || {{ echo "$t refused $q"; continue; }}; '
    'v=$("$r" -I -S -c "import sys, json, zlib, threading, subprocess; '
    'print(sys.version_info[0] * 100 + sys.version_info[1])" </dev/null 2>/dev/null) || continue; '
    'echo "$t python $v $r"; test "$v" -ge {oldest} && break; done; '
    'q=$(PATH=$P; command -v py-spy 2>/dev/null) && ok "$q" && echo "$t spy $r"; '
    'echo "$t end"; while IFS= read -r l; do eval "$l"; done'
)


class Facts(msgspec.Struct, frozen=True):
    """What the shell there has told. `python` null: there is none that could run the agent; `unfit` says why.

    `pids`: those asked for that are there.
    """

    system: str
    machine: str
    name: str
    release: str
    uid: str
    python: str | None
    unfit: str | None
    has_spy: bool
    pids: tuple[int, ...]


class _Message(msgspec.Struct, frozen=True):
    id: int
    kind: str
    body: msgspec.Raw


class _Failure(msgspec.Struct, frozen=True):
    message: str
    hint: str


class _Kept(msgspec.Struct, frozen=True):
    why: str | None
    left: str | None


class Session:
    """`with Session(host, reach) as session`. HarnessError: the host cannot be reached, or not be asked."""

    def __init__(self, host: Host, reach: Reach, pids: Iterable[int] = ()) -> None:
        self.host, self.reach = host, reach
        self.name = host.name or shlex.join(reach.via)
        self._token = secrets.token_hex(12)
        self._pids = tuple(pids)
        self._number = 0
        self.round_trips = 0
        self.gaps: list[Gap] = []
        self._handlers: dict[int, Callable[[_Message], None]] = {}
        pid_words = " ".join(map(str, self._pids))
        script = _ASK.format(token=self._token, trust=TRUST, pids=pid_words, oldest=_OLDEST)
        command = build_command(host, reach, script)
        self._there = f"ssh {host.destination}" if host.name else shlex.join(reach.via)
        self._link = Link(self.name, command, f"{self._there} true")
        try:
            bundle.prepare()
            self.facts = self._learn(time.monotonic() + reach.connect_s + 5)
        except BaseException:
            self._link.close()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._link.close()

    def _learn(self, deadline: float) -> Facts:
        told: dict[str, str] = {}
        pythons: list[tuple[int, str]] = []
        pids: list[int] = []
        for _ in range(_MOST_FACTS):
            if (line := self._read(deadline)) == "end":
                break
            key, _, value = line.partition(" ")
            if key == "python":
                version, _, path = value.partition(" ")
                pythons.append((find_number(version) or 0, path))
            elif key == "pid" and (pid := find_number(value)) is not None:
                pids.append(pid)
            elif len(value) <= 256:
                told[key] = value
        self.round_trips += 1
        able = [path for version, path in pythons if version >= _OLDEST]
        unfit = [f"{path} is Python {version // 100}.{version % 100}, older than 3.9" for version, path in pythons]
        if "refused" in told:
            unfit.append(f"{told['refused']} could have been written by another user, and is not run")
        return Facts(
            system=told.get("us", ""),
            machine=told.get("um", ""),
            name=told.get("un", ""),
            release=told.get("ur", ""),
            uid=told.get("id", ""),
            python=able[0] if able else None,
            unfit=unfit[0] if unfit and not able else None,
            has_spy=bool(told.get("spy")),
            pids=tuple(pids),
        )

    def _read(self, deadline: float) -> str:
        begun = time.monotonic()
        try:
            line = self._link.read_line(deadline, wanted=self._token.encode())
        except TimeoutError as error:
            raise self._link.tell_timeout(time.monotonic() - begun) from error
        return line.decode(errors="replace")[len(self._token) + 1 :]

    @property
    def is_mac(self) -> bool:
        return self.facts.system == "Darwin"

    @property
    def takes_agent(self) -> bool:
        return self.facts.system == "Linux" and self.facts.python is not None

    def check_system(self) -> None:
        """HarnessError: it is neither Linux nor a Mac."""
        if self.facts.system != "Linux" and not self.is_mac:
            system = self.facts.system or "of an unknown kind"
            message = f"{self.name} is {system}: only Linux hosts and Macs can be looked at."
            raise HarnessError(message, hint=f"{self._there} uname -a")

    def check_agent(self) -> None:
        """HarnessError: nothing of ours can run there."""
        self.check_system()
        if self.is_mac:
            hint = f"harness attach {self._pids[0]}" if self._pids else "harness ps"
            raise HarnessError(f"{self.name} is a Mac: only attach and ps look at other Macs.", hint=hint)
        if self.facts.python is None:
            old = f": {self.facts.unfit}" if self.facts.unfit else ""
            hint = "install python3 over there, version 3.9 or newer"
            raise HarnessError(f"{self.name} has no Python 3.9 or newer that could be asked{old}.", hint=hint)

    def start_agent(self, deadline: float) -> None:
        """Our code, into the memory of a Python over there."""
        self.check_agent()
        boot = bundle.boot_source()
        code = f"import sys; exec(sys.stdin.buffer.read({len(boot)}))"
        line = f'PATH=$P; exec {shlex.quote(str(self.facts.python))} -I -S -c "{code}"\n'
        self._send(line.encode() + boot + bundle.pack(self._token), deadline)
        self._link.beat = lambda: b'{"call": "beat"}\n'

    def run_shell(self, line: str, deadline: float) -> list[str]:
        """Without an agent: one line of shell, and what it prints, each line with the token before it."""
        self._send(f't={self._token}; {line}; echo "$t end"\n'.encode(), deadline)
        told, size = [], 0
        while (answer := self._read(deadline)) != "end":
            told.append(answer)
            size += len(answer)
            if size > _MOST_SHELL_BYTES or len(told) > _MOST_SHELL_LINES:
                raise LinkBroken(f"{self.name} sends more than anybody could want.", hint="harness ps")
        self.round_trips += 1
        return told

    def send_tool(self, tool: Tool, deadline: float) -> None:
        """What does not arrive there is a gap."""
        question = {"size": len(tool.packed), "sha256": tool.sha256, "keep": self.reach.keep}
        number = self._ask("tool", question, deadline, tool.packed)
        kept = self._await(number, _Kept, deadline, None)
        if kept.why is not None:
            fix = "pip install py-spy, over there"
            self.gaps.append(
                Gap("Python and native stacks", f"py-spy could not be put on {self.name}: {kept.why}", fix)
            )
        elif kept.left is not None:
            self.gaps.append(Gap("nothing left behind", f"{kept.left} stays on {self.name}, as asked for with --keep"))

    def call(
        self,
        call: str,
        question: dict[str, Any],
        answer: type[_Fact],
        for_s: float,
        on_part: Callable[[_Fact], None] | None = None,
    ) -> _Fact:
        """TimeoutError: no answer within `for_s`. HarnessError: the agent's own, or the link's."""
        deadline = time.monotonic() + for_s
        return self._await(self._ask(call, question, deadline), answer, deadline, on_part)

    def subscribe(
        self, call: str, question: dict[str, Any], answer: type[_Fact], on_part: Callable[[_Fact], None]
    ) -> None:
        """For an answer that goes on and on: its parts come whenever this session is listened to."""

        def handle(message: _Message) -> None:
            if message.kind == "part":
                on_part(self._decode(message.body, answer))
            else:
                self._finish(message, type(None))

        self._handlers[self._ask(call, question, time.monotonic() + _SEND_S)] = handle

    def listen(self, for_s: float) -> bool:
        """Whether something has come within that time."""
        try:
            self._dispatch(self._receive(time.monotonic() + max(0.0, for_s)))
        except TimeoutError:
            return False
        return True

    def _dispatch(self, message: _Message) -> None:
        if handle := self._handlers.get(message.id):
            handle(message)

    def _ask(self, call: str, question: dict[str, Any], deadline: float, data: bytes = b"") -> int:
        self.check_agent()
        self._number += 1
        line = msgspec.json.encode({"call": call, "id": self._number, **question})
        self._send(line + b"\n" + data, deadline)
        return self._number

    def _send(self, data: bytes, deadline: float) -> None:
        try:
            self._link.send(data, deadline)
        except TimeoutError as error:
            raise LinkBroken(f"{self.name} does not take what is sent.", hint=f"{self._there} true") from error

    def _await(
        self, number: int, answer: type[_Fact], deadline: float, on_part: Callable[[_Fact], None] | None
    ) -> _Fact:
        while True:
            message = self._receive(deadline)
            if message.id != number:
                self._dispatch(message)
            elif message.kind != "part":
                self.round_trips += 1
                return self._finish(message, answer)
            elif on_part is not None:
                on_part(self._decode(message.body, answer))

    def _finish(self, message: _Message, answer: type[_Fact]) -> _Fact:
        if message.kind == "error":
            failure = self._decode(message.body, _Failure)
            raise HarnessError(failure.message, hint=failure.hint if is_ours(failure.hint) else f"{self._there} true")
        if message.kind == "bug":
            words = self._decode(message.body, str).strip().rpartition("\n")[2]
            raise HarnessError(f"{self.name}: the look failed there: {words}", hint="please report this")
        return self._decode(message.body, answer)

    def _receive(self, deadline: float) -> _Message:
        line = self._link.read_line(deadline, wanted=self._token.encode())
        return self._decode(line[len(self._token) + 1 :], _Message)

    def _decode(self, data: bytes | msgspec.Raw, answer: type[_Fact]) -> _Fact:
        try:
            fact = quote_advice(decode_document(bytes(data), answer), self.name)
        except Unreadable as error:
            raise self._tell_unreadable(error) from error
        if isinstance(fact, Look):
            self.check(fact)
        return fact

    def check(self, look: Look) -> Look:
        """Before anybody who judges has to rely on it."""
        try:
            check_look(look)
        except Unreadable as error:
            raise self._tell_unreadable(error) from error
        return look

    def _tell_unreadable(self, error: Unreadable) -> LinkBroken:
        return LinkBroken(f"{self.name} has sent what is no answer: {error}", hint="harness ps")
