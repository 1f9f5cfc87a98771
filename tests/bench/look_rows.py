"""`harness attach` against one dump by py-spy or pystack: how long it takes, and how long the target stands still.

The stop is measured from outside, on a thread that only spins: what is neither time on a CPU nor time in the queue for
one (/proc/PID/task/TID/schedstat, ns) it was held by a tracer. Sampling its state would miss short stops.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from harness.capture.stacks.ladder import LADDER, Rung, take_stacks
from harness.capture.stacks.quiet_ladder import OWN_WALK
from harness.diagnose.living.stack_tree import Stack, find_outlier, merge
from harness.evidence.crash import CrashFrame
from harness.report.living import draw_tree
from harness.report.sections import make_section
from harness.report.terminal import paint
from tests.bench import targets
from tests.bench.measure import HARNESS, PYTHON, environment, live, require
from tests.bench.table import Note, Plan, Row, met, timing_row

_ANSWERS = (0, 10, 11)  # it moves, it is stuck, undecided
_FRAMES = 60
_STACKS = 1000


class _Cost(NamedTuple):
    """`told_ms`: how long it was stopped by harness's own account."""

    wall_s: float
    stopped_ms: float
    told_ms: float = 0.0


def measure_look(plan: Plan) -> Iterator[Row | Note]:
    threads = max(count for count in plan.threads if count <= 40)
    peers = {
        "py-spy dump --native": ["py-spy", "dump", "--native", "--pid"],
        "pystack remote --native-all": ["pystack", "remote", "--native-all"],
    }
    with live([], targets.SPIN_AMONG, str(threads)) as target:
        pid = target.process.pid
        commands = [[*HARNESS, "attach", "--json", "--for", "1"], *(_beside_python(words) for words in peers.values())]
        _measure(pid, commands[0])  # the first one may compile bytecode
        idle_ms = _stopped_while(pid, lambda: time.sleep(1))[1]
        rounds = [[_measure(pid, command) for command in commands] for _ in range(plan.stream_pairs)]
        walks = [[_take_stacks(pid, rung) for rung in (OWN_WALK, LADDER[0])] for _ in range(plan.stream_pairs)]
    own, engine = (list(column) for column in zip(*walks, strict=True))
    yield timing_row(f"own walk, {threads} threads, wall / pystack native-all", *_figures("wall_s", own, engine))
    yield timing_row(
        f"own walk, {threads} threads, stopped / pystack native-all", *_figures("stopped_ms", own, engine), "ms"
    )
    ours, *others = (list(column) for column in zip(*rounds, strict=True))
    for name, costs in zip(peers, others, strict=True):
        yield timing_row(f"look, {threads} threads, wall / {name}", *_figures("wall_s", ours, costs))
    for name, costs in zip(peers, others, strict=True):
        figures = _figures("stopped_ms", ours, costs)
        yield timing_row(f"look, {threads} threads, stopped / {name}", *figures, "ms")
    accounts = [cost.told_ms for cost in ours], [cost.stopped_ms for cost in ours]
    yield timing_row(f"look, {threads} threads, stopped: as reported / as measured", *accounts, "ms")
    yield Note(
        "ours: `harness attach --for 1`, native stacks once, Python lines and locals three times or more, what every"
    )
    yield Note("thread waits for, unflushed output, about one second to see whether it moves; theirs: one snapshot")
    yield Note("stopped: wall time less time on a CPU and in its queue, of a thread that only spins")
    yield Note(f"the same over one second with nobody looking: {idle_ms:.1f} ms")


def _figures(name: str, *sides: list[_Cost]) -> list[list[float]]:
    return [[getattr(cost, name) for cost in side] for side in sides]


def _take_stacks(pid: int, rung: Rung) -> _Cost:
    step = "none"

    def take() -> None:
        nonlocal step
        step = take_stacks(pid, "python", 60.0, ladder=(rung,))[0]

    wall_s, stopped_ms = _stopped_while(pid, take)
    require(step == "native-all", f"{rung.tool}: no stacks")
    return _Cost(wall_s, stopped_ms)


