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
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.capture.doctor import facilities
from harness.capture.files.interpreter import find_python
from harness.capture.files.permission import why_no_imports
from harness.capture.machine import kernel_log
from harness.capture.machine.trust import check_imports, check_interpreter, check_package, check_program, find_tool
from harness.capture.remote import py_spy_wheel as remote_tool
from harness.capture.remote.shell_trust import TRUST
from harness.capture.stacks import ladder
from harness.errors import HarnessError, NotOurs
from tests.live.processes import DEADLINE_S

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
# Its owner's own run waits to be looked at; anybody else's leaves a mark, and then looks like what it is called.
SHELLS_OWN = ("cat", "find", "id", "ls", "readlink", "sed", "sleep", "tr", "uname")
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
        for name in ("python", "py-spy", "gdb", "nvidia-smi", "journalctl", "rustc", *SHELLS_OWN):
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
    """As a mode of 0775, group root: that the group's bits are the list's mask shows only in the list itself."""
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
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
    ask = f"from harness.capture.machine.trust import check_program; print(check_program({str(program)!r}).path)"
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
    from harness.capture.remote import py_spy_wheel

    monkeypatch.setattr(py_spy_wheel, "_cache", lambda: tmp_path)
    monkeypatch.setattr(py_spy_wheel, "_version", lambda: "9.9")
    good = b"\x7fELF good"
    kept = tmp_path / f"py-spy-9.9-aarch64-{hashlib.sha256(good).hexdigest()}"
    kept.write_bytes(good)
    assert py_spy_wheel.read_kept("aarch64") == good
    kept.write_bytes(good + b" and more")
    assert py_spy_wheel.read_kept("aarch64") is None
    kept.write_bytes(good)
    os.chown(kept, NOBODY, NOBODY)
    assert py_spy_wheel.read_kept("aarch64") is None
    os.chown(kept, 0, 0)
    monkeypatch.setitem(py_spy_wheel._SHA256, ("9.9", "aarch64"), "0" * 64)
    assert py_spy_wheel.read_kept("aarch64") is None


def test_of_a_folder_with_pystack_nothing_else_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.capture.remote.agent.serve import _OnlyPystack

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


# --- what is started beside a look ------------------------------------------------------------------------------------


def test_pip_is_not_taken_from_the_working_directory(theirs: Path) -> None:
    """And what pip itself looks for on PATH (rustc, to tell the index its version) is not another's."""
    (theirs / "pip.py").write_text(f"open({str(theirs / 'mark')!r}, 'a').write('pip')\n")
    (theirs / "requirements.txt").write_text("no-such-thing-as-this==1\n")
    variables = {"PIP_NO_INDEX": "1", "PATH": f"{theirs / 'bin'}:{os.environ['PATH']}"}
    words = ["openmp", "--requirements", "requirements.txt", "--platform", "manylinux_2_17_x86_64"]
    done = look([*words, "--python-version", "3.11"], theirs, **variables)
    assert done.returncode == 3 and b"no-such-thing-as-this" in done.stderr, done.stderr
    fetch = "from harness.capture.remote import py_spy_wheel; py_spy_wheel._fetch('aarch64')"
    command = [sys.executable, "-I", "-c", fetch]
    fetched = subprocess.run(command, cwd=theirs, env={**os.environ, **variables}, capture_output=True, check=False)
    assert b"HarnessError: py-spy for aarch64 cannot be fetched" in fetched.stderr
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()


