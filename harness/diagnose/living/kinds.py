"""The table of kinds of the living, in the order in which they are tried: the first row that matches is the verdict.

The rules are elsewhere (`stuck`, `deadlocks`, `children`, `moving`), the document in `alive_document`. To add a kind,
add a row and a program in tests/zoo/hangs; docs/generate.py makes the page of kinds from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from harness.diagnose.environment.openmp import LET_ONE_SERVE, NEVER_THE_FLAG, ONE_DISTRIBUTOR, SEPARATE_PROCESSES
from harness.diagnose.living.blocked import find_blocked_collective, find_blocked_device, find_stopped
from harness.diagnose.living.blocked_child import find_blocked_child, find_blocked_io
from harness.diagnose.living.locks.deadlocks import find_lock_deadlock, find_openmp_deadlock
from harness.diagnose.living.locks.forks import find_fork_deadlock
from harness.diagnose.living.no_fault import (
    find_busy_native,
    find_busy_python,
    find_progress,
    find_swapping,
    find_waiting,
)
from harness.diagnose.living.scene import Finding, Scene
from harness.diagnose.living.tasks.asyncio_tasks import add_tasks, find_task_deadlock
from harness.documents.verdict import Document, Remedy
from harness.errors import EXIT_FAULT, EXIT_INCONCLUSIVE

_EXIT_CODES = {"progressing": 0, "clean": 0, "waiting": 11, "busy-python": 11, "busy-native": 11}


class AliveKind(NamedTuple):
    """`headline` is formatted with {detail}, {where} (process, thread, line) and {who} (process, if not the target).

    {pid}, {for} and {python} are filled into `remedies` and `next`.
    """

    name: str
    meaning: str
    headline: str
    rule: Callable[[Scene], Finding | None]
    remedies: tuple[Remedy, ...] = ()
    next: str | None = "harness attach {pid} --for {for}"


_ONE_ORDER = Remedy(
    "Take the locks in one order everywhere, and with `with`, so that an exception lets go of them.",
    True,
    "a ring of waiting threads, or a wait that nobody is left to end, does not come undone",
)
_START_FRESH = Remedy(
    'Start workers with multiprocessing.get_context("spawn") or "forkserver", or fork before threads and torch start.',
    True,
    "fork copies locks and thread pools, but not the threads that would release or serve them",
)


def _find_deadlock(scene: Scene) -> Finding | None:
    return find_lock_deadlock(scene) or find_task_deadlock(scene)


ALIVE: tuple[AliveKind, ...] = (
    AliveKind(
        "stopped",
        "a signal, a debugger or a frozen control group keeps it from running; the tracer is named",
        "Stopped: {detail}{where}",
        find_stopped,
        next=None,
    ),
    AliveKind(
        "deadlock-openmp",
        "a stack crosses from one OpenMP runtime straight into another, and stays there",
        "Deadlock between two OpenMP runtimes: {detail}{where}",
        find_openmp_deadlock,
        (ONE_DISTRIBUTOR, LET_ONE_SERVE, SEPARATE_PROCESSES, NEVER_THE_FLAG),
        next="harness openmp {pid}",
    ),
    AliveKind(
        "deadlock-fork",
        "a forked child waits for a lock or a thread pool whose threads only its parent has",
        "Deadlock after fork: it waits for {detail}{where}",
        find_fork_deadlock,
        (_START_FRESH,),
        next=None,
    ),
    AliveKind(
        "deadlock-lock",
        "threads or asyncio tasks wait for each other in a ring, or all wait and nobody is left who could wake one",
        "Deadlock{who}: {detail}",
        _find_deadlock,
        (_ONE_ORDER,),
        next=None,
    ),
    AliveKind(
        "blocked-collective",
        "it waits in gloo, NCCL or MPI for ranks that have not arrived; says who, and where they are instead",
        "Blocked in a {detail}",
        find_blocked_collective,
        (
            Remedy(
                "Make every rank call the same collectives in the same order, as often.",
                True,
                "a collective ends when all have come to it",
            ),
        ),
    ),
    AliveKind(
        "blocked-device",
        "it waits for a GPU that does not answer, asleep or spinning in the driver",
        "Blocked on the device: {detail}{where}",
        find_blocked_device,
        (Remedy("Look at the device (nvidia-smi, dmesg for Xid lines).", True, "the driver waits for work to finish"),),
    ),
    AliveKind(
        "blocked-child",
        "it waits for a child or worker that is stuck, dead, or cannot get rid of its output",
        "Blocked on a child: {detail}",
        find_blocked_child,
        (
            Remedy(
                "Read a child's pipes while it runs (communicate()), collect the dead, give tasks a time limit.",
                True,
                "whoever waits for process {stuck} without a limit waits as long as that one does",
            ),
        ),
        next="harness attach {stuck} --for {for}",
    ),
    AliveKind(
        "swapping",
        "it waits for its own memory to come back from disk",
        "Short of memory: {detail}{where}",
        find_swapping,
        (
            Remedy(
                "Lower its memory (smaller batches, fewer workers) or raise the limit.", True, "pages come from disk"
            ),
        ),
    ),
    AliveKind(
        "blocked-io",
        "it waits for a file, a pipe, a socket or a file lock, and who could answer is gone, stopped or waits for it",
        "Blocked on input or output: {detail}{where}",
        find_blocked_io,
    ),
    AliveKind(
        "progressing",
        "a counter that can only rise has risen: not stuck, with its rate",
        "Not stuck, it moves: {detail}{where}",
        find_progress,
        next=None,
    ),
    AliveKind(
        "busy-python",
        "on CPU in Python code, and nothing outside changes: slow or endless",
        "Busy in Python{who}: {detail}",
        find_busy_python,
    ),
    AliveKind(
        "busy-native",
        "on CPU in native code, and nothing outside changes: slow or endless",
        "Busy in native code{who}: {detail}",
        find_busy_native,
    ),
    AliveKind(
        "waiting",
        "all asleep and no ring: a server without clients and a lost queue look alike from outside",
        "Waiting{who}: {detail}",
        find_waiting,
    ),
)
ALIVE_NAMES = tuple(kind.name for kind in ALIVE)


def decide(scene: Scene) -> tuple[AliveKind, Finding]:
    for kind in ALIVE:
        if finding := kind.rule(scene):
            return kind, add_tasks(scene, kind.name, finding)
    raise AssertionError("the last rule matches everything")


def exit_code_of(document: Document) -> int:
    """0 it moves; 11 undecided: waiting, busy, not known, or it waits for somebody who moves or may only be slow; 10 a
    fault."""
    waits_for_mover = document.verdict.kind == "blocked-collective" and document.progress and document.progress.moving
    if document.verdict.status in ("unknown", "hypothesis") or waits_for_mover:
        return EXIT_INCONCLUSIVE
    return _EXIT_CODES.get(document.verdict.kind, EXIT_FAULT)