def _beside_python(words: list[str]) -> list[str]:
    tool = shutil.which(words[0], path=str(Path(PYTHON).parent)) or shutil.which(words[0])
    require(tool is not None, f"{words[0]} not found")
    return [str(tool), *words[1:]]


def _measure(pid: int, command: list[str]) -> _Cost:
    answer = ""

    def look() -> None:
        nonlocal answer
        done = subprocess.run([*command, str(pid)], capture_output=True, text=True, env=environment(), check=False)
        allowed = _ANSWERS if "attach" in command else (0,)
        require(done.returncode in allowed, f"{' '.join(command)}: status {done.returncode}: {done.stderr[-300:]}")
        answer = done.stdout

    wall_s, stopped_ms = _stopped_while(pid, look)
    require("spin" in answer, f"{' '.join(command)}: the spinning function is not in its answer")
    return _Cost(wall_s, stopped_ms, json.loads(answer)["living"]["stopped_ms"] if "attach" in command else 0.0)


def _stopped_while(pid: int, work: Callable[[], object]) -> tuple[float, float]:
    """Seconds it took, milliseconds that the main thread stood still in them."""
    before = _read_schedule(pid)
    work()
    after = _read_schedule(pid)
    wall_ns, ran_ns, queued_ns = (b - a for a, b in zip(before, after, strict=True))
    return wall_ns / 1e9, max(0.0, (wall_ns - ran_ns - queued_ns) / 1e6)


def _read_schedule(pid: int) -> tuple[int, int, int]:
    """Now, time on a CPU, time in its queue. Up to one tick of what runs now is not yet in it."""
    ran_ns, queued_ns, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return time.monotonic_ns(), int(ran_ns), int(queued_ns)


def measure_scale(plan: Plan) -> Iterator[Row | Note]:
    """The same look at more and more threads, and at a launcher with its ranks."""
    few, *more = [_look_at_many(targets.SPIN_AMONG, count, plan) for count in plan.looked_at]
    for count, many in zip(plan.looked_at[1:], more, strict=True):
        yield from _compare(f"look, {count} threads", f"{plan.looked_at[0]}", many, few)
    yield from _compare(
        f"look, {plan.ranks} ranks", f"{plan.looked_at[0]} threads", _look_at_many(targets.RANKS, plan.ranks, plan), few
    )


def _compare(what: str, peer: str, many: list[list[float]], few: list[list[float]]) -> Iterator[Row]:
    for name, ours, theirs in zip(("wall", "CPU"), many, few, strict=True):
        yield timing_row(f"{what}, {name} / {peer}", ours, theirs)


def _look_at_many(program: str, count: int, plan: Plan) -> list[list[float]]:
    """Wall and CPU seconds of each look, its tools included."""
    seconds = []
    with live([], program, str(count)) as target:
        for _ in range(plan.stream_pairs):
            before, begun = os.times(), time.monotonic()
            command = [*HARNESS, "attach", "--json", "--for", "1", str(target.process.pid)]
            done = subprocess.run(command, capture_output=True, env=environment(), check=False)
            require(done.returncode in _ANSWERS, f"harness attach: status {done.returncode}: {done.stderr[-300:]!r}")
            after = os.times()
            used_s = after.children_user + after.children_system - before.children_user - before.children_system
            seconds.append((time.monotonic() - begun, used_s))
    return [list(column) for column in zip(*seconds, strict=True)]


