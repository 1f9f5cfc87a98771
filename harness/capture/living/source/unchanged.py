"""Which integers a `while` works with and does not change, though it turns: `lo, hi, mid` of a search that never ends.

From the samples of Python's lines, and the source of the loop. Of a running thread an integer may be read after it has
gone, so a sample counts only with all that the loop assigns or tests; where others decide too, all must be equal.
Silent where the loop is not shown to have turned, and where the line is in a loop or comprehension inside.
"""

from __future__ import annotations

import ast
import re
from collections import Counter as Count
from collections.abc import Iterator, Sequence

from harness.capture.living.source.iterables import walk
from harness.capture.living.source.lock_lines import Sources
from harness.capture.living.source.loops import find_around
from harness.capture.stacks.py_spy import Frame, Sighting
from harness.evidence.living.look import Unchanged

_LEAST = 5
_INTEGER = re.compile(r"-?\d{1,13}")
_SAME_FOR_THE_SAME = {"abs", "bool", "float", "int", "len", "max", "min", "round", "divmod", "range", "pow"}
_MOST = 3
_SAME = 3  # samples: what only its locals decide, and comes back to the same locals, goes round


def find_unchanged(sightings: Sequence[Sighting], sources: Sources) -> tuple[Unchanged, ...]:
    if len(sightings) < _LEAST:
        return ()
    found = (_judge(tid, frames, sources) for tid, frames in _list_lasting(sightings))
    return tuple(one for one in found if one is not None)[:_MOST]


def _list_lasting(sightings: Sequence[Sighting]) -> Iterator[tuple[int, list[Frame]]]:
    """Frames of threads on CPU that were there at each of the samples, the innermost first."""
    for last in sightings[-1].threads:
        if last.tid is None:
            continue
        seen = [one for sighting in sightings for one in sighting.threads if one.tid == last.tid and one.active]
        if len(seen) < len(sightings):
            continue
        for depth in range(min(len(one.frames) for one in seen), 0, -1):
            frames = [one.frames[-depth] for one in seen]
            if len({(frame.name, frame.filename) for frame in frames}) == 1:
                yield last.tid, frames


def _judge(tid: int, frames: list[Frame], sources: Sources) -> Unchanged | None:
    place = frames[-1].place
    if not _has_turned(frames):
        return None
    scope = sources.find_scope(place.file or "", place.line or 0, place.function or "")
    around = [find_around(scope, frame.line) for frame in frames] if scope else []
    loops = {id(one.loops[-1]) if one.loops and not one.comprehensions else None for one in around}
    loop = around[-1].loops[-1] if around and around[-1].loops else None
    if not isinstance(loop, ast.While) or loops != {id(loop)}:
        return None
    values = [_read_values(frame) for frame in frames]
    there = set.intersection(*map(set, values))
    names, closed = sorted(_list_stored(loop) | (_list_loaded(loop.test) & there)), _is_closed(loop, there)
    states = Count(tuple((name, one.get(name, "")) for name in names) for one in values)
    state, same = states.most_common(1)[0]
    integers = [name for name, value in state if _INTEGER.fullmatch(value)]
    if not integers or not all(value for _, value in state) or same < (_SAME if closed else len(frames)):
        return None
    return Unchanged(tuple(integers), place, same, len(frames), closed, tid)


def _read_values(frame: Frame) -> dict[str, str]:
    return {one.name: one.repr or hex(one.address) for one in frame.locals or ()}


def _has_turned(frames: list[Frame]) -> bool:
    """It was further up in the source than before, or made the same local anew, which one turn does not do so often."""
    lines = [frame.line for frame in frames]
    objects: dict[str, set[int]] = {}
    for frame in frames:
        for one in frame.locals or ():
            objects.setdefault(one.name, set()).add(one.address)
    return lines != sorted(lines) or any(len(addresses) > 2 for addresses in objects.values())


def _list_stored(loop: ast.While) -> set[str]:
    return {node.id for node in _walk_loop(loop) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}


def _list_loaded(test: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}


def _walk_loop(loop: ast.While) -> Iterator[ast.AST]:
    for part in (loop.test, *loop.body):
        yield part
        yield from walk(part)


def _is_closed(loop: ast.While, names: set[str]) -> bool:
    """Nothing but its locals decides what it does next: no calls, no attributes, nothing written into an object."""
    return all(_stays_inside(node, names) for node in _walk_loop(loop))


def _stays_inside(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _SAME_FOR_THE_SAME
    if isinstance(node, ast.Name):
        return node.id in names or node.id in _SAME_FOR_THE_SAME
    if isinstance(node, (ast.Attribute, ast.Await, ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal)):
        return False
    return not isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Load)
