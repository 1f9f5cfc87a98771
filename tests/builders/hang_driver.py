"""Starts a program of the hang zoo and waits until it is in the state to be judged.

It does not judge: that is the business of the test that attaches to what is started here.

A program in tests/zoo/hangs declares in literals, read without importing it:
  EXPECT   kind             the verdict's kind
           weaker           kinds that say less but are not wrong (optional)
           status           only where it is clear
           moving           whether the line of work moves
           pid_role         "main", "worker" or "child": the process really stuck, seen from the one that was started
           thread           name of the thread really stuck, None where any would do
           python_function  of the innermost frame that stands in the program's own file, on that thread
           python_line_text a piece of the line it stands on, see find_line(); None where the line keeps changing
           facts            words that the headline or the grounds must contain
           cycle            of a deadlock: every member; the three keys above are those of its first, any may be named
           ranks            of a collective: who stands where; the three keys above are those of who has not arrived
           rising_local     the integer that only rises; of a list any of them
           unflushed        what lies in the buffer of stdout and has not been written; unflushed_start: its first lines
  STRIPPED of EXPECT, what differs where the interpreter has no symbols
  CONTROL  kind             of the same program with --control, which is well; rising_local and unflushed as above
  NEEDS    packages         BUILD, BUILD_FLAGS, BUILD_NAME   a C helper, its path is in ZOO_LIB
  SKIP     a sentence       why it cannot be judged yet

When everything is in place, the program says so (hangs/stage): a JSON object in ZOO_READY, with "pid" of the one really
stuck if it is not the one started, "facts" that are known only when it runs, the pids of "ranks". It ends by itself
within two minutes; exit 77 before it is ready says that something it needs is not there.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.builders.literals import read_literals

HANGS = Path(__file__).parents[1] / "zoo" / "hangs"
READY_DEADLINE_S = 180
GONE_DEADLINE_S = 10
NOT_HERE = 77
POLL_S = 0.02


class NotHere(Exception):
    """The program, or the compiler of its helper, lacks something on this machine."""


class Hang(subprocess.Popen):
    """The process started, and all of its group; as a context manager it leaves nothing of the group behind."""

    ready: dict[str, Any]
    out: Path
    err: Path

    @property
    def stuck_pid(self) -> int:
        return self.ready.get("pid", self.pid)

    def end(self) -> None:
        """SIGKILL, because what is stopped or holds the GIL does not take SIGTERM. Orphans are reaped by init."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.wait(GONE_DEADLINE_S)
        deadline = time.monotonic() + GONE_DEADLINE_S
        while members := list_group(self.pid):
            assert time.monotonic() < deadline, f"still there after SIGKILL: {members}"
            time.sleep(POLL_S)

    def __exit__(self, *_: Any) -> None:
        self.end()


def start(path: Path, python: str, control: bool, tmp_path: Path) -> Hang:
    """Own session and group; stdout is a file and thus block-buffered; returns when the program says it is ready."""
    literals = read_literals(path)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {"ZOO_READY": str(tmp_path / "ready"), "TMPDIR": str(tmp_path)}
    if source := literals.get("BUILD"):
        name = literals.get("BUILD_NAME", f"{Path(source).stem}.so")
        environment["ZOO_LIB"] = str(build(HANGS / source, literals.get("BUILD_FLAGS", []), tmp_path / name))
    out, err = tmp_path / "stdout", tmp_path / "stderr"
    command = [python, str(path), *(["--control"] if control else [])]
    with out.open("wb") as out_file, err.open("wb") as err_file:
        process = Hang(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=err_file,
            env=environment,
            cwd=tmp_path,
            start_new_session=True,
        )
    process.out, process.err = out, err
    try:
        process.ready = wait_until_ready(process, tmp_path / "ready")
    except BaseException:
        process.end()
        raise
    return process


def build(source: Path, flags: list[str], library: Path) -> Path:
    if shutil.which("gcc") is None:
        raise NotHere("needs gcc")
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", *flags, "-o", library, source], check=True)
    return library


def wait_until_ready(process: Hang, ready: Path) -> dict[str, Any]:
    deadline = time.monotonic() + READY_DEADLINE_S
    while not ready.exists():
        status = process.poll()
        if status == NOT_HERE:
            raise NotHere(process.err.read_text(errors="replace").strip())
        assert status is None, f"ended with {status} before it was ready: {process.err.read_text(errors='replace')}"
        assert time.monotonic() < deadline, f"not ready after {READY_DEADLINE_S} s"
        time.sleep(POLL_S)
    return json.loads(ready.read_text())


def list_group(group: int) -> list[int]:
    """The living members of a process group; a zombie has ended."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(pgrp) == group and state != "Z":
            members.append(int(stat.parent.name))
    return members


def find_line(path: Path, text: str) -> int:
    """The number of the one line of code that contains the text; docstrings and the literals do not count."""
    source = path.read_text()
    declared: set[int] = set()
    for node in ast.parse(source).body:
        names = [getattr(target, "id", "") for target in getattr(node, "targets", [])]
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_docstring or any(name.isupper() for name in names):
            declared.update(range(node.lineno, node.end_lineno + 1))
    found = [n for n, line in enumerate(source.splitlines(), 1) if text in line and n not in declared]
    assert len(found) == 1, f"{text!r} is in lines {found} of {path}"
    return found[0]
