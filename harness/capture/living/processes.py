"""Which Python processes run on this machine, and what each is doing at first sight. From /proc.

Stops nothing. What one of them waits for is the business of look.py.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.capture.living.activity import Moment, name_activity
from harness.capture.living.own_processes import is_harness
from harness.capture.proc import Stat, age_s, read_argv, read_stat
from harness.evidence.living.processes import ProcessRow

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*[a-z]*(?:\.exe)?", re.IGNORECASE)
_WRITING = os.O_WRONLY | os.O_RDWR


def list_python_processes(match: str | None = None, look_s: float = 0.3) -> list[ProcessRow]:
    """The youngest last. `match`: only those with this text in their command line. No process of harness."""
    if sys.platform != "linux":
        from harness.capture.living import processes_elsewhere

        return processes_elsewhere.list_python_processes(match, look_s)
    found = dict(_find(match))
    begun = time.monotonic()
    time.sleep(look_s)
    rows = []
    for pid, before in found.items():
        with contextlib.suppress(OSError):  # it has ended
            rows.append(_describe(pid, before, Moment.of(pid), time.monotonic() - begun))
    return sorted(rows, key=lambda row: -row.age_s)


def leave_out_descendants(pids: Sequence[int]) -> list[int]:
    """Without those that have another one of them above."""
    if sys.platform != "linux":
        from harness.capture.living import processes_elsewhere

        return processes_elsewhere.leave_out_descendants(pids)
    kept = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if not any(parent in pids for parent in _list_parents(pid)):
                kept.append(pid)
    return kept


def _list_parents(pid: int) -> Iterator[int]:
    while pid := read_stat(pid).ppid:
        yield pid


def _find(match: str | None) -> Iterator[tuple[int, Moment]]:
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):  # noqa: PTH208 (only names)
        with contextlib.suppress(OSError):
            about, argv = read_stat(pid), read_argv(pid)
            wanted = match is None or match in " ".join(argv)
            if wanted and pid != os.getpid() and _is_python(pid, about, argv) and not is_harness(pid):
                yield pid, Moment.of(pid)


def _is_python(pid: int, about: Stat, argv: tuple[str, ...]) -> bool:
    """By the program; a renamed one (conda's, a wrapper's) by the first word of its command line."""
    names = [about.name, Path(argv[0]).name if argv else ""]
    with contextlib.suppress(OSError):
        names.append(Path(f"/proc/{pid}/exe").readlink().name)
    return any(_PYTHON.fullmatch(name) for name in names)


def _describe(pid: int, before: Moment, now: Moment, apart_s: float) -> ProcessRow:
    about, cores = now.stat, (now.stat.cpu_s - before.stat.cpu_s) / apart_s
    return ProcessRow(
        pid=pid,
        ppid=about.ppid,
        user=name_user(Path(f"/proc/{pid}").stat().st_uid),
        argv=read_argv(pid) or (about.name,),  # of a zombie nothing else is left
        age_s=round(age_s(about.started_s), 1),
        cpu=round(max(0.0, cores), 2),
        rss_bytes=about.rss_bytes,
        threads=about.threads,
        quiet_s=quiet_s(pid),
        word=name_activity(pid, before, now, cores),
    )


def name_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def quiet_s(pid: int, proc: Path = Path("/proc")) -> float | None:
    """Null: it has no regular file with anything in it open for writing, or its files may not be seen."""
    youngest: float | None = None
    with contextlib.suppress(OSError):
        for entry in os.scandir(proc / str(pid) / "fd"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                info = entry.stat()
                flags = (proc / str(pid) / "fdinfo" / entry.name).read_text().partition("flags:")[2].split()[0]
                if stat.S_ISREG(info.st_mode) and info.st_size and int(flags, 8) & _WRITING:
                    youngest = max(youngest or 0.0, info.st_mtime)
    return None if youngest is None else round(max(0.0, time.time() - youngest), 1)
