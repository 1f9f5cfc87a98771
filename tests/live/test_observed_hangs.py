"""Who stands is not woken by a look: programs of the hang zoo, each beside a twin that nobody looks at.

Compared is what a process and each of its threads can count of itself: bytes and calls that read or write, how often it
left the CPU, the call it stands in; and, when Ctrl-C lets it go, what it says and how it ends. What runs by itself, as
the twin shows, is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.builders.hang_driver import HANGS, Hang, list_group, start
from tests.live.processes import DEADLINE_S, until

SCENARIOS = (
    "asyncio_never_done",
    "asyncio_task_ring",
    "child_writes_full_pipe",
    "download",
    "event_nobody_sets",
    "exit_waits_for_thread",
    "fifo_open",
    "fifo_read",
    "file_lock_flock",
    "fork_python_lock",
    "future_nobody_sets",
    "import_deadlock",
    "join_thread_asleep",
    "lock_dead_holder",
    "mp_lock_busy_holder",
    "pipe_own_end",
    "pipes_both_read",
    "queue_get",
    "queue_join_lost_task",
    "queue_joined_before_drained",
    "queue_put_full",
    "socket_silent",
)
APART_S = 0.05
INTERRUPT_S = 2.0
TEST_DEADLINE_S = 300
# (process, thread or 0, what), each by its number in its group: the same for both twins.
Counts = dict[tuple[int, int, str], str]


def test_who_stands_is_not_woken(tmp_path: Path) -> None:
    assert len(SCENARIOS) >= 20
    with ExitStack() as stack:
        pairs = {name: start_pair(name, tmp_path, stack) for name in SCENARIOS}
        before = {name: [count_standing(hang, name) for hang in pair] for name, pair in pairs.items()}
        pids = [str(seen.pid) for seen, _ in pairs.values()]
        command = [sys.executable, "-m", "harness", "attach", *pids, "--for", "2", "--json"]
        look = subprocess.run(command, capture_output=True, timeout=3 * DEADLINE_S, check=False)
        assert len(json.loads(look.stdout)["targets"]) == len(pids), look.stderr
        command = [sys.executable, "-m", "harness", "openmp", str(pairs["queue_get"][0].pid), "--json"]
        assert subprocess.run(command, stdout=subprocess.DEVNULL, timeout=DEADLINE_S, check=False).returncode in (0, 11)
        standing = 0
        for name, (seen, alone) in pairs.items():
            seen_before, alone_before = before[name]
            seen_after, alone_after = count(seen), count(alone)
            still = {key for key, value in alone_before.items() if alone_after.get(key) == value}
            standing += len(still) > len(alone_before) / 2
            differs = {key: (seen_before.get(key), seen_after.get(key)) for key in still}
            assert all(one == other for one, other in differs.values()), (name, differs)
        assert standing >= 20, "what nobody looks at has run by itself"
        interrupt(pairs.values())
        for name, pair in pairs.items():
            seen, alone = map(tell_end, pair)
            assert seen == alone, name


def start_pair(name: str, tmp_path: Path, stack: ExitStack) -> tuple[Hang, Hang]:
    pair = []
    for twin in ("seen", "alone"):
        (folder := tmp_path / name / twin).mkdir(parents=True)
        pair.append(stack.enter_context(start(HANGS / f"{name}.py", sys.executable, False, folder)))
    return pair[0], pair[1]


def count_standing(hang: Hang, name: str) -> Counts:
    """It has said that it is about to stand: it does so when nobody is on CPU, and nobody was twice in a row."""

    def standing() -> Counts | None:
        counts = count(hang)
        time.sleep(APART_S)
        on_cpu = any(what == "call" and value.startswith("running") for (_, _, what), value in counts.items())
        return counts if counts == count(hang) and not on_cpu else None

    counts: Counts = until(standing, f"{name} stands")
    return counts


def count(hang: Hang) -> Counts:
    return {
        (number, place, what): value
        for number, pid in enumerate(sorted(list_group(hang.pid)))
        for place, what, value in count_one(pid)
    }


def count_one(pid: int) -> Iterator[tuple[int, str, str]]:
    with contextlib.suppress(OSError):  # it has ended
        for place, task in enumerate(sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name))):
            for line in (task / "io").read_text().splitlines():
                yield place, line.partition(":")[0], line
            yield place, "call", (task / "syscall").read_text()
            switches = re.findall(r"\w+_ctxt_switches:\s*\d+", (task / "status").read_text())
            yield place, "switches", " ".join(switches)


def interrupt(pairs: Iterable[tuple[Hang, Hang]]) -> None:
    """Not each ends of it; where one does, its twin is waited for."""
    for pair in pairs:
        for hang in pair:
            os.kill(hang.pid, signal.SIGINT)
    earliest = time.monotonic() + INTERRUPT_S
    until(
        lambda: all(len({hang.poll() is None for hang in pair}) == 1 for pair in pairs) and time.monotonic() > earliest,
        "twins that both end of Ctrl-C, or both do not",
    )


def tell_end(hang: Hang) -> tuple[int | None, str]:
    """How it ended, and its words, without the names of directories, numbers and addresses."""
    return hang.poll(), re.sub(r"\S*/(?:seen|alone)\S*|0x\w+|\d{3,}", "…", hang.err.read_text())
