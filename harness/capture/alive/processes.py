"""Which Python processes run on this machine, and what each is doing at first sight. From /proc.

Stops nothing and reads no memory. What one of them waits for is the business of look.py.
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

from harness.capture.alive.living import Stat, age_s, read_stat
from harness.capture.alive.waits import read_call
from harness.capture.tree import read_argv
from harness.evidence.processes import ProcessRow

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*[a-z]*(?:\.exe)?", re.IGNORECASE)
_BUSY_CORES = 0.05
_WORDS = {"T": "stopped", "t": "traced", "Z": "zombie", "D": "waits for the disk"}
_LOCKS = {"futex", "futex_wait", "futex_waitv"}
_FUTEX_TIMEOUT = 3
_MOST_THREADS = 512
# What the main thread sleeps in.
_ASLEEP = {
    **dict.fromkeys(("nanosleep", "clock_nanosleep", "pause", "rt_sigtimedwait", "rt_sigsuspend"), "sleeping"),
    **dict.fromkeys(("accept", "accept4", "epoll_wait", "epoll_pwait", "epoll_pwait2"), "listening"),
    **dict.fromkeys(("poll", "ppoll", "select", "pselect6"), "listening"),
    **dict.fromkeys(("wait4", "waitid"), "waits for a child"),
    **dict.fromkeys(("read", "readv", "recvfrom", "recvmsg", "open", "openat"), "reading"),
    **dict.fromkeys(("write", "writev", "sendto", "sendmsg"), "writing"),
    **dict.fromkeys(("flock", "fcntl"), "waits for a file lock"),
}
_WRITING = os.O_WRONLY | os.O_RDWR


def list_python_processes(match: str | None = None, look_s: float = 0.3) -> list[ProcessRow]:
    """The youngest last. `match`: only those with this text in their command line. No process of harness."""
    if sys.platform != "linux":
        from harness.capture.alive import processes_elsewhere

        return processes_elsewhere.list_python_processes(match, look_s)
    found = dict(_find(match))
    begun = time.monotonic()
    time.sleep(look_s)
    rows = []
    for pid, before in found.items():
        with contextlib.suppress(OSError):  # it has ended
            now = read_stat(pid)
            rows.append(_describe(pid, now, (now.cpu_s - before.cpu_s) / (time.monotonic() - begun)))
    return sorted(rows, key=lambda row: -row.age_s)


def leave_out_descendants(pids: Sequence[int]) -> list[int]:
    """Without those that have another one of them above."""
    if sys.platform != "linux":
        from harness.capture.alive import processes_elsewhere

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


def _find(match: str | None) -> Iterator[tuple[int, Stat]]:
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):  # noqa: PTH208 (only names)
        with contextlib.suppress(OSError):
            about, argv = read_stat(pid), read_argv(pid)
            wanted = match is None or match in " ".join(argv)
            if wanted and pid != os.getpid() and _is_python(pid, about, argv) and not is_harness(pid):
                yield pid, about


def is_harness(pid: int) -> bool:
    """A command, a supervisor or a relay of ours: it is nobody's job, and what it reads and writes no progress."""
    named = names_harness(read_argv(pid))
    with contextlib.suppress(OSError):
        return named or read_stat(pid).name in ("harness-relay", "signals-of")
    return named


def names_harness(argv: Sequence[str]) -> bool:
    return any(Path(word).name == "harness" for word in argv[:2]) or tuple(argv[1:3]) == ("-m", "harness")


def _is_python(pid: int, about: Stat, argv: tuple[str, ...]) -> bool:
    """By the program; a renamed one (conda's, a wrapper's) by the first word of its command line."""
    names = [about.name, Path(argv[0]).name if argv else ""]
    with contextlib.suppress(OSError):
        names.append(Path(f"/proc/{pid}/exe").readlink().name)
    return any(_PYTHON.fullmatch(name) for name in names)


def _describe(pid: int, about: Stat, cores: float) -> ProcessRow:
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
        word=_WORDS.get(about.state) or ("busy" if cores >= _BUSY_CORES else _name_sleep(pid)),
    )


def name_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _name_sleep(pid: int, proc: Path = Path("/proc")) -> str:
    """Locked: every thread waits for a lock, none with a timeout, so that nothing outside can wake it."""
    try:
        tids = sorted(map(int, os.listdir(proc / str(pid) / "task")))[:_MOST_THREADS]  # noqa: PTH208
    except OSError:
        return "idle"
    calls = {tid: read_call(pid, tid, proc) for tid in tids}
    if all(call and call[0] in _LOCKS and not call[1][_FUTEX_TIMEOUT] for call in calls.values()):
        return "locked"
    main = calls.get(pid)
    return _ASLEEP.get(main[0], "idle") if main else "idle"


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
