"""What surrounds the command: variables by allow-list, its interpreter's version, its script's imports and settings.

Never imports or runs the command's own code; the interpreter is asked with a probe, in isolated mode.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from harness.capture.machine.payload import payload
from harness.capture.machine.trust import check_interpreter
from harness.capture.run.gathered.kept_variables import KEPT
from harness.errors import Unreadable
from harness.evidence.gap import Gap
from harness.evidence.run import Process, Statement
from harness.evidence.text.answers import decode_json

_PYTHON_NAME = re.compile(r"(python|pypy)[0-9.]*[a-z]*")
_PROBE_DEADLINE_S = 10


class _Interpreter(Struct, frozen=True):
    python: str
    free_threaded: bool


def read_environment() -> dict[str, str]:
    return {name: value for name, value in sorted(os.environ.items()) if name in KEPT}


def is_python(process: Process) -> bool:
    return process.executable is not None and bool(_PYTHON_NAME.fullmatch(Path(process.executable).name))


def ask_interpreter(processes: Iterable[Process]) -> tuple[str | None, Gap | None]:
    """The version of the interpreter that ran the command, or of the first one below it; null when there was none."""
    executable = next((process.executable for process in processes if is_python(process)), None)
    if executable is None:
        return None, None
    if why := check_interpreter(executable):
        return None, Gap(what="version of the interpreter", why=f"it is not run: {why}")
    try:
        answer = subprocess.run(
            [executable, "-I", "-S", str(payload("probes/interpreter.py"))],
            capture_output=True,
            timeout=_PROBE_DEADLINE_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        told = decode_json(answer.stdout, _Interpreter)
        return f"{told.python}{' (free-threaded)' if told.free_threaded else ''}", None
    except (OSError, subprocess.SubprocessError, Unreadable) as error:
        return None, Gap(what="version of the interpreter", why=str(error), fix=f"{executable} --version")


def read_scripts(processes: Iterable[Process], cwd: str) -> tuple[Statement, ...]:
    """Imports and os.environ settings at the top level of the scripts that were run, in source order."""
    scripts = dict.fromkeys(script for process in processes if (script := _script_of(process, cwd)))
    return tuple(statement for script in list(scripts)[:4] for statement in _read_script(script))


def _script_of(process: Process, cwd: str) -> Path | None:
    if not is_python(process):
        return None
    for argument in process.argv[1:]:
        if argument in ("-c", "-m"):
            return None
        if not argument.startswith("-"):
            path = Path(cwd, argument)
            return path if path.is_file() else None
    return None


def _read_script(path: Path) -> Iterator[Statement]:
    try:
        module = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in _top_level(module.body):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Statement(str(path), node.lineno, imports=name.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield Statement(str(path), node.lineno, imports=node.module.partition(".")[0])
        elif setting := _environment_setting(node):
            yield Statement(str(path), node.lineno, sets=setting[0], value=setting[1])


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in the order they run on import; bodies of functions and classes do not run then."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            for field in ("body", "handlers", "orelse", "finalbody"):
                for inner in getattr(node, field, []):
                    yield from _top_level(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def _environment_setting(node: ast.stmt) -> tuple[str, str | None] | None:
    """os.environ["X"] = "1" and os.environ.setdefault("X", "1") and os.putenv("X", "1")."""
    if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Subscript):
        name, value = target.slice, node.value
        if not ast.unparse(target.value).endswith("environ"):
            return None
    elif isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call) and len(call.args) == 2:
        name, value = call.args
        if not ast.unparse(call.func).endswith(("environ.setdefault", "putenv")):
            return None
    else:
        return None
    if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
        return None
    return name.value, str(value.value) if isinstance(value, ast.Constant) else None