def test_a_journalctl_of_another_is_not_run_and_that_is_told(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> Iterator[tuple[float, str]]:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setenv("PATH", f"{theirs / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(kernel_log, "_read_records", refuse)
    monkeypatch.setattr(kernel_log, "is_initial_namespace", lambda namespace: True)
    for lines, gap in (kernel_log.read_kernel_lines({1}, 0), kernel_log.read_daemon_lines({1}, 0)):
        assert not lines and gap is not None and "belongs to user 65534" in gap.why
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()


def test_a_gdb_of_another_writes_no_core(theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.commands.job_look import _ask_gdb, _why_no_core

    monkeypatch.setenv("PATH", f"{theirs / 'bin'}:{os.environ['PATH']}")
    for why in (_why_no_core(os.getpid(), tmp_path), _ask_gdb(os.getpid(), tmp_path / "core")):
        assert why is not None and "belongs to user 65534" in why
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()


def test_gdbs_own_python_reads_no_packages_of_a_home(theirs: Path) -> None:
    if not shutil.which("gdb"):
        pytest.skip("needs gdb")
    version = "import sys; print('%d.%d' % sys.version_info[:2])"
    asked = subprocess.run(["gdb", "-nx", "-batch", "-ex", f"python {version}"], capture_output=True, check=True)
    packages = theirs / ".local/lib" / f"python{asked.stdout.decode().strip()}" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "usercustomize.py").write_text(f"open({str(theirs / 'mark')!r}, 'a').write('gdb')\n")
    start = "from harness.capture.stacks.tools import *; print(run_tool([*gdb_command('gdb')], 20))"
    home = {**os.environ, "HOME": str(theirs)}
    said = subprocess.run([sys.executable, "-I", "-c", start], env=home, capture_output=True, check=False)
    assert b"error=None" in said.stdout, said.stderr
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()


def test_a_tool_beside_our_interpreter_is_looked_at_too(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tmp_path / "bin"
    ours.mkdir()
    shutil.copy(theirs / "bin/py-spy", ours / "py-spy")
    monkeypatch.setattr(sys, "executable", str(ours / "python3"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ladder.find_py_spy() == str(ours / "py-spy") == find_tool("py-spy").path
    os.chown(ours / "py-spy", NOBODY, NOBODY)
    assert "belongs to user 65534" in ladder.find_py_spy() and not ladder.find_py_spy().startswith("/")
    assert facilities.py_spy().state == "no" and "belongs to user 65534" in (facilities.py_spy().why or "")
    assert "belongs to user 65534" in (ladder.ask_py_spy(os.getpid(), 5.0).error or "")
    monkeypatch.setattr(remote_tool, "_fetch", lambda machine: None)
    monkeypatch.setattr(remote_tool, "_cache", lambda: tmp_path / "cache")
    with pytest.raises(HarnessError):
        remote_tool._read_program(os.uname().machine)
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()
    os.chown(ours, NOBODY, NOBODY)
    assert find_tool("py-spy").path, "who can put another interpreter in the place of ours runs already"


def test_on_mac_too_the_systems_tools_are_asked_for(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.capture.doctor import mac_facilities
    from harness.capture.machine import macos_kernel_log

    monkeypatch.setenv("PATH", str(theirs / "bin"))
    for name in ("csrutil", "xcode-select", "log"):
        shutil.copy(theirs / "bin/gdb", theirs / "bin" / name)
        os.chown(theirs / "bin" / name, NOBODY, NOBODY)
    for look_at in (mac_facilities.system_protection, mac_facilities.developer_tools):
        with pytest.raises(OSError, match="belongs to user 65534"):
            look_at()
    lines, gap = macos_kernel_log.read_kill_lines(0)
    assert not lines and gap is not None and "belongs to user 65534" in gap.why
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()


# --- interpreters that import -----------------------------------------------------------------------------------------


@pytest.fixture
def environment(theirs: Path, tmp_path: Path) -> Path:
    """Root's, but for what lies in site-packages."""
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "sitecustomize.py").write_text(f"open({str(theirs / 'mark')!r}, 'a').write('site')\n")
    os.chown(packages, NOBODY, NOBODY)
    os.chown(packages / "sitecustomize.py", NOBODY, NOBODY)
    return folder


def test_root_imports_no_packages_of_another(environment: Path, theirs: Path, tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(8))
    python = environment / "bin/python"
    for words in (
        ["npz", tmp_path / "a.npz", "--measure", "--python", python],
        ["openmp", "--import", "json", "--python", python],
        ["repro", "openmp", "--python", python],
        ["repro", "openmp"],
    ):
        done = look(words, Path("/"), VIRTUAL_ENV=str(environment))
        assert not (theirs / "mark").exists(), (words, (theirs / "mark").read_text())
        owner = pwd.getpwuid(NOBODY).pw_name
        assert done.returncode == 3 and b"is not run by root" in done.stderr, (words, done.stderr)
        assert f"next: sudo -u {owner} harness {words[0]}".encode() in done.stderr, (words, done.stderr)
        assert b"site-packages belongs to user 65534" in done.stderr


def test_where_a_path_file_or_an_editable_installation_leads_counts(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "a.pth").write_text(f"# {theirs}\nimport sys\n{tmp_path}/absent\n")
    assert why_no_imports([str(packages)]) is None
    (packages / "a.pth").write_text(f"{theirs}\n")
    assert "belongs to user 65534" in (why_no_imports([str(packages)]) or "")
    (packages / "a.pth").unlink()
    record = packages / "thing-1.dist-info"
    record.mkdir()
    told = {"url": theirs.as_uri(), "dir_info": {"editable": True}}
    (record / "direct_url.json").write_text(json.dumps(told))
    assert "belongs to user 65534" in (why_no_imports([str(packages)]) or "")
    shutil.rmtree(record)
    (packages / "link.py").symlink_to(theirs / "trap.c")
    assert "belongs to user 65534" in (why_no_imports([str(packages)]) or "")
    (packages / "link.py").unlink()
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONPYCACHEPREFIX"):
        assert why_no_imports([str(packages)]) is None
        monkeypatch.setenv(name, str(theirs))
        assert "belongs to user 65534" in (why_no_imports([str(packages)]) or "")
        monkeypatch.delenv(name)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    for place in (shared, shared / "absent"):
        monkeypatch.setenv("PYTHONPATH", str(place))
        assert "others" in (why_no_imports([str(packages)]) or "")


def test_the_history_of_a_checkout_is_not_imported_but_its_other_hidden_folders_may_be(tmp_path: Path) -> None:
    """Root works in a clone that another user has fetched into; `.dylibs` and `.libs` are loaded from."""
    for name, may in ((".git", True), (".dylibs", False), ("git", False)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "pack").write_text("")
        os.chown(folder / "pack", NOBODY, NOBODY)
        assert (why_no_imports([str(tmp_path)]) is None) == may, name
        shutil.rmtree(folder)


def test_modules_are_not_imported_from_a_working_directory_of_another(theirs: Path) -> None:
    (theirs / "ctypes.py").write_text(f"open({str(theirs / 'mark')!r}, 'a').write('ctypes')\n")
    words = ["openmp", "--import", "json", "--python", sys.executable, "--json"]
    command = [sys.executable, "-I", "-m", "harness", *words]  # -m alone would import ours from there
    done = subprocess.run(command, cwd=theirs, capture_output=True, timeout=DEADLINE_S, check=False)
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()
    assert b"nothing is imported from it" in done.stdout, done.stderr


def test_a_plain_user_runs_no_python_that_he_only_found(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another's first on PATH. What he names is his own word."""
    monkeypatch.setenv("PATH", str(theirs / "bin"))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)

    def find() -> str:
        try:
            return find_python(None)
        except NotOurs as error:
            return f"{error} / {error.hint}"

    told = as_user(12345, find)
    assert "was found, not named" in told and told.endswith(f"--python {theirs}/bin/python3")
    assert as_user(12345, lambda: find_python(str(theirs / "bin/python3"))) == str(theirs / "bin/python3")
    assert as_user(NOBODY, find) == str(theirs / "bin/python3")
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()


def as_user(uid: int, work: Callable[[], str], gid: int | None = None) -> str:
    """What it returns, in a copy of us that has that number."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setresgid(*3 * (uid if gid is None else gid,))
            os.setresuid(uid, uid, uid)
            os.write(writing, work().encode())
        except BaseException as error:  # noqa: BLE001 (this copy must not go on as the test)
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    os.waitpid(pid, 0)
    return said


# --- groups, and what is swapped meanwhile ----------------------------------------------------------------------------


@pytest.fixture
def reachable(theirs: Path) -> Iterator[Path]:
    """Root's, where all can read."""
    folder = theirs.with_name(f"{theirs.name}-ours")
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


def test_what_group_0_may_write_is_not_roots_alone(reachable: Path) -> None:
    """As containers start whoever has any number."""
    program = reachable / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o775)
    os.chown(program, 0, 0)
    assert as_user(NOBODY, lambda: str(program.write_text("#!/bin/sh\n")), gid=0) == "10"
    assert check_program(program).path is None
    program.chmod(0o755)
    assert check_program(program).path


def test_debians_own_programs_may_be_run() -> None:
    for name in ("python3", "ls", "env"):
        if Path("/usr/bin", name).exists():
            assert check_program(f"/usr/bin/{name}").why is None
    assert not Path("/usr/bin/python3").exists() or check_interpreter("/usr/bin/python3") is None
    assert check_interpreter(sys.executable) is None


def test_a_link_that_its_owner_swaps_meanwhile_never_leads_to_his_program(theirs: Path, reachable: Path) -> None:
    """In his own directory, in a sticky one, and as a directory on the way: what passes is root's whatever he does."""
    sticky = reachable / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (theirs / "swapped").mkdir()
    os.chown(theirs / "swapped", NOBODY, NOBODY)
    script = f"""
cd {theirs}/swapped
echo ready
while :; do
    ln -sfn /usr/bin/env tool; ln -sfn {theirs}/bin/gdb tool
    ln -sfn /usr/bin bin; ln -sfn {theirs}/bin bin
    ln -sfn /usr/bin {sticky}/bin; ln -sfn {theirs}/bin {sticky}/bin
    cp {theirs}/bin/gdb {sticky}/new; mv -f {sticky}/new {sticky}/tool
done
"""
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    tried = [theirs / "swapped/tool", theirs / "swapped/bin/env", sticky / "bin/env", sticky / "tool"]
    passed: set[str | None] = set()
    with subprocess.Popen([*user, "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as swapping:
        try:
            assert swapping.stdout is not None and swapping.stdout.readline() == b"ready\n"
            for _ in range(2000):
                passed |= {check_program(path).path for path in tried}
                assert check_imports([theirs / "swapped"]) is not None
        finally:
            swapping.kill()
    assert passed == {None}


def test_a_link_of_ours_that_is_swapped_gives_one_of_both_without_links(tmp_path: Path) -> None:
    """What is returned is where it led when it was looked at, and not the link."""
    link = tmp_path / "tool"
    link.symlink_to("/usr/bin/env")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for target in ("/usr/bin/id", "/usr/bin/env"):
                (tmp_path / "next").symlink_to(target)
                (tmp_path / "next").rename(link)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        seen = {check_program(link).path for _ in range(2000)}
    finally:
        stop.set()
        swapping.join()
    assert seen <= {os.path.realpath("/usr/bin/id"), os.path.realpath("/usr/bin/env")}


# --- where only a shell can ask ---------------------------------------------------------------------------------------


@pytest.fixture
def copied(theirs: Path, tmp_path: Path) -> Path:
    """A Python of root's in a directory of root's; its standard library is another's, and tells when it is imported."""
    folder = tmp_path / "x"
    (folder / "bin").mkdir(parents=True)
    shutil.copy(os.path.realpath("/usr/bin/python3"), folder / "bin/python3")
    version = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    library = folder / "lib" / version
    (library / "encodings").mkdir(parents=True)
    (library / "os.py").touch()
    mark = f"import posix; posix.write(posix.open({str(theirs / 'mark')!r}, 0o1102, 0o666), b'library')\n"
    (library / "encodings/__init__.py").write_text(mark)
    for path in (library, *library.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    return folder


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a Python of the system")
def test_elsewhere_the_standard_library_is_looked_at_before_it_is_read(theirs: Path, copied: Path) -> None:
    done = look(["ps", "--via", "env", "--json"], Path("/"), PATH=f"{copied / 'bin'}:{os.environ['PATH']}")
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()
    assert done.returncode == 0, done.stderr
    assert "belongs to user" in (check_interpreter(str(copied / "bin/python3")) or "")


def test_elsewhere_the_shell_takes_its_own_programs_from_nobody_else(theirs: Path) -> None:
    done = look(["ps", "--via", "env", "--json"], Path("/"), PATH=f"{theirs / 'bin'}:{os.environ['PATH']}")
    assert not (theirs / "mark").exists(), (theirs / "mark").read_text()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
@pytest.mark.parametrize("has_find", [True, False])
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs a Python of the system")
def test_the_shell_says_of_an_interpreter_what_we_say(shell: str, has_find: bool, theirs: Path, tmp_path: Path) -> None:
    if not (found := shutil.which(shell)):
        pytest.skip(f"no {shell} here")

    def says(python: Path) -> bool:
        script = f't=x; {TRUST}{"" if has_find else "find() { return 127; }; "}ok "$0" && py && echo "yes $r"'
        words = [found, *(["sh"] if shell == "busybox" else []), "-c", script, str(python)]
        done = subprocess.run(words, capture_output=True, text=True, cwd=theirs, check=False)
        assert done.stdout in ("", f"yes {os.path.realpath(python)}\n") and not done.stderr, done.stderr
        assert bool(done.stdout) == (check_interpreter(str(python.resolve())) is None)
        return bool(done.stdout)

    folder = tmp_path / "with a blank"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib/python3.11/site-packages/theirs").mkdir(parents=True)
    os.chown(folder / "lib/python3.11/site-packages/theirs", NOBODY, NOBODY)
    python = folder / "bin/python3"
    shutil.copy(os.path.realpath("/usr/bin/python3"), python)
    (folder / "lib/python3.11/os.py").touch()
    (folder / "lib/python3.11/dangling").symlink_to("nowhere")
    assert says(python) and says(Path("/usr/bin/python3"))
    (folder / "lib/python3.11/json").mkdir()
    part = folder / "lib/python3.11/json/__init__.py"
    part.touch()
    assert says(python)
    for make, undo in (
        (lambda: os.chown(part, NOBODY, 0), lambda: os.chown(part, 0, 0)),
        (lambda: part.chmod(0o666), lambda: part.chmod(0o644)),
        (lambda: part.chmod(0o664), lambda: part.chmod(0o644)),
        (lambda: part.parent.chmod(0o777), lambda: part.parent.chmod(0o755)),
        (lambda: (part.unlink(), part.symlink_to(theirs / "trap.c")), lambda: (part.unlink(), part.touch())),
        (lambda: (folder / "pyvenv.cfg").write_text(f"home = {theirs}/bin\n"), (folder / "pyvenv.cfg").unlink),
        (lambda: (folder / "bin/pyvenv.cfg").write_text(f" HOME={theirs}/bin"), (folder / "bin/pyvenv.cfg").unlink),
        (lambda: folder.chmod(0o777), lambda: folder.chmod(0o755)),
    ):
        make()
        assert not says(python)
        undo()
        assert says(python)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11\n")
    assert says(python)
