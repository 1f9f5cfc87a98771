"""Where the kernel put a core: core_pattern with the facts of one death filled in; man 5 core.

Pure. What cannot be known afterwards (the time, the thread's name) becomes a wildcard; whose core a file is, it says
itself.
"""

from __future__ import annotations

import re
from glob import escape
from pathlib import Path
from typing import Literal, NamedTuple

_SPECIFIER = re.compile(r"%(.)", re.DOTALL)
_OWN_PID = re.compile(r"%[pP]")


class Death(NamedTuple):
    """What is known of a process that died. `cwds`: where it may have been working, the likeliest first."""

    pid: int
    signo: int
    uid: int
    gid: int
    executable: str | None
    cwds: tuple[str, ...]


class Destination(NamedTuple):
    """`globs`: where the file may be, for kind "file". `program`: the helper that gets it, for kind "pipe"."""

    kind: Literal["file", "pipe", "socket", "none"]
    globs: tuple[str, ...] = ()
    program: str = ""


def find_destination(pattern: str, uses_pid: bool, death: Death, hostname: str) -> Destination:
    if pattern.startswith("|"):
        return Destination("pipe", program=(pattern[1:].split() or [""])[0])
    if pattern.startswith("@"):
        return Destination("socket")
    if (not pattern and not uses_pid) or pattern == "/dev/null":
        return Destination("none")
    name = expand(pattern, death, hostname)
    if uses_pid and not _OWN_PID.search(pattern):
        name += f".{death.pid}"
    if name.startswith("/"):
        return Destination("file", (name,))
    return Destination("file", tuple(f"{escape(cwd.rstrip('/'))}/{name}" for cwd in death.cwds))


def expand(pattern: str, death: Death, hostname: str) -> str:
    """A glob. A single % at the end is dropped, %% is a %, an unknown letter is dropped (fs/coredump.c)."""
    program = Path(death.executable).name if death.executable else None
    facts = {
        "%": "%",
        "p": str(death.pid),
        "u": str(death.uid),
        "g": str(death.gid),
        "s": str(death.signo),
        "h": hostname.replace("/", "!"),
        "f": program,
        "E": death.executable.replace("/", "!") if death.executable else None,
    }
    # The pid and thread of the initial namespace, the thread, the time, the thread's name, the limit, mode and CPU.
    unknown = "PiIteCcdF"
    parts, at = [], 0
    for found in _SPECIFIER.finditer(pattern):
        parts.append(escape(pattern[at : found.start()]))
        letter = found[1]
        value = facts.get(letter)
        parts.append("*" if letter in unknown or (letter in facts and value is None) else escape(value or ""))
        at = found.end()
    return "".join([*parts, escape(pattern[at:].removesuffix("%"))])
