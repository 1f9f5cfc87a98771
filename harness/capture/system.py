"""What the kernel and the control groups say about the time of the run: killed processes, faults, memory limits.

Linux only for now; elsewhere, and without permission, each look is a gap.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from harness.capture import cgroup
from harness.evidence.gap import Gap
from harness.evidence.model import KernelLine, Memory, OomCount

_MOST_LINES = 200
# The kernel log's clock is not corrected by NTP: it may be off by this share of the uptime.
_CLOCK_DRIFT = 0.0005


def read_kernel_lines(
    pids: set[int], started_ns: int, path: Path = Path("/dev/kmsg")
) -> tuple[tuple[KernelLine, ...], Gap | None]:
    """Lines since the start that name one of these processes."""
    slack_s = 5 + time.monotonic() * _CLOCK_DRIFT
    try:
        lines = [
            KernelLine(text, str(path))
            for time_s, text in _read_records(path)
            if time_s >= started_ns / 1e9 - slack_s and pids & _numbers(text)
        ]
    except OSError as error:
        return (), Gap("kernel log", f"{path}: {error.strerror}", "sudo dmesg --ctime | tail")
    return tuple(lines[-_MOST_LINES:]), None


def _read_records(path: Path) -> Iterator[tuple[float, str]]:
    """(seconds since boot, text) of each record; Documentation/ABI/testing/dev-kmsg."""
    kmsg = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                record = os.read(kmsg, 8192).decode("utf-8", "replace")
            except BlockingIOError:
                return
            except BrokenPipeError:  # records were overwritten meanwhile; the next read goes on after them
                continue
            if not record:
                return
            prefix, _, text = record.partition(";")
            yield int(prefix.split(",")[2]) / 1e6, text.partition("\n")[0]
    finally:
        os.close(kmsg)


def _numbers(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"\d{1,10}", text)}


def count_oom_kills(before: dict[str, int]) -> tuple[tuple[OomCount, ...] | None, Gap | None]:
    after = cgroup.read_oom_counts()
    if not after:
        why = "no memory control group of this process is readable"
        return None, Gap("OOM kill counters", why, "harness doctor")
    return tuple(OomCount(group, count - before.get(group, 0)) for group, count in after.items()), None


def read_memory() -> Memory:
    machine = None
    with contextlib.suppress(OSError, ValueError):
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    lowest = min(cgroup.read_limits(), default=None)
    if lowest is None or (machine is not None and lowest[0] >= machine):
        return Memory(machine_bytes=machine)
    return Memory(machine_bytes=machine, limit_bytes=lowest[0], limit_source=lowest[1])
