"""Cores of real crashes: the same verdict without the crash link, kept in the case, nothing left where the user works.

gdb and file are the judges of what our reader says. Tests that change core_pattern put it back after a moment.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.capture.cores.analysis import read_crash
from harness.capture.cores.file import CoreFile
from tests.builders.literals import SCENARIOS, read_literals
from tests.live.processes import DEADLINE_S, Harness, until
from tests.zoo.driver import build, build_program

CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="cores of Linux"),
    pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY, reason="no core allowed"),
]
needs_plain = pytest.mark.skipif(CORE_PATTERN.read_text()[:1] in "|@/", reason="core_pattern is no relative file")
NULL = "import ctypes\ndef fall():\n    ctypes.string_at(0)\nfall()\n"
ALIKE = (
    "native_null_write",
    "native_divide_by_zero",
    "native_illegal_instruction",
    "native_native_thread",
    "native_abort",
    "native_non_canonical",
    "native_seccomp",
    "native_stack_overflow_main",
)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("libraries")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    return folder


def without_limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.RLIM_INFINITY))


def with_limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def list_case(harness: Harness) -> dict[str, Path]:
    (case,) = harness.cases.iterdir()
    return {path.name: path for path in case.iterdir()}


def essence(document: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on how it was seen; functions as far as their names go."""
    verdict = document["verdict"]
    images = {name: (verdict[name] or {}).get("image") for name in ("component", "faulting_image")}
    return {
        "kind": verdict["kind"],
        "status": verdict["status"],
        **images,
        "function": (verdict["component"] or {}).get("function"),
        "user_frame": verdict["user_frame"],
        "python_frame": verdict["python_frame"],
        "context_frame": verdict["context_frame"],
        "signal": document["outcome"]["signal"],
        "si_code": document["outcome"]["si_code"],
    }


@needs_plain
@pytest.mark.parametrize("name", ALIKE)
def test_the_core_alone_gives_the_verdict_of_the_crash_link(
    name: str, harness: Harness, job: Path, libraries: Path
) -> None:
    literals = read_literals(SCENARIOS / f"{name}.py")
    library = build(SCENARIOS / literals["BUILD"], literals.get("BUILD_FLAGS", []), libraries)
    options = {"cwd": job, "env": {**harness.env, "ZOO_LIB": str(library)}, "preexec_fn": without_limit}
    command = (sys.executable, SCENARIOS / f"{name}.py")
    linked, alone = (harness(*command, options=("--inject", how), **options) for how in ("preload", "none"))
    assert linked.verdict is not None and alone.verdict is not None
    assert alone.status == linked.status == literals["EXPECT"]["exit"]
    assert essence(alone.verdict) == essence(linked.verdict)
    assert alone.verdict["verdict"]["kind"] == literals["EXPECT"]["kind"]
    assert "core" in {ground["source"] for ground in alone.verdict["verdict"]["grounds"]}
    assert not list(job.iterdir())  # neither of them left anything behind


@needs_plain
def test_a_seen_crash_leaves_no_core_and_an_unseen_one_goes_into_the_case(
    harness: Harness, script: Any, job: Path
) -> None:
    command = script(NULL)
    harness(*command, cwd=job, preexec_fn=without_limit)
    assert not [name for name in list_case(harness) if name.startswith("core")] and not list(job.iterdir())
    shutil.rmtree(harness.cases)
    ended = harness(*command, options=("--inject", "none"), cwd=job, preexec_fn=without_limit)
    (kept,) = (path for name, path in list_case(harness).items() if name.startswith("core"))
    assert ended.verdict["outcome"]["core"] == str(kept) and str(kept) in ended.stderr.decode().replace("\n", "")
    assert not list(job.iterdir())
    raw = job / "core"
    raw.write_bytes(gzip.decompress(kept.read_bytes()))
    if shutil.which("file"):
        assert b"core file" in subprocess.run(["file", raw], capture_output=True, check=True).stdout


@needs_plain
def test_who_has_asked_for_cores_finds_them_where_they_always_are(harness: Harness, script: Any, job: Path) -> None:
    ended = harness(*script(NULL), cwd=job, preexec_fn=with_limit)
    (core,) = job.iterdir()
    (linked,) = (path for name, path in list_case(harness).items() if name.startswith("core"))
    assert linked.is_symlink() and linked.samefile(core) and ended.verdict["outcome"]["core"] == str(linked)


@needs_plain
def test_always_keeps_a_core_of_a_seen_crash_and_never_none(harness: Harness, script: Any, job: Path) -> None:
    ended = harness(*script(NULL), options=("--core", "always"), cwd=job, preexec_fn=without_limit)
    assert ended.verdict["outcome"]["core"].endswith(".gz") and not list(job.iterdir())
    options = ("--core", "never", "--inject", "none")
    ended = harness(*script(NULL), options=options, cwd=job, preexec_fn=with_limit)
    assert ended.verdict["outcome"]["core"] is None and not list(job.iterdir())
    assert any("--core never was asked for" in gap["why"] for gap in ended.verdict["gaps"])


