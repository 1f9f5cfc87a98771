"""Is what a `for` goes through shown to have an end? From its source within one file, and the type of locals in memory.

Shown is a range, a container or what makes one, a file, what has a length, and enumerate(), zip() and their like of
these. What an iterator does that is of the program's own making, or of another module's, nobody can tell: not shown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_OWN_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)
_LITERALS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.JoinedStr)
_DEEPEST = 8  # a generator of a generator of …
# By the name of what is called. Those that make a container do not come back from what is endless.
_FINITE = re.compile(
    r"range|sorted|list|tuple|set|frozenset|dict|bytes|bytearray|str|reversed|open|trange|(?:Stateful)?DataLoader"
    r"|product|permutations|combinations(?:_with_replacement)?"
)
_FINITE_METHODS = re.compile(
    r"open|items|keys|values|r?split|splitlines|readlines|copy|tolist|listdir|scandir|walk|iterdir|i?glob|rglob|findall"
    r"|finditer|iterrows|itertuples|t?range|arange|linspace|randperm|permutation|(?:named_)?(?:parameters|modules|children)"
    r"|DataLoader|product|permutations|combinations"
)
# Which argument decides.
_OF_FIRST = re.compile(r"enumerate|tqdm|track|iter|accumulate|pairwise|batched|groupby|compress")
_OF_SECOND = re.compile(r"filter|filterfalse|starmap|takewhile|dropwhile")
_OF_ALL = re.compile(r"chain|zip_longest")
_OF_ANY = re.compile(r"zip|map")


class Finiteness:
    """`known`: whether a local of the scope is, as memory has it, something that has an end."""

    def __init__(self, tree: ast.Module, scope: ast.AST, known: Callable[[str], bool] = lambda _: False) -> None:
        self._tree, self._scope, self._known = tree, scope, known
        self._defined: dict[str, list[ast.AST]] = {}
        for node in ast.walk(tree):
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                self._defined.setdefault(node.name, []).append(node)
        self._imported = dict(_list_imported(tree))
        self._depth = 0

    def is_shown(self, iterable: ast.expr) -> bool:
        self._depth += 1
        try:
            return self._depth <= _DEEPEST and self._judge(iterable)
        finally:
            self._depth -= 1

    def _judge(self, iterable: ast.expr) -> bool:
        if isinstance(iterable, _LITERALS):
            return True
        if isinstance(iterable, ast.Constant):
            return isinstance(iterable.value, (str, bytes))
        if isinstance(iterable, ast.Name):
            return self._known(iterable.id) or self._judge_values(*self._find_values(iterable.id))
        if isinstance(iterable, ast.Attribute):
            if ast.unparse(iterable) == "sys.stdin":
                return True
            stored = list(_list_stored(self._tree, iterable.attr))
            return bool(stored) and all(self._judge_stored(*one) for one in stored)
        if isinstance(iterable, ast.Subscript):
            return isinstance(iterable.slice, ast.Slice) and self.is_shown(iterable.value)
        if isinstance(iterable, ast.IfExp):
            return self.is_shown(iterable.body) and self.is_shown(iterable.orelse)
        if isinstance(iterable, ast.BinOp):
            either = isinstance(iterable.op, ast.Mult)
            return (any if either else all)(map(self.is_shown, (iterable.left, iterable.right)))
        if isinstance(iterable, ast.GeneratorExp):
            return all(self.is_shown(part.iter) for part in iterable.generators)
        return isinstance(iterable, ast.Call) and self._judge_call(iterable)

    def _judge_call(self, call: ast.Call) -> bool:
        plain = isinstance(call.func, ast.Name)
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if name in self._defined:
            return all(self._judge_defined(one, call) for one in self._defined[name])
        name = self._imported.get(name, name) if plain else name
        if name == "islice":
            return len(call.args) > 1 and not _is_none(call.args[2 if len(call.args) > 2 else 1])
        if name == "repeat":
            return len(call.args) + len(call.keywords) == 2
        if name == "iter" and len(call.args) != 1:
            return False
        if (_FINITE if plain else _FINITE_METHODS).fullmatch(name):
            return True
        return self._judge_arguments(name, call)

    def _judge_arguments(self, name: str, call: ast.Call) -> bool:
        args = list(map(self.is_shown, [*call.args, *(word.value for word in call.keywords if word.arg == "iterable")]))
        if _OF_FIRST.fullmatch(name):
            return args[:1] == [True]
        if _OF_SECOND.fullmatch(name):
            return args[1:2] == [True]
        if _OF_ANY.fullmatch(name):
            return any(args[name == "map" :])
        return _OF_ALL.fullmatch(name) is not None and bool(args) and all(args)

    def _judge_defined(self, defined: ast.AST, call: ast.Call) -> bool:
        """A class that has a length; a generator that yields in loops that end, or a function that returns as much."""
        if isinstance(defined, ast.ClassDef):
            return any(isinstance(node, _FUNCTIONS) and node.name == "__len__" for node in defined.body)
        given = self._bind(defined, call)
        inside = Finiteness(self._tree, defined, lambda name: given.get(name, False))
        inside._depth = self._depth
        nodes = list(walk(defined))
        if not any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes):
            returned = [node.value for node in nodes if isinstance(node, ast.Return)]
            return bool(returned) and all(value is not None and inside.is_shown(value) for value in returned)
        loops = (node for node in nodes if isinstance(node, (ast.For, ast.AsyncFor, ast.While)))
        return all(
            inside.is_shown(node.iter) if isinstance(node, (ast.For, ast.AsyncFor)) else not _yields(node)
            for node in loops
        ) and all(inside.is_shown(node.value) for node in nodes if isinstance(node, ast.YieldFrom))

    def _bind(self, defined: ast.AST, call: ast.Call) -> Mapping[str, bool]:
        """What is known of its parameters, by what is given to them."""
        names = [one.arg for one in defined.args.args]  # type: ignore[attr-defined]
        names = names[1:] if isinstance(call.func, ast.Attribute) and names[:1] == ["self"] else names
        given = {**dict(zip(names, call.args)), **{word.arg: word.value for word in call.keywords if word.arg}}  # noqa: B905
        stored = {name for node in walk(defined) for name in _list_names(node)}
        return {name: self.is_shown(value) for name, value in given.items() if name not in stored}

    def _judge_stored(self, owner: ast.AST, scope: ast.AST, value: ast.expr | None) -> bool:
        """What a class keeps: of what its constructor was given, by all calls of it in the file."""
        if value is None:
            return False
        if not isinstance(value, ast.Name) or value.id not in _list_parameters(scope):
            return self._look_from(scope).is_shown(value)
        if not isinstance(owner, ast.ClassDef) or getattr(scope, "name", "") != "__init__":
            return False
        names = [one.arg for one in scope.args.args[1:]]  # type: ignore[attr-defined]
        given = [
            (around, dict(zip(names, call.args)) | {word.arg or "": word.value for word in call.keywords})  # noqa: B905
            for around, call in _list_calls(self._tree, owner.name)
        ]
        return bool(given) and all(
            value.id in args and self._look_from(around).is_shown(args[value.id]) for around, args in given
        )

    def _look_from(self, scope: ast.AST) -> Finiteness:
        other = Finiteness(self._tree, scope)
        other._depth = self._depth
        return other

    def _judge_values(self, scope: ast.AST, values: Sequence[ast.expr | None]) -> bool:
        """All that is ever assigned to it."""
        within = self if scope is self._scope else self._look_from(scope)
        return bool(values) and all(value is not None and within.is_shown(value) for value in values)

    def _find_values(self, name: str) -> tuple[ast.AST, list[ast.expr | None]]:
        """In the innermost scope that binds it; null for what is bound otherwise."""
        if name in _list_parameters(self._scope):
            return self._scope, []
        for scope in (self._scope, self._tree):
            found = list(_list_bound(scope, name))
            if found:
                return scope, found
        return self._tree, []


def walk(scope: ast.AST) -> Iterator[ast.AST]:
    """What runs in this scope: not the body of a function or class inside."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, _OWN_SCOPES):
            yield child
            yield from walk(child)


