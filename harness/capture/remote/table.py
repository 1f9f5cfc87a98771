"""The Python processes of another host: by our agent, else by what its shell can tell, from /proc or a Mac's `ps`.

The shell does not tell what a sleeping process waits for, nor when it last wrote.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from harness.capture.proc import parse_stat
from harness.capture.remote.session import Session
from harness.evidence.living.processes import ProcessRow

_LIST_S = 0.3
_ANSWER_S = 30.0
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*[a-z]*", re.IGNORECASE)
_BUSY_CORES = 0.05
# As Linux and as macOS call them; there "U" is a wait that no signal ends.
_WORDS = {"T": "stopped", "t": "traced", "Z": "zombie", "D": "waits for the disk", "U": "waits for the disk"}
# A second apart, because POSIX's sleep knows no less: all of them, then more about those that are Python.
_ALL_OF_PROC = (
    'cat /proc/[0-9]*/stat 2>/dev/null | sed "s/^/$t s /"; ls -l /proc/[0-9]*/exe 2>/dev/null | sed "s/^/$t x /"'
)
_SOME_OF_PROC = (
    'sleep 1; echo "$t u $(cat /proc/uptime)"; for k in {pids}; do cat /proc/$k/stat 2>/dev/null | sed "s/^/$t s /"; '
    'tr "\\000" "\\n" 2>/dev/null </proc/$k/cmdline | sed "s/^/$t a $k /"; echo; done'
)
_EXE = re.compile(r"\S+ +\d+ (\S+) .* /proc/(\d{1,10})/exe(?: -> (.*))?", re.ASCII)
_STAT = re.compile(r"s (\d{1,10}) (\(.*)", re.ASCII)
_MOST = 1 << 62  # no number of a process is as large
_PS = 'LC_ALL=C ps -axww -o pid,ppid,user,etime,time,rss,stat,command | LC_ALL=C sed "s/^/$t s /"; echo'
# One line for each thread, below a heading.
_PS_AGAIN = f'sleep 1; {_PS}; for k in {{pids}}; do echo "$t m $k $(ps -M -p $k 2>/dev/null | wc -l)"; done'
_PS_ROW = re.compile(
    r"s\s+(\d{1,10})\s+(\d{1,10})\s+(\S+)\s+((?:\d{1,6}-)?[\d:]{1,12})\s+([\d:]{1,12}(?:\.\d+)?)\s+(\d{1,12})"
    r"\s+([A-Za-z])\S*\s+(\S.*)",
    re.ASCII,
)
_PS_THREADS = re.compile(r"m (\d{1,10})\s+(\d{1,6})", re.ASCII)


class Listing(Struct, frozen=True):
    """`roots`: those that have no other one of the rows above."""

    rows: tuple[ProcessRow, ...]
    roots: tuple[int, ...]


class _Seen(NamedTuple):
    """`names`: those that can tell that it is Python."""

    names: tuple[str, ...]
    ppid: int
    user: str
    state: str
    cpu_s: float
    age_s: float
    rss_bytes: int
    argv: tuple[str, ...]
    threads: int = 1


def list_processes(session: Session, match: str | None) -> Listing:
    """The youngest last. HarnessError: nobody there can tell."""
    if session.takes_agent:
        return session.call("list", {"match": match, "look_s": _LIST_S}, Listing, _LIST_S + _ANSWER_S)
    session.check_system()
    ask = _ask_ps if session.is_mac else _ask_proc
    before = ask(session, ())
    begun = time.monotonic()
    pids = [pid for pid, one in before.items() if any(map(_PYTHON.fullmatch, one.names))]
    now = ask(session, pids) if pids else {}
    apart_s = time.monotonic() - begun
    rows = [
        _describe(pid, now[pid], before[pid], apart_s)
        for pid in pids
        if pid in now and (match is None or match in " ".join(now[pid].argv))
    ]
    rows.sort(key=lambda row: -row.age_s)
    parents = {pid: one.ppid for pid, one in before.items()}
    return Listing(tuple(rows), tuple(leave_out_descendants([row.pid for row in rows], parents)))


def leave_out_descendants(pids: Collection[int], parents: Mapping[int, int]) -> Iterator[int]:
    """Without those that have another one of them above. What another host tells may even be a circle."""
    asked = set(pids)
    for pid in pids:
        above: set[int] = set()
        one = pid
        while (one := parents.get(one, 0)) and one not in above:
            above.add(one)
        if above.isdisjoint(asked - {pid}):
            yield pid


def _describe(pid: int, now: _Seen, before: _Seen, apart_s: float) -> ProcessRow:
    cores = round(max(0.0, (now.cpu_s - before.cpu_s) / apart_s), 2)
    return ProcessRow(
        pid=pid,
        ppid=now.ppid,
        user=before.user,
        argv=now.argv,
        age_s=round(max(0.0, now.age_s), 1),
        cpu=cores,
        rss_bytes=now.rss_bytes,
        threads=now.threads,
        quiet_s=None,
        word=_WORDS.get(now.state) or ("busy" if cores >= _BUSY_CORES else "idle"),
    )


# Linux


def _ask_proc(session: Session, pids: Sequence[int]) -> dict[int, _Seen]:
    script = _SOME_OF_PROC.format(pids=" ".join(map(str, pids))) if pids else _ALL_OF_PROC
    return dict(read_proc(session.run_shell(script, time.monotonic() + _ANSWER_S)))


def read_proc(lines: Sequence[str]) -> Iterator[tuple[int, _Seen]]:
    """By the program's name, as the kernel keeps it and as its file is called."""
    uptime_s = 0.0
    programs: dict[str, tuple[str, str]] = {}
    words: dict[str, list[str]] = {}
    for kind, _, rest in (line.partition(" ") for line in lines):
        if kind == "u" and (match := re.match(r"\d{1,12}\.\d+", rest)):
            uptime_s = float(match[0])
        elif kind == "x" and (match := _EXE.fullmatch(rest)):
            programs[match[2]] = (match[1], (match[3] or "").removesuffix(" (deleted)").rpartition("/")[2])
        elif kind == "a":
            pid, _, word = rest.partition(" ")
            words.setdefault(pid, []).append(word)
    for match in filter(None, map(_STAT.fullmatch, lines)):
        with contextlib.suppress(ValueError, IndexError, OverflowError):  # its name has a line break in it
            stat = parse_stat(match[2])
            user, program = programs.get(match[1], ("", ""))
            argv = tuple(words.get(match[1], (stat.name,)))
            if max(stat.ppid, stat.rss_bytes, stat.threads) < _MOST:
                about = (stat.ppid, user, stat.state, stat.cpu_s, uptime_s - stat.started_s, stat.rss_bytes)
                yield int(match[1]), _Seen((stat.name, program), *about, argv, stat.threads)


