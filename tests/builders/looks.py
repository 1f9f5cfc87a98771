"""Builders of looks at living processes for the unit tests: stacks and waits as the hang zoo describes them."""

from __future__ import annotations

from harness.diagnose.living.verdict import judge_look
from harness.documents.verdict import Document
from harness.evidence.crash import CrashFrame
from harness.evidence.living.look import (
    Counter,
    HeldLock,
    HotSpot,
    LivingProcess,
    LivingThread,
    Look,
    Output,
    Rest,
    Wait,
)
from harness.evidence.living.unflushed import Unflushed
from harness.evidence.openmp import Census, Place, Runtime
from tests.builders.crashes import LIBC, PYTHON, native, python

STDLIB = "/usr/lib/python3.11"
SITE = "/job/.venv/lib/python3.11/site-packages"
TORCH_CPU = f"{SITE}/torch/lib/libtorch_cpu.so"
GOMP = f"{SITE}/torch/lib/libgomp-a34b3233.so.1"
LOOKED_S = 5.0

SEM_WAIT = native("do_futex_wait.constprop.0", LIBC), native("__new_sem_wait_slow64.constprop.0", LIBC)
SEM_TIMED = native("do_futex_wait.constprop.0", LIBC), native("sem_clockwait@@GLIBC_2.30", LIBC)
EVALUATE = native("_PyEval_EvalFrameDefault", PYTHON)
CONDITION = *SEM_WAIT, python("wait", f"{STDLIB}/threading.py", 327)
JOIN = (
    *SEM_WAIT,
    python("_wait_for_tstate_lock", f"{STDLIB}/threading.py", 1132),
    python("join", f"{STDLIB}/threading.py", 1112),
)
FUTEX = Wait("futex", ("0x7f00", "0x189", "0x0", "0x0", "0x0", "0xffffffff"), target="lock word 0x7f00")
FUTEX_TIMED = Wait("futex", ("0x7f00", "0x189", "0x0", "0x7ffc", "0x0", "0xffffffff"), target="lock word 0x7f00")
FUTEX_SHARED = Wait("futex", ("0x7f00", "0x109", "0x0", "0x0", "0x0", "0xffffffff"), target="lock word 0x7f00")
ASLEEP = Rest(together=True, handled_signals=())  # of a process that nothing outside can wake


def line(function: str, number: int, file: str = "/job/train.py") -> CrashFrame:
    return python(function, file, number)


def thread(tid: int, *stack: CrashFrame, **facts: object) -> LivingThread:
    """Asleep at one place in a futex, unless told otherwise."""
    values: dict[str, object] = {
        "tid": tid,
        "name": None,
        "state": "S",
        "cpu_s": 0.0,
        "stack": stack,
        "changed": False,
        "wait": FUTEX,
        **facts,
    }
    return LivingThread(**values)  # type: ignore[arg-type]


def busy(tid: int, *stack: CrashFrame, **facts: object) -> LivingThread:
    return thread(tid, *stack, **{"state": "R", "cpu_s": 4.9, "wait": None, **facts})


def process(*threads: LivingThread, **facts: object) -> LivingProcess:
    values: dict[str, object] = {
        "pid": threads[0].tid if threads else 100,
        "ppid": 1,
        "name": "python",
        "argv": ("python", "train.py"),
        "executable": "/usr/bin/python3.11",
        "python": "3.11.7",
        "state": threads[0].state if threads else "S",
        "age_s": 60.0,
        "threads": threads,
        **facts,
    }
    return LivingProcess(**values)  # type: ignore[arg-type]


def look(*processes: LivingProcess, **facts: object) -> Look:
    values: dict[str, object] = {
        "harness": "0",
        "platform": "linux-x86_64",
        "started": "",
        "looked_s": LOOKED_S,
        "samples": 5,
        "targets": (processes[0].pid,),
        "processes": processes,
        **facts,
    }
    return Look(**values)  # type: ignore[arg-type]


def judge(*processes: LivingProcess, **facts: object) -> Document:
    return judge_look(look(*processes, **facts))


def words(document: Document) -> str:
    verdict = document.verdict
    return " ".join([verdict.headline, *(ground.fact for ground in verdict.grounds)])


def counter(
    kind: str,
    name: str,
    *values: int,
    frame: CrashFrame | None = None,
    consumes: bool | None = None,
    tid: int | None = None,
) -> Counter:
    times_s = tuple(float(n) for n in range(len(values)))
    return Counter(kind, name, times_s, values, frame, consumes, tid)  # type: ignore[arg-type]


def wanted(expression: str, function: str, number: int, **facts: object) -> HeldLock:
    return HeldLock(expression, "/job/train.py", number, function, waiting=True, **facts)  # type: ignore[arg-type]


def held(expression: str, function: str, number: int, **facts: object) -> HeldLock:
    return HeldLock(expression, "/job/train.py", number, function, waiting=False, **facts)  # type: ignore[arg-type]


def hot(frame: CrashFrame, seen: int, tid: int = 100) -> HotSpot:
    return HotSpot(frame, seen, 5, tid)


def census(*runtimes: tuple[str, str, str]) -> Census:
    """(image, family, base) each."""
    found = tuple(
        Runtime(Place(image, base, "torch", "2.7.1", "wheel"), family, None) for image, family, base in runtimes
    )  # type: ignore[arg-type]
    return Census("process", "100", "3.11.7", "linux-x86_64", 90, found, (), ())


def log_file(**facts: object) -> dict[str, object]:
    """stdout is an empty file, and some text has not got there."""
    text = "epoch 1: 1024 clusters\ntolerance 0.001, settling\n"
    return {
        "outputs": (Output(1, "file", "/job/train.log", 0, 371.0),),
        "unflushed": (Unflushed(1, "stdout", len(text), text, False),),
        **facts,
    }
