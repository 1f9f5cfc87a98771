"""`harness run` with something refused: the table of resources and phases, and each call of the crash path in turn.

`python -m tests.zoo.exhaustion` (`make exhaustion`) makes every call of the phases crash and report fail once, one run
each, of a program in C and of Python, then every call of the dying process itself, and prints what came out wrong.
Used by test_exhaustion.py, which runs the table and the calls of the dying process.
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
# What a crash's report says is missing, or that it could not be had: one of these words. A cell that is not here costs
# nothing that could be missed; of writing when all is reported, nothing can be said.
WHOLE = ("Segmentation fault (SIGSEGV) in patient",)
_ALONE, _NO_LINK = ("The command runs without harness.",), ("There is no place for the crash link",)
SAYS = {
    ("descriptors", "start"): _ALONE,
    ("processes", "start"): ("Nothing can be put beside the command: Resource temporarily unavailable.",),
    ("memory", "start"): ("Nothing can be put beside the command: Cannot allocate memory.",),
    ("room", "start"): _NO_LINK,
    ("writing", "start"): ("The case could not be kept in",),
    ("reading", "start"): _ALONE,
    ("rights", "start"): _NO_LINK,
    ("descriptors", "running"): ("Too many open files", "more processes than descriptors to watch them with"),
    ("memory", "running"): ("Cannot allocate memory",),
    ("descriptors", "crash"): ("of the crashed process: Too many open files",),
    ("memory", "crash"): ("Cannot allocate memory",),
    ("reading", "crash"): ("[core]", "the dying process itself"),
    ("rights", "crash"): ("[core]", "the dying process itself"),
    ("descriptors", "report"): ("The command ended with SIGSEGV. More could not be told: Too many open files.",),
    ("room", "report"): ("The case could not be kept in",),
    ("reading", "report"): ("The command ended with SIGSEGV. More could not be told: Input/output error.",),
    ("writing", "report"): ("",),
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
# For each call of the dying process: as the kernel answers in want, and to whoever may not.
WANT, FORBIDDEN = errno.EAGAIN, errno.EPERM
_DEADLINE_S = 60.0
_AT_ONCE = 3
# Each report names the signal, and so does what is said where there can be none.
_TOLD = ("SIGSEGV", *_ALONE)
_PYTHON = "import ctypes, os; os.write(1, b'out\\n'); os.write(2, b'err\\n'); ctypes.string_at(8)"


class Patient(NamedTuple):
    """A program that says something on both channels and then crashes, or leaves; and the library that refuses."""

    program: Path
    library: Path

    def run(self, folder: Path, refuses: str, *end: object, **variables: str) -> Ended:
        return self.run_job(folder, refuses, self.program, *end, **variables)

    def run_job(self, folder: Path, refuses: str, *job: object, **variables: str) -> Ended:
        harness = Harness(folder)
        asked = {"HARNESS_REFUSES": refuses} if refuses else {}
        environment = {**harness.env, "LD_PRELOAD": str(self.library), "PATH": "/nowhere", **asked, **variables}
        done = subprocess.run(
            harness.line(*job),
            cwd=folder,
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
    subprocess.run(
        ["gcc", "-g", "-rdynamic", "-Wall", "-Wextra", "-Werror", "-o", patient.program, source / "patient.c", "-ldl"],
        check=True,
    )
    return patient


def list_calls(patient: Patient, folder: Path, *job: object) -> list[str]:
    """PHASE:KEY of each call between the crash and the end of harness."""
    folder.mkdir()
    notes = folder / "notes"
    patient.run_job(folder, "", *job, HARNESS_NOTES=str(notes))
    return list(dict.fromkeys(notes.read_text().splitlines()))


def find_wrong(patient: Patient, folder: Path, call: str, *job: object) -> str | None:
    """What came out wrong when that call failed; null: nothing."""
    folder.mkdir()
    name = call.partition(":")[2].split(" ")[0]
    ended = patient.run_job(folder, f"{call}:{_ERRORS.get(name, errno.EIO)}", *job)
    return _check(ended, call, tells=name != "write")


def list_dying_calls(patient: Patient, folder: Path) -> list[int]:
    """The number of each system call that the crash link makes in the dying process, in their order."""
    folder.mkdir()
    notes = folder / "notes"
    patient.run(folder, "", "crash", "notes", notes)
    return list(map(int, notes.read_text().split()))


def find_wrong_in_dying(patient: Patient, folder: Path, number: int, error: int) -> str | None:
    """The same when that one of its calls failed, the first of which is 1."""
    folder.mkdir()
    return _check(patient.run(folder, "", "crash", number, error), f"call {number} of the dying process, {error}")


def find_all_wrong_in_dying(patient: Patient, folder: Path, *errors: int) -> tuple[int, list[str]]:
    """How many cells, and what came out wrong."""
    calls = list_dying_calls(patient, folder / "dying")
    cells = [(number, error) for number in range(1, len(calls) + 1) for error in errors]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda cell: find_wrong_in_dying(patient, folder / f"dying-{cell[0]}-{cell[1]}", *cell), cells)
        return len(cells), [wrong for wrong in found if wrong is not None]


def _check(ended: Ended, call: str, tells: bool = True) -> str | None:
    said = ended.stderr.decode(errors="replace")
    if (ended.status, ended.stdout) != (CRASHED, b"out\n") or ended.stderr.count(b"err\n") != 1:
        return f"{call}: status {ended.status}, {ended.stdout!r}\n{said}"
    if "bug in harness" in said or (tells and not any(words in said for words in _TOLD)):
        return f"{call}: {said}"
    return None


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="harness-exhaustion-") as made:
        folder = Path(made)
        patient = build(folder)
        jobs: dict[str, tuple[object, ...]] = {
            "C": (patient.program, "crash"),
            "Python": (sys.executable, "-c", _PYTHON),
        }
        known: set[str] = set()
        cells = wrong = 0
        for name, job in jobs.items():
            calls = [call for call in list_calls(patient, folder / name, *job) if call not in known]
            known |= set(calls)
            cells += len(calls)
            counts = collections.Counter(call.partition(":")[0] for call in calls)
            print(f"{name}: {', '.join(f'{count} calls in {phase}' for phase, count in counts.items())}", flush=True)
            wrong += _try_all(patient, folder / f"{name}-", calls, job)
        count, found = find_all_wrong_in_dying(patient, folder, WANT, FORBIDDEN)
        print("\n".join([f"dying process: {count} cells", *found]), flush=True)
    print(f"{cells + count} cells, {wrong + len(found)} wrong")
    return bool(wrong or found)


def _try_all(patient: Patient, prefix: Path, calls: list[str], job: tuple[object, ...]) -> int:
    wrong = 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for cell in pool.map(
            lambda one: find_wrong(patient, Path(f"{prefix}{one[0]}"), one[1], *job), enumerate(calls)
        ):
            if cell is not None:
                wrong += 1
                print(cell, flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
