"""Real cores of the zoo, read by gdb: the core is that of a bare run, and our stack has every frame that gdb names.

gdb is the judge because nobody here wrote it. It reads the core after the process is dead; our snapshot was taken
while the same process stood still.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.builders.literals import SCENARIOS, read_literals
from tests.live.processes import shell_status
from tests.zoo.driver import build

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="cores of Linux"),
    pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb"),
]
DEADLINE_S = 50
HARNESS = (sys.executable, "-m", "harness", "run", "-q", "--")
EVALUATES = "PyEval_EvalFrameDefault"  # in its place we show the Python frames that it runs
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
# Two faults at an address, one in a thread, one in a worker with handlers of torch's own; two instructions; an abort.
CORES = (
    "native_wild_pointer",
    "native_jump_to_null",
    "native_divide_by_zero",
    "native_illegal_instruction",
    "native_native_thread",
    "native_dataloader_fork",
    "native_abort",
)
STACKS = (*CORES, "native_openmp_worker", "native_seccomp", "native_assert")
# Frames that gdb names and we do not, and why that is right, or known.
EXPLAINED = {
    "assert_fail_base": "abort() never returns and is its last call; pystack names what follows it in libc",
    "assert_fail": "the same, with a call of __assert_fail_base; callers.py puts only the callers of libc right",
}
# A core's first thread is the one that got the signal; man 5 core. Addresses differ in every run: told as symbols.
ASK = """
import gdb

# Not libtorch_cpu: its symbols take gdb fifteen seconds, and no frame is in it.
for name in ("libpython", "_ctypes", "libffi", "libc[.]", "libgomp", "libtorch_python", "native_"):
    gdb.execute(f"sharedlibrary /{name}[^/]*$")

def place(address):
    return gdb.execute(f"info symbol {address}", to_string=True).strip().rpartition(" in section")[0] or "nowhere"

info = gdb.parse_and_eval("$_siginfo")
fields = info["_sifields"]
code, fault = int(info["si_code"]), int(fields["_sigfault"]["si_addr"])
tid = gdb.selected_thread().ptid[1]
frames, frame = [], gdb.newest_frame()
pc = frame.pc()
while frame is not None:
    if frame.type() == gdb.SIGTRAMP_FRAME:
        frames, pc = [], frame.older().pc()
    elif frame.type() != gdb.TAILCALL_FRAME:  # gdb's reconstruction: they have left the stack
        frames.append(frame.name())
    frame = frame.older()
told = {
    "signo": int(info["si_signo"]),
    "code": code,
    "fault": (place(fault), hex(fault) if place(fault) == "nowhere" else None) if code > 0 else None,
    "sent_by_itself": code <= 0 and int(fields["_kill"]["si_pid"]) == gdb.selected_inferior().pid,
    "pc": (place("$pc"), place(pc)),
}
print("TOLD", __import__("json").dumps({"told": told, "tid": tid, "frames": frames}))
"""


class Core(NamedTuple):
    """What gdb says of the thread that crashed. `frames`: those below the signal's, innermost first."""

    status: int
    told: dict[str, Any]
    tid: int
    frames: list[str | None]
    cases: Path


@pytest.fixture(scope="module")
def cores() -> Iterator[None]:
    """A process that dies leaves its core in its own working directory."""
    pattern = CORE_PATTERN.read_text().strip()
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if hard != resource.RLIM_INFINITY:
        pytest.skip(f"the hard limit of cores is {hard} bytes")
    if pattern and "/" not in pattern and not pattern.startswith(("|", "@")):
        yield
        return
    try:
        CORE_PATTERN.write_text("core")
    except OSError as error:
        pytest.skip(f"core_pattern is {pattern!r} and may not be changed: {error.strerror}")
    try:
        yield
    finally:
        CORE_PATTERN.write_text(pattern)


