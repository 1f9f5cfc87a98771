"""`harness attach host:PID` against what one does by hand: copy py-spy there, dump three times, look at it.

Against an sshd of our own. What many hosts cost is measured with an ssh that plays them (tests/builders/playing.py), so
that it is our side's cost alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench.measure import HARNESS, MeasurementFailed, require
from tests.bench.table import Note, Plan, Row, timing_row
from tests.builders.playing import play_hosts
from tests.live.sshd import Host, Network, network, why_not

_SPIN = """
import json, os
def spin():
    with open(os.environ["ZOO_READY"], "w") as file:
        json.dump({}, file)
    while True:
        pass
spin()
"""
_COUNTS = (1, 8, 32)


def measure_remote(plan: Plan) -> Iterator[Row | Note]:
    if reason := why_not():
        raise MeasurementFailed(reason)
    with network() as net:
        host = net.add("gpu07")
        script = net.folder / "spin.py"
        script.write_text(_SPIN)
        pid = host.start_job("/usr/bin/python3", script)
        _attach(net, pid)  # the first one may compile bytecode
        rounds = [(_attach(net, pid), _by_hand(net, host, pid)) for _ in range(plan.stream_pairs)]
    ours, peer = ([cost[0] for cost in side] for side in zip(*rounds, strict=True))
    yield timing_row("remote attach --for 2 / scp py-spy, ssh, py-spy dump 3 times a second apart", ours, peer)
    connections = [[cost[1] for cost in side] for side in zip(*rounds, strict=True)]
    yield Row("connections made", f"{max(connections[0])}", f"{max(connections[1])}", "-")
    yield Note(
        "ours: 4 samples at least, two native stacks, waits, output not flushed; theirs: three dumps, and a removal"
    )
    yield Note("round trips after the connection, ours: 3 (platform; code and py-spy; the look)")


def _attach(net: Network, pid: int) -> tuple[float, int]:
    net.count_connections()
    begun = time.monotonic()
    done = subprocess.run(
        [*HARNESS, "attach", "--json", f"gpu07:{pid}", "--for", "2"],
        env=net.environment,
        capture_output=True,
        check=False,
    )
    seconds = time.monotonic() - begun
    require(done.returncode == 11 and b"spin" in done.stdout, f"attach: {done.returncode} {done.stderr[-300:]!r}")
    return seconds, net.count_connections()


def _by_hand(net: Network, host: Host, pid: int) -> tuple[float, int]:
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or "py-spy"
    steps = [
        ["scp", "-q", "-S", str(net.bin / "ssh"), spy, "gpu07:/tmp/py-spy"],
        *([["ssh", "gpu07", f"/tmp/py-spy dump --native --pid {pid}"], ["sleep", "1"]] * 3)[:-1],
        ["ssh", "gpu07", "rm /tmp/py-spy"],
    ]
    begun = time.monotonic()
    for step in steps:
        done = subprocess.run(step, env=net.environment, capture_output=True, check=False)
        require(done.returncode == 0, f"{step}: {done.stderr[-300:]!r}")
    return time.monotonic() - begun, net.count_connections()


def measure_hosts(plan: Plan) -> Iterator[Row | Note]:
    """Our side alone, with 1, 8 and 32 hosts that answer at once."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        environment = play_hosts(folder, range(max(_COUNTS)))
        costs = {}
        for count in _COUNTS:
            (folder / "hosts").write_text("".join(f"gpu{n:02}:{100 + n % 4}\n" for n in range(count)))
            costs[count] = [_ask(folder, environment) for _ in range(plan.stream_pairs + 1)][1:]
    seconds = {count: median(cost[0] for cost in some) for count, some in costs.items()}
    mebibytes = {count: median(cost[1] for cost in some) for count, some in costs.items()}
    for count in _COUNTS[1:]:
        yield Row(
            f"attach to {count} hosts / 1",
            f"{seconds[count]:.2f} s",
            f"{seconds[1]:.2f} s",
            f"{seconds[count] / seconds[1]:.2f}",
        )
        yield Row(
            f"attach to {count} hosts / 1, memory",
            f"{mebibytes[count]:.1f} MiB",
            f"{mebibytes[1]:.1f} MiB",
            f"{mebibytes[count] / mebibytes[1]:.2f}",
        )
    each_s, each_mib = ((figures[32] - figures[1]) / 31 for figures in (seconds, mebibytes))
    at_256 = f"{seconds[1] + 255 * each_s:.1f} s, {mebibytes[1] + 255 * each_mib:.0f} MiB"
    yield Note(
        f"one host more: {each_s * 1e3:.0f} ms, {each_mib * 1024:.0f} KiB; 256 hosts, computed from that: {at_256}"
    )
    yield Note("each host is a process that plays it, started on this machine: on a real one that is ssh alone")


def _ask(folder: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Seconds, MiB of harness itself at most."""
    code = "import resource, sys; from harness.commands import main; main(sys.argv[1:]); "
    code += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    begun = time.monotonic()
    words = [sys.executable, "-c", code, "attach", "--json", "--hosts", str(folder / "hosts"), "--for", "1"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    require(done.returncode == 0 and "harness." in done.stdout, done.stderr[-300:])
    return time.monotonic() - begun, int(done.stderr.split()[-1]) / 1024


REMOTE_ROWS = {"remote": measure_remote, "hosts": measure_hosts}
