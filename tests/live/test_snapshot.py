"""Snapshots of real processes that stand still in their own crash, against gdb and against the target's own words."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.capture.crash.snapshot import Snapshot, complete, look_while_held, take_snapshot
from harness.capture.files.images import find_python
from harness.capture.stacks.gdb import INSTALL, find_gdb
from harness.capture.stacks.ladder import LADDER, Rung, take_stacks
from harness.capture.stacks.tools import Said, run_tool
from harness.evidence.crash import CrashFrame, CrashThread, ToolRun
from tests.builders.lanes import INTERPRETERS, TODAY, version_of
from tests.live.processes import state_of, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
DEADLINE_S = 10.0

# Stands in for the crash link: its handler waits in the crashed thread until descriptor 0 has an end.
HOLDER = """
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static void hold(int signo, siginfo_t *info, void *context) {
    (void)info; (void)context;
    struct pollfd end = {0, POLLIN, 0};
    if (write(1, "held\\n", 5) != 5) _exit(9);
    poll(&end, 1, -1);
    signal(signo, SIG_DFL);
}
void hold_on_fault(void) {
    stack_t stack = {malloc(65536), 0, 65536};
    struct sigaction action = {0};
    action.sa_sigaction = hold;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaltstack(&stack, 0);
    sigaction(SIGSEGV, &action, 0);
}
"""
VICTIM = """
#include <pthread.h>
#include <unistd.h>
__attribute__((noinline)) int innermost(volatile int *at) { return *at + 1; }
__attribute__((noinline)) int middle(int *at) { return innermost(at) + 1; }
int outermost(int *at) { return middle(at) + 1; }
static void *sleep_natively(void *unused) { for (;;) pause(); return unused; }
static void *fault_natively(void *unused) { outermost(0); return unused; }
static void start(void *(*run)(void *)) { pthread_t thread; pthread_create(&thread, 0, run, 0); }
void start_sleeper(void) { start(sleep_natively); }
void start_faulter(void) { start(fault_natively); }
"""
TARGET = """
import ctypes, importlib.metadata, json, os, sys, threading, time
holder, victim = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
for name in sys.argv[4:]:
    __import__(name)
if len(sys.argv) > 4:
    recorded = {}
    for dist in importlib.metadata.distributions():
        for file in dist.files or ():
            if ".so" in file.name:
                recorded[os.path.realpath(dist.locate_file(file))] = [dist.metadata["Name"], dist.version]
    mapped = {line.split(None, 5)[5].rstrip() for line in open("/proc/self/maps") if line.count("/")}
    print(json.dumps({path: owner for path, owner in recorded.items() if path in mapped}), flush=True)
holder.hold_on_fault()
victim.start_sleeper()
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
def train():
    if sys.argv[3] == "thread":
        victim.start_faulter()
        time.sleep(1000)
    victim.outermost(None)
def main():
    list(map(lambda _: train(), [1]))
main()
"""
GDB = """
import gdb
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame = gdb.newest_frame()
    while frame is not None:
        print("FRAME", thread.ptid[1], frame.type(), gdb.solib_name(frame.pc()) or "-", frame.name() or "-")
        frame = frame.older()