def measure_watch(plan: Plan) -> Iterator[Row | Note]:
    """At its default rate, on a target that keeps one core busy and has many threads to look at."""
    threads = max(count for count in plan.threads if count <= 40)
    with live([], targets.SPIN_AMONG, str(threads)) as target:
        pid = target.process.pid
        rounds = [(_lost_share(pid, plan.window_s), *_watch_for(pid, plan)) for _ in range(plan.stream_pairs)]
    alone, watched, own = (list(column) for column in zip(*rounds, strict=True))
    extra = median(after - before for before, after in zip(alone, watched, strict=True))
    row = Row(
        f"watch, {threads} threads: time lost by the target", f"{median(watched):.3%}", f"{median(alone):.3%}", "-"
    )
    yield row._replace(goal="< 0.5 % more", met=met(extra < 0.005))
    yield Row("watch: CPU of its own, of one core", f"{median(own):.2%}", "-", "-", "< 1 %", met(median(own) < 0.01))
    yield Note(
        "lost: neither on a CPU nor in its queue, of a thread that only spins; peer: nobody watches, same window"
    )


def _lost_share(pid: int, window_s: float) -> float:
    wall_s, lost_ms = _stopped_while(pid, lambda: time.sleep(window_s))
    return lost_ms / 1e3 / wall_s


def _watch_for(pid: int, plan: Plan) -> tuple[float, float]:
    """What the target lost, and what the watcher used, after its start: shares of one core."""
    command = [*HARNESS, "watch", "--json-lines", str(pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()) as watcher:
        assert watcher.stdout is not None
        require(b'"watching"' in watcher.stdout.readline(), "harness watch did not begin")
        time.sleep(plan.settle_s)
        before, begun = _read_schedule(watcher.pid), time.monotonic()
        lost = _lost_share(pid, max(plan.window_s, 3.0))
        used_s, wall_s = (_read_schedule(watcher.pid)[1] - before[1]) / 1e9, time.monotonic() - begun
        watcher.send_signal(signal.SIGINT)
        watcher.communicate()
    require(watcher.returncode == 130, f"harness watch: status {watcher.returncode}")
    return lost, used_s / wall_s


def measure_merge(plan: Plan) -> Iterator[Row | Note]:
    many, few = _make_stacks(_STACKS), _make_stacks(_STACKS // 10)
    lines = _draw(many)
    require(any(f"{_STACKS - 1} × rank" in line for line in lines), "the majority is not in the tree")
    require("rank 500 is in refill" in " ".join(" ".join(lines).split()), "the odd one is not named")
    seconds = [[_time(lambda s=s: _draw(s)) for s in (many, few)] for _ in range(plan.repeats)]
    ours, small = (list(column) for column in zip(*seconds, strict=True))
    row = timing_row(f"{_STACKS} stacks of {_FRAMES} frames merged and drawn / {len(few)}", ours, small)
    yield row._replace(goal="< 1 s", met=met(median(ours) < 1), ours=f"{median(ours) * 1e3:.0f} ms")._replace(
        peer=f"{median(small) * 1e3:.1f} ms"
    )


def _make_stacks(count: int) -> list[Stack]:
    """All in a collective but one; addresses differ, as they do between processes."""
    odd = count // 2
    return [Stack(tuple(_make_frames(rank, rank == odd)), f"pid {rank}", rank) for rank in range(count)]


def _make_frames(rank: int, is_odd: bool) -> Iterator[CrashFrame]:
    native = 0 if is_odd else 20
    for n in range(native):
        yield CrashFrame("native", f"gloo::wait_{n}(int)", image="/job/libtorch_cpu.so", address=hex(rank * 4096 + n))
    yield CrashFrame("python", "refill" if is_odd else "all_reduce", "/job/train.py", 88)
    for n in range(_FRAMES - native - 1):
        yield CrashFrame("python", f"level_{n}", "/job/train.py", n)


def _draw(stacks: list[Stack]) -> list[str]:
    tree = draw_tree(merge(stacks), find_outlier(stacks))
    return paint([make_section("tree", tree, "drawing")], width=110, color=False).splitlines()


def _time(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


LOOK_ROWS = {"look": measure_look, "scale": measure_scale, "watch": measure_watch, "merge": measure_merge}
