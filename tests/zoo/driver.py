"""Runs one scenario of the zoo under `harness run`: what it needs is built, its memory is limited, its signal is sent.

It does not judge: test_zoo.py asserts what comes out, tests/accuracy.py counts it. What a machine lacks is a skip.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.builders.literals import SCENARIOS, read_literals

DEADLINE_S = 120
INJECTIONS = ("preload", "shim")


def build(source: Path, flags: list[str], where: Path) -> Path:
    """Once per run of the tests; the compiler is one of the declared Debian packages."""
    library = where / f"{source.stem}.so"
    if not library.exists():
        compiler = "g++" if source.suffix == ".cpp" else "gcc"
        if shutil.which(compiler) is None:
            pytest.skip(f"needs {compiler}")
        subprocess.run([compiler, "-O1", "-g", "-shared", "-fPIC", *flags, "-o", library, source], check=True)
    return library


def build_program(source: Path, flags: list[str], where: Path) -> Path:
    """Of a scenario that is no Python; once per run of the tests."""
    program = where / source.stem
    compiler = {".rs": ["rustc", "--edition", "2021"], ".cpp": ["g++", "-O1", "-pthread"]}[source.suffix]
    # rustup's stand-in is there for users who have no toolchain, too.
    if (
        shutil.which(compiler[0]) is None
        or subprocess.run([compiler[0], "--version"], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"needs {compiler[0]}")
    if not program.exists():
        subprocess.run([*compiler, "-g", *flags, "-o", program, source], check=True)
    return program


def memory_group(literals: dict[str, Any], tmp_path: Path) -> Path | None:
    """A memory control group (version 1) with the limit that the scenario asks for; `remove_group` takes it away."""
    if "MEMORY_LIMIT_BYTES" not in literals:
        return None
    base = Path("/sys/fs/cgroup/memory")
    if os.getuid() != 0 or not (base / "memory.limit_in_bytes").exists():
        pytest.skip("needs root and a version 1 memory control group")
    group = base / f"harness-zoo-{os.getpid()}-{tmp_path.name}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(literals["MEMORY_LIMIT_BYTES"]))
    return group


def remove_group(group: Path) -> None:
    """The kernel takes its last process out a moment after that has ended."""
    give_up = time.monotonic() + DEADLINE_S
    while (group / "cgroup.procs").read_text() and time.monotonic() < give_up:
        time.sleep(0.01)
    group.rmdir()


def make_command(path: Path, literals: dict[str, Any], python: str, control: bool) -> list[str]:
    flag = "--control" if control else ""
    template = literals.get("COMMAND")
    if template is None:
        return [python, str(path), *([flag] if flag else [])]
    words = {"{python}": shlex.quote(python), "{file}": shlex.quote(str(path)), "{control}": flag}
    command = []
    for word in template:
        for name, value in words.items():
            word = word.replace(name, value)
        command.append(word)
    return command


class Prepared(NamedTuple):
    """All that a run of a scenario takes; `send` is the signal that someone outside sends it."""

    command: list[str]
    environment: dict[str, str]
    send: str | None


@contextlib.contextmanager
def prepared(path: Path, python: str, control: bool, tmp_path: Path, built: Path) -> Iterator[Prepared]:
    """What a scenario builds goes to `built`, all else to `tmp_path`; its control group is gone at the end."""
    literals = read_literals(path)
    skip_where_it_cannot_run(literals)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {"HARNESS_CASES": str(tmp_path / "cases"), "TMPDIR": str(tmp_path)}
    command = make_command(path, literals, python, control)
    if source := literals.get("BUILD"):
        environment["ZOO_LIB"] = str(build(SCENARIOS / source, literals.get("BUILD_FLAGS", []), built))
    if source := literals.get("PROGRAM"):
        command = [str(build_program(SCENARIOS / source, literals.get("BUILD_FLAGS", []), built)), *command[1:]]
    group = memory_group(literals, tmp_path)
    try:
        environment |= {"ZOO_GROUP": str(group)} if group else {}
        yield Prepared(command, environment, None if control else literals.get("SENDS"))
    finally:
        if group:
            remove_group(group)


def skip_where_it_cannot_run(literals: dict[str, Any]) -> None:
    for module in literals.get("NEEDS", ()):
        pytest.importorskip(module)
    for file in literals.get("NEEDS_FILES", ()):
        if not Path(file).exists():
            pytest.skip(f"needs {file}")
    if platform.machine() not in literals.get("MACHINES", [platform.machine()]):
        pytest.skip(f"the instruction is one of {literals['MACHINES']}")
    if literals.get("NEEDS_ROOT") and os.getuid() != 0:
        pytest.skip("needs root")
    mounts = Path("/proc/self/mountinfo")
    if literals.get("NEEDS_MOUNTED_ROOT") and not re.search(r"^\d+ \d+ \S+ \S+ / ", mounts.read_text(), re.MULTILINE):
        pytest.skip("below a chroot no tool finds the files of another mount namespace")
    if "stack" in literals["EXPECT"] and literals.get("PROGRAM") and shutil.which("gdb") is None:
        pytest.skip("needs gdb")


def supervise(run: Prepared, inject: str, tmp_path: Path) -> tuple[int, dict[str, Any]]:
    """In a directory of its own: where all cores are called `core`, two runs at a time would overwrite each other's.

    The case is kept, also of a command that ended well.
    """
    verdict = tmp_path / "verdict.json"
    # A core would tell what the shim cannot see; what it tells is asked for in tests/live/test_cores.py.
    options = [
        "--keep",
        "--inject",
        inject,
        *(("--core", "never") if inject == "shim" else ()),
        "--verdict",
        str(verdict),
    ]
    words = [sys.executable, "-m", "harness", "run", *options, "--", *run.command]
    return execute(words, run, tmp_path, find_child), json.loads(verdict.read_bytes())


def execute(words: list[str], run: Prepared, tmp_path: Path, find_target: Callable[[int, list[str]], int]) -> int:
    """What it writes is in `stdout` and `stderr` of `tmp_path`; `find_target` says who gets the scenario's signal."""
    environment, ready = run.environment, tmp_path / "ready"
    if run.send:
        os.mkfifo(ready)
        environment = {**environment, "ZOO_READY": str(ready)}
    with (tmp_path / "stdout").open("wb") as out, (tmp_path / "stderr").open("wb") as err:
        process = subprocess.Popen(
            words, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=environment, cwd=tmp_path
        )
        try:
            if run.send:
                assert ready.read_text().strip() == "ready"  # blocks until the scenario has opened the other end
                os.kill(find_target(process.pid, run.command), signal.Signals[run.send])
            return process.wait(DEADLINE_S)
        finally:
            if process.poll() is None:
                process.kill()


def find_child(parent: int, command: list[str]) -> int:
    """The command's main process: the only child of harness that runs it."""
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if argv[1:2] == [command[1].encode()]:
                return pid
    raise AssertionError(f"no child of {parent} runs {command}")


@functools.cache
def name_interpreter(python: str) -> str:
    """How the image begins that has the interpreter inside: a library, or the program itself. It is asked."""
    source = "import os, sys; print('libpython' in open('/proc/self/maps').read(), os.path.realpath(sys.executable))"
    shared, program = subprocess.check_output([python, "-I", "-c", source], text=True).split(maxsplit=1)
    return "libpython" if shared == "True" else Path(program.strip()).name
