"""The rows of the table: each function measures one question against a peer in the same run.

A goal comes from the project's issues and is compared, never asserted. "-" means that no goal was set.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench import targets
from tests.bench.measure import (
    HARNESS,
    PYTHON,
    RUN,
    Cost,
    children,
    cpu_share,
    environment,
    interleave,
    live,
    median_ratio,
    pss_mib,
    require,
    run,
    stream,
)
from tests.bench.table import Note, Plan, Row, met, spread, timing_row

_HERE = Path(__file__).parent
_PASS = [PYTHON, "-c", "pass"]
_THROUGH_CAT = ["sh", "-c", '"$@" | cat', "sh"]


def measure_training(plan: Plan) -> Iterator[Row | Note]:
    command = [PYTHON, str(_HERE / "gru_loop.py"), str(plan.steps)]
    rounds = [(run([*RUN, *command]), run(command)) for _ in range(plan.pairs)]
    ours, bare = zip(*rounds, strict=True)
    losses = {cost.stdout for cost in ours + bare}
    require(len(losses) == 1, f"the printed losses differ between runs: {len(losses)} versions")
    walls = [cost.wall_s for cost in ours], [cost.wall_s for cost in bare]
    yield timing_row("GRU training, wall", *walls)._replace(goal="<= 1.01", met=met(median_ratio(*walls)[0] <= 1.01))
    cpu_s = [cost.cpu_s for cost in ours], [cost.cpu_s for cost in bare]
    yield timing_row("GRU training, CPU time of the whole tree", *cpu_s)
    yield timing_row("GRU training, the loop alone, wall", *([_loop_s(cost) for cost in side] for side in (ours, bare)))
    last = next(iter(losses)).decode().splitlines()[-1]
    yield Note(f"{plan.pairs} pairs under/bare, interleaved; all {2 * plan.pairs} printed the same losses ({last})")
    noise = max(walls[1]) / min(walls[1])
    yield Note(f"slowest / fastest bare run: {noise:.3f}; that is how noisy this machine was")


def _loop_s(cost: Cost) -> float:
    """gru_loop.py's own figure: the last line of its stderr, after whatever torch had to say."""
    lines = cost.stderr.decode(errors="replace").splitlines()
    require(bool(lines) and lines[-1].startswith("loop_s "), f"no time from the loop: {lines[-1:]}")
    return float(lines[-1].removeprefix("loop_s "))


