"""Which integers of a process that ran while it was read surely rise, and whether it ran at all.

A thread that sleeps has stable memory; of one that runs an object can be read after it has gone, and another one in its
place. Knows no tool, and reads nothing but how often each thread has run.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.capture.proc import list_tids

_PROC = Path("/proc")
_TORN_SHARE, _LEAST_KEPT = 3, 4  # one value in so many; of so many nobody says that they rise by chance


class Value(NamedTuple):
    """Of one integer in one sample. `ran`: its thread was on CPU, so that another object may have been read for it."""

    at_s: float
    value: int
    ran: bool


def leave_out_torn(seen: Sequence[Value]) -> list[Value]:
    """Without the few that were read of a running thread and lie beyond all others, if these then rise at every sample.

    What another object has in its place is no value of the same course. Where that does not help, all of them.
    """
    if _rises(seen):
        return list(seen)
    doubtful = [index for index, one in enumerate(seen) if one.ran]
    for count in range(1, len(seen) // _TORN_SHARE + 1):
        for torn in itertools.combinations(doubtful, count):
            kept = [one for index, one in enumerate(seen) if index not in torn]
            if (
                len(kept) >= _LEAST_KEPT
                and _rises_each_time(kept)
                and not any(_is_within(kept, seen[at]) for at in torn)
            ):
                return kept
    return list(seen)


def _rises_each_time(seen: Sequence[Value]) -> bool:
    return all(one.value < after.value for one, after in itertools.pairwise(seen))


def _is_within(kept: Sequence[Value], one: Value) -> bool:
    return kept[0].value <= one.value <= kept[-1].value


def is_sure_to_rise(seen: Sequence[Value]) -> bool:
    """It only rose, and would have without any one value that was read of a running thread."""
    return _rises(seen) and all(
        _rises([*seen[:index], *seen[index + 1 :]]) for index, one in enumerate(seen) if one.ran
    )


def _rises(seen: Sequence[Value]) -> bool:
    values = [one.value for one in seen]
    return values[-1] > values[0] and values == sorted(values)


def read_runs(pid: int, proc: Path = _PROC) -> dict[int, str]:
    """For each thread its time on CPU in nanoseconds, its time in the queue and its turns: equal, if it did not run.

    Where the kernel does not count, the state and the CPU time, which is coarser.
    """
    runs = {}
    for tid in list_tids(pid, proc):
        for name in ("schedstat", "stat"):
            with contextlib.suppress(OSError):  # it has ended
                runs[tid] = (proc / f"{pid}/task/{tid}/{name}").read_text(errors="replace")
                break
    return runs
