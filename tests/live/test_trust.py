"""Nothing runs that another user could have written: a look by root at somebody else's process, here and elsewhere.

What that user has prepared tells when it is run by anybody else: each program and each module leaves a mark.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.capture.trust import check_interpreter, check_package, check_program
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


def test_what_others_may_write_by_an_access_list_is_not_run(tmp_path: Path) -> None:
    """Mode 0775, group root: that the group's bits are the list's mask shows only in the list itself."""
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o775)
    assert check_program(program).path
    entries = [
        (1, 7, -1),
        (2, 7, NOBODY),
        (4, 5, -1),
        (16, 7, -1),
        (32, 5, -1),
    ]  # man 5 acl: owner, user, group, mask, rest
    access_list = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", *entry[:2], entry[2] & 0xFFFFFFFF) for entry in entries
    )
    try:
        os.setxattr(program, "system.posix_acl_access", access_list)
    except OSError as error:
        pytest.skip(f"no access lists on this file system: {error.strerror}")
    assert "written by others" in (check_program(program).why or "")


def test_in_a_user_namespace_nobodys_files_are_not_ours(tmp_path: Path) -> None:
    """Whoever has no number there is shown as 65534: also to one who is 65534 himself."""
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    ask = f"from harness.capture.trust import check_program; print(check_program({str(program)!r}).path)"
    command = ["unshare", "--user", sys.executable, "-c", ask]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"no user namespaces here: {done.stderr.strip()}")
    assert done.stdout == "None\n", done.stderr


def test_an_interpreter_whose_library_is_anothers_is_not_started(theirs: Path, tmp_path: Path) -> None:
    """Isolated or not, Python reads pyvenv.cfg, and takes its standard library from the home that is named there."""
    folder = tmp_path / "environment"
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python3"
    python.symlink_to("/usr/bin/python3")
    assert check_interpreter(str(python)) is None
    config = folder / "pyvenv.cfg"
    config.write_text(f"home = {theirs / 'bin'}\n")
    assert "belongs to user" in (check_interpreter(str(python)) or "")
    config.write_text("home = /usr/bin\n")
    assert check_interpreter(str(python)) is None
    config.chmod(0o666)
    assert "written by others" in (check_interpreter(str(python)) or "")
    config.unlink()
    library = folder / "lib" / "python3.11"
    library.mkdir(parents=True)
    (library / "os.py").touch()
    os.chown(library / "os.py", NOBODY, NOBODY)
    assert "belongs to user" in (check_interpreter(str(python)) or "")


def test_libraries_that_a_package_brings_are_looked_at_too(tmp_path: Path) -> None:
    for name in ("pystack", "pystack.libs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    assert check_package(tmp_path, "pystack") is None
    os.chown(tmp_path / "pystack.libs" / "file", NOBODY, NOBODY)
    assert "belongs to user" in (check_package(tmp_path, "pystack") or "")


def test_root_runs_no_interpreter_of_another_to_ask_its_version(theirs: Path, tmp_path: Path) -> None:
    """The command gives up its rights and starts what its user has; harness, still root, reports on it."""
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    script = f"{theirs / 'bin/python3'} & sleep 1; kill $!; exit 3"
    done = look(["run", "--cases", tmp_path / "cases", "--", *user, "sh", "-c", script], theirs)
    assert done.returncode == 3, done.stderr
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()


def test_root_asks_no_environment_of_another(theirs: Path) -> None:
    for words in (["openmp", "--python", theirs / "bin/python3"], ["openmp"]):
        done = look(words, theirs, VIRTUAL_ENV=str(theirs))
        assert not (theirs / "mark").exists(), (theirs / "mark").read_text()
        assert done.returncode == 3 and b"is not run by root" in done.stderr, done.stderr


def test_ssh_of_another_is_not_run(theirs: Path) -> None:
    shutil.copy(theirs / "bin/python3", theirs / "bin/ssh")
    done = look(["ps", "nowhere.invalid"], theirs, PATH=f"{theirs / 'bin'}:{os.environ['PATH']}")
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()
    assert done.returncode == 3


def test_enable_imports_nothing_from_the_working_directory(theirs: Path, tmp_path: Path) -> None:
    for name in ("contextlib", "select", "faulthandler", "harness", "msgspec"):
        (theirs / f"{name}.py").write_text(f"open({str(theirs / 'mark')!r}, 'a').write('{name}')\n")
    script = tmp_path / "train.py"
    script.write_text(
        f"import harness, ctypes\nharness.enable(cases={str(tmp_path / 'cases')!r})\nctypes.string_at(0)\n"
    )
    environment = {**os.environ, "HARNESS_CASES": str(tmp_path / "cases")}
    command = [sys.executable, script]
    done = subprocess.run(command, cwd=theirs, env=environment, capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == -11, done.stderr
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()


def test_the_kept_py_spy_is_the_published_one_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.capture.remote import tool

    monkeypatch.setattr(tool, "_cache", lambda: tmp_path)
    monkeypatch.setattr(tool, "_version", lambda: "9.9")
    good = b"\x7fELF good"
    kept = tmp_path / f"py-spy-9.9-aarch64-{hashlib.sha256(good).hexdigest()}"
    kept.write_bytes(good)
    assert tool.read_kept("aarch64") == good
    kept.write_bytes(good + b" and more")
    assert tool.read_kept("aarch64") is None
    kept.write_bytes(good)
    os.chown(kept, NOBODY, NOBODY)
    assert tool.read_kept("aarch64") is None
    os.chown(kept, 0, 0)
    monkeypatch.setitem(tool._SHA256, ("9.9", "aarch64"), "0" * 64)
    assert tool.read_kept("aarch64") is None


def test_of_a_folder_with_pystack_nothing_else_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.capture.remote.far.agent import _OnlyPystack

    for name in ("pystack", "rich"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    finder = _OnlyPystack(str(tmp_path))
    assert finder.find_spec("pystack").origin == str(tmp_path / "pystack" / "__init__.py")
    assert finder.find_spec("rich") is None and finder.find_spec("pystack.engine") is None


def test_gdb_runs_nothing_of_the_working_directory_the_home_or_beside_the_program(
    trap: subprocess.Popen[bytes], theirs: Path
) -> None:
    script = f"python open({str(theirs / 'mark')!r}, 'a').write('gdb')\n"
    for name in (".gdbinit", "bin/python3-gdb.gdb", "bin/.gdbinit", ".config/gdb/gdbinit"):
        (theirs / name).parent.mkdir(parents=True, exist_ok=True)
        (theirs / name).write_text(script)
    done = look(["attach", trap.pid, "--for", "1", "--native", "always", "--json"], theirs, HOME=str(theirs))
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()
    assert json.loads(done.stdout)["outcome"]["state"] == "alive", done.stderr


def test_root_writes_nothing_below_a_home_of_another(theirs: Path) -> None:
    """Its owner could have put a link in the place of whatever root is about to write."""
    before = sorted(theirs.rglob("*"))
    own = Path(pwd.getpwuid(0).pw_dir, ".local/state/harness/cases")
    variables = {"HOME": str(theirs), "TMPDIR": str(theirs)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HARNESS", "XDG"))}
    command = [sys.executable, "-m", "harness", "run", "--", sys.executable, "-c", "import ctypes; ctypes.string_at(0)"]
    done = subprocess.run(
        command, env=environment | variables, cwd="/", capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 139 and sorted(theirs.rglob("*")) == before, done.stderr
    (case,) = re.findall(rf"{own}/\S+", done.stderr.decode())
    assert json.loads((Path(case) / "verdict.json").read_bytes())["verdict"]["kind"] == "segfault"
    shutil.rmtree(case)