def measure_fixed_cost(plan: Plan) -> Iterator[Row | Note]:
    run([*RUN, *_PASS])  # the first one may compile bytecode
    ours, bare = interleave(plan.repeats, lambda: run([*RUN, *_PASS]).wall_s, lambda: run(_PASS).wall_s)
    extra = [a - b for a, b in zip(ours, bare, strict=True)]
    yield Row(
        "fixed cost: `run -- python -c pass` minus bare",
        f"{median(ours):.3f} s",
        f"{median(bare):.3f} s",
        f"+{median(extra):.3f} s ({min(extra):.3f} to {max(extra):.3f})",
        "< 0.25 s",
        met(median(extra) < 0.25),
    )
    yield Note("where it goes (median ms of an instrumented run; `follow` holds the command's own life):")
    for name, ms in _split_fixed_cost(max(5, plan.repeats // 2), median(bare) * 1e3):
        yield Note(f"  {ms:7.1f}  {name}")
    yield Note(f"dearest imports of harness.commands.run, self ms: {_dearest_imports(8)}")


def _split_fixed_cost(repeats: int, bare_ms: float) -> list[tuple[str, float]]:
    samples = [_one_split() for _ in range(repeats)]
    split = [(name, median(sample.get(name, 0.0) for sample in samples)) for name in samples[0]]
    followed = [name for name, _ in split].index("Supervisor.follow") + 1
    return [*split[:followed], ("  of which a bare `python -c pass` lasts", bare_ms), *split[followed:]]


def _one_split() -> dict[str, float]:
    """Milliseconds by step, in the order of events."""
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "split.json"
        argv = [PYTHON, str(_HERE / "instrumented_run.py"), str(answer), "run", "--", *_PASS]
        cost = run(argv)
        facts = json.loads(answer.read_text())
    split = {"start of the interpreter, from fork to the first line": (facts["first_ns"] - cost.begun_ns) / 1e6}
    for name, spent_ns in facts["steps"]:
        split[name] = split.get(name, 0.0) + spent_ns / 1e6
    in_run = sum(spent for name, spent in split.items() if not name.startswith(("start", "import")))
    split["between these steps"] = facts["run_ns"] / 1e6 - in_run
    split["exit of the interpreter, relays' last end of file"] = (cost.ended_ns - facts["last_ns"]) / 1e6
    return split


def _dearest_imports(count: int) -> str:
    """From -X importtime, whose lines are `import time: self [us] | cumulative | name`."""
    text = run([PYTHON, "-X", "importtime", "-c", "import harness.commands.run"]).stderr.decode()
    bare = run([PYTHON, "-X", "importtime", "-c", "pass"]).stderr.decode()
    known = {name for name, _ in _self_times(bare)}
    added = sorted((us, name) for name, us in _self_times(text) if name not in known)
    total_ms = sum(us for us, _ in added) / 1000
    words = ", ".join(f"{name} {us / 1000:.1f}" for us, name in reversed(added[-count:]))
    return f"{words}; all {len(added)}: {total_ms:.1f}"


def _self_times(text: str) -> list[tuple[str, int]]:
    rows = [line.removeprefix("import time:").split("|") for line in text.splitlines() if line.count("|") == 2]
    return [(name.strip(), int(own)) for own, _, name in rows if own.strip().isdigit()]


def measure_version(plan: Plan) -> Iterator[Row | Note]:
    run([*HARNESS, "--version"])
    ours, peer = interleave(plan.repeats, lambda: run([*HARNESS, "--version"]).wall_s, lambda: run(_PASS).wall_s)
    yield Row(
        "`harness --version` / `python -c pass`",
        f"{median(ours) * 1e3:.0f} ms",
        f"{median(peer) * 1e3:.0f} ms",
        spread(ours, peer),
        "<= 3",
        met(median_ratio(ours, peer)[0] <= 3),
    )


def measure_streaming(plan: Plan) -> Iterator[Row | Note]:
    """The relay's copying against the least that could be put in its place."""
    count = plan.streamed_bytes // targets.BLOCK_BYTES
    command = [PYTHON, "-c", targets.WRITE_BLOCKS.format(block=targets.BLOCK_BYTES, count=count)]
    size = count * targets.BLOCK_BYTES
    pair = [*RUN, *command], [*_THROUGH_CAT, *command]
    rounds = [[stream(argv, size) for argv in pair] for _ in range(plan.stream_pairs)]
    ours, peer = zip(*rounds, strict=True)
    name = f"{size // 1024**2} MiB to a pipe, against `| cat`"
    for what, figure in (("first to last byte", "flow_s"), ("whole run, wall", "wall_s"), ("CPU, whole tree", "cpu_s")):
        a, b = [getattr(cost, figure) for cost in ours], [getattr(cost, figure) for cost in peer]
        yield timing_row(f"{name}: {what}", a, b)


def measure_printing(plan: Plan) -> Iterator[Row | Note]:
    """`print` in a loop: harness makes Python's output unbuffered, so one write per line; a bare pipe is buffered."""
    command = [PYTHON, "-c", targets.PRINT_LINES.format(count=plan.lines, line=targets.LINE)]
    size = plan.lines * len(targets.LINE.format(0))
    ours, buffered, unbuffered = interleave(
        plan.stream_pairs,
        lambda: stream([*RUN, *command], size).wall_s,
        lambda: stream([*_THROUGH_CAT, *command], size).wall_s,
        lambda: stream([*_THROUGH_CAT, *command], size, PYTHONUNBUFFERED="1").wall_s,
    )
    name = f"{plan.lines} lines by print(), against `| cat`"
    for what, peer in (("", buffered), (", unbuffered as well", unbuffered)):
        yield timing_row(name + what, ours, peer)


def measure_footprint(plan: Plan) -> Iterator[Row | Note]:
    """Supervisor and relays, while the command idles and while it writes about a thousand lines a second."""
    with live([], targets.IDLE) as bare:
        time.sleep(plan.settle_s)
        peer_mib, peer_share = pss_mib([bare.process.pid]), cpu_share([bare.process.pid], plan.window_s)
    with live(RUN, targets.IDLE) as ours:
        yield from _footprint_rows("idle", ours.process.pid, plan, (peer_mib, peer_share), "idle python")
    with live(["sh", "-c", '"$@" | cat; exit 0', "sh"], targets.CHATTY) as piped:
        time.sleep(plan.settle_s)
        cats = children(piped.process.pid, "cat")
        require(len(cats) == 1, "`| cat` not found")
        peer_mib, peer_share = pss_mib(cats), cpu_share(cats, plan.window_s)
    with live(RUN, targets.CHATTY) as ours:
        yield from _footprint_rows("chatty", ours.process.pid, plan, (peer_mib, peer_share), "cat")
    yield Note("PSS counts a page shared with other processes in part; CPU is that of supervisor and relays only")


def _footprint_rows(
    mood: str, supervisor: int, plan: Plan, peer: tuple[float, float], peer_name: str
) -> Iterator[Row | Note]:
    relays = children(supervisor, "output-relay")
    require(bool(relays), "no relay found below the supervisor")
    time.sleep(plan.settle_s)
    everyone = [supervisor, *relays]
    ours_mib, relays_mib, share = pss_mib(everyone), pss_mib(relays), cpu_share(everyone, plan.window_s)
    yield Row(
        f"{mood} command: PSS of supervisor + {len(relays)} relay(s)",
        f"{ours_mib:.1f} MiB ({relays_mib:.1f} in relays)",
        f"{peer[0]:.1f} MiB ({peer_name})",
        f"{ours_mib / peer[0]:.1f}",
    )
    yield Row(
        f"{mood} command: CPU of supervisor + relay(s)",
        f"{share * 1e3:.2f} ms/s",
        f"{peer[1] * 1e3:.2f} ms/s ({peer_name})",
        f"{share / peer[1]:.1f}" if peer[1] > 1e-6 else "-",
    )


def measure_children(plan: Plan) -> Iterator[Row | Note]:
    """Following a tree: the supervisor scans for descendants, so its cost grows with them."""
    shares = {}
    for count in (1, 16, 64):
        with live(RUN, targets.MANY, str(count)) as ours:
            time.sleep(plan.settle_s)
            shares[count] = cpu_share([ours.process.pid], plan.window_s)
        yield Row(
            f"supervisor CPU with {count} idle children, against 1",
            f"{shares[count] * 1e3:.2f} ms/s",
            f"{shares[1] * 1e3:.2f} ms/s",
            f"{shares[count] / shares[1]:.2f}",
        )


def measure_report(plan: Plan) -> Iterator[Row | Note]:
    """From the command's last breath to the report on stderr, as the kept output grows to its bound."""
    sizes = (0.1, 1.0, 3.0)
    repeats = max(3, plan.repeats // 4)
    columns = interleave(repeats, *(lambda mib=mib: _report_latency_s(int(mib * 1024**2)) for mib in sizes))
    for mib, column in zip(sizes, columns, strict=True):
        yield Row(
            f"abort to report printed, {mib:g} MiB of output, against 0.1",
            f"{median(column):.3f} s",
            f"{median(columns[0]):.3f} s",
            spread(column, columns[0]),
        )


def _report_latency_s(size: int) -> float:
    """The report is one write, and the last thing on stderr."""
    read_end, write_end = os.pipe()
    argv = [*RUN, PYTHON, "-c", targets.DIE, str(write_end), str(size)]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[write_end],
        env=environment(),
    )
    os.close(write_end)
    text, printed_ns = b"", 0
    while chunk := os.read(process.stderr.fileno(), targets.BLOCK_BYTES):
        text, printed_ns = text + chunk, time.monotonic_ns()
    process.stderr.close()
    require(process.wait() == 128 + 6, f"a command that aborted gave exit status {process.returncode}")
    require(b"harness: " in text, "no report was printed")
    died_ns = int(os.read(read_end, 64))
    os.close(read_end)
    return (printed_ns - died_ns) / 1e9


ROWS = {
    "training": measure_training,
    "fixed": measure_fixed_cost,
    "version": measure_version,
    "streaming": measure_streaming,
    "printing": measure_printing,
    "footprint": measure_footprint,
    "children": measure_children,
    "report": measure_report,
}