"""


class Held(NamedTuple):
    process: subprocess.Popen[bytes]
    holder: str
    victim: str
    said: bytes  # before it crashed

    @property
    def pid(self) -> int:
        return self.process.pid

    def release(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(DEADLINE_S)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    folder = tmp_path_factory.mktemp("snapshot")
    for name, source in (("holder", HOLDER), ("victim", VICTIM)):
        (folder / f"{name}.c").write_text(source)
        command = ["gcc", "-O1", "-g", "-shared", "-fPIC", "-fno-optimize-sibling-calls", "-o", f"lib{name}.so"]
        subprocess.run([*command, f"{name}.c", "-pthread"], cwd=folder, check=True)
    return str(folder / "libholder.so"), str(folder / "libvictim.so")


@pytest.fixture
def hold(libraries: tuple[str, str]) -> Iterator[Callable[..., Held]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*modules: str, python: str = sys.executable, where: str = "main") -> Held:
        words = [python, "-c", TARGET, *libraries, where, *modules]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        said = b""
        while (line := process.stdout.readline()) != b"held\n":
            assert line, "the target ended before it crashed"
            said += line
        return Held(process, *libraries, said)

    yield start
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def look(
    held: Held, ladder: tuple[Rung, ...] = LADDER, deadline_s: float = DEADLINE_S
) -> tuple[str, dict[int, CrashThread], tuple[ToolRun, ...]]:
    step, threads, tools = take_stacks(
        held.pid, sys.executable, deadline_s, tid=held.pid, own_library=held.holder, ladder=ladder
    )
    return step, {thread.tid: thread for thread in threads}, tools


def functions(frames: tuple[CrashFrame, ...]) -> list[str | None]:
    return [frame.function for frame in frames]


def is_subsequence(part: list[str], whole: list[str | None]) -> bool:
    left = iter(whole)
    return all(name in left for name in part)


def ask_gdb(held: Held, tmp_path: Path) -> dict[int, list[str]]:
    """Of each thread, innermost first: what gdb names in the victim and in libpython, below the signal's frame.

    Without the frames that gdb reconstructs for tail calls: they have left the stack. An evaluating frame is one word
    that stands for the Python frames in its place.
    """
    if shutil.which("gdb") is None:
        pytest.skip("needs gdb")
    (tmp_path / "frames.py").write_text(GDB)
    command = ["gdb", "-nx", "-p", str(held.pid), "-batch", "-x", str(tmp_path / "frames.py")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    normal, inline, tail, trampoline = map(int, gdb_frame_types())
    stacks: dict[int, list[str]] = {}
    for line in told.splitlines():
        if not line.startswith("FRAME "):
            continue
        tid, kind, image, name = line.removeprefix("FRAME ").split(" ", 3)
        names = stacks.setdefault(int(tid), [])
        if int(kind) == trampoline:
            names.clear()
        elif int(kind) in (normal, inline) and ("libpython" in image or image == held.victim) and name != "-":
            names.append(name)
    assert tail not in (normal, inline)
    return stacks


def gdb_frame_types() -> list[str]:
    words = "print(gdb.NORMAL_FRAME, gdb.INLINE_FRAME, gdb.TAILCALL_FRAME, gdb.SIGTRAMP_FRAME)"
    return subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", f"python {words}"], capture_output=True, text=True
    ).stdout.split()


@pytest.mark.parametrize("version", INTERPRETERS)
def test_every_frame_that_gdb_names_is_in_ours(hold: Callable[..., Held], version: str, tmp_path: Path) -> None:
    held = hold(python=INTERPRETERS[version])
    step, threads, tools = look(held)
    gdb = ask_gdb(held, tmp_path)
    assert step == "native-all", tools
    if version in TODAY and tools[0].error:  # pystack's unwinder does not follow libffi 3.8, and says so
        check_unmerged(held, threads, tools)
        return
    assert [run.error for run in tools] == [None]
    assert threads.keys() == gdb.keys()
    for tid, names in gdb.items():
        ours = functions(threads[tid].frames)
        assert is_subsequence([name for name in names if "EvalFrameDefault" not in name], ours), f"{names} {ours}"
    crashed = threads[held.pid]
    assert functions(crashed.frames)[:3] == ["innermost", "middle", "outermost"] == gdb[held.pid][:3]
    pythons = [frame.function for frame in crashed.frames if frame.kind == "python"]
    assert pythons == ["train", "<lambda>", "main", "<module>"]
    assert held.release() == -signal.SIGSEGV


def check_unmerged(held: Held, threads: dict[int, CrashThread], tools: tuple[ToolRun, ...]) -> None:
    """All Python frames are there, after the native ones that were read, and nobody says which runs which."""
    frames = threads[held.pid].frames
    assert tools[0].error == f"native and Python frames of thread {held.pid} could not be merged"
    assert functions(frames)[:3] == ["innermost", "middle", "outermost"]
    assert functions(frames)[-4:] == ["train", "<lambda>", "main", "<module>"]


@pytest.mark.parametrize("python", INTERPRETERS.values(), ids=INTERPRETERS.keys())
def test_what_c_calls_is_between_the_frames_that_it_stands_between(python: str) -> None:
    """In stripped interpreters too, whose loop has a part without a name."""
    source = "import os\ndef main():\n    sorted([1], key=lambda _: os.write(1, b'.') and os.read(0, 1))\nmain()"
    with subprocess.Popen([python, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.read(1) == b"."
        until(lambda: state_of(process.pid) == "S", "it waits")
        _, (thread,), tools = take_stacks(process.pid, python, DEADLINE_S)
        process.kill()
    assert [run.error for run in tools] == [None]
    kinds = "".join("P" if frame.kind == "python" else "n" for frame in thread.frames)
    assert re.fullmatch("n+Pn+Pn*Pn+", kinds), functions(thread.frames)


def test_native_frames_say_where_they_are(hold: Callable[..., Held]) -> None:
    held = hold()
    _, threads, _ = look(held)
    frame = threads[held.pid].frames[0]
    nm = subprocess.run(["nm", held.victim], capture_output=True, text=True, check=True).stdout
    start = next(int(line.split()[0], 16) for line in nm.splitlines() if line.endswith(" innermost"))
    assert frame.image == held.victim
    assert frame.offset is not None and start <= int(frame.offset, 16) < start + 32
    assert frame.file is not None and frame.file.endswith("victim.c")


def test_native_threads_are_seen_and_have_no_python_frames(hold: Callable[..., Held]) -> None:
    held = hold(where="thread")
    snapshot = look_while_held(held.pid, DEADLINE_S)
    by_function = {name: thread for thread in snapshot.threads for name in functions(thread.frames)}
    assert snapshot.threads_total == len(snapshot.threads) == 4
    for name in ("sleep_natively", "fault_natively"):
        assert all(frame.kind == "native" for frame in by_function[name].frames)
    assert "train" in functions(next(thread for thread in snapshot.threads if thread.tid == held.pid).frames)


def can_read(rung: Rung, lane: str) -> bool:
    """py-spy knows no free-threaded build, our own reader needs a table that 3.13 and later have."""
    if rung.engine == "own reader":
        return int(version_of(lane).rstrip("t").split(".")[1]) >= 13
    return rung.engine != "py-spy" or not lane.endswith("t")


@pytest.mark.parametrize("version", INTERPRETERS)
@pytest.mark.parametrize("rung", LADDER[1:], ids=lambda rung: rung.tool)
def test_each_lower_rung_gives_the_crashed_threads_python_frames(
    hold: Callable[..., Held], rung: Rung, version: str
) -> None:
    held = hold(python=INTERPRETERS[version])
    step, threads, tools = look(held, (rung,))
    if not can_read(rung, version):
        assert (step, threads) == ("none", {}) and tools[0].error
        return
    assert step == rung.step, tools
    frames = threads[held.pid].frames
    assert threads[held.pid].crashed
    assert [frame.function for frame in frames if frame.kind == "python"] == ["train", "<lambda>", "main", "<module>"]
    if step == "native":
        assert functions(frames)[:3] == ["innermost", "middle", "outermost"]
    until(lambda: state_of(held.pid) == "S", "the target sleeps again")
    assert held.release() == -signal.SIGSEGV


def test_owners_are_those_that_the_target_itself_names(hold: Callable[..., Held]) -> None:
    for module in ("torch", "numpy", "faiss"):
        pytest.importorskip(module)
    held = hold("torch", "numpy", "faiss")
    seen = look_while_held(held.pid, DEADLINE_S, tid=held.pid)
    assert held.release() == -signal.SIGSEGV
    snapshot = complete(seen)  # the process is gone by now
    truth = {path: tuple(owner) for path, owner in json.loads(held.said).items()}
    ours = {image.path: (image.distribution, image.version) for image in snapshot.images if image.owner == "wheel"}
    assert ours == truth
    assert {"torch", "numpy", "faiss-cpu"} <= snapshot.packages.keys()
    assert snapshot.packages == dict(sorted(set(truth.values())))
    assert {image.owner for image in snapshot.images if "lib-dynload" in image.path} == {"interpreter"}
    assert [image.owner for image in snapshot.images if image.path == held.victim] == ["unowned"]
    assert snapshot.gaps == ()


def test_system_libraries_belong_to_the_package_that_dpkg_names(hold: Callable[..., Held]) -> None:
    if shutil.which("dpkg-query") is None:
        pytest.skip("needs dpkg-query")
    images = take_snapshot(hold().pid, DEADLINE_S).images
    libc = next(image for image in images if Path(image.path).name == "libc.so.6")
    words = ["dpkg-query", "-W", "-f", "${Version}", "libc6"]
    version = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert (libc.owner, libc.distribution, libc.version) == ("system", "libc6", version)


def test_what_the_process_has_open_and_holds_in_memory(hold: Callable[..., Held]) -> None:
    held = hold()
    snapshot = take_snapshot(held.pid, 0.0)
    links = {f"{link.name} -> {link.readlink()}" for link in Path(f"/proc/{held.pid}/fd").iterdir()}
    assert set(snapshot.open_files) == links
    assert snapshot.rss_bytes is not None and 1 << 20 < snapshot.rss_bytes < 1 << 30
    assert snapshot.executable == os.path.realpath(sys.executable)
    assert find_python(snapshot.executable, ()) == snapshot.executable


def test_with_no_time_there_are_images_and_the_stacks_are_a_gap(hold: Callable[..., Held]) -> None:
    snapshot = take_snapshot(hold().pid, 0.0)
    assert (snapshot.step, snapshot.threads, snapshot.tools) == ("none", (), ())
    assert len(snapshot.images) > 5
    assert [gap.what for gap in snapshot.gaps] == ["native and Python stacks"]


def test_a_process_that_is_gone_is_all_gaps() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    snapshot = take_snapshot(process.pid, 1.0)
    assert_nothing_seen(snapshot)
    assert len(snapshot.gaps) == 5


def assert_nothing_seen(snapshot: Snapshot) -> None:
    assert snapshot.step == "none"
    assert (snapshot.threads, snapshot.images, snapshot.mappings, snapshot.open_files) == ((), (), (), ())
    assert (snapshot.rss_bytes, snapshot.threads_total, snapshot.executable) == (None, None, None)


def test_a_program_without_python_is_read_by_gdb_where_there_is_one() -> None:
    process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    until(lambda: state_of(process.pid) == "S", "cat reads")
    snapshot = take_snapshot(process.pid, DEADLINE_S)
    process.communicate()
    assert [run.tool for run in snapshot.tools] == ["pystack native-all", "gdb"]
    if find_gdb() is None:
        assert [(gap.what, gap.fix) for gap in snapshot.gaps] == [("native stacks", INSTALL)]
    else:
        assert snapshot.step == "native-all" and snapshot.gaps == ()
        names = functions(snapshot.threads[0].frames)
        assert any("read" in (name or "") for name in names) and snapshot.threads[0].frames[0].address is not None
    assert any(image.path.endswith("/cat") for image in snapshot.images)
    assert process.returncode == 0


def stand_in(script: str) -> Rung:
    """A tool that does what is said to the target and then never answers."""
    words = textwrap.dedent(script)

    def ask(pid: int, mode: str, deadline_s: float) -> Said:
        return run_tool([sys.executable, "-c", words, str(pid)], deadline_s)

    return LADDER[2]._replace(engine="stand-in", mode="", ask=ask)


HANG = "import sys, time; print('no luck yet', file=sys.stderr, flush=True); time.sleep(600)"
# PTRACE_ATTACH is 16; man 2 ptrace.
HANG_ATTACHED = f"""
import ctypes, os, sys
assert ctypes.CDLL(None, use_errno=True).ptrace(16, int(sys.argv[1]), None, None) == 0
{HANG}
"""
HANG_STOPPED = f"""
import os, signal, sys
os.kill(int(sys.argv[1]), signal.SIGSTOP)
{HANG}
"""


@pytest.mark.parametrize("script", [HANG, HANG_ATTACHED, HANG_STOPPED], ids=["asleep", "attached", "stopped"])
def test_a_tool_that_hangs_is_ended_and_the_target_goes_on(hold: Callable[..., Held], script: str) -> None:
    held = hold()
    begun = time.monotonic()
    step, threads, tools = look(held, (stand_in(script), LADDER[3]), deadline_s=3.0)
    assert time.monotonic() - begun < 3.0
    assert re.fullmatch(r"no answer within \d\.\d\d s, killed: no luck yet", tools[0].error or "")
    assert step == "python", tools
    assert threads[held.pid].frames
    until(lambda: state_of(held.pid) == "S", "the target is not stopped")
    assert held.release() == -signal.SIGSEGV


def test_a_target_that_was_stopped_by_others_stays_stopped(hold: Callable[..., Held]) -> None:
    held = hold()
    os.kill(held.pid, signal.SIGSTOP)
    until(lambda: state_of(held.pid) == "T", "the target is stopped")
    look(held, LADDER[3:], deadline_s=3.0)
    until(lambda: state_of(held.pid) == "T", "the target is stopped again")
    os.kill(held.pid, signal.SIGCONT)
    assert held.release() == -signal.SIGSEGV


def test_nothing_in_the_users_directory_is_imported(
    hold: Callable[..., Held], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = hold()
    for name in ("json", "pystack", "signal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    step, _, tools = look(held)
    assert (step, [run.error for run in tools]) == ("native-all", [None])