def _list_bound(scope: ast.AST, name: str) -> Iterator[ast.expr | None]:
    for node in walk(scope):
        if isinstance(node, ast.Assign) and [name] == [getattr(target, "id", "") for target in node.targets]:
            yield node.value
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and getattr(node.target, "id", "") == name:
            if node.value is not None:
                yield node.value
        elif isinstance(node, ast.withitem) and getattr(node.optional_vars, "id", "") == name:
            yield node.context_expr
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.For, ast.AsyncFor)) and name in _list_names(node):
            yield None


def _list_names(node: ast.AST) -> set[str]:
    """What a statement assigns to."""
    targets = [*getattr(node, "targets", ()), *([node.target] if hasattr(node, "target") else [])]
    found = (one for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
    return {one.id for one in found if isinstance(one.ctx, ast.Store)}


def _list_stored(tree: ast.Module, attribute: str) -> Iterator[tuple[ast.AST, ast.AST, ast.expr | None]]:
    """All that any code of the file assigns to an attribute of this name: in which class, in which function."""
    for owner, scope in _list_scopes(tree):
        for node in walk(scope):
            targets = [*getattr(node, "targets", ()), *([node.target] if isinstance(node, ast.AnnAssign) else [])]
            if any(isinstance(target, ast.Attribute) and target.attr == attribute for target in targets):
                yield owner, scope, getattr(node, "value", None)


def _list_calls(tree: ast.Module, name: str) -> Iterator[tuple[ast.AST, ast.Call]]:
    """Each, and the function that it stands in."""
    for _, scope in _list_scopes(tree):
        for node in walk(scope):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name:
                yield scope, node


def _list_scopes(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """What stands around it, and the scope."""
    yield tree, tree
    for owner in ast.walk(tree):
        for node in ast.iter_child_nodes(owner):
            if isinstance(node, _FUNCTIONS):
                yield owner, node


def _list_parameters(scope: ast.AST) -> set[str]:
    if not isinstance(scope, (*_FUNCTIONS, ast.Lambda)):
        return set()
    args = scope.args
    return {one.arg for one in (*args.posonlyargs, *args.args, *args.kwonlyargs)}


def _list_imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What a name is called where it comes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((one.asname or one.name, one.name) for one in node.names)


def _yields(node: ast.AST) -> bool:
    return any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in walk(node))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
