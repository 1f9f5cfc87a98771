"""The core of a process that died: the file, or why there is none and how to get one.

Knows the kernel's own files and the helpers of systemd, Ubuntu and Fedora. Whose core a file is, its notes say.
`root` is a variable so that a made-up tree can be tested.
"""

from __future__ import annotations

import contextlib
import glob
import os
import socket
import stat
import time
from pathlib import Path
from typing import NamedTuple

from harness.capture.cores.file import BadCore, CoreFile
from harness.capture.cores.pattern import Death, Destination, find_destination
from harness.capture.machine.killers import is_initial_namespace
from harness.evidence.gap import Gap

_ROOT = Path("/")
# man 8 systemd-coredump: core.COMM.UID.BOOTID.PID.TIMESTAMP, compressed.
_SYSTEMD = "var/lib/systemd/coredump/core.*.*.*.{pid}.*"
_APPORT = ("var/lib/apport/coredump/core.*.{pid}.*", "var/crash/*.{uid}.crash")
_ABRT = ("var/spool/abrt/ccpp-*-{pid}/coredump", "var/tmp/abrt/ccpp-*-{pid}/coredump")
# Helpers write after the process is gone.
_HELPER_S = 2.0
_POLL_S = 0.05
PATTERN_FIX = "sudo sysctl kernel.core_pattern=core.%p"


class Found(NamedTuple):
    """`raw`: an ELF file that can be read as it is, not a helper's compressed one or its report.

    `status`: of the file that was looked at. Where all cores have one name, the next crash puts another in its place.
    """

    path: Path
    raw: bool
    status: os.stat_result

    def is_still(self, status: os.stat_result) -> bool:
        return os.path.samestat(self.status, status)


def read_pattern(root: Path = _ROOT) -> tuple[str, bool]:
    kernel = root / "proc/sys/kernel"
    uses_pid = (kernel / "core_uses_pid").read_text().strip() != "0"
    return (kernel / "core_pattern").read_text().rstrip("\n"), uses_pid


def is_contained(root: Path = _ROOT) -> bool:
    """In a pid namespace of its own, as containers are: the pattern, and its helper, are the host's."""
    return not is_initial_namespace(root / "proc/self/ns/pid")


def find_core(death: Death, dumped: bool, began: float, root: Path = _ROOT) -> Found | Gap:
    """`dumped`: the kernel says that it wrote one. `began` (seconds since 1970): older files are not of it."""
    try:
        pattern, uses_pid = read_pattern(root)
    except OSError as error:
        return Gap("core", f"core_pattern cannot be read: {error.strerror}")
    destination = find_destination(pattern, uses_pid, death, socket.gethostname())
    if not dumped:
        return Gap("core", *explain_absence(destination, pattern, death))
    if destination.kind == "file":
        for path, status in _list_candidates(destination.globs, began):
            if _is_of(path, status, death.pid):
                return Found(path, True, status)
        where = ", ".join(destination.globs) or "no directory that is known"
        return Gap(
            "core", f"the kernel says it wrote one (core_pattern {pattern!r}), but it is not in {where}", "ls -lt"
        )
    if destination.kind == "pipe":
        return _find_with_helper(destination.program, death, began, root)
    return Gap("core", f"core_pattern is {pattern!r}: only what listens there knows what is kept")


def _list_candidates(globs: tuple[str, ...], began: float) -> list[tuple[Path, os.stat_result]]:
    found = []
    for path in [Path(name) for pattern in dict.fromkeys(globs) for name in glob.glob(pattern)]:  # noqa: PTH207 (absolute)
        with contextlib.suppress(OSError):  # others' cores come and go where the name has no pid
            status = path.stat()
            if stat.S_ISREG(status.st_mode) and status.st_mtime >= began - 1:
                found.append((path, status))
    return found


def _is_of(path: Path, status: os.stat_result, pid: int) -> bool:
    try:
        with CoreFile(path) as core:
            return pid in (core.pid, *(thread.tid for thread in core.threads))
    except BadCore:
        return status.st_size == 0 or path.name.endswith(f".{pid}")


def _find_with_helper(program: str, death: Death, began: float, root: Path) -> Found | Gap:
    name = Path(program).name
    if is_contained(root):
        why = f"it went to {program} of the host: core_pattern is not the container's own"
        return Gap("core", why, f"on the host: coredumpctl list, or {PATTERN_FIX}")
    places = {"systemd-coredump": (_SYSTEMD,), "apport": _APPORT, "abrt-hook-ccpp": _ABRT}.get(name)
    if places is None:
        return Gap("core", f"it went to {program}: only that program knows what it keeps", PATTERN_FIX)
    globs = tuple(str(root / place.format(pid=death.pid, uid=death.uid)) for place in places)
    give_up = time.monotonic() + _HELPER_S
    while not (found := _list_candidates(globs, began)) and time.monotonic() < give_up:
        time.sleep(_POLL_S)
    if found:
        path, status = found[0]
        return Found(path, name == "abrt-hook-ccpp", status)
    ask = f"coredumpctl info {death.pid}" if name == "systemd-coredump" else f"ls -lt {Path(globs[0]).parent}"
    return Gap("core", f"it went to {name}, which has none of it (yet), or none that this user may read", ask)


def explain_absence(destination: Destination, pattern: str, death: Death) -> tuple[str, str]:
    """Why the kernel wrote none, as far as it can be known afterwards; and what to do."""
    if destination.kind == "none":
        return f"core_pattern is {pattern!r}: cores are thrown away", PATTERN_FIX
    if destination.kind == "pipe":
        return f"core_pattern hands cores to {destination.program}, which did not take it", "harness doctor"
    for path in map(Path, destination.globs):
        if not os.access(path.parent, os.W_OK):
            return f"core_pattern is {pattern!r}, and {path.parent} cannot be written", PATTERN_FIX
    why = "none was written: its size limit was 0 (ulimit -c), the disk was full, or it may not be dumped (setuid)"
    return why, "harness run --core always …"
