"""What `harness watch` says: one line for each event, with its time, and a few lines that a terminal redraws."""

from __future__ import annotations

import shlex

from harness.documents.verdict import Document, MemoryUse
from harness.documents.watch import WatchEvent
from harness.evidence.living.watching import Sight
from harness.evidence.text.transcript import clean_for_terminal
from harness.report.memory import list_memory
from harness.report.ps import tell_age
from harness.report.terminal import tell_items
from harness.report.text import render

_MOST_THREADS = 5
_MOST_HOT = 3
_STATES = {"R": "runs", "S": "asleep", "D": "waits for the disk", "T": "stopped", "t": "traced", "Z": "zombie"}


def render_event(event: WatchEvent, *, width: int, color: bool) -> str:
    clock = event.at.partition("T")[2][:8]
    where = f"{event.host}:" if event.host else ""
    line = clean_for_terminal(f"{clock} {where}{event.pid} {event.event}: {event.text}")
    if event.memory is not None:
        line += "".join(
            f"\n{' ' * len(clock)} memory: {row}" for row in tell_items(list_memory(event.memory), terminal=False)
        )
    if event.verdict is None or event.event != "stall":
        return line + "\n"
    return f"{line}\n{render(event.verdict, width=width, color=color)}"


def render_sight(
    sight: Sight, quiet_s: float, rule: str, last: Document | None, *, memory: MemoryUse | None = None, width: int
) -> list[str]:
    """For the live view; `last`: what the last look said."""
    stall = f", quiet for {tell_age(quiet_s)}" if quiet_s >= 2 else ""
    output = "" if sight.output_age_s is None else f", output {tell_age(sight.output_age_s)} ago"
    processes = f"{sight.processes} processes, " if sight.processes > 1 else ""
    threads = "1 thread" if len(sight.threads) == 1 else f"{len(sight.threads)} threads"
    lines = [
        f"{sight.pid}  {shlex.join(sight.argv)}",
        f"  {processes}{threads}, CPU {sight.cpu:.0%}, {sight.rss_bytes / 2**20:,.0f} MiB{output}",
        f"  moves    {', '.join(sight.moving[:3]) or 'nothing'}{stall}  ({rule})",
    ]
    for index, row in enumerate(tell_items(list_memory(memory), terminal=True)):
        lines.append(f"  {'memory' if index == 0 else '':<9}{row}")
    for index, thread in enumerate(sight.threads[:_MOST_THREADS]):
        state = _STATES.get(thread.state, thread.state)
        lines.append(
            f"  {'threads' if index == 0 else '':<9}{thread.tid:<8} {thread.name:<16} {thread.cpu:4.0%} {state}"
        )
    for index, spot in enumerate(sight.hot[:_MOST_HOT]):
        place = f"{spot.frame.function} ({(spot.frame.file or '').rpartition('/')[2]}:{spot.frame.line})"
        lines.append(f"  {'hot' if index == 0 else '':<9}{place}  {spot.seen} of {spot.of} samples")
    if last is not None:
        lines.append(f"  look     {last.verdict.headline}")
    return [clean_for_terminal(line)[: width - 1] for line in lines]
