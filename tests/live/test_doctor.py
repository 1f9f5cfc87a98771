"""`harness doctor` on this machine, each row against a look of our own."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from harness.capture.doctor.facilities import injection, look_at_facilities
from harness.documents.doctor import Doctor
from harness.evidence.facility import Facility

DOCTOR = [sys.executable, "-m", "harness", "doctor"]
REPOSITORY = Path(__file__).parents[2]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
TOOLS = Path(sys.executable).parent
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def doctor(
    command: list[str] | None = None,
    *,
    env: dict[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> tuple[int, dict[str, Facility]]:
    """Exit status and rows; fails unless stdout is exactly one document of the declared type, and stderr empty."""
    done = subprocess.run(
        [*(command or DOCTOR), "--json"],
        cwd="/",
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        preexec_fn=before,
        check=False,
    )
    assert done.stderr == b""
    assert done.stdout.count(b"\n") == 1
    document = msgspec.json.decode(done.stdout, type=Doctor)
    assert document.schema == "harness.doctor/1"
    assert document.exit_code == done.returncode
    return done.returncode, {row.name: row for row in document.facilities}


def test_exit_status_agrees_with_the_rows() -> None:
    status, rows = doctor()
    states = {row.state for row in rows.values()}
    essential = {row.state for row in rows.values() if row.essential}
    assert status == (10 if "no" in essential else 0 if states == {"yes"} else 11)
    for row in rows.values():
        assert (row.state == "yes") == (row.why is None)
        assert row.state != "no" or row.fix


def test_text_and_json_are_the_same_answer() -> None:
    status, rows = doctor()
    text = subprocess.run(DOCTOR, cwd="/", capture_output=True, text=True, timeout=60, check=False)
    assert (text.returncode, text.stderr) == (status, "")
    marks = {"yes": "yes", "no": "no", "unknown": "?"}
    for name, row in rows.items():
        assert any(line.split()[0] == marks[row.state] and name in line for line in text.stdout.splitlines())
        assert row.fix is None or row.fix in text.stdout


def test_a_reader_that_has_gone_does_not_change_the_exit_status() -> None:
    status, _ = doctor()
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(DOCTOR, cwd="/", stdout=write_end, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (status, b"")


def test_without_the_native_library_nothing_can_be_captured(tmp_path: Path) -> None:
    copy = tmp_path / "harness"
    shutil.copytree(REPOSITORY / "harness", copy, ignore=shutil.ignore_patterns("libharness.*", "__pycache__"))
    command = [sys.executable, "-c", "from harness.commands import main; raise SystemExit(main())", "doctor"]
    status, rows = doctor(command, env={"PYTHONPATH": str(tmp_path)})
    assert (status, rows["native library"].state) == (10, "no")
    assert rows["native library"].detail.startswith(str(copy))
    assert rows["native library"].fix == "pip install --force-reinstall native-harness"
    assert rows["injection"].state == "no"


@pytest.mark.parametrize(
    ("hard", "state", "words"),
    [
        (resource.RLIM_INFINITY, "yes", "harness run raises it for its command (not limited further)"),
        (1 << 20, "yes", "at most to 1,048,576 bytes"),
        (0, "no", "no core file is written"),
    ],
)
def test_core_limit_of_zero(hard: int, state: str, words: str) -> None:
    allowed = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if hard > allowed >= 0 or (hard == resource.RLIM_INFINITY != allowed):
        pytest.skip(f"the hard limit on cores is {allowed} here")
    _, rows = doctor(before=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, hard)))
    assert rows["core size limit"].state == state and words in rows["core size limit"].detail
    assert rows["core size limit"].fix == ("sudo prlimit --core=unlimited --pid $$" if hard == 0 else None)


def test_core_limit_above_zero() -> None:
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("the hard limit on cores is 0 here")
    _, rows = doctor(before=lambda: resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096)))
    assert rows["core size limit"].state == "yes"
    assert "4096 bytes" in rows["core size limit"].detail


def test_gdb_is_looked_for_on_path(tmp_path: Path) -> None:
    if (TOOLS / "gdb").exists():
        pytest.skip("gdb is installed beside the interpreter")
    _, rows = doctor(env={"PATH": str(tmp_path)})
    assert rows["gdb"].state == "no"
    assert "apt-get install gdb" in (rows["gdb"].fix or "")


def test_a_gdb_that_cannot_start_is_not_a_gdb(tmp_path: Path) -> None:
    if (TOOLS / "gdb").exists():
        pytest.skip("gdb is installed beside the interpreter")
    (tmp_path / "gdb").write_text("#!/bin/sh\necho 'gdb: error while loading shared libraries' >&2\nexit 127\n")
    (tmp_path / "gdb").chmod(0o755)
    _, rows = doctor(env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert rows["gdb"].state == "no"
    assert "error while loading shared libraries" in (rows["gdb"].why or "")


@linux
def test_tools_beside_the_interpreter_are_found_without_path(tmp_path: Path) -> None:
    _, rows = doctor(env={"PATH": str(tmp_path)})
    for name in ("py-spy", "pystack"):
        assert rows[name].state == ("yes" if (TOOLS / name).exists() else "no")


@linux
def test_ptrace_rows_agree_with_a_debugger() -> None:
    debugger = shutil.which("gdb")
    if debugger is None:
        pytest.skip("no gdb here")
    target = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    try:
        words = [debugger, "-nx", "-batch", "-p", str(target.pid), "-ex", "info proc", "-ex", "detach"]
        attached = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    finally:
        target.communicate()
    refused = "ptrace: " in attached.stderr
    assert refused or f"process {target.pid}" in attached.stdout
    _, rows = doctor()
    assert rows["ptrace, running jobs"].state == ("no" if refused else "yes")


SECCOMP = """
import ctypes, os, sys
class Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter))]
LOAD, JUMP_EQUAL, RETURN, ALLOW, EPERM = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050001
rules = (Filter * 5)((LOAD, 0, 0, 0), (JUMP_EQUAL, 1, 0, PTRACE), (JUMP_EQUAL, 0, 1, READ_MEMORY),
                     (RETURN, 0, 0, EPERM), (RETURN, 0, 0, ALLOW))