@pytest.fixture(scope="module")
def crash(cores: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Core]:
    """Runs a scenario, once, and asks gdb about its only core."""
    libraries = tmp_path_factory.mktemp("libraries")

    @cache
    def run(name: str, *, supervised: bool, faulthandler: str = "") -> Core:
        literals = read_literals(SCENARIOS / f"{name}.py")
        for module in literals.get("NEEDS", ()):
            pytest.importorskip(module)
        if platform.machine() not in literals.get("MACHINES", [platform.machine()]):
            pytest.skip(f"the instruction is one of {literals['MACHINES']}")
        folder = tmp_path_factory.mktemp(name)
        environment = {
            **os.environ,
            "ZOO_LIB": str(build(SCENARIOS / literals["BUILD"], literals.get("BUILD_FLAGS", []), libraries)),
            "HARNESS_CASES": str(folder / "cases"),
            # Empty means off, and then harness does not turn it on: faulthandler raises the signal a second time.
            "PYTHONFAULTHANDLER": faulthandler,
        }
        command = [sys.executable, str(SCENARIOS / f"{name}.py")]
        status = end_with_core([*(HARNESS if supervised else ()), *command], folder, environment)
        return Core(status, *ask_gdb(folder), folder / "cases")

    return run


def end_with_core(command: list[str], folder: Path, environment: dict[str, str]) -> int:
    """Its status as a shell gives it."""
    done = subprocess.run(
        ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "sh", *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    assert any(folder.glob("core*")), (done.returncode, done.stderr)
    return shell_status(done.returncode)


def ask_gdb(folder: Path) -> tuple[dict[str, Any], int, list[str | None]]:
    (core,) = folder.glob("core*")
    script = folder / "ask.py"
    script.write_text(ASK)
    settings = ["-iex", "set debuginfod enabled off", "-iex", "set auto-solib-add off"]
    words = ["gdb", "-nx", "-batch", *settings, "-x", str(script), sys.executable, str(core)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S)
    core.unlink()  # hundreds of MB with torch
    said = next((line for line in done.stdout.splitlines() if line.startswith("TOLD ")), None)
    assert said is not None, done.stderr
    answer = json.loads(said.removeprefix("TOLD "))
    return answer["told"], answer["tid"], answer["frames"]


@pytest.mark.parametrize("name", CORES)
def test_the_core_is_that_of_a_bare_run(crash: Callable[..., Core], name: str) -> None:
    bare, supervised = crash(name, supervised=False), crash(name, supervised=True)
    assert supervised.told == bare.told
    assert supervised.frames == bare.frames
    assert supervised.status == bare.status == read_literals(SCENARIOS / f"{name}.py")["EXPECT"]["exit"]


def test_the_core_is_that_of_a_bare_run_with_faulthandler(crash: Callable[..., Core]) -> None:
    bare, supervised = (
        crash("native_wild_pointer", supervised=supervised, faulthandler="1") for supervised in (False, True)
    )
    assert supervised.told == bare.told
    assert bare.told["sent_by_itself"]
    assert supervised.frames == bare.frames


@pytest.mark.parametrize("name", STACKS)
def test_every_frame_that_gdb_names_is_in_our_stack(crash: Callable[..., Core], name: str) -> None:
    core = crash(name, supervised=True)
    (case,) = core.cases.iterdir()
    (record,) = json.loads((case / "evidence.json").read_bytes())["crashes"]
    assert record["tid"] == core.tid
    (thread,) = (thread for thread in record["threads"] if thread["tid"] == core.tid)
    theirs = [plain for frame in core.frames if frame and (plain := plain_name(frame)) not in EXPLAINED]
    ours = [
        EVALUATES if frame["kind"] == "python" else plain_name(frame["function"] or "") for frame in thread["frames"]
    ]
    assert len(theirs) >= 2  # more where the C library has its debug symbols
    left = iter(ours)
    missing = [frame for frame in theirs if frame not in left]  # each is looked for behind the one before it
    assert missing == [], (theirs, ours)


def plain_name(function: str) -> str:
    """One function of libc has many names: __GI___getpriority, __getpriority, getpriority; and so for _impl."""
    return function.removeprefix("__GI_").removesuffix("_impl").lstrip("_")
