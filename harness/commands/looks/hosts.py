"""Asks the hosts that a command is about, one or many, and keeps a line on the terminal meanwhile.

One host that cannot be reached is the command's error; one of many is a gap.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from harness.capture.living.look import take_look
from harness.capture.living.processes import leave_out_descendants, list_python_processes
from harness.capture.remote.fan_out import ask_all
from harness.capture.remote.remote_look import prepare, take_remote_look
from harness.capture.remote.session import Session
from harness.capture.remote.table import Listing, list_processes
from harness.capture.remote.target import HERE, Host, name_hosts
from harness.capture.stacks.quiet_ladder import Native
from harness.commands.looks.targets import Asked
from harness.errors import HarnessError
from harness.evidence.gap import Gap
from harness.evidence.living.look import Look
from harness.evidence.text.redaction import redact

_ANSWER_S = 30.0
# A look may take so many times as long as was asked for, and a host this long besides: for what is sent there and found
# there, and for reading what it answers.
_MOST_SLOW = 3
MOST_BESIDES_S = 240.0
_Fact = TypeVar("_Fact")


class NoMatch(HarnessError):
    """The host was asked, and nothing there is called so."""


def ask_hosts(
    asked: Asked, ask: Callable[[Host, str], _Fact], *, deadline_s: float = math.inf, quietly: bool = False
) -> tuple[dict[Host, _Fact], list[Gap]]:
    """The answers, and a gap for each host without one. HarnessError: none has answered."""
    hosts = asked.hosts or {HERE: []}
    names = {host: name_place(asked, host, name) for host, name in zip(hosts, name_hosts(list(hosts)), strict=True)}
    if not any(map(asked.is_far, names)):
        deadline_s = math.inf  # what is done here has its own
    progress = _Progress(0 if quietly else len(names))
    found = ask_all(list(names), lambda host: ask(host, names[host]), progress.note, deadline_s)
    progress.clear()
    errors = {host: answer for host, answer in found.items() if isinstance(answer, HarnessError)}
    answers = {host: answer for host, answer in found.items() if not isinstance(answer, HarnessError)}
    if not answers:
        raise next((error for error in errors.values() if not isinstance(error, NoMatch)), next(iter(errors.values())))
    return answers, [_tell_unseen(names[host], error) for host, error in errors.items()]


def name_place(asked: Asked, host: Host, name: str) -> str:
    """ "gpu07"; where a command leads, that command."""
    return name if host.name or not asked.reach.via else shlex.join(asked.reach.via)


def _tell_unseen(name: str, error: HarnessError) -> Gap:
    what = "processes of" if isinstance(error, NoMatch) else "host"
    return Gap(f"{what} {name}", str(error).removeprefix(f"{name}: "), error.hint)


class _Progress:
    """On a terminal only, and only for several."""

    def __init__(self, count: int) -> None:
        self._count, self._done, self._failed = count, 0, 0
        self._shows = count > 1 and os.isatty(2)
        self._drawn = False
        self._draw()

    def note(self, host: Host, answer: object) -> None:
        self._done += 1
        self._failed += isinstance(answer, HarnessError)
        self._draw()

    def _draw(self) -> None:
        if self._shows:
            bar = "#" * (20 * self._done // self._count)
            failed = f", {self._failed} without an answer" if self._failed else ""
            os.write(2, f"\r\x1b[K[{bar:<20}] {self._done} of {self._count} hosts{failed}".encode())
            self._drawn = True

    def clear(self) -> None:
        if self._drawn:
            os.write(2, b"\r\x1b[K")


@contextlib.contextmanager
def open_there(asked: Asked, host: Host) -> Iterator[Session]:
    """Hints are made for the machine they are given on; here they become what is typed here."""
    try:
        with Session(host, asked.reach, asked.hosts.get(host, ())) as session:
            yield session
    except HarnessError as error:
        error.hint = translate(error.hint, asked, host)
        raise


def take_looks(asked: Asked, for_s: float, native: Native = "auto") -> tuple[list[Look], list[Gap]]:
    deadline_s = asked.reach.connect_s + _MOST_SLOW * for_s + MOST_BESIDES_S
    look = functools.partial(_look_at, asked, for_s=for_s, native=native)
    answers, unseen = ask_hosts(asked, look, deadline_s=deadline_s)
    return list(map(redact, answers.values())), unseen


def _look_at(asked: Asked, host: Host, name: str, for_s: float, native: Native) -> Look:
    if not asked.is_far(host):
        return take_look(find_here(asked.hosts.get(host, []), asked.match), for_s, native=native)
    with open_there(asked, host) as session:
        if session.takes_agent:
            prepare(session, needs_tool=asked.match is not None or bool(session.facts.pids))
        look = take_remote_look(session, find_there(session, asked, host), for_s, native=native)
        return label_look(look, asked, host, name)


def label_look(look: Look, asked: Asked, host: Host, name: str) -> Look:
    processes = tuple(msgspec.structs.replace(process, host=name) for process in look.processes)
    gaps = tuple(msgspec.structs.replace(gap, fix=gap.fix and translate(gap.fix, asked, host)) for gap in look.gaps)
    return msgspec.structs.replace(look, host=name, address=asked.address(host), processes=processes, gaps=gaps)


def translate(hint: str, asked: Asked, host: Host) -> str:
    address = asked.address(host)
    if hint == "harness ps":
        return f"harness ps {address.replace('{pid}', '').strip()}"

    def name(match: re.Match[str]) -> str:
        root = " --sudo" if match[1] else ""
        return f"harness {match[2]}{root} {address.replace('{pid}', match[3])}"

    return re.sub(r"^(sudo )?harness (attach|openmp) (\d+)", name, hint)


def find_here(named: Sequence[int], match: str | None) -> list[int]:
    """Those below another one that matches are looked at with it, and are no targets of their own."""
    if match is None:
        return list(named)
    found = [row.pid for row in list_python_processes(match)]
    if not found:
        raise NoMatch(f"No Python process has {match!r} in its command line.", hint="harness ps")
    return list(dict.fromkeys([*named, *leave_out_descendants(found)]))


def find_there(session: Session, asked: Asked, host: Host) -> list[int]:
    named = asked.hosts[host]
    if asked.match is None:
        if not named:
            raise HarnessError(f"No process of {session.name} was named.", hint="harness ps")
        return named
    found = list_there(session, asked.match)
    if not found.rows:
        raise NoMatch(
            f"No Python process of {session.name} has {asked.match!r} in its command line.", hint="harness ps"
        )
    return list(dict.fromkeys([*named, *found.roots]))


def list_there(session: Session, match: str | None) -> Listing:
    """Without ourselves: --via and --sudo may lead back to this machine, and --match stands in our command line."""
    found = list_processes(session, match)
    ours = {row.pid for row in found.rows if row.pid == os.getpid() and list(row.argv) == sys.orig_argv}
    return Listing(
        tuple(row for row in found.rows if row.pid not in ours), tuple(pid for pid in found.roots if pid not in ours)
    )


def start_agent(session: Session) -> None:
    """Where it can run; elsewhere a question that only an agent could answer is refused when it is asked."""
    if session.takes_agent:
        session.start_agent(time.monotonic() + _ANSWER_S)