program = Program(5, rules)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, os.strerror(ctypes.get_errno())  # PR_SET_SECCOMP
os.execv(sys.argv[1], sys.argv[1:])
"""
# (ptrace, process_vm_readv); asm/unistd_64.h, asm-generic/unistd.h
SYSCALLS = {"x86_64": (101, 310), "aarch64": (117, 270)}


@linux
def test_a_container_that_filters_ptrace_is_noticed() -> None:
    """The filter is real: what `docker run` without SYS_PTRACE does on an old kernel."""
    if platform.machine() not in SYSCALLS:
        pytest.skip(f"the system call numbers of {platform.machine()} are not in this test")
    ptrace, read_memory = SYSCALLS[platform.machine()]
    code = SECCOMP.replace("PTRACE)", f"{ptrace})").replace("READ_MEMORY)", f"{read_memory})")
    status, rows = doctor([sys.executable, "-c", code, *DOCTOR])
    assert status == 11
    for name in ("ptrace, harness run", "ptrace, running jobs"):
        assert (rows[name].state, rows[name].fix) == ("no", "docker run --cap-add=SYS_PTRACE …")
        assert "seccomp" in (rows[name].why or "")
    assert rows["injection"].state == "yes"


@linux
def test_injection_keeps_the_users_own_preload() -> None:
    libc = next(
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "libc.so" in line or "/libc-" in line
    )
    _, rows = doctor(env={"LD_PRELOAD": libc})
    assert rows["injection"].state == "yes"
    assert f"LD_PRELOAD={libc}" in rows["injection"].detail


@linux
def test_a_static_program_ignores_injection_without_a_word(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source = tmp_path / "still.c"
    source.write_text("int main(void) { return 0; }\n")
    built = subprocess.run([compiler, "-static", "-o", str(tmp_path / "still"), str(source)], check=False)
    if built.returncode:
        pytest.skip("no static libc here")
    seen = injection(str(tmp_path / "still"))
    assert seen.state == "no"
    assert "statically linked" in (seen.why or "")


@linux
def test_exit_statuses_of_others_are_told_since_6_15() -> None:
    major, minor = (int(number) for number in os.uname().release.split(".")[:2])
    _, rows = doctor()
    assert rows["exit statuses"].state == ("yes" if (major, minor) >= (6, 15) else "no")


@linux
def test_looking_leaves_the_process_as_it_was() -> None:
    """The subreaper flag is tried on harness itself; children, descriptors and variables come and go."""

    def is_subreaper() -> int:
        flag = ctypes.c_int()
        assert ctypes.CDLL(None).prctl(37, ctypes.byref(flag)) == 0  # PR_GET_CHILD_SUBREAPER
        return flag.value

    def state() -> tuple[object, ...]:
        me = psutil.Process()
        return is_subreaper(), me.num_fds(), me.children(), dict(os.environ)

    before = state()
    rows = look_at_facilities("linux")
    assert {row.name: row.state for row in rows}["adopting orphans"] == "yes"
    assert state() == before


def python_for_nobody() -> str:
    """This interpreter, or the system's of the same version where this one lives in a private directory."""
    reads = [*NOBODY, "test", "-r", REPOSITORY / "harness"]
    if shutil.which("setpriv") and subprocess.run(reads, check=False).returncode:
        pytest.skip("no other user can read this checkout")
    for python in (sys.executable, f"/usr/bin/python{sysconfig.get_python_version()}"):
        try:
            done = subprocess.run([*NOBODY, "sh", "-c", f"exec {python} -c pass"], capture_output=True, check=False)
        except FileNotFoundError:
            pytest.skip("no setpriv here")
        if done.returncode == 0:
            return python
    pytest.skip("no interpreter that another user may run")


