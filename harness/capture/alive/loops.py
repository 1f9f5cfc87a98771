"""Does an integer that rises in a frame count what a loop uses up? From the source of the loops around the line.

The target of a `for`, or what its body assigns, comes to an end with what the `for` goes through; a counter in a
`while` does not have to. An inference: an iterable is finite unless its source shows that it is not. Runs nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Union

from msgspec.structs import replace

from harness.capture.alive.lock_lines import Scope, Sources
from harness.evidence.alive import Counter
from harness.evidence.crash import CrashFrame

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NAMED_COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_OWN_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)
_DEEPEST = 8  # a generator of a generator of …
_LIMITING = {"range", "islice", "takewhile"}
_ENDLESS_OF_ITERTOOLS = {"count", "cycle"}

# As types they are evaluated, on other hosts by Python 3.9 too.
For = (ast.For, ast.AsyncFor)
Loop = Union[ast.For, ast.AsyncFor, ast.While]  # noqa: UP007


class Around(NamedTuple):
    """The loops around a line, the outermost first, and the comprehensions it is in."""

    loops: tuple[Loop, ...]
    comprehensions: tuple[ast.comprehension, ...]


def mark_consuming(counters: Sequence[Counter], sources: Sources) -> list[Counter]:
    """`consumes` of the locals among them, where the source could be read."""
    return [replace(one, consumes=_ask(one, one.frame, sources)) if one.frame else one for one in counters]


def _ask(counter: Counter, frame: CrashFrame, sources: Sources) -> bool | None:
    name, tree = counter.name.partition(" in ")[0], sources.find_tree(frame.file or "")
    scope = tree and _find_scope(frame, tree, sources)
    if tree is None or scope is None:
        return None
    around = find_around(scope, frame.line or 0)
    endless = Endlessness(tree, scope)
    return _is_target(name, around, endless) or _is_counted(name, around, endless)


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


def walk(scope: ast.AST) -> Iterator[ast.AST]:
    """What runs in this scope: not the body of a function or class inside."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, _OWN_SCOPES):
            yield child
            yield from walk(child)


def _end(node: ast.AST) -> int:
    return node.end_lineno or node.lineno  # type: ignore[attr-defined, no-any-return]


def _is_target(name: str, around: Around, endless: Endlessness) -> bool:
    sources = [(loop.target, loop.iter) for loop in around.loops if isinstance(loop, For)]
    sources += [(part.target, part.iter) for part in around.comprehensions]
    return any(name in list_names(target) and not endless.is_so(iterable) for target, iterable in sources)


def _is_counted(name: str, around: Around, endless: Endlessness) -> bool:
    """Assigned once for each turn of a `for`, all of whose outer loops end too: a `while` may turn for ever."""
    for loop in around.loops:
        if not isinstance(loop, For) or endless.is_so(loop.iter):
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


class Endlessness:
    """Whether what a `for` goes through is shown to have no end, within one file."""

    def __init__(self, tree: ast.Module, scope: Scope) -> None:
        self._scopes = (scope,) if scope is tree else (scope, tree)
        self._functions = {node.name: node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)}
        self._itertools = dict(_list_itertools(tree))
        self._depth = 0

    def is_so(self, iterable: ast.expr) -> bool:
        self._depth += 1
        try:
            return self._depth <= _DEEPEST and self._judge(iterable)
        finally:
            self._depth -= 1

    def _judge(self, iterable: ast.expr) -> bool:
        if isinstance(iterable, ast.Name):
            return any(map(self.is_so, self._find_values(iterable.id)))
        if isinstance(iterable, ast.GeneratorExp):
            return self.is_so(iterable.generators[0].iter)
        return isinstance(iterable, ast.Call) and self._judge_call(iterable)

    def _judge_call(self, call: ast.Call) -> bool:
        name = self._name_of(call.func)
        if name == "iter" and len(call.args) == 2:
            return True
        if name in _LIMITING:
            return False
        if self._itertools_name(call.func) in _ENDLESS_OF_ITERTOOLS:
            return True
        if self._itertools_name(call.func) == "repeat":
            return len(call.args) + len(call.keywords) < 2
        if name in self._functions and self._is_endless_generator(self._functions[name]):
            return True
        given = [*call.args, *(word.value for word in call.keywords)]
        return bool(given) and (all if name == "zip" else any)(map(self.is_so, given))

    def _name_of(self, function: ast.expr) -> str:
        return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")

    def _itertools_name(self, function: ast.expr) -> str | None:
        """`count`, whether imported by its own name, by another, or with its module."""
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            return function.attr if self._itertools.get(function.value.id) == "" else None
        return self._itertools.get(self._name_of(function)) or None

    def _find_values(self, name: str) -> list[ast.expr]:
        """All that is assigned to it in the innermost scope that does so."""
        for scope in self._scopes:
            found = [node.value for node in walk(scope) if isinstance(node, ast.Assign) and name in _list_bound(node)]
            if found:
                return found
        return []

    def _is_endless_generator(self, function: ast.AST) -> bool:
        """It yields in a loop that has no end and no way out."""
        for node in walk(function):
            if isinstance(node, ast.YieldFrom) and self.is_so(node.value):
                return True
            if isinstance(node, (*For, ast.While)) and self._has_no_end(node):
                inside = [part for statement in node.body for part in (statement, *walk(statement))]
                yields = any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in inside)
                if yields and not any(isinstance(part, (ast.Break, ast.Return)) for part in inside):
                    return True
        return False

    def _has_no_end(self, loop: Loop) -> bool:
        if isinstance(loop, ast.While):
            return isinstance(loop.test, ast.Constant) and bool(loop.test.value)
        return self.is_so(loop.iter)


def _list_itertools(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names that stand for one of its functions; "" for the module itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, "") for alias in node.names if alias.name == "itertools")
        elif isinstance(node, ast.ImportFrom) and node.module == "itertools":
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
