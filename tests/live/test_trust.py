"""Nothing runs that another user could have written: a look by root at somebody else's process, here and elsewhere.

What that user has prepared tells when it is run by anybody else: each program and each module leaves a mark.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.capture.trust import check_package, check_program
from tests.live.processes import DEADLINE_S

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
# Its owner's own run waits to be looked at; anybody else's leaves a mark, and then looks like what it is called.
TRAP = """
#include <stdio.h>
#include <unistd.h>
int main(void) {
    if (geteuid() == %d) { puts("ready"); fflush(stdout); sleep(100); return 0; }
    FILE *mark = fopen("%s", "a");
    if (mark) { fprintf(mark, "%%d\\n", (int) geteuid()); fclose(mark); }
    puts("311");
    return 0;
}
"""


@pytest.fixture
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment of nobody's, as a virtual environment is laid out, where all can read."""
    folder = Path("/srv") / tmp_path_factory.mktemp("theirs").name
    folder = folder.with_name(f"{folder.name}-{os.getpid()}")
    packages = folder / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    try:
        (folder / "bin").mkdir(parents=True)
        (folder / "trap.c").write_text(TRAP % (NOBODY, folder / "mark"))
        trap = folder / "bin" / "python3"
        subprocess.run(["cc", "-o", trap, folder / "trap.c"], check=True)
        for name in ("python", "py-spy", "gdb", "nvidia-smi"):
            shutil.copy(trap, folder / "bin" / name)
        for module in ("pystack", "rich", "sitecustomize"):
            (packages / module).mkdir(parents=True)
            (packages / module / "__init__.py").write_text(f"open({str(folder / 'mark')!r}, 'a').write('{module}')\n")
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def trap(theirs: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Started by its owner from a directory of his, with his own PATH."""
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    with subprocess.Popen([*user, theirs / "bin/python3"], stdout=subprocess.PIPE, cwd=theirs) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def look(words: list[object], where: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "harness", *map(str, words)]
    return subprocess.run(
        command, env={**os.environ, **environment}, cwd=where, capture_output=True, timeout=DEADLINE_S, check=False
    )


@pytest.mark.parametrize("way", [[], ["--via", "env"]], ids=["here", "elsewhere"])
def test_a_look_by_root_runs_nothing_of_the_targets_owner(
    trap: subprocess.Popen[bytes], theirs: Path, way: list[str]
) -> None:
    done = look(["attach", *way, trap.pid, "--for", "1", "--json"], Path("/"))
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()
    assert json.loads(done.stdout)["outcome"]["state"] == "alive", done.stderr


@pytest.mark.parametrize("way", [[], ["--via", "env"]], ids=["here", "elsewhere"])
def test_a_forged_command_line_leads_nowhere(theirs: Path, way: list[str]) -> None:
    """The process is the looking user's own, of a real interpreter: only what it calls itself is another's."""
    source = "import time; print('ready', flush=True); time.sleep(100)"
    forged = str(theirs / "bin" / "python3")
    command = [forged, "-c", source]
    with subprocess.Popen(command, executable="/usr/bin/python3", stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            done = look(["attach", *way, process.pid, "--for", "1", "--json"], theirs)
        finally:
            process.kill()
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()
    assert json.loads(done.stdout)["verdict"]["kind"] == "waiting", done.stderr


def test_tools_of_others_on_our_own_path_are_not_run(trap: subprocess.Popen[bytes], theirs: Path) -> None:
    done = look(["attach", trap.pid, "--for", "1", "--json"], Path("/"), PATH=f"{theirs / 'bin'}:{os.environ['PATH']}")
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()
    assert json.loads(done.stdout)["outcome"]["state"] == "alive", done.stderr


@pytest.mark.parametrize("step", ["file", "folder", "above", "link"])
def test_one_step_that_others_can_write_is_enough(tmp_path: Path, step: str) -> None:
    folder = tmp_path / "above" / "folder"
    folder.mkdir(parents=True)
    program = folder / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = tmp_path / "link"
    path.symlink_to(program)
    assert check_program(path) == (str(program.resolve()), None)
    if step == "link":
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    else:
        {"file": program, "folder": folder, "above": folder.parent}[step].chmod(0o775)
        os.chown({"file": program, "folder": folder, "above": folder.parent}[step], 0, NOBODY)
    assert check_program(path).path is None


def test_a_sticky_directory_is_safe_only_for_what_is_ours(tmp_path: Path) -> None:
    folder = tmp_path / "sticky"
    folder.mkdir()
    folder.chmod(0o1777)
    for name, owner in (("ours", 0), ("theirs", NOBODY)):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
        os.chown(folder / name, owner, owner)
    assert check_program(folder / "ours").path and check_program(folder / "theirs").path is None


def test_a_relative_path_a_directory_and_a_circle_of_links_are_no_programs(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for path in ("tool", tmp_path, tmp_path / "circle", tmp_path / "absent"):
        assert check_program(path).path is None


def test_a_package_with_one_file_of_another_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "pystack").mkdir()
    file = tmp_path / "pystack" / "__init__.py"
    file.touch(stat.S_IRUSR | stat.S_IWUSR)
    assert check_package(tmp_path, "pystack") is None
    os.chown(file, NOBODY, NOBODY)
    assert "belongs to user" in (check_package(tmp_path, "pystack") or "")
