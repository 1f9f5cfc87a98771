"""What /proc says of a living process: who it is, its family, its state, where its standard streams lead. Linux.

Stops nothing and runs nothing. Some of these files wait for a lock of the target's memory, which a process in
uninterruptible sleep may hold for ever: they are read within a deadline. `proc` and `root` can be made-up trees.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from harness.capture.files.images import PYTHON_FILE, find_python, read_images
from harness.capture.files.layout import FAILURES, find_environ
from harness.capture.files.owners import search_interpreter
from harness.capture.machine.cgroup import list_groups
from harness.capture.openmp.variables import read_variables
from harness.capture.proc import list_new_processes, list_tids, read_argv, read_stat, read_status, read_switches
from harness.capture.stacks.cpython.own_reader import tell_gil
from harness.evidence.crash import Image
from harness.evidence.living.look import Output

_PROC = Path("/proc")
_PATIENCE_S = 1.0
_BLINK_S = 0.05
_LIBC = re.compile(r"/libc[.-][^/]*$")
_TERMINAL = re.compile(r"/dev/(pts/|tty|console)")
_SPAWNED = re.compile(r"from multiprocessing\.\w+ import|--multiprocessing-fork|torch/?.*_inductor.compile_worker")
_DATALOADER = "pt_data_worker"  # as torch names them
STOPPED = "it is stopped"
_Fact = TypeVar("_Fact")


class Identity(NamedTuple):
    """`loaded_at`: the addresses that every exec draws anew and every fork keeps (/proc/PID/auxv)."""

    pid: int
    name: str = ""
    argv: tuple[str, ...] = ()
    executable: str | None = None
    python: str | None = None
    version: str | None = None
    rank: str | None = None
    loaded_at: bytes | None = None


def find_family(targets: Sequence[int], seen: set[int]) -> list[int]:
    """The targets and all below them, parents first; we and those below us are left out, unless they are targets.

    `seen`: whom to leave out because they were there before; it is brought up to date.
    """
    found, hidden, family = set(targets), {os.getpid()}, list(targets)
    for pid, ppid in list_new_processes(seen):
        if pid in found or pid in hidden:
            continue
        if ppid in hidden:
            hidden.add(pid)
        elif ppid in found:
            found.add(pid)
            family.append(pid)
    return family


def read_identity(pid: int) -> Identity:
    """Whatever can be had; within a second."""
    found = Identity(pid)
    for step in (_read_name, _read_words, _read_program, _read_rank):
        found = read_in_time(lambda step=step, found=found: step(found), found)  # type: ignore[misc]
    return found


def read_in_time(read: Callable[[], _Fact], otherwise: _Fact, patience_s: float = _PATIENCE_S) -> _Fact:
    """In a thread that is left behind when it does not come back: those waits end when we end (killable)."""
    answer: list[_Fact] = []

    def work() -> None:
        with contextlib.suppress(OSError, ValueError, LookupError, struct.error):
            answer.append(read())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(patience_s)
    return answer[0] if answer else otherwise


def _read_name(found: Identity) -> Identity:
    return found._replace(name=read_stat(found.pid).name)


def _read_words(found: Identity) -> Identity:
    folder = _PROC / str(found.pid)
    found = found._replace(argv=read_argv(found.pid), rank=find_rank((folder / "environ").read_bytes().split(b"\0")))
    return found._replace(executable=str((folder / "exe").readlink()), loaded_at=(folder / "auxv").read_bytes())


def _read_program(found: Identity) -> Identity:
    images = read_images(found.pid)
    python = find_python(found.executable, images)
    if python is None:
        return found
    paths = {python, str(Path(python).resolve()), *(one.path for one in images if PYTHON_FILE.search(one.path))}
    versions = [owned.version for owned in search_interpreter(paths, None).values() if owned.version]
    version, threading_build = max(versions, key=len, default=None), tell_gil(found.pid)
    told = f"{version or 'unknown'} ({threading_build})" if threading_build else version
    return found._replace(python=python, version=told)


def _read_rank(found: Identity) -> Identity:
    """Set since the start, as torch.multiprocessing.spawn's users do: asked for where Python is and none was given."""
    if found.rank is not None or found.python is None:
        return found
    images = read_images(found.pid)
    return found._replace(rank=find_rank(_read_variables_now(found, images)))