@linux
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_kernel_log_is_honest_for_an_unprivileged_user() -> None:
    python = python_for_nobody()
    look = textwrap.dedent("""
        import os, sys
        try:
            os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            sys.exit(error.errno)
        """)
    really = subprocess.run([*NOBODY, python, "-c", look], check=False).returncode
    paths = f"{REPOSITORY}:{sysconfig.get_path('purelib')}"
    env = {"PYTHONPATH": paths, "PATH": f"{TOOLS}:{os.environ['PATH']}", "HOME": "/nonexistent"}
    _, rows = doctor([*NOBODY, python, "-m", "harness", "doctor"], env=env)
    row = rows["kernel log"]
    assert row.state == ("no" if really else "yes")
    if really == 1 and Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "1":
        assert row.fix == "sudo sysctl kernel.dmesg_restrict=0"
    assert rows["ptrace, harness run"].state != "unknown"


@linux
def test_who_kills_is_told_exactly_where_a_run_can_tell_it(tmp_path: Path) -> None:
    """The truth is what `harness run` says of a job that ends itself."""
    verdict = tmp_path / "verdict.json"
    job = "import os; os.kill(os.getpid(), 9)"
    words = [sys.executable, "-m", "harness", "run", "--verdict", str(verdict), "--", sys.executable, "-c", job]
    done = subprocess.run(words, env={**os.environ, "HARNESS_CASES": str(tmp_path)}, capture_output=True, check=False)
    assert done.returncode == 137
    grounds = msgspec.json.decode(verdict.read_bytes())["verdict"]["grounds"]
    told = any("sent by itself" in row["fact"] and row["source"].startswith("kernel") for row in grounds)
    assert (doctor()[1]["killers"].state == "yes") == told
