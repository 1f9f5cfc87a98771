"""Every way of dying, and its control twin: the verdict must be what the scenario itself declares.

The literals in a scenario are its ground truth; they are read without importing it. EXPECT holds for both injections;
what the shim cannot see is in SHIM, next to it, with the reason; `...` there means not known beforehand.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.zoo.literals import SCENARIOS, read_literals

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
INJECTIONS = ("preload", "shim")
LINK_SIGNALS = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS"}
DEADLINE_S = 120


def find_interpreters() -> dict[str, str]:
    """Every version that is present: on PATH, under a version manager, and always our own."""
    found = {}
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    for version in VERSIONS:
        managed = [path for root in roots for path in sorted(root.glob(f"{version}.*/bin/python{version}"))]
        if path := next(map(str, managed), None) or shutil.which(f"python{version}"):
            found[version] = path
    found[f"{sys.version_info[0]}.{sys.version_info[1]}"] = sys.executable
    return found


INTERPRETERS = find_interpreters()
_PRESENT = [version for version in VERSIONS if version in INTERPRETERS]
OLDEST_AND_NEWEST = {*_PRESENT[:1], *_PRESENT[-1:]}


def is_ours(version: str) -> bool:
    return INTERPRETERS[version] == sys.executable


def list_runs() -> list[Any]:
    """What needs an installed package runs in our own environment only."""
    runs = []
    for path in sorted(SCENARIOS.glob("*.py")):
        literals = read_literals(path)
        versions = [version for version in INTERPRETERS if version in literals.get("VERSIONS", VERSIONS)]
        for version, twin, inject in itertools.product(versions, ("fault", "control"), INJECTIONS):
            if literals.get("NEEDS") and not is_ours(version):
                continue
            if inject == "preload" or is_worth_the_shim(literals, version, twin):
                runs.append(pytest.param(path, version, twin, inject, id=f"{path.stem}-{version}-{twin}-{inject}"))
    return runs


def is_worth_the_shim(literals: dict[str, Any], version: str, twin: str) -> bool:
    """Everything everywhere would take ten minutes more; the preserving programs do run on every interpreter.

    On our own all faults, and the controls of what the link sees; on the oldest and the newest what the link sees.
    """
    seen_by_link = literals["EXPECT"]["signal"] in LINK_SIGNALS
    if twin == "control":
        return is_ours(version) and seen_by_link and not literals.get("NEEDS")
    return is_ours(version) or (seen_by_link and version in OLDEST_AND_NEWEST and not literals.get("SLOW"))


def build(source: Path, flags: list[str], where: Path) -> Path:
    """Once per run of the tests; the compiler is one of the declared Debian packages."""
    library = where / f"{source.stem}.so"
    if not library.exists():
        compiler = "g++" if source.suffix == ".cpp" else "gcc"
        if shutil.which(compiler) is None:
            pytest.skip(f"needs {compiler}")
        subprocess.run([compiler, "-O1", "-g", "-shared", "-fPIC", *flags, "-o", library, source], check=True)
    return library


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


def supervise(
    command: list[str], inject: str, environment: dict[str, str], send: str | None, tmp_path: Path
) -> tuple[int, dict]:
    verdict = tmp_path / "verdict.json"
    # A core would tell what the shim cannot see; what it tells is asked for in tests/live/test_cores.py.
    options = ["--inject", inject, *(("--core", "never") if inject == "shim" else ()), "--verdict", str(verdict)]
    words = [sys.executable, "-m", "harness", "run", *options, "--", *command]
    ready = tmp_path / "ready"
    if send:
        os.mkfifo(ready)
        environment = {**environment, "ZOO_READY": str(ready)}
    with (tmp_path / "stdout").open("wb") as out, (tmp_path / "stderr").open("wb") as err:
        process = subprocess.Popen(words, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=environment)
        try:
            if send:
                assert ready.read_text().strip() == "ready"  # blocks until the scenario has opened the other end
                os.kill(find_child(process.pid, command), signal.Signals[send])
            status = process.wait(DEADLINE_S)
        finally:
            if process.poll() is None:
                process.kill()
    return status, json.loads(verdict.read_bytes())


def find_child(parent: int, command: list[str]) -> int:
    """The command's main process: the only child of harness that runs it."""
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if argv[1:2] == [command[1].encode()]:
                return pid
    raise AssertionError(f"no child of {parent} runs {command}")


def check_blame(expected: dict[str, Any], verdict: dict[str, Any]) -> None:
    """Images by the start of their name. A null component is not known beforehand; a null faulting image is none."""
    for name in ("component", "faulting_image"):
        if expected.get(name):
            image = (verdict[name] or {}).get("image") or ""
            assert Path(image).name.startswith(expected[name]), (name, verdict)
    if "faulting_image" in expected and expected["faulting_image"] is None:
        assert verdict["faulting_image"] is None, verdict
    if expected.get("component_function"):
        assert expected["component_function"] in (verdict["component"]["function"] or ""), verdict
    for word in expected.get("fault", ()):
        assert word in (verdict["fault"] or ""), verdict


def test_the_shim_may_see_less_but_changes_no_end() -> None:
    for path in sorted(SCENARIOS.glob("*.py")):
        literals = read_literals(path)
        if shim := literals.get("SHIM"):
            assert shim["because"], path
            assert shim.keys() - {"because"} <= literals["EXPECT"].keys() - {"exit", "signal", "role"}, path


@pytest.mark.parametrize(("path", "version", "twin", "inject"), list_runs())
def test_verdict(path: Path, version: str, twin: str, inject: str, tmp_path: Path, built: Path) -> None:
    literals = read_literals(path)
    control = twin == "control"
    for module in literals.get("NEEDS", ()):
        pytest.importorskip(module)
    for file in literals.get("NEEDS_FILES", ()):
        if not Path(file).exists():
            pytest.skip(f"needs {file}")
    if platform.machine() not in literals.get("MACHINES", [platform.machine()]):
        pytest.skip(f"the instruction is one of {literals['MACHINES']}")
    if literals.get("NEEDS_ROOT") and os.getuid() != 0:
        pytest.skip("needs root")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {"HARNESS_CASES": str(tmp_path / "cases"), "TMPDIR": str(tmp_path)}
    if source := literals.get("BUILD"):
        environment["ZOO_LIB"] = str(build(SCENARIOS / source, literals.get("BUILD_FLAGS", []), built))
    group = memory_group(literals, tmp_path)
    environment |= {"ZOO_GROUP": str(group)} if group else {}
    command = make_command(path, literals, INTERPRETERS[version], control)

    send = None if control else literals.get("SENDS")

    try:
        status, document = supervise(command, inject, environment, send, tmp_path)
    finally:
        if group:
            remove_group(group)

    expected = literals["CONTROL"] if control else literals["EXPECT"]
    if inject == "shim" and not control:
        expected = {name: value for name, value in {**expected, **literals.get("SHIM", {})}.items() if value is not ...}
    verdict = document["verdict"]
    assert verdict["kind"] == expected["kind"], verdict
    assert status == expected["exit"], verdict
    for name, actual in (
        ("status", verdict["status"]),
        ("signal", document["outcome"]["signal"]),
        ("role", verdict["process"]["role"]),
        ("user_function", (verdict["user_frame"] or {}).get("function")),
        ("context_function", (verdict["context_frame"] or {}).get("function")),
    ):
        if name in expected:
            assert actual == expected[name], (name, verdict)
    check_blame(expected, verdict)
    for word in expected.get("headline", ()):
        assert word in verdict["headline"]
    if control:
        assert verdict["against"] == []
        assert (tmp_path / "stderr").read_text().count("harness:") == 0