def _read_variables_now(found: Identity, images: tuple[Image, ...]) -> list[bytes]:
    """The program's own `environ` counts before libc's: it has taken that over."""
    keepers = [image for image in images if image.path == found.executable or _LIBC.search(image.path)]
    memory = os.open(f"/proc/{found.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for image in sorted(keepers, key=lambda image: image.path != found.executable):
            with contextlib.suppress(*FAILURES):
                if (environ := find_environ(image.path)) is not None:
                    return read_variables(lambda at, size: os.pread(memory, size, at), int(image.base, 16) + environ)
        return []
    finally:
        os.close(memory)


def find_rank(variables: Iterable[bytes]) -> str | None:
    return next((entry[5:].decode(errors="replace") for entry in variables if entry.startswith(b"RANK=")), None)


def is_forked(child: Identity, parent: Identity) -> bool | None:
    """Without exec: it still has what its parent's exec drew. Null: could not look."""
    if child.loaded_at is None or parent.loaded_at is None:
        return None
    return bool(child.loaded_at) and (child.executable, child.loaded_at) == (parent.executable, parent.loaded_at)


def find_role(child: Identity, parent: Identity) -> Literal["worker", "child"]:
    """A worker runs the same program as its parent (fork, multiprocessing, a rank); a child runs another one."""
    is_rank = child.rank is not None and child.rank != parent.rank  # a rank's own children inherit the variable
    spawned = any(_SPAWNED.search(word) for word in child.argv)
    same = is_forked(child, parent) or (child.argv and child.argv == parent.argv)
    same_name = not child.argv and child.name in (parent.name, _DATALOADER)  # of a zombie nothing else is left
    return "worker" if is_rank or spawned or same or same_name else "child"


def is_frozen(pid: int, root: Path = Path("/")) -> bool:
    """By its control group: v1 freezer.state, v2 cgroup.events; both say what holds, whoever above has asked for it."""
    with contextlib.suppress(OSError, ValueError):
        for controllers, path in list_groups(root, pid):
            base = root / "sys/fs/cgroup"
            if "freezer" in controllers.split(","):
                candidates = [base / "freezer" / path.lstrip("/") / "freezer.state"]
            elif not controllers:
                candidates = [where / path.lstrip("/") / "cgroup.events" for where in (base, base / "unified")]
            else:
                continue
            if any(_says_frozen(file) for file in candidates):
                return True
    return False


def _says_frozen(file: Path) -> bool:
    try:
        words = file.read_text().split("\n")
    except OSError:
        return False
    return "FROZEN" in words or "frozen 1" in words


def why_not_stop(pid: int) -> str | None:
    """Why a tool that stops the process must not be used on it; null: it may."""
    try:
        state, status = read_stat(pid).state, read_status(pid)
    except OSError:
        return "it has ended"
    if status.tracer_pid:
        return f"process {status.tracer_pid} traces it"
    if state in "TtZX":
        return {"T": STOPPED, "t": "it is traced"}.get(state, "it has ended")
    if is_frozen(pid):
        return "its control group is frozen"
    return "it is in uninterruptible sleep, and would not stop" if _is_unreachable(pid) else None


def _is_unreachable(pid: int) -> bool:
    """A thread stays in uninterruptible sleep; a wait for a disk is over in a moment."""
    before = {tid: switches for tid in list_tids(pid) if (switches := _asleep_since(pid, tid))}
    if before:
        time.sleep(_BLINK_S)
    return any(_asleep_since(pid, tid) == switches for tid, switches in before.items())


def _asleep_since(pid: int, tid: int) -> list[str] | None:
    try:
        if read_stat(pid, tid).state != "D":
            return None
        return read_switches(pid, tid)[1]
    except OSError:
        return None


def read_outputs(pid: int, proc: Path = _PROC) -> tuple[Output, ...]:
    return tuple(_read_output(proc / str(pid) / "fd" / str(fd), fd) for fd in range(3))


def _read_output(link: Path, fd: int) -> Output:
    try:
        path, about = str(link.readlink()), link.stat()
    except FileNotFoundError:
        return Output(fd, "closed", None)
    except OSError:
        return Output(fd, "other", None)
    if stat.S_ISREG(about.st_mode):
        return Output(fd, "file", path, about.st_size, max(0.0, round(time.time() - about.st_mtime, 3)))
    if stat.S_ISFIFO(about.st_mode):
        return Output(fd, "pipe", path)
    if stat.S_ISSOCK(about.st_mode):
        return Output(fd, "socket", path)
    if path == "/dev/null":
        return Output(fd, "null", path)
    return Output(fd, "tty" if _TERMINAL.match(path) else "other", path)
