"""What the crash link costs a command that does much of what it interposes: threads, recovered faults, processes.

Each figure is the time for one, at two amounts, so that a cost that grows with the work would show.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator

from tests.bench import targets
from tests.bench.measure import PYTHON, RUN, run
from tests.bench.table import Note, Plan, Row, timing_row


def _own_rows(what: str, plan: Plan, program: str, *words: str) -> Iterator[Row]:
    """What the program says of itself, wall and CPU: start and end of harness are not in it."""
    command = [PYTHON, "-c", program, *words]
    rounds = [(run([*RUN, *command]), run(command)) for _ in range(plan.pairs)]
    for place, name in enumerate(("wall", "CPU")):
        ours, bare = ([float(cost.stdout.split()[place]) for cost in side] for side in zip(*rounds, strict=True))
        yield timing_row(f"{what}, {name}", ours, bare, "us")


def measure_traps(plan: Plan) -> Iterator[Row | Note]:
    if importlib.util.find_spec("wasmtime") is None:
        yield Note(f"wasmtime traps: not measured; next: {sys.executable} -m pip install wasmtime")
        return
    for name in ("unreachable", "read_outside"):
        for count in plan.amounts:
            yield from _own_rows(f"wasmtime trap ({name}), each of {count}", plan, targets.TRAP, str(count), name)


def measure_threads(plan: Plan) -> Iterator[Row | Note]:
    """On one CPU: without pinning, which CPU a thread wakes up on decides the figure."""
    for count in plan.amounts:
        yield from _own_rows(f"thread made and joined, each of {count}", plan, targets.THREADS, str(count), "1")
    for alive in (plan.amounts[0] // 4, plan.amounts[0]):
        what = f"thread made and joined, {alive} alive at once"
        yield from _own_rows(what, plan, targets.THREADS, str(plan.amounts[0]), str(alive))


def measure_forks(plan: Plan) -> Iterator[Row | Note]:
    """Half as many pipelines: each is two processes."""
    for what, script, processes in (("/bin/true", targets.FORK, 1), ("`echo | cat`", targets.PIPELINE, 2)):
        for count in (amount // processes for amount in plan.amounts):
            command = ["sh", "-c", script, "sh", str(count)]
            rounds = [(run([*RUN, *command]), run(command)) for _ in range(plan.stream_pairs)]
            for figure, name in (("wall_s", "wall"), ("cpu_s", "CPU, whole tree")):
                ours, bare = (
                    [getattr(cost, figure) / count * 1e6 for cost in side] for side in zip(*rounds, strict=True)
                )
                yield timing_row(f"sh: {what}, each of {count}, {name}", ours, bare, "us")


LOAD_ROWS = {"traps": measure_traps, "threads": measure_threads, "forks": measure_forks}
