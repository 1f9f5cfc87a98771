"""What the kernel and the control groups say about the time of the run: killed processes, faults, memory limits.

Linux only for now; elsewhere, and without permission, each look is a gap.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from harness.capture.machine import cgroup, macos_kernel_log
from harness.capture.machine.killers import is_initial_namespace
from harness.capture.machine.trust import look_for_program
from harness.evidence.gap import Gap
from harness.evidence.memory import Timeline
from harness.evidence.run import KernelLine, Memory, OomCount

_MOST_LINES = 200
_RECORD = re.compile(r"[0-9]+,[0-9]+,([0-9]{1,18}),[^;\n]*;(.*)")
# The kernel log's clock is not corrected by NTP: it may be off by this share of the uptime.
_CLOCK_DRIFT = 0.0005
_JOURNAL_S = 3.0
_UNREADABLE = "journalctl could not read the journal"
# mm/oom_kill.c, systemd-oomd: whom they killed matters even when it was not one of ours.
_OOM_WORDS = ("oom-kill:", "Killed process ", "systemd-oomd killed", "due to memory")


def read_kernel_lines(
    pids: set[int], started_ns: int, path: Path = Path("/dev/kmsg"), namespace: Path = Path("/proc/self/ns/pid")
) -> tuple[tuple[KernelLine, ...], Gap | None]:
    """Lines since the start that name one of these processes, or whom the OOM killer has killed.

    The kernel's pids are those of the initial namespace: elsewhere an equal number is somebody else.
    """
    if sys.platform == "darwin":
        return macos_kernel_log.read_kill_lines(started_ns)
    if not is_initial_namespace(namespace):
        why = "it names processes by pids that are not visible in this container"
        return (), Gap("kernel log", why, "outside of the container: sudo dmesg --ctime | tail")
    slack_s = 5 + time.monotonic() * _CLOCK_DRIFT
    try:
        records = list(_read_records(path))
    except OSError as error:
        asked = read_journal(["-k"], pids, started_ns) if path == Path("/dev/kmsg") else ()
        if asked and not isinstance(asked, str):
            return asked, None
        why = f"{path}: {error.strerror}" + (f"; {asked}" if isinstance(asked, str) else "")
        return (), Gap("kernel log", why, "sudo dmesg --ctime | tail")
    since_s = started_ns / 1e9 - slack_s
    lines = tuple(KernelLine(text, str(path)) for time_s, text in records if time_s >= since_s and _matters(text, pids))
    return lines[-_MOST_LINES:], None


def _matters(text: str, pids: set[int]) -> bool:
    return bool(pids & _numbers(text)) or any(words in text for words in _OOM_WORDS)


def read_daemon_lines(pids: set[int], started_ns: int) -> tuple[tuple[KernelLine, ...], Gap | None]:
    """What earlyoom and systemd-oomd have written into the journal since the start."""
    lines = read_journal(["-t", "earlyoom", "-t", "systemd-oomd", "-t", "systemd"], pids, started_ns)
    if isinstance(lines, str):
        fix = "sudo journalctl -t earlyoom -n 20" if lines == _UNREADABLE else None
        return (), Gap("OOM daemons", lines, fix)
    return lines, None


def read_journal(selection: list[str], pids: set[int], started_ns: int) -> tuple[KernelLine, ...] | str:
    """A string: why it could not be read."""
    journalctl, why = look_for_program("journalctl")
    if journalctl is None:
        return f"the journal is not asked: {why}"
    since = int(time.time() - (time.monotonic_ns() - started_ns) / 1e9) - 1
    command = [
        journalctl,
        "-q",
        "--no-pager",
        "-o",
        "cat",
        "-n",
        str(_MOST_LINES),
        f"--since=@{since}",
        *selection,
    ]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_JOURNAL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return _UNREADABLE
    if done.returncode != 0:
        return _UNREADABLE
    texts = done.stdout.decode("utf-8", "replace").splitlines()
    return tuple(KernelLine(text, "journal") for text in texts if _matters(text, pids))


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
            if found := _RECORD.match(record):
                yield int(found[1]) / 1e6, found[2]
    finally:
        os.close(kmsg)


def _numbers(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"\d{1,10}", text)}


def count_oom_kills(timeline: Timeline) -> tuple[tuple[OomCount, ...] | None, Gap | None]:
    if not timeline.groups:
        why = "no memory control group of this process is readable"
        return None, Gap("OOM kill counters", why, "harness doctor")
    counts = (OomCount(group.path, sum(kill.kills for kill in group.oom_kills)) for group in timeline.groups)
    return tuple(counts), None


def read_memory(timeline: Timeline | None = None) -> Memory:
    """The machine's memory and the lowest limit of the control groups, the command's own among them."""
    machine = None
    with contextlib.suppress(OSError, ValueError):
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = cgroup.read_limits()
    if timeline is not None:
        limits += [(group.limit_bytes, group.limit_source or "") for group in timeline.groups if group.limit_bytes]
    lowest = min(limits, default=None)
    if lowest is None or (machine is not None and lowest[0] >= machine):
        return Memory(machine_bytes=machine)
    return Memory(machine_bytes=machine, limit_bytes=lowest[0], limit_source=lowest[1])
