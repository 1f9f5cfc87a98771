"""Frames told by tools: merged, placed in images, without our own; and the ladder of tools."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from harness.capture.proc import _says_stopping
from harness.capture.stacks.frames import (
    EngineThread,
    NativeFrame,
    Places,
    PythonFrame,
    merge_frames,
    read_engine,
    read_spy,
    strip_own_frames,
)
from harness.capture.stacks.ladder import LADDER, Rung, take_stacks
from harness.capture.stacks.tools import broke_down, fork_tool, run_tool
from harness.evidence.crash import CrashFrame, CrashThread, Image, ToolRun

OURS = "/venv/harness/libharness.so"
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
FAISS = "/venv/faiss/libfaiss.so"
NOWHERE = Places(())


def native(function: str | None, image: str | None) -> CrashFrame:
    return CrashFrame("native", function, image=image)


def python(function: str) -> CrashFrame:
    return CrashFrame("python", function, file="train.py", line=1)


WAITING = (native("__poll", LIBC), native("wait_for_supervisor", OURS), native("on_fatal_signal", OURS))
TRAMPOLINE = native("__restore_rt", LIBC)
PROGRAM = (native("fvec_inner_product", FAISS), python("search"), native("main", "/usr/bin/python3"))
# Our library starts every thread and is therefore in the outermost frames of each.
THREAD = (
    native("fvec_inner_product", FAISS),
    native("start", OURS),
    native("start_thread", LIBC),
    native("clone3", LIBC),
)


@pytest.mark.parametrize(
    ("frames", "left"),
    [
        pytest.param((*WAITING, TRAMPOLINE, *PROGRAM), PROGRAM, id="handler"),
        pytest.param((native("park", OURS), TRAMPOLINE, *THREAD), THREAD, id="parked without a call"),
        pytest.param((*WAITING, TRAMPOLINE, *WAITING, TRAMPOLINE, *THREAD), THREAD, id="parked in its own crash"),
        pytest.param(
            (*WAITING, native("__kernel_rt_sigreturn", "[vdso]"), *PROGRAM), PROGRAM, id="aarch64's trampoline"
        ),
        pytest.param(
            (*WAITING, TRAMPOLINE, native("strlen", LIBC), *THREAD),
            (native("strlen", LIBC), *THREAD),
            id="crash in libc",
        ),
        pytest.param((*WAITING, TRAMPOLINE), (), id="nothing below"),
    ],
)
def test_our_handler_is_taken_out(frames: tuple[CrashFrame, ...], left: tuple[CrashFrame, ...]) -> None:
    assert strip_own_frames(frames, OURS) == left


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param((), id="no frames"),
        pytest.param(PROGRAM, id="no handler"),
        pytest.param(THREAD, id="only started by us"),
        pytest.param((native("strlen", LIBC), *THREAD[1:]), id="in libc, started by us"),
        pytest.param((native("__poll", LIBC), native("f", FAISS), TRAMPOLINE, *PROGRAM), id="somebody else's handler"),
        pytest.param((native("__poll", LIBC), TRAMPOLINE, *PROGRAM), id="a handler in libc"),
        pytest.param(
            (native("recover", FAISS), native("on_fatal_signal", OURS), TRAMPOLINE, *PROGRAM), id="a handler we called"
        ),
        pytest.param((*WAITING, *PROGRAM), id="no trampoline"),
        pytest.param((*WAITING, python("__restore_rt"), *PROGRAM), id="a Python function of that name"),
        pytest.param((native("__poll", LIBC), native("x", OURS + ".bak"), TRAMPOLINE, *PROGRAM), id="a similar path"),
    ],
)
def test_what_is_not_our_handler_stays(frames: tuple[CrashFrame, ...]) -> None:
    assert strip_own_frames(frames, OURS) == frames


def test_a_crash_inside_a_handler_keeps_that_handler_and_what_it_interrupted() -> None:
    inside = (native("recover", FAISS), native("on_fatal_signal", OURS), TRAMPOLINE, *PROGRAM)
    assert strip_own_frames((*WAITING, TRAMPOLINE, *inside), OURS) == inside


def told(symbol: str, *, evaluates: bool = False, address: int = 0x10) -> NativeFrame:
    return NativeFrame(address, symbol, "???", 0, "/x/lib.so", evaluates)


def ran(function: str, *, entry: bool = False, shim: bool = False) -> PythonFrame:
    return PythonFrame(function, "train.py", 3, entry, shim)


def names(frames: tuple[CrashFrame, ...]) -> list[str]:
    return [f"{frame.kind[0]}:{frame.function}" for frame in frames]


def test_evaluating_frames_become_the_python_frames_they_run() -> None:
    natives = (told("main"), told("eval", evaluates=True), told("call"), told("eval", evaluates=True), told("memcpy"))
    pythons = (ran("<module>", entry=True), ran("train"), ran("step", entry=True))
    frames, merged = merge_frames(EngineThread(1, None, natives, pythons), NOWHERE)
    assert merged
    assert names(frames) == ["n:memcpy", "p:step", "n:call", "p:train", "p:<module>", "n:main"]


def test_shims_count_as_entries_but_are_nobodys_frames() -> None:
    natives = (told("main"), told("eval", evaluates=True), told("f"))
    pythons = (ran("shim", entry=True, shim=True), ran("<module>"))
    assert names(merge_frames(EngineThread(1, None, natives, pythons), NOWHERE)[0]) == ["n:f", "p:<module>", "n:main"]


@pytest.mark.parametrize("inner", [(), (told("__restore_rt"), told("handler"))], ids=["innermost", "interrupted"])
def test_an_evaluating_frame_stays_where_the_program_was_in_it(inner: tuple[NativeFrame, ...]) -> None:
    natives = (told("main"), told("eval", evaluates=True), *inner)
    frames, merged = merge_frames(EngineThread(1, None, natives, (ran("<module>", entry=True),)), NOWHERE)
    assert merged
    assert names(frames)[-3:] == ["n:eval", "p:<module>", "n:main"]


def test_what_cannot_be_merged_follows_one_after_the_other_and_is_said() -> None:
    natives = (told("main"), told("eval", evaluates=True), told("eval", evaluates=True))
    thread = EngineThread(1, None, natives, (ran("<module>", entry=True), ran("train")))
    frames, merged = merge_frames(thread, NOWHERE)
    assert not merged
    assert names(frames) == ["n:eval", "n:eval", "n:main", "p:train", "p:<module>"]
    notes = [note for _, note in read_engine(msgspec.json.encode([thread]), NOWHERE, "pystack")]
    assert notes == ["native and Python frames of thread 1 could not be merged"]


@pytest.mark.parametrize(
    "thread",
    [EngineThread(1, None, (told("main"),), ()), EngineThread(1, None, (), (ran("<module>", entry=True),))],
    ids=["native only", "Python only"],
)
def test_a_thread_of_one_kind_has_nothing_to_merge(thread: EngineThread) -> None:
    frames, merged = merge_frames(thread, NOWHERE)
    assert merged and len(frames) == 1


def test_frames_are_placed_by_address_and_not_by_path() -> None:
    copies = [Image("/x/libomp.so", "0x1000", "0x2000"), Image("/x/libomp.so", "0x5000", "0x6000")]
    natives = (told("a", address=0x5010), told("b", address=0x1020), told("c", address=0x2000))
    frames, _ = merge_frames(EngineThread(1, None, natives, ()), Places(copies))
    assert [(frame.function, frame.image, frame.offset) for frame in frames] == [
        (None, None, None),  # in neither: what the tool says is a guess of its own
        ("b", "/x/libomp.so", "0x20"),
        ("a", "/x/libomp.so", "0x10"),
    ]


@pytest.mark.parametrize(
    ("symbol", "function"),
    [
        ("clock_nanosleep@GLIBC_2.2.5", "clock_nanosleep"),
        ("__libc_start_main@@GLIBC_2.34", "__libc_start_main"),
        ("pysleep (inlined)", "pysleep"),
        ("pymain_run_python.constprop.0", "pymain_run_python"),
        ("collect.isra.0.cold (inlined)", "collect"),
        ("at::f(int) [clone .constprop.0]", "at::f(int)"),
        ("module.particle", "module.particle"),
        ("at::native::add(at::Tensor const&)", "at::native::add(at::Tensor const&)"),
        ("???", None),
    ],
)
def test_symbols_are_cleaned(symbol: str, function: str | None) -> None:
    assert merge_frames(EngineThread(1, None, (told(symbol),), ()), NOWHERE)[0][0].function == function


def test_py_spys_answer_is_read() -> None:
    """The shape is py-spy 0.4.3's."""
    answer = [
        {
            "pid": 7,
            "thread_id": 1,
            "thread_name": "MainThread",
            "os_thread_id": 7,
            "frames": [
                {"name": "0x1234", "filename": LIBC, "module": LIBC, "short_filename": None, "line": 0, "locals": None},
                {"name": "level_one", "filename": "/s/hold.c", "module": "/x/hold.so", "line": 18},
                {"name": "Thread.run", "filename": "/lib/threading.py", "module": None, "line": 982},
            ],
        }
    ]
    images = [Image(LIBC, "0x1000", "0x2000")]
    ((thread, note),) = read_spy(msgspec.json.encode(answer), Places(images), "py-spy native")
    assert (thread.tid, thread.name, note) == (7, "MainThread", None)
    assert thread.frames == (
        CrashFrame("native", None, image=LIBC, offset="0x234", address="0x1234"),
        CrashFrame("native", "level_one", file="/s/hold.c", line=18, image="/x/hold.so"),
        CrashFrame("python", "run", file="/lib/threading.py", line=982),
    )


