"""Does an integer that rises in a frame count what a loop uses up? From the source of the loops around the line.

The target of a `for`, or what its body assigns, comes to an end with what the `for` goes through, where that is shown
to have one (iterables.py); a counter in a `while` does not have to. An inference. Runs nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import NamedTuple, Union

from msgspec.structs import replace

from harness.capture.living.source.iterables import Finiteness, walk
from harness.capture.living.source.lock_lines import Scope, Sources
from harness.evidence.crash import CrashFrame
from harness.evidence.living.look import Counter

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NAMED_COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_OWN_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)

# As types they are evaluated, on other hosts by Python 3.9 too.
For = (ast.For, ast.AsyncFor)
Loop = Union[ast.For, ast.AsyncFor, ast.While]  # noqa: UP007


class Around(NamedTuple):
    """The loops around a line, the outermost first, and the comprehensions it is in."""

    loops: tuple[Loop, ...]
    comprehensions: tuple[ast.comprehension, ...]


def mark_consuming(
    counters: Sequence[Counter], sources: Sources, has_end: Callable[[Counter, str], bool] = lambda *_: False
) -> list[Counter]:
    """`consumes` of the locals among them, where the source could be read. `has_end`: whether another local of the same
    frame is, as memory has it, something that has an end."""
    return [replace(one, consumes=_ask(one, one.frame, sources, has_end)) if one.frame else one for one in counters]


def _ask(counter: Counter, frame: CrashFrame, sources: Sources, has_end: Callable[[Counter, str], bool]) -> bool | None:
    name, tree = counter.name.partition(" in ")[0], sources.find_tree(frame.file or "")
    scope = tree and _find_scope(frame, tree, sources)
    if tree is None or scope is None:
        return None
    around = find_around(scope, frame.line or 0)
    finite = Finiteness(tree, scope, lambda other: has_end(counter, other))
    return _is_target(name, around, finite) or _is_counted(name, around, finite)


def _find_scope(frame: CrashFrame, tree: ast.Module, sources: Sources) -> Scope | None:
    """Up to 3.11 a comprehension is a function of its own, inside the one that it stands in."""
    function, line = frame.function or "", frame.line or 0
    if function not in _NAMED_COMPREHENSIONS:
        return sources.find_scope(frame.file or "", line, function)
    around = (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS) and node.lineno <= line <= _end(node))
    return max(around, key=lambda node: node.lineno, default=tree)


def find_around(scope: Scope, line: int) -> Around:
    loops: list[Loop] = []
    comprehensions: list[ast.comprehension] = []
    for node in walk(scope):
        if isinstance(node, (*For, ast.While)) and node.lineno <= line <= _end(node.body[-1]):
            loops.append(node)
        elif isinstance(node, _COMPREHENSIONS) and node.lineno <= line <= _end(node):
            comprehensions += node.generators
    return Around(tuple(loops), tuple(comprehensions))


def _end(node: ast.AST) -> int:
    return node.end_lineno or node.lineno  # type: ignore[attr-defined, no-any-return]


def _is_target(name: str, around: Around, finite: Finiteness) -> bool:
    sources = [(loop.target, loop.iter) for loop in around.loops if isinstance(loop, For)]
    sources += [(part.target, part.iter) for part in around.comprehensions]
    return any(name in list_names(target) and finite.is_shown(iterable) for target, iterable in sources)


def _is_counted(name: str, around: Around, finite: Finiteness) -> bool:
    """Assigned once for each turn of a `for`, all of whose outer loops end too: a `while` may turn for ever."""
    for loop in around.loops:
        if not isinstance(loop, For) or not finite.is_shown(loop.iter):
            return False
        if name in _list_assigned(loop.body):
            return True
    return False


def _list_assigned(body: Sequence[ast.AST]) -> set[str]:
    """Not what a `while` in it assigns."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, (*_OWN_SCOPES, ast.While)):
            continue
        found |= _list_bound(node)
        found |= _list_assigned(list(ast.iter_child_nodes(node)))
    return found


def _list_bound(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Assign):
        return {name for target in node.targets for name in list_names(target)}
    if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
        return list_names(node.target)
    return set()


def list_names(target: ast.AST) -> set[str]:
    """`i, (a, *b)` → i, a, b; an attribute or an item is no local."""
    if isinstance(target, ast.Name):
        return {target.id}
    if isinstance(target, ast.Starred):
        return list_names(target.value)
    return {name for one in getattr(target, "elts", ()) for name in list_names(one)}
