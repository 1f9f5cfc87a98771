"""The same as processes.py where there is no /proc, by psutil. Says nothing of the files that a process writes."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from harness.capture.living.own_processes import names_harness
from harness.evidence.living.processes import ProcessRow

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*[a-z]*(?:\.exe)?", re.IGNORECASE)
_BUSY_CORES = 0.05
_WORDS = {
    psutil.STATUS_STOPPED: "stopped",
    psutil.STATUS_TRACING_STOP: "traced",
    psutil.STATUS_ZOMBIE: "zombie",
    psutil.STATUS_DISK_SLEEP: "waits for the disk",
}


def list_python_processes(match: str | None = None, look_s: float = 0.3) -> list[ProcessRow]:
    """The youngest last. `match`: only those with this text in their command line. No process of harness."""
    found = list(_find(match))
    before = {process.pid: _cpu_s(process) for process in found}
    begun = time.monotonic()
    time.sleep(look_s)
    rows = []
    for process in found:
        with contextlib.suppress(psutil.Error):
            cores = (_cpu_s(process) - before[process.pid]) / (time.monotonic() - begun)
            rows.append(_describe(process, cores))
    return sorted(rows, key=lambda row: -row.age_s)


def leave_out_descendants(pids: Sequence[int]) -> list[int]:
    """Without those that have another one of them above."""
    kept = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            if not any(parent.pid in pids for parent in psutil.Process(pid).parents()):
                kept.append(pid)
    return kept


def _find(match: str | None) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            argv = process.cmdline()
            if process.pid == os.getpid() or names_harness(argv) or not _is_python(process, argv):
                continue
            if match is None or match in " ".join(argv):
                yield process


def _is_python(process: psutil.Process, argv: list[str]) -> bool:
    """By the program; a renamed one (conda's, a wrapper's) by the first word of its command line."""
    names = [process.name(), Path(argv[0]).name if argv else ""]
    with contextlib.suppress(psutil.AccessDenied):
        names.append(Path(process.exe()).name)
    return any(_PYTHON.fullmatch(name) for name in names)


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _describe(process: psutil.Process, cores: float) -> ProcessRow:
    with process.oneshot():
        return ProcessRow(
            pid=process.pid,
            ppid=process.ppid(),
            user=process.username(),
            argv=tuple(process.cmdline()),
            age_s=round(max(0.0, time.time() - process.create_time()), 1),
            cpu=round(max(0.0, cores), 2),
            rss_bytes=process.memory_info().rss,
            threads=process.num_threads(),
            quiet_s=None,
            word=_WORDS.get(process.status()) or ("busy" if cores >= _BUSY_CORES else "idle"),
        )
