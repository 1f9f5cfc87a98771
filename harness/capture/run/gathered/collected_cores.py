"""After the command: every core of its tree is found, read where nobody saw the crash, and put into the case.

What is there because harness raised the limit does not stay where the user would stumble over it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from harness.capture.cores.file import BadCore
from harness.capture.cores.finding import PATTERN_FIX, Found, find_core
from harness.capture.cores.keeping import Replaced, TooLarge, link_core, move_core
from harness.capture.cores.limits import CoreLimit
from harness.capture.cores.pattern import Death
from harness.capture.machine.processor import read_cpu
from harness.capture.run.channels import say
from harness.capture.run.process_tree import Member, Tree
from harness.capture.run.supervisor import CRASHES
from harness.evidence.case import MOST_BYTES
from harness.evidence.crash import Crash, CrashFrame
from harness.evidence.gap import Gap
from harness.evidence.run import Core

# Those whose default action is to write one; man 7 signal. Where a process was when a limit was hit accuses nobody.
_DUMPING = CRASHES | {signal.SIGQUIT, signal.SIGXCPU, signal.SIGXFSZ}
_DUMPED = 0x80  # in a wait status; WCOREDUMP
# In a storm: what one is told of the others hardly differs, and each may take a minute.
_MOST_READ = 4
_WORTH_SAYING_BYTES = 512 * 1024**2


class Collected(NamedTuple):
    cores: tuple[Core, ...] = ()
    crashes: tuple[Crash, ...] = ()
    gaps: tuple[Gap, ...] = ()


def collect_cores(
    tree: Tree,
    limit: CoreLimit,
    case: Path,
    *,
    seen: frozenset[int],
    reported: frozenset[int],
    broken: frozenset[int],
) -> Collected:
    """`seen`: pids whose stacks the crash link has: their cores are kept unread.

    `reported`: those that it was told of at all; that they have no core is no gap. `broken`: of those the ones whose
    stack was too much for the tools; gdb, which reads the innermost frames only, may manage.
    """
    cores: list[Core] = []
    crashes: list[Crash] = []
    gaps: list[Gap] = []
    missing: dict[Gap, list[int]] = {}
    for member in sorted(tree.members.values(), key=lambda member: member.ended_s or 0.0):
        status = member.wait_status
        if status is None or status & 0x7F not in _DUMPING:
            continue
        dumped = bool(status & _DUMPED)
        if not dumped and member.pid in reported:
            continue
        refused = None if dumped else limit.why_none
        found = Gap("core", *refused) if refused else _find(member, status & 0x7F, dumped, tree)
        if isinstance(found, Gap):
            missing.setdefault(found, []).append(member.pid)
            continue
        if member.pid not in seen and found.raw and status & 0x7F in CRASHES and len(crashes) < _MOST_READ:
            _read(found.path, member, member.pid not in broken, crashes, gaps)
        if kept := _keep(found, member.pid, limit, case, gaps):
            cores.append(kept)
    gaps += [_of_processes(gap, pids) for gap, pids in missing.items()]
    return Collected(tuple(cores), tuple(crashes), tuple(gaps))


def add_crashes(linked: tuple[Crash, ...], read: tuple[Crash, ...]) -> tuple[Crash, ...]:
    """What the crash link saw, and what the cores add: of a process it was told of, the stacks that it missed."""
    crashes = list(linked)
    for crash in read:
        same = [index for index, other in enumerate(crashes) if (other.pid, other.signo) == (crash.pid, crash.signo)]
        if not same:
            crashes.append(crash)
            continue
        told = _add_memory(crashes[same[-1]], crash)
        if crash.step in ("native-all", "native"):
            told = _add_stacks(told, crash)
        crashes[same[-1]] = structs.replace(told, tools=(*told.tools, *crash.tools))
    return tuple(crashes)


def _add_memory(told: Crash, read: Crash) -> Crash:
    """Of a process that had left before it was looked at, its core alone knows what was where."""
    if told.mappings:
        return told
    return structs.replace(
        told,
        images=read.images,
        mappings=read.mappings,
        packages=read.packages,
        openmp=read.openmp,
        threads_total=read.threads_total,
        code=told.code or read.code,
    )


def _add_stacks(told: Crash, read: Crash) -> Crash:
    """Where only gdb could read the core, the Python frames that were seen before stay, below the native ones."""
    threads = tuple(
        structs.replace(thread, frames=(*thread.frames, *_python_frames(told, thread.tid)))
        if not any(frame.kind == "python" for frame in thread.frames)
        else thread
        for thread in read.threads
    )
    return structs.replace(told, step=read.step, threads=threads, gaps=read.gaps)


def _python_frames(crash: Crash, tid: int) -> Iterator[CrashFrame]:
    return (frame for thread in crash.threads if thread.tid == tid for frame in thread.frames if frame.kind == "python")


def _of_processes(gap: Gap, pids: list[int]) -> Gap:
    whose = f"process {pids[0]}" if len(pids) == 1 else f"processes {pids[0]} and {len(pids) - 1} more"
    return Gap(f"{gap.what} of {whose}", gap.why, gap.fix)


def _find(member: Member, signo: int, dumped: bool, tree: Tree) -> Found | Gap:
    cwds = [member.cwd, *(other.cwd for other in tree.members.values())]
    with contextlib.suppress(OSError):
        cwds.append(str(Path.cwd()))
    known = tuple(dict.fromkeys(cwd for cwd in cwds if cwd))
    death = Death(member.pid, signo, os.getuid(), os.getgid(), member.executable, known)
    return find_core(death, dumped, time.time() - tree.now_s())


def _read(path: Path, member: Member, with_pystack: bool, crashes: list[Crash], gaps: list[Gap]) -> None:
    from harness.capture.cores.analysis import read_crash

    try:
        crash = read_crash(path, member.ended_s or 0.0, with_pystack=with_pystack)
    except BadCore as error:
        gaps.append(Gap(f"what the core of process {member.pid} says", str(error)))
        return
    cpu = read_cpu() if crash.signo == signal.SIGILL else None
    crashes.append(structs.replace(crash, pid=member.pid, cpu=cpu))  # as it is called here, namespaces or not


def _keep(found: Found, pid: int, limit: CoreLimit, case: Path, gaps: list[Gap]) -> Core | None:
    """The user's own core and a helper's stay where they are, with a second name in the case."""
    path, size = found.path, found.status.st_size
    ours = found.raw and (limit.is_ours or limit.wish == "always")
    try:
        if not ours:
            return Core(pid, str(link_core(path, case, pid)), str(path), size, "linked")
        if size > _WORTH_SAYING_BYTES:
            say(f"Keeping the core of process {pid} ({size / 2**30:.1f} GiB) …")
        return Core(pid, str(move_core(found, case, pid, MOST_BYTES)), str(path), size, "moved")
    except (FileNotFoundError, Replaced):
        why = f"another process that died has written its core over it: both are called {path}"
        gaps.append(Gap(f"core of process {pid}", why, PATTERN_FIX))
        return None
    except TooLarge:
        why = f"it is larger than cases may be, also compressed; it is left in {path}"
    except OSError as error:
        why = f"{error.strerror}; it is left in {path}"
    gaps.append(Gap(f"core of process {pid} in the case", why))
    return Core(pid, str(path), str(path), size, "left")
