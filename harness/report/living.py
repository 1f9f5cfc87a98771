"""Sections that only the living have: where all are, each thread, what rises, what was not written yet."""

from __future__ import annotations

from collections.abc import Sequence

from harness.diagnose.living.document import tell_outlier
from harness.diagnose.living.stack_tree import outline
from harness.documents.verdict import Document, Living, Node, Outlier, Printed
from harness.report.sections import Item, Section, make_section

_MOST_THREADS = 12
_MOST_FRAMES = 5
_LAST_LINES = 6
_MOST_TREE = 60
_MOST_CALLS = 3


def list_living(living: Living | None) -> list[Section]:
    if living is None:
        return []
    return [
        make_section("tree", draw_tree(living.tree, living.outlier) if living.tree else [], "drawing"),
        make_section("threads", _cut(living.threads)),
        make_section("tasks", _cut(living.tasks)),
        make_section("moving", living.rising),
        make_section("unflushed", [_quote(printed, len(living.unflushed) > 1) for printed in living.unflushed]),
    ]


def _cut(lines: Sequence[str]) -> list[str]:
    more = len(lines) - _MOST_THREADS
    return [*lines[:_MOST_THREADS], *([f"… {more} more lines; --json has all"] if more > 0 else [])]


def draw_tree(tree: Node, outlier: Outlier | None) -> list[str]:
    """With the odd one named below it."""
    lines = outline(tree, _MOST_FRAMES)
    if len(lines) > _MOST_TREE:
        lines = [*lines[:_MOST_TREE], f"… {len(lines) - _MOST_TREE} more lines; --json has all"]
    return [*lines, *([tell_outlier(outlier)] if outlier else [])]


def _quote(printed: Printed, several: bool) -> Item:
    lines = printed.text.splitlines()
    whose = f" of process {printed.pid}" if several else ""
    cut = f", the last {_LAST_LINES} lines" if len(lines) > _LAST_LINES or printed.truncated else ""
    head = f"{printed.bytes} bytes of {printed.stream}{whose}, printed and not written yet{cut}:"
    return Item(head, quoted=tuple(lines[-_LAST_LINES:]))


def tell_cost(document: Document) -> list[str]:
    """What the look has cost the processes, and how thorough it was."""
    living, progress = document.living, document.progress
    if living is None or progress is None:
        return []
    each = f"at most, each of {living.processes} processes," if living.processes > 1 else "in all"
    stopped = f"for {living.stopped_ms:.0f} ms {each}" if living.stopped_ms else "not at all"
    lines = [f"{stopped} by this look of {progress.looked_s or 0.0:.1f} s, {progress.samples} samples"]
    if living.interrupted:
        lines.append(f"system calls that this may have cut short: {_list_some(living.interrupted)}")
    return lines


def _list_some(words: tuple[str, ...]) -> str:
    more = f"; {len(words) - _MOST_CALLS} more, --json has all" if len(words) > _MOST_CALLS else ""
    return "; ".join(words[:_MOST_CALLS]) + more
