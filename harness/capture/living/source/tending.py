"""Does a thread that sleeps in a loop look after children between its sleeps? From the source of the loops around it.

A launcher asks its children now and then whether they live; who works and only sleeps in between does not ask. An
inference from names: is_alive(), poll(), exitcode and their like. Runs nothing, and names no child.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from harness.capture.living.source.iterables import walk
from harness.capture.living.source.lock_lines import Sources
from harness.capture.living.source.loops import find_around
from harness.evidence.crash import CrashFrame

_ASKS = {"is_alive", "poll", "exitcode", "returncode", "waitpid", "waitid", "wait3", "wait4", "is_running", "sentinel"}
_MOST_FRAMES = 8


def tends_children(frames: Sequence[CrashFrame], sources: Sources) -> bool | None:
    """Null: the source of none of its lines could be read."""
    told: bool | None = None
    for frame in [frame for frame in frames if frame.kind == "python"][:_MOST_FRAMES]:
        scope = sources.find_scope(frame.file or "", frame.line or 0, frame.function or "")
        if scope is None:
            continue
        told = False
        if any(_asks(node) for loop in find_around(scope, frame.line or 0).loops for node in (loop, *walk(loop))):
            return True
    return told


def _asks(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _ASKS