def rung(engine: str, *threads: CrashThread, script: str = "") -> Rung:
    """A rung whose tool is a real child that runs `script`, and whose answer is `threads`."""

    def read(output: bytes, places: Places, source: str) -> Iterator[tuple[CrashThread, str | None]]:
        return ((thread, None) for thread in threads)

    return Rung(
        engine, "", "native", lambda pid, mode, deadline_s: run_tool(["/bin/sh", "-c", script], deadline_s), read
    )


def thread(tid: int, *frames: CrashFrame) -> CrashThread:
    return CrashThread(tid, None, False, frames, "x")


PID = 2**22 + 1  # above the largest pid there can be


def test_a_tool_that_does_not_show_the_crashed_thread_is_not_enough() -> None:
    ladder = (rung("a", thread(1, *PROGRAM), thread(2)), rung("b", thread(2, *PROGRAM)))
    _, threads, tools = take_stacks(PID, "python", 5, tid=2, ladder=ladder)
    assert [(one.tid, one.crashed) for one in threads] == [(2, True)]
    assert [(run.tool, run.error) for run in tools] == [("a", "no frames of thread 2"), ("b", None)]


def test_when_no_tool_shows_it_the_first_that_showed_anything_is_kept() -> None:
    ladder = (
        rung("a", script="echo broken >&2; exit 3"),
        rung("b", thread(1, *PROGRAM)),
        rung("c", thread(3, *THREAD)),
    )
    step, threads, tools = take_stacks(PID, "python", 5, tid=2, ladder=ladder)
    assert (step, [one.tid for one in threads]) == ("native", [1])
    assert tools[0].error == "broken"


