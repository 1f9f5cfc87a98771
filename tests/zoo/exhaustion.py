"""`harness run` with something refused: the table of resources and phases, and each call of the crash path in turn.

`python -m tests.zoo.exhaustion` makes every call of the phases crash and report fail once, one run each, and prints
what came out wrong. Used by test_exhaustion.py, which runs the table.
"""

from __future__ import annotations

import collections
import errno
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.live.processes import Ended, Harness, shell_status

CRASHED = 139
PHASES = ("start", "running", "crash", "report")
_OPENS = "open,open64,openat,openat64,opendir,fdopendir"
# Calls, and the error that they end with.
RESOURCES = {
    "descriptors": f"{_OPENS},socket,pipe,pipe2,dup,dup3,memfd_create,openpty,syscall:{errno.EMFILE}",
    "processes": f"fork,vfork,posix_spawn:{errno.EAGAIN}",
    "memory": f"mmap,mmap64,fork,vfork,posix_spawn,memfd_create,poll:{errno.ENOMEM}",
    "room": f"mkdir,rename,bind,memfd_create:{errno.ENOSPC}",
    "writing": f"write:{errno.ENOSPC}",
    "reading": f"read,pread,pread64,readlink,recv:{errno.EIO}",
    "rights": f"prlimit,prlimit64,setrlimit,kill,ioctl,getsockopt,setsockopt,syscall:{errno.EPERM}",
}
# For one call alone; else EIO.
_ERRORS = {
    "fork": errno.EAGAIN,
    "vfork": errno.EAGAIN,
    "mmap": errno.ENOMEM,
    "mmap64": errno.ENOMEM,
    "poll": errno.ENOMEM,
    "mkdir": errno.ENOSPC,
    "rename": errno.ENOSPC,
    "write": errno.ENOSPC,
    "wait4": errno.EINTR,
    "waitpid": errno.EINTR,
    "waitid": errno.EINTR,
} | dict.fromkeys([*_OPENS.split(","), "socket", "pipe", "pipe2", "dup", "memfd_create", "syscall"], errno.EMFILE)
_DEADLINE_S = 20.0


class Patient(NamedTuple):
    """A program that says something on both channels and then crashes, or leaves; and the library that refuses."""

    program: Path
    library: Path

    def run(self, folder: Path, refuses: str, end: str, **variables: str) -> Ended:
        harness = Harness(folder)
        asked = {"HARNESS_REFUSES": refuses} if refuses else {}
        environment = {**harness.env, "LD_PRELOAD": str(self.library), "PATH": "/nowhere", **asked, **variables}
        done = subprocess.run(
            harness.line(self.program, end),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=_DEADLINE_S,
            check=False,
        )
        return Ended(shell_status(done.returncode), done.stdout, done.stderr, None)


def build(folder: Path) -> Patient:
    """Compiles both."""
    source, patient = Path(__file__).with_name("exhausting"), Patient(folder / "patient", folder / "refuse.so")
    library = ["-shared", "-fPIC", "-fno-builtin", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *library, "-o", patient.library, source / "refuse.c", "-ldl"], check=True)
    subprocess.run(["gcc", "-g", "-o", patient.program, source / "patient.c"], check=True)
    return patient


def list_calls(patient: Patient, folder: Path) -> list[str]:
    """PHASE:KEY of each call between the crash and the end of harness."""
    notes = folder / "notes"
    patient.run(folder, "", "crash", HARNESS_NOTES=str(notes))
    return list(dict.fromkeys(notes.read_text().splitlines()))


def find_wrong(patient: Patient, folder: Path, call: str) -> str | None:
    """What came out wrong when that call failed; null: nothing."""
    folder.mkdir()
    name = call.partition(":")[2].split(" ")[0]
    ended = patient.run(folder, f"{call}:{_ERRORS.get(name, errno.EIO)}", "crash")
    if (ended.status, ended.stdout) != (CRASHED, b"out\n") or ended.stderr.count(b"err\n") != 1:
        return f"{call}: status {ended.status}, {ended.stdout!r}\n{ended.stderr.decode(errors='replace')}"
    if b"bug in harness" in ended.stderr or (b"harness: " not in ended.stderr and name != "write"):
        return f"{call}: {ended.stderr.decode(errors='replace')}"
    return None


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="harness-exhaustion-") as made:
        folder = Path(made)
        patient = build(folder)
        calls = list_calls(patient, folder)
        phases = collections.Counter(call.partition(":")[0] for call in calls)
        print(", ".join(f"{count} calls in {phase}" for phase, count in phases.items()), flush=True)
        with ThreadPoolExecutor(3) as pool:
            cells = pool.map(lambda one: find_wrong(patient, folder / str(one[0]), one[1]), enumerate(calls))
            wrong = 0
            for cell in cells:
                if cell is not None:
                    wrong += 1
                    print(cell, flush=True)
    print(f"{len(calls)} cells, {wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
