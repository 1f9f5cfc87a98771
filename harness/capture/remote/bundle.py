"""What is sent to a host so that it can be looked at from there: our own modules of `capture` and `evidence`, as text.

Found by following the imports of the agent, so that nothing has to be listed by hand. Sends nothing itself.
"""

from __future__ import annotations

import ast
import json
import threading
import zlib
from functools import cache
from pathlib import Path

from harness.capture.machine.payload import payload

_PACKAGE = Path(__file__).parents[2]
_AGENT = "harness.capture.remote.agent.serve"
_ROOMS = (
    "harness.capture.",
    "harness.evidence.",
    "harness.errors",
    "harness.native",
    "harness.beat",
    "harness.version",
)
_NEEDS_OTHERS = {"harness.capture.living.processes_elsewhere"}
_ONE_AT_A_TIME = threading.Lock()
_PROBES = ("probes/unflushed.py",)
# Only our own cache and our own cases are asked for; nothing is kept on a foreign host.
_PLATFORMDIRS = """
import os
def user_cache_dir(name): return "/dev/null/" + name
def user_state_dir(name):
    return (os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")) + "/" + name
"""


def boot_source() -> bytes:
    return (_PACKAGE / "capture/remote/agent/boot.py").read_bytes()


def pack(token: str) -> bytes:
    """What `boot` reads: the token and the number of bytes, and that many."""
    prepare()
    packed = _pack()
    return f"{token} {len(packed)}\n".encode() + packed


def prepare() -> None:
    """What is the same for every host is made once, while the first connection is still being made."""
    with _ONE_AT_A_TIME:
        _pack()


@cache
def _pack() -> bytes:
    return zlib.compress(json.dumps({"modules": collect_modules(), "payloads": _read_payloads()}).encode(), 6)


def _read_payloads() -> dict[str, str]:
    return {name: payload(name).read_text() for name in _PROBES}


def collect_modules() -> dict[str, tuple[bool, str]]:
    """By name: whether it is a package, and its source."""
    found: dict[str, tuple[bool, str]] = {}
    waiting = ["harness", _AGENT]
    while waiting:
        name = waiting.pop()
        if name in found or (read := _read(name)) is None:
            continue
        found[name] = read
        waiting += [part for part in _list_imports(read[1]) if part not in found]
        if "." in name:
            waiting.append(name.rpartition(".")[0])
    found["msgspec"] = (True, (_PACKAGE / "capture/remote/agent/structs.py").read_text())
    found["platformdirs"] = (False, _PLATFORMDIRS)
    return found


def _read(name: str) -> tuple[bool, str] | None:
    """Null: a name in a module, not a module."""
    path = _PACKAGE.parent / name.replace(".", "/")
    for file, is_package in ((path / "__init__.py", True), (path.with_suffix(".py"), False)):
        if file.is_file():
            return is_package, file.read_text()
    return None


def _list_imports(source: str) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if f"{name}.".startswith(_ROOMS) and name not in _NEEDS_OTHERS]
