"""The full document on one living target: the verdict, and what else a reader at 2 a.m. asks for.

Threads, what rises, what was printed and not written, what the look has cost, and where all the others are. Pure; the
kind is decided in `alive`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.diagnose.living.blocked_child import HELPER, WORKER_LOOP, is_idle_worker
from harness.diagnose.living.kinds import decide
from harness.diagnose.living.line import list_others, open_scene
from harness.diagnose.living.no_fault import tell_rate
from harness.diagnose.living.scene import Scene
from harness.diagnose.living.stack_tree import Stack, collect_stacks, find_outlier, merge
from harness.diagnose.living.tasks.task_words import draw_tasks
from harness.diagnose.living.thread_waits import describe_threads
from harness.diagnose.living.verdict import judge_look
from harness.documents.verdict import Document, Living, Node, Outlier, Printed, Verdict
from harness.evidence.crash import CrashFrame
from harness.evidence.living.look import LivingProcess, Look

_FEW = 2
_MOST_RISING = 8


def judge_living(look: Look, pid: int | None = None) -> Document:
    """About one target: `pid`, else the first one."""
    document, scene = judge_look(look, pid), open_scene(look, pid)
    target = msgspec.structs.replace(document.target, rank=scene.processes[0].rank)
    living = _describe(scene, document.verdict) if document.outcome.state == "alive" else None
    return msgspec.structs.replace(document, target=target, living=living)


def _describe(scene: Scene, verdict: Verdict) -> Living:
    target = scene.processes[0]
    is_here = verdict.process.host == scene.look.host
    named = scene.find(verdict.process.pid) if verdict.process.pid and is_here else None
    told = " ".join(ground.fact for ground in verdict.grounds)
    python = _list_python(scene.processes)
    return Living(
        pid=named.pid if named else None,
        threads=tuple(describe_threads(named)) if named else (),
        tasks=draw_tasks(named.tasks.tasks) if named and named.tasks else (),
        rising=tuple(
            f"{counter.name}: {counter.values[0]} → {counter.values[-1]}, {tell_rate(counter)}"
            + (f" (process {process.pid})" if process is not target else "")
            for process, counter in [*scene.rising, *list_others(scene)][:_MOST_RISING]
            if counter.name not in told
        ),
        unflushed=tuple(
            Printed(process.pid, part.name, part.bytes, part.text, part.truncated)
            for process in ([target, named] if named and named is not target else [target])
            for part in process.unflushed
            if part.bytes
        ),
        stopped_ms=max((process.stopped_ms for process in scene.processes), default=0.0),
        processes=len(scene.processes),
        tree=grow_tree(python) if len(python) > _FEW else None,
        outlier=find_odd_one([scene.look], python) if len(python) > _FEW else None,
        interrupted=tuple(
            call + (f" (process {process.pid})" if process is not target else "")
            for process in scene.processes
            for call in process.interrupted
        ),
    )


def _list_python(processes: Sequence[LivingProcess]) -> list[LivingProcess]:
    """Without the helpers of multiprocessing, which say nothing."""
    return [process for process in processes if process.python and not HELPER.search(" ".join(process.argv))]


def grow_tree(processes: Sequence[LivingProcess]) -> Node:
    return merge(_stacks(_list_python(processes)))


def _stacks(processes: Sequence[LivingProcess]) -> list[Stack]:
    """Whoever waits for a task stands in its loop: which of them holds the queue's lock is chance."""
    idle = {(process.host, process.pid) for process in processes if is_idle_worker(process)}
    return [
        stack._replace(frames=_from_loop(stack)) if (stack.host, stack.pid) in idle else stack
        for stack in collect_stacks(processes)
    ]


def _from_loop(stack: Stack) -> tuple[CrashFrame, ...]:
    found = (at for at, frame in enumerate(stack.frames) if WORKER_LOOP.search(f"{frame.file}:{frame.function}"))
    return stack.frames[next(found, 0) :]


def find_odd_one(looks: Sequence[Look], processes: Sequence[LivingProcess]) -> Outlier | None:
    """Among those that ought to do the same: ranks, else the workers of one parent, else the targets."""
    outlier = find_outlier(_stacks(_find_peers(looks, _list_python(processes))))
    if outlier is None or not outlier.pids or not outlier.others_pids:
        return None
    kind = _kind_of(looks, outlier.host, outlier.pids[0])
    others_kind = _kind_of(looks, outlier.others_host, outlier.others_pids[0])
    if kind == others_kind == "progressing":
        return None  # all get on, each wherever it was at that moment
    return msgspec.structs.replace(outlier, kind=kind, others_kind=others_kind)


def _kind_of(looks: Sequence[Look], host: str | None, pid: int) -> str:
    look = next(look for look in looks if look.host == host)
    return decide(open_scene(look, pid))[0].name


def _find_peers(looks: Sequence[Look], processes: list[LivingProcess]) -> list[LivingProcess]:
    ranks = list_ranks(processes)
    if len(ranks) > _FEW:
        return ranks
    workers: dict[tuple[str | None, int], list[LivingProcess]] = {}
    for process in processes:
        if process.role == "worker":
            workers.setdefault((process.host, process.ppid), []).append(process)
    largest = max(workers.values(), key=len, default=[])
    targets = {(look.host, pid) for look in looks for pid in look.targets}
    named = [process for process in processes if (process.host, process.pid) in targets]
    return largest if len(largest) > _FEW else named


def list_ranks(processes: Sequence[LivingProcess]) -> list[LivingProcess]:
    """Without those below one: a DataLoader worker inherits the rank of its parent."""
    rank_of = {(process.host, process.pid): process.rank for process in processes}
    return [
        process for process in processes if process.rank and rank_of.get((process.host, process.ppid)) != process.rank
    ]


def tell_outlier(outlier: Outlier) -> str:
    """ "63 ranks wait in all_reduce at sync (train.py:43); rank 12 is in refill (train.py:88), busy-python" """
    who = "ranks" if "rank " in outlier.who else "processes"
    kind = outlier.others_kind or ""
    verb = "wait" if kind == "waiting" or kind.startswith(("blocked", "deadlock")) else "are"
    others = f"{outlier.others} {who} {verb} in {_tell_place(outlier.others_place, outlier.others_inside)}"
    verb = "is" if outlier.count == 1 else "are"
    return f"{others}; {outlier.who} {verb} in {_tell_place(outlier.place, outlier.inside)}, {outlier.kind}"


def _tell_place(place: str, inside: str | None) -> str:
    return f"{inside} at {place}" if inside else place
