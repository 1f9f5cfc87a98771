"""What this machine gives to a job, for `harness doctor`: container, memory, swap, shared memory, limits. Linux.

Reads files only and judges nothing but whether something is missing. `root` is a variable so that a made-up tree can be
tested.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from harness.capture.cores.finding import is_contained
from harness.capture.machine import cgroup
from harness.capture.machine.killers import Killers
from harness.capture.proc import read_meminfo
from harness.evidence.facility import Seen

_ROOT = Path("/")
_GIB = 2**30
# A DataLoader with a few workers keeps batches of this order there; docker's default is 64 MiB.
_LITTLE_SHM_BYTES = 1 * _GIB
_FEW = 1024


def container(root: Path = _ROOT) -> Seen:
    """Being in one is no fault; what it hides has rows of its own."""
    kind = _name_container(root)
    if kind is None:
        return Seen("yes", "none: pids, core_pattern and the kernel log are this system's own")
    return Seen("yes", f"inside {kind}: core_pattern, the kernel log and the pids in it are the host's")


def _name_container(root: Path) -> str | None:
    if not is_contained(root):
        return None  # a file alone proves nothing: an image can be booted as a machine of its own
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / "var/run/secrets/kubernetes.io").exists():
        return "a Kubernetes pod"
    return "a pid namespace of its own (a container)"


def memory_limit(root: Path = _ROOT) -> Seen:
    machine = read_meminfo(root).get("MemTotal")
    if machine is None:
        return Seen("unknown", "how much memory there is", why=f"{root / 'proc/meminfo'} does not tell")
    lowest = min(cgroup.read_limits(root), default=None)
    if lowest is None or lowest[0] >= machine:
        return Seen("yes", f"{machine / _GIB:.1f} GiB, no control group sets less")
    return Seen("yes", f"{lowest[0] / _GIB:.1f} of {machine / _GIB:.1f} GiB: the control group's limit ({lowest[1]})")


def swap(root: Path = _ROOT) -> Seen:
    """With none, memory that runs out is an OOM kill at once; with much, a standstill first."""
    values = read_meminfo(root)
    total, free = values.get("SwapTotal"), values.get("SwapFree", 0)
    if total is None:
        return Seen("unknown", "how much swap there is", why=f"{root / 'proc/meminfo'} does not tell")
    if total == 0:
        return Seen("yes", "none: a job that needs too much is killed at once, not slowed down")
    return Seen("yes", f"{total / _GIB:.1f} GiB, {(total - free) / _GIB:.1f} used: a job may crawl before it is killed")


def overcommit(root: Path = _ROOT) -> Seen:
    """Documentation/mm/overcommit-accounting.rst."""
    mode = (root / "proc/sys/vm/overcommit_memory").read_text().strip()
    if mode != "2":
        return Seen("yes", f"vm.overcommit_memory={mode}: memory is counted when it is touched")
    ratio = (root / "proc/sys/vm/overcommit_ratio").read_text().strip()
    why = f"vm.overcommit_memory=2 (ratio {ratio} %): what is reserved counts, and jobs reserve far more than they use"
    return Seen("no", "memory is refused before it is used up", why=why, fix="sudo sysctl vm.overcommit_memory=0")


def shared_memory(root: Path = _ROOT) -> Seen:
    detail = "workers hand batches over in /dev/shm"
    try:
        room = os.statvfs(root / "dev/shm")
    except OSError as error:
        fix = "sudo mount -t tmpfs -o size=8G tmpfs /dev/shm"
        return Seen("no", detail, why=f"/dev/shm: {error.strerror}", fix=fix)
    size, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
    said = f"{detail}: {free / _GIB:.1f} of {size / _GIB:.1f} GiB are free"
    if free >= _LITTLE_SHM_BYTES:
        return Seen("yes", said)
    inside = _name_container(root) is not None
    fix = "docker run --shm-size=8g …" if inside else "sudo mount -o remount,size=8G /dev/shm"
    why = "full: who fills it? ls -lS /dev/shm" if size >= _LITTLE_SHM_BYTES else "too small for DataLoader workers"
    return Seen("no", said, why=why, fix=fix)


def user_limits() -> Seen:
    """Those a training job runs into."""
    rows = (
        ("address space", resource.RLIMIT_AS, "ulimit -v unlimited", None),
        ("data", resource.RLIMIT_DATA, "ulimit -d unlimited", None),
        ("CPU time", resource.RLIMIT_CPU, "ulimit -t unlimited", None),
        ("open files", resource.RLIMIT_NOFILE, "ulimit -n 65536", _FEW),
        ("processes", resource.RLIMIT_NPROC, "ulimit -u unlimited", _FEW),
    )
    tight = []
    for name, number, fix, enough in rows:
        soft = resource.getrlimit(number)[0]
        if soft != resource.RLIM_INFINITY and (enough is None or soft < enough):
            tight.append((f"{name} {soft:,}", fix))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if not tight:
        return Seen("yes", f"memory and CPU time are not limited; {files:,} open files")
    why = f"limited here: {', '.join(what for what, _ in tight)}"
    return Seen("no", "a job is refused memory, threads or files by its own limits", why=why, fix=tight[0][1])


def signal_tracing() -> Seen:
    """Who sent a SIGKILL only the kernel knows. Asked as `harness run` asks it: nothing has to be mounted for that."""
    detail = "who sent a SIGKILL (the kernel's signal_generate event)"
    killers = Killers(0)
    killers.open()
    if killers.fd is not None:
        killers.close()
        return Seen("yes", detail)
    fix = "sudo harness run …" if killers.is_for_root else "harness run, on the host itself"
    return Seen("no", detail, why=killers.why_not, fix=fix)