@needs_plain
def test_a_core_of_a_child_that_nobody_reports_is_not_left_behind(harness: Harness, job: Path) -> None:
    """SIGQUIT writes one too, and a command that ends well keeps no case."""
    ended = harness("sh", "-c", "sh -c 'kill -QUIT $$'; exit 0", cwd=job, preexec_fn=without_limit)
    assert ended.status == 0 and not list(job.iterdir())


def read_soft(harness: Harness, *options: str, before: Any) -> int:
    ask = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0])"
    return int(harness(sys.executable, "-c", ask, options=options, preexec_fn=before).stdout)


def test_what_the_command_sees_of_its_limit(harness: Harness) -> None:
    assert 0 < read_soft(harness, before=without_limit) <= 1024**3
    assert read_soft(harness, before=with_limit) == resource.RLIM_INFINITY
    assert read_soft(harness, "--core", "never", before=with_limit) == 0
    assert read_soft(harness, "--core", "always", before=without_limit) == resource.RLIM_INFINITY


def test_what_outlives_the_run_has_the_limit_it_would_have_had(harness: Harness, tmp_path: Path, gate: Path) -> None:
    told = tmp_path / "pid"
    code = (
        f"import os\nif os.fork() == 0:\n    os.setsid()\n    open({str(told)!r}, 'w').write(str(os.getpid()))\n"
        f"    for fd in (0, 1, 2): os.close(fd)\n    open({str(gate)!r}).read()\n    os._exit(0)\n"
        f"import time\nwhile not os.path.exists({str(told)!r}) or not open({str(told)!r}).read(): time.sleep(0.005)\n"
    )
    ended = harness(sys.executable, "-c", code, preexec_fn=without_limit)
    pid = int(told.read_text())
    try:
        assert ended.status == 0
        assert resource.prlimit(pid, resource.RLIMIT_CORE)[0] == 0
    finally:
        with gate.open("w"):
            pass
    until(lambda: not Path(f"/proc/{pid}").exists(), "the daemon goes on")


@contextlib.contextmanager
def core_pattern(pattern: str) -> Iterator[None]:
    before = CORE_PATTERN.read_text()
    try:
        CORE_PATTERN.write_text(pattern)
    except OSError as error:
        pytest.skip(f"core_pattern may not be changed: {error.strerror}")
    try:
        yield
    finally:
        CORE_PATTERN.write_text(before)


@pytest.mark.parametrize("shape", ["core.%e.%p", "{folder}/%f-%t-%s-%p.core", "%p"])
def test_real_patterns(shape: str, harness: Harness, script: Any, job: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "cores [x]"
    elsewhere.mkdir()
    with core_pattern(shape.format(folder=elsewhere)):
        ended = harness(*script(NULL), options=("--inject", "none"), cwd=job, preexec_fn=without_limit)
    assert ended.verdict["outcome"]["core"], ended.verdict["gaps"]
    # Not by its function: a distribution's _ctypes has no names of its own functions.
    assert Path(ended.verdict["verdict"]["component"]["image"]).name.startswith("_ctypes")
    assert ended.verdict["verdict"]["user_frame"]["function"] == "fall"
    # Whatever else dies on this machine meanwhile leaves its core there too.
    assert not list(job.iterdir()) and not list(elsewhere.glob(f"*-{ended.verdict['verdict']['process']['pid']}.core"))


def test_a_pipe_to_a_program_that_nobody_knows_is_said(harness: Harness, script: Any, job: Path) -> None:
    with core_pattern("|/bin/cat"):
        ended = harness(*script(NULL), options=("--inject", "none"), cwd=job, preexec_fn=without_limit)
    assert ended.verdict["outcome"]["core"] is None
    assert any("/bin/cat" in gap["why"] for gap in ended.verdict["gaps"])


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a process with three threads, without faulthandler: the fault is in the core's own siginfo."""
    if CORE_PATTERN.read_text()[:1] in "|@/":
        pytest.skip("core_pattern is no relative file")
    folder = tmp_path_factory.mktemp("core")
    code = (
        "import ctypes, threading\ngate = threading.Event()\n"
        "for _ in range(2): threading.Thread(target=gate.wait, daemon=True).start()\n"
        "def fall(): ctypes.string_at(4096 * 3 + 5)\nfall()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONFAULTHANDLER"}
    subprocess.run([sys.executable, "-c", code], cwd=folder, preexec_fn=with_limit, env=environment, check=False)
    (path,) = folder.iterdir()
    return path


@pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb")
def test_our_reader_says_what_gdb_says(core: Path) -> None:
    ask = (
        "import gdb, json; i = gdb.parse_and_eval('$_siginfo'); f = gdb.newest_frame();"
        "print('TOLD', json.dumps([int(i['si_signo']), int(i['si_code']), int(i['_sifields']['_sigfault']['si_addr']),"
        "f.pc(), int(gdb.parse_and_eval('$sp')), gdb.selected_thread().ptid[1], gdb.selected_inferior().pid,"
        "sorted(t.ptid[1] for t in gdb.selected_inferior().threads())]))"
    )
    words = [
        "gdb",
        "-nx",
        "-batch",
        "-iex",
        "set auto-solib-add off",
        "-ex",
        f"python {ask}",
        sys.executable,
        str(core),
    ]
    said = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False).stdout
    told = json.loads(next(line for line in said.splitlines() if line.startswith("TOLD ")).removeprefix("TOLD "))
    with CoreFile(core) as ours:
        info, thread = ours.siginfo, ours.crashed
        assert info is not None
        told_by_us = [info.signo, info.code, info.address, ours.pc_of(thread), ours.sp_of(thread), thread.tid, ours.pid]
        assert [*told_by_us, sorted(t.tid for t in ours.threads)] == told
        assert info.address == 4096 * 3 + 5
        assert ours.executable is not None and Path(ours.executable).samefile(sys.executable)


