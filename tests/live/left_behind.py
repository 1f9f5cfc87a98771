"""What a soak has started, and what is left of it: processes, files in shared folders, mounts, control groups."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.live.processes import state_of

OWNER, PATIENT = "SOAK_OWNER", "SOAK_PATIENT"  # variables by which a process is known
_REPOSITORY = Path(__file__).parents[2]
_CLONE_NEWNS = 0x00020000


class Process(NamedTuple):
    pid: int
    role: str
    owner: str
    patient: bool


def list_processes(folder: Path) -> Iterator[Process]:
    """What a round has started and what that has started, by their environment; zombies are over."""
    start = f"{OWNER}={folder}/".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or state_of(int(entry.name)) in (None, "Z"):
            continue
        with contextlib.suppress(OSError):
            words = (entry / "environ").read_bytes().split(b"\0")
            owner = next((word[len(start) :] for word in words if word.startswith(start)), None)
            if owner is not None:
                patient = f"{PATIENT}=1".encode() in words or owner.endswith(b"-bare/")
                pid = int(entry.name)
                yield Process(pid, role_of(pid, patient), owner.decode().rstrip("/"), patient)


def role_of(pid: int, patient: bool) -> str:
    name = Path(f"/proc/{pid}/comm").read_text().strip()
    if patient:
        return "python" if name.startswith("python") else "shell"
    return {"output-relay": "relay", "output-holder": "holder", "signals-of": "stand-in"}.get(name, "tool")


def collect_orphans() -> int:
    """Zombies that fell to us when harness was killed; nothing else of ours is running."""
    count = 0
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            count += 1
    return count


def hide_shared_folders() -> list[Path]:
    """In a mount namespace of our own /dev/shm and /tmp are empty, so that what appears there is ours.

    Where the project or its interpreter lives is not hidden.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    needed = [_REPOSITORY, Path(sys.prefix), Path(sys.base_prefix)]
    hidden = [Path(name) for name in ("/dev/shm", "/tmp") if not any(one.is_relative_to(name) for one in needed)]
    for path in hidden:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "soak", path], check=True)
    return hidden


def surroundings(hidden: list[Path]) -> set[str]:
    """What a run could leave behind outside of its round: files, mounts, control groups below ours, children."""
    found = {str(path) for folder in hidden for path in folder.iterdir()}
    if hidden:
        found |= {f"mount {line}" for line in Path("/proc/self/mounts").read_text().splitlines()}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        base = Path("/sys/fs/cgroup", names.removeprefix("name=") or "unified")
        found |= {f"group {one}" for one in (base / path.lstrip("/")).rglob("*") if one.is_dir()}
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return found | {f"child {pid} {state_of(int(pid))}" for pid in children}