def test_a_process_without_python_is_only_asked_by_the_tool_that_needs_none() -> None:
    step, threads, tools = take_stacks(PID, None, 5, ladder=(rung("a"), rung("b", thread(1, *PROGRAM))))
    assert (step, threads, [run.tool for run in tools]) == ("none", (), ["a"])


def test_a_tool_that_hangs_leaves_time_for_the_next_and_is_not_asked_again() -> None:
    hangs = rung("a", script="echo stuck >&2; sleep 60")
    begun = time.monotonic()
    _, threads, tools = take_stacks(PID, "python", 2, ladder=(hangs, hangs, rung("b", thread(1, *PROGRAM))))
    assert time.monotonic() - begun < 2
    assert threads
    assert re.fullmatch(r"no answer within \d\.\d\d s, killed: stuck", tools[0].error or "")
    assert [run.error for run in tools[1:]] == ["not tried: it did not answer before", None]


def test_no_time_is_said() -> None:
    _, _, tools = take_stacks(PID, "python", 0.0, ladder=(rung("a"),))
    assert [run.error for run in tools] == ["not tried: no time was left"]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["/bin/sh", "-c", "kill -SEGV $$"], "died of SIGSEGV"),
        (["/bin/sh", "-c", "exit 4"], "exit status 4"),
        (["/no/such/tool"], "/no/such/tool: No such file or directory"),
    ],
)
def test_a_tools_own_end_is_told(command: list[str], error: str) -> None:
    assert run_tool(command, 5).error == error


def test_an_answer_that_is_none_is_an_error_and_long_words_are_cut() -> None:
    garbled = LADDER[0]._replace(ask=lambda *_: run_tool(["/bin/echo", "Segmentation"], 5))
    long = rung("b", script="yes | head -c 9000 >&2; exit 1")
    _, _, tools = take_stacks(PID, "python", 5, ladder=(garbled, long))
    assert tools[0].error is not None and tools[0].error.startswith("its answer cannot be read")
    assert tools[1].error is not None and len(tools[1].error) == 2000


@pytest.mark.parametrize(
    ("status", "stopping"),
    [
        ("State:\tT (stopped)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n", True),
        ("State:\tS (sleeping)\nSigPnd:\t0000000000040000\nShdPnd:\t0000000000000000\n", True),
        ("State:\tS (sleeping)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000400\n", False),
        ("State:\tt (tracing stop)\nSigPnd:\t0000000000000000\n", False),
    ],
    ids=["stopped", "SIGSTOP is pending", "another signal is pending", "held by a tracer"],
)
def test_stopping_is_read_from_the_status(status: str, stopping: bool) -> None:
    assert _says_stopping(status) is stopping


def raise_error() -> None:
    raise RuntimeError("no luck")


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "died of SIGSEGV"),
        (lambda: sys.exit(4), "SystemExit: 4"),
        (raise_error, "RuntimeError: no luck"),
        (lambda: time.sleep(60), "no answer within 0.50 s, killed"),
    ],
    ids=["crashes", "exits", "raises", "hangs"],
)
def test_a_copy_of_us_that_fails_as_a_tool_is_told_and_gone(work: Callable[[], None], error: str) -> None:
    said = fork_tool(work, 0.5)
    assert said.error is not None and said.error.rpartition("\n")[2] == error
    assert said.pid is not None and not Path(f"/proc/{said.pid}").exists()


def test_a_tool_that_was_late_has_not_broken_down() -> None:
    late, dead = (ToolRun("pystack native-all", 1.3, f"died of {signame}", 7) for signame in ("SIGALRM", "SIGSEGV"))
    assert not broke_down(late) and broke_down(dead)