def test_memory_that_the_core_left_out_comes_from_the_file(core: Path) -> None:
    with CoreFile(core) as ours:
        code = next(row for row in ours.rows if "x" in row.permissions and "/libc" in row.path)
        with Path(code.path).open("rb") as file:
            file.seek(code.offset)
            assert ours.read(code.start, 4096) == file.read(4096)
        assert ours.read(16, 8) == b""


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_a_core_that_is_cut_off_says_so(core: Path, tmp_path: Path, share: float) -> None:
    cut = tmp_path / "core"
    cut.write_bytes(core.read_bytes()[: max(int(core.stat().st_size * share), 60_000)])
    crash = read_crash(cut, 1.0)
    assert (crash.signo, crash.si_code, crash.fault_address) == (11, 1, hex(4096 * 3 + 5))
    assert any("cut off" in gap.why for gap in crash.gaps)


@needs_plain
def test_a_static_program_is_read_by_its_core(harness: Harness, job: Path, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    source = tmp_path / "fall.c"
    source.write_text("int sink; int main(int n, char **w) { sink = *(volatile int *)(long)(n + 6); return 0; }\n")
    program = tmp_path / "fall"
    subprocess.run(["gcc", "-g", "-static", "-o", program, source], check=True)
    ended = harness(program, cwd=job, preexec_fn=without_limit)
    assert ended.verdict["verdict"]["kind"] == "segfault" and ended.verdict["outcome"]["fault_address"] == "0x7"
    assert ended.verdict["verdict"]["faulting_image"]["image"] == str(program)
    if shutil.which("gdb"):
        assert ended.verdict["verdict"]["component"]["function"] == "main"
    assert not list(job.iterdir())


@needs_plain
@pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb")
@pytest.mark.parametrize("name", ["program_cpp_abort", "program_cpp_header"])
def test_what_is_no_python_is_read_alike_held_and_from_its_core(
    name: str, harness: Harness, job: Path, libraries: Path
) -> None:
    program = build_program(SCENARIOS / f"{name}.cpp", [], libraries)
    held, dead = (
        harness(program, options=("--inject", how), cwd=job, preexec_fn=without_limit) for how in ("preload", "none")
    )
    assert held.verdict is not None and dead.verdict is not None
    assert essence(held.verdict) == essence(dead.verdict)
    assert held.verdict["verdict"]["stack"]["calls"][0]["line"] == dead.verdict["verdict"]["stack"]["calls"][0]["line"]
    # On a machine under load gdb may be late for the held process; then its core is read.
    sources = [{ground["source"] for ground in ended.verdict["verdict"]["grounds"]} for ended in (held, dead)]
    assert "crash link" in sources[0] and sources[0] & {"gdb", "gdb core"} and {"core", "gdb core"} <= sources[1]
    assert "native stacks" not in [gap["what"] for gap in held.verdict["gaps"]] and not list(job.iterdir())


@needs_plain
def test_what_is_no_python_where_gdb_is_missing(harness: Harness, job: Path, libraries: Path, tmp_path: Path) -> None:
    """The gap names what to install, the advice what to type then; neither is the run that was just made."""
    program = build_program(SCENARIOS / "program_cpp_abort.cpp", [], libraries)
    env = {**harness.env, "PATH": str(tmp_path)}
    ended = harness(program, cwd=job, env=env, preexec_fn=without_limit)
    assert ended.verdict is not None
    assert ("native stacks", "sudo apt-get install gdb") in [(gap["what"], gap["fix"]) for gap in ended.verdict["gaps"]]
    (remedy,) = ended.verdict["verdict"]["remedies"]
    core = ended.verdict["outcome"]["core"]
    assert f"gunzip -k {core} && gdb " in remedy["do"] and f" {program} {core.removesuffix('.gz')}" in remedy["do"]
    assert remedy["verify"] is None and "harness run" not in remedy["do"]


@needs_plain
def test_many_that_die_at_once_in_one_directory_each_say_how_and_leave_nothing(
    harness: Harness, script: Any, job: Path
) -> None:
    """All their cores are called `core`: the kernel puts each in the place of the one before."""
    command, options = script(NULL), ("-q", "--inject", "none")
    started = [
        harness.start(*command, options=options, cwd=job, env=harness.env, preexec_fn=without_limit) for _ in range(8)
    ]
    for process in started:
        _, stderr = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 139 and b"[segfault, established]" in stderr, stderr
    assert len(harness.kept_cases()) == 8 and not list(job.iterdir())
