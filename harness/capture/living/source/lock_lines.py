"""What a line of Python says about locks: which one it waits for, which are held around it. Reads source, not memory.

An inference: `with X:` around the line, or X.acquire() before it in the same function and no X.release() between them.
What runs may differ from what is written, so a file changed after the process started gives nothing.
"""

from __future__ import annotations

import ast
import contextlib
import os
import time
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Union

from harness.capture.proc import FIELD_START, read_fields

_LARGEST_BYTES = 2 << 20
_LONGEST_TEXT = 80
_MOST_PARSED_BYTES = 1 << 19  # about half a second
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_ASKING = {"acquire", "__enter__", "wait", "wait_for", "join", "get", "put", "result"}
_PROC = Path("/proc")

# As types they are evaluated, on other hosts by Python 3.9 too.
Function = Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda]  # noqa: UP007
Scope = Union[ast.Module, Function]  # noqa: UP007
With = (ast.With, ast.AsyncWith)


class Held(NamedTuple):
    """`line`: where it was taken. `by_with`: a with statement will release it."""

    expression: str
    line: int
    by_with: bool


class Sources:
    """The files of one process, each read and parsed once, within a bound of bytes."""

    def __init__(self, pid: int, proc: Path = _PROC) -> None:
        self._pid, self._proc = pid, proc
        self._trees: dict[str, ast.Module | None] = {}
        self._functions: dict[str, list[Function]] = {}
        self._lines: dict[str, list[str]] = {}
        self._parsed_bytes = 0
        self._started_s = _read_start(pid, proc)

    def find_awaited(self, file: str, line: int, function: str) -> str | None:
        """The lock, or the call that waits, that this line is about; "a or b" where the line names several."""
        scope = self.find_scope(file, line, function)
        if scope is None:
            return None
        asked = [
            ast.unparse(item.context_expr)
            for node in _walk(scope)
            if isinstance(node, With)
            for item in node.items
            if _covers(item.context_expr, line)
        ]
        return " or ".join(asked) or _find_asking(scope, line) or _find_import(scope, line)

    def find_text(self, file: str, line: int) -> str | None:
        """The line itself, shortened."""
        text = self._read(file)[line - 1 : line]
        return text[0].strip()[:_LONGEST_TEXT] if text else None

    def find_held(self, file: str, line: int, function: str) -> list[Held]:
        """The outermost first."""
        if not self._may_hold(file, line, function):
            return []
        scope = self.find_scope(file, line, function)
        if scope is None:
            return []
        return sorted({*_list_entered(scope, line), *_list_acquired(scope, line)}, key=lambda held: held.line)

    def _may_hold(self, file: str, line: int, function: str) -> bool:
        """A look at the text first: most frames hold nothing, and a large file takes 0.1 s to parse."""
        above = self._read(file)[:line]
        start = next((at for at in range(len(above) - 1, 0, -1) if f"def {function}(" in above[at]), 0)
        return any("with " in text or ".acquire(" in text for text in above[start:])

    def find_scope(self, file: str, line: int, function: str) -> Scope | None:
        """The function of that name around the line; the module itself for what runs at its level."""
        tree = self.find_tree(file)
        if tree is None or function == "<module>":
            return tree
        around = [node for node in self._functions[file] if _covers(node, line)]
        named = [node for node in around if getattr(node, "name", "<lambda>") == function]
        return max(named, key=lambda node: node.lineno, default=None)

    def find_tree(self, file: str) -> ast.Module | None:
        if file not in self._trees:
            self._trees[file], self._functions[file] = None, []
            text = "\n".join(self._read(file))
            with contextlib.suppress(SyntaxError, ValueError, RecursionError):
                if text and self._parsed_bytes < _MOST_PARSED_BYTES:
                    self._parsed_bytes += len(text)
                    self._trees[file] = tree = ast.parse(text)
                    self._functions[file] = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
        return self._trees[file]

    def _read(self, file: str) -> list[str]:
        if file not in self._lines:
            self._lines[file] = self._read_lines(file)
        return self._lines[file]

    def _read_lines(self, file: str) -> list[str]:
        """As the process sees it: it may have another root and stands in another directory."""
        base = self._proc / str(self._pid)
        path = Path(f"{base}/root{file}") if file.startswith("/") else base / "cwd" / file
        try:
            status = path.stat()
            if self._started_s is None or status.st_mtime > self._started_s or status.st_size > _LARGEST_BYTES:
                return []
            with tokenize.open(path) as source:
                return source.read().split("\n")
        except (OSError, SyntaxError, ValueError):
            return []


def _read_start(pid: int, proc: Path) -> float | None:
    """In seconds since 1970; man 5 proc_pid_stat, field 22, counts ticks since the boot and is rounded down."""
    try:
        ticks = int(read_fields(pid, proc=proc)[FIELD_START])
    except (OSError, ValueError, IndexError):
        return None
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + (ticks + 1) / os.sysconf("SC_CLK_TCK")


def _walk(scope: ast.AST) -> Iterator[ast.AST]:
    """Without the functions defined inside, which run at another time."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, _FUNCTIONS):
            yield child
            yield from _walk(child)


def _covers(node: ast.AST, line: int) -> bool:
    return bool(node.lineno <= line <= (node.end_lineno or node.lineno))  # type: ignore[attr-defined]


def _calls(scope: ast.AST) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    for node in _walk(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node, node.func


def _find_asking(scope: ast.AST, line: int) -> str | None:
    """ "X" of X.acquire(), "X.join()" of the others."""
    asking = [
        ast.unparse(function.value) + ("" if function.attr in ("acquire", "__enter__") else f".{function.attr}()")
        for call, function in _calls(scope)
        if function.attr in _ASKING and _covers(call, line)
    ]
    return asking[0] if len(asking) == 1 else " or ".join(asking) or None


def _find_import(scope: ast.AST, line: int) -> str | None:
    for node in _walk(scope):
        if isinstance(node, ast.Import) and _covers(node, line):
            return f"import {', '.join(alias.name for alias in node.names)}"
        if isinstance(node, ast.ImportFrom) and _covers(node, line):
            return f"import {'.' * node.level}{node.module or ''}"
    return None


def _list_entered(scope: ast.AST, line: int) -> Iterator[Held]:
    for node in _walk(scope):
        if isinstance(node, With) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
            for item in node.items:
                if _may_be_lock(item):
                    yield Held(ast.unparse(item.context_expr), item.context_expr.lineno, True)


def _may_be_lock(item: ast.withitem) -> bool:
    """A file or a transaction is made by a call or gets a name; a lock is there before."""
    text = ast.unparse(item.context_expr).lower()
    return item.optional_vars is None and (
        not isinstance(item.context_expr, ast.Call) or any(word in text for word in ("lock", "mutex", "cond"))
    )


def _list_acquired(scope: ast.AST, line: int) -> Iterator[Held]:
    acquired: dict[str, list[int]] = {}
    done = [
        (call.lineno, ast.unparse(function.value), function.attr)
        for call, function in _calls(scope)
        if function.attr in ("acquire", "release") and (call.end_lineno or line) < line
    ]
    for at, expression, attribute in sorted(done):
        lines = acquired.setdefault(expression, [])
        if attribute == "acquire":
            lines.append(at)
        elif lines:
            lines.pop()
    for expression, lines in acquired.items():
        for at in lines:
            yield Held(expression, at, False)