# macOS


def _ask_ps(session: Session, pids: Sequence[int]) -> dict[int, _Seen]:
    script = _PS_AGAIN.format(pids=" ".join(map(str, pids))) if pids else _PS
    return dict(read_ps(session.run_shell(script, time.monotonic() + _ANSWER_S)))


def read_ps(lines: Sequence[str]) -> Iterator[tuple[int, _Seen]]:
    """By the first word of the command: a path with a blank in it is not recognised."""
    threads = {match[1]: int(match[2]) - 1 for match in filter(None, map(_PS_THREADS.fullmatch, lines))}
    for match in filter(None, map(_PS_ROW.fullmatch, lines)):
        pid, ppid, user, age, cpu, rss_kib, state, command = match.groups()
        argv = tuple(command.split())
        if not argv:  # blanks that are none in ASCII
            continue
        about = (int(ppid), user, state, parse_clock_s(cpu), parse_clock_s(age), int(rss_kib) << 10)
        yield int(pid), _Seen((argv[0].rpartition("/")[2],), *about, argv, max(1, threads.get(pid, 1)))


def parse_clock_s(text: str) -> float:
    """`[[days-]hours:]minutes:seconds`, the seconds with a fraction or without."""
    days, _, clock = text.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part or 0)
    return seconds + 86400 * float(days or 0)
