"""Every place that starts a program is known, with the reason why nobody else can have written what it starts.

A new place asks harness/capture/machine/trust.py, and is added here. What is found on PATH is found in the same places
only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "harness"
_MODULES = {"subprocess", "os"}
_STARTING = ("exec", "spawn", "posix_spawn", "system", "popen", "startfile")
_OF_SUBPROCESS = {"run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
_OWN = "our own interpreter, isolated, with what is ours"
_TYPED = "the user's own word"
_CHECKED = "find_program, look_for_program or find_tool"
STARTS = {
    "commands/alone.py run_alone": _TYPED,
    "in_process.py enable": f"{_OWN}; sys.path without the working directory",
    "capture/run/launch.py _start": f"{_TYPED} (harness_start)",
    "capture/living/unflushed.py start": _OWN,
    "capture/arrays/measuring.py _ask": "ask_importing, find_python(imports=True)",
    "capture/doctor/facilities.py _python_child": _OWN,
    "capture/doctor/facilities.py _run": f"{_OWN}, or {_CHECKED}",
    "capture/doctor/facilities.py _status_after_collection": _OWN,
    "capture/files/owners.py search_rpm": _CHECKED,
    "capture/run/glimpses.py _start": f"find_py_spy: {_CHECKED}, or sent",
    "capture/doctor/mac_facilities.py ask_tool": _CHECKED,
    "capture/machine/macos_kernel_log.py read_kill_lines": _CHECKED,
    "capture/openmp/imports.py _start": "ask_importing, find_python(imports=True); no module of another's directory",
    "capture/files/interpreter.py ask_interpreter": "check_interpreter, isolated",
    "capture/openmp/wheel_download.py _drop_other_platforms": _OWN,
    "capture/openmp/wheel_download.py _run_pip": f"{_OWN}; PATH is read_safe_path",
    "capture/remote/agent/tools.py _try": "sent, by its sha256, in memory or a private directory",
    "capture/remote/connection.py __init__": f"ssh: {_CHECKED}; --via: {_TYPED}",
    "capture/remote/py_spy_wheel.py _fetch": f"{_OWN}; PATH is read_safe_path",
    "capture/experiment/reproducers.py ask_patient": "ask_importing, find_python(imports=True)",
    "capture/stacks/tools.py run_tool": f"find_py_spy, find_gdb: {_CHECKED}; /usr/bin/sample",
    "capture/run/gathered/environment.py ask_interpreter": "check_interpreter, isolated",
    "capture/machine/kernel_log.py read_journal": _CHECKED,
}
SEARCHES = {
    "capture/run/injection.py resolve_program": "read, not started",
    "capture/run/launch.py find_command": _TYPED,
    "capture/files/interpreter.py locate_python": "asked by find_python and ask_interpreter",
    "capture/remote/agent/tools.py find_tool": "check_program",
    "capture/machine/trust.py look_for_program": "check_program",
    "capture/machine/trust.py find_tool": "check_program",
    "commands/job_look.py _why_no_core": "only whether there is one",
}


def list_calls(package: Path, is_meant: str) -> Iterator[str]:
    """The file and the function of each call that is meant."""
    for path in sorted(package.rglob("*.py")):
        if path.name != "_abi.py":
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                    inside = function.name if not isinstance(function, ast.Module) else "(module)"
                    for call in _walk_own(function):
                        if _kind_of(call) == is_meant:
                            yield f"{path.relative_to(package)} {inside}"


def _walk_own(function: ast.AST) -> Iterator[ast.AST]:
    """Without the functions in it, and types (`Popen[bytes]`)."""
    for child in ast.iter_child_nodes(function):
        if isinstance(function, ast.Subscript) and child is function.value:
            continue
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk_own(child)


def _kind_of(node: ast.AST) -> str | None:
    """Also where it is only named, and called later; and names that were imported from there."""
    if isinstance(node, ast.ImportFrom) and node.module in _MODULES | {"shutil"}:
        names = {alias.name for alias in node.names}
        return "start" if any(map(_starts, names)) else "search" if "which" in names else None
    if not isinstance(node, ast.Attribute):
        return None
    if node.attr == "harness_start":
        return "start"
    if not isinstance(node.value, ast.Name):
        return None
    if node.value.id == "shutil" and node.attr == "which":
        return "search"
    if node.value.id == "subprocess":
        return "start" if node.attr in _OF_SUBPROCESS else None
    return "start" if node.value.id in ("os", "posix", "pty") and _starts(node.attr) else None


def _starts(name: str) -> bool:
    return (name.startswith(_STARTING) and not name.startswith("POSIX")) or name in _OF_SUBPROCESS - {"run", "call"}


def called(kind: str, package: Path = PACKAGE) -> set[str]:
    return set(list_calls(package, kind))


def test_every_place_that_starts_a_program_is_known() -> None:
    assert called("start") == set(STARTS)


def test_every_place_that_looks_for_a_program_is_known() -> None:
    assert called("search") == set(SEARCHES)


def test_a_new_place_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import os, subprocess, shutil\n"
        "def f():\n    def g():\n        os.execv('/x', [])\n    return subprocess.run(['x'])\n"
        "def h(): return list(map(subprocess.Popen, [['x']]))\n"
        "def i(): return os.posix_spawn, shutil.which('x')\n"
        "def j(): return os.fork(), os.stat('x'), subprocess.TimeoutExpired, os.POSIX_SPAWN_OPEN\n"
        "from subprocess import Popen\n"
    )
    assert called("start", tmp_path) == {"a.py f", "a.py g", "a.py h", "a.py i", "a.py (module)"}
    assert called("search", tmp_path) == {"a.py i"}
