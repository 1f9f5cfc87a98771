"""macOS's `sample`: its text becomes evidence and a verdict; the commands that would be typed on a Mac.

HUNG is written by hand to the shape of a real one, which cannot be shipped: where that lies beside the project, it is
read as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.capture.living.sample_text import (
    ask_python,
    build_command,
    explain_refusal,
    merge_python,
    read_sample,
    stacks_path,
)
from harness.capture.remote.table import parse_clock_s, read_ps
from harness.diagnose.living.document import judge_living
from harness.evidence.crash import CrashFrame
from harness.evidence.living.look import Look
from tests.builders.macos_sample import FIRST, HUNG, REAL, SECOND

SHIM = Path(__file__).parents[4] / "probes" / "shim"


@pytest.fixture(scope="module")
def look() -> Look:
    return read_sample(HUNG)


def test_the_process(look: Look) -> None:
    process = look.processes[0]
    assert (process.pid, process.ppid, process.python, process.name) == (4711, 88, "3.13.7", "Python")
    assert process.rss_bytes == int(1.5 * 2**30) and process.age_s == pytest.approx(600.5)
    assert look.samples == 400 and look.looked_s == pytest.approx(0.4)
    assert [image.base for image in process.images if image.path.endswith("/libomp.dylib")] == [FIRST, SECOND]


def test_every_thread_is_there_innermost_frame_first(look: Look) -> None:
    main, other = look.processes[0].threads
    assert (main.tid, main.name, main.state, main.changed) == (4711, "MainThread", "S", False)
    assert [frame.function for frame in main.stack][:2] == ["__psynch_cvwait", "_pthread_cond_wait"]
    assert main.stack[-1].function == "start" and len(main.stack) == 8
    assert (other.tid, len(other.stack)) == (902, 2)


def test_two_copies_of_one_name_are_told_apart_by_their_base(look: Look) -> None:
    inner, outer = look.processes[0].threads[0].stack[2:4]
    assert inner.function and "__kmp_suspend_64" in inner.function
    bases = [hex(int(frame.address or "0", 16) - int(frame.offset or "0", 16)) for frame in (inner, outer)]
    assert bases == [FIRST, SECOND]


def test_the_verdict(look: Look) -> None:
    verdict = judge_living(look).verdict
    assert (verdict.kind, verdict.status) == ("deadlock-openmp", "established")
    assert verdict.process.pid == 4711
    told = " ".join(ground.fact for ground in verdict.grounds)
    assert FIRST in told and SECOND in told


def test_with_one_copy_it_is_no_such_deadlock() -> None:
    """The same text with every address of the second copy in the first: one runtime, asleep in its barrier."""
    assert judge_living(read_sample(HUNG.replace("[0x1200", "[0x1100"))).verdict.kind == "waiting"


@pytest.mark.skipif(not REAL.exists(), reason="the real text of a hung search is not beside the project")
def test_the_real_text() -> None:
    """The ground truth is written with it: two images of one UUID, a search that sleeps in the other's code."""
    text = REAL.read_text()
    look = read_sample(text)
    (process,) = look.processes
    assert (process.pid, process.python) == (34409, "3.13.7")
    assert len(process.threads) == sum(" Thread_" in line for line in text.splitlines())
    verdict = judge_living(look).verdict
    assert (verdict.kind, verdict.status) == ("deadlock-openmp", "established")
    told = " ".join(ground.fact for ground in verdict.grounds)
    assert "0x108750000" in told and "0x12a458000" in told


BUSY = """Analysis of sampling python3 (pid 7) every 1 millisecond
Process:         python3 [7]
Path:            /opt/python3
----

Call graph:
    100 Thread_1   DispatchQueue_1: com.apple.main-thread  (serial)
    + 100 start  (in dyld) + 7184  [0x10]
    +   70 spin  (in a.out) + 4  [0x20]
    +   ! 70 inner  (in a.out) + 8  [0x30]
    +   30 other  (in a.out) + 12  [0x40]
    100 Thread_2
      100 thread_start  (in b) + 8  [0x50]
        100 __workq_kernreturn  (in libsystem_kernel.dylib) + 8  [0x60]

Total number in stack
Binary Images:
"""


def test_the_path_most_often_seen_and_that_it_moved() -> None:
    main, other = read_sample(BUSY).processes[0].threads
    assert [frame.function for frame in main.stack] == ["inner", "spin", "start"]
    assert (main.state, main.changed, main.cpu_s) == ("R", True, 0.07)
    assert (other.tid, other.state, other.changed) == (2, "S", False)


@pytest.mark.parametrize("text", ["", "Call graph:\n", HUNG.partition("Call graph:")[0]])
def test_what_is_no_sample_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no text of `sample`"):
        read_sample(text)


def test_the_commands() -> None:
    assert build_command(7, 5.0) == ["/usr/bin/sample", "7", "5", "-mayDie", "-file", "/dev/stdout"]
    assert build_command(7, 0.2)[2] == "1" and build_command(7, 240)[2] == "10"
    refusal = explain_refusal(os.getpid(), "sample cannot examine process 7 for unknown reasons")
    assert refusal.hint == f"sudo harness attach {os.getpid()}" and "cannot examine" in str(refusal)
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert explain_refusal(gone.pid, "x").hint == "harness ps"


PROGRAM = """
import signal, sys
signal.SIGINFO = signal.SIGUSR2  # Linux has no SIGINFO; what listens to it is the same
import sitecustomize
import time
def work():
    print("ready", flush=True); time.sleep(100)  # one line: asked at once, it may still be printing
work()
"""


def test_the_shims_signal_gives_python_lines_and_the_process_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(SHIM), "HARNESS_LINK": str(tmp_path / "no-link")}
    command = [sys.executable, "-S", "-c", PROGRAM]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout and process.stdout.readline() == "ready\n"
            for _ in range(2):  # the second answer is not read from the first
                frames = ask_python(process.pid, signal.SIGUSR2)
                assert [(frame.function, frame.line) for frame in frames] == [("work", 7), ("<module>", 8)]
            assert process.poll() is None and stacks_path(process.pid).stat().st_mode & 0o777 == 0o600
        finally:
            process.kill()
    assert ask_python(os.getpid(), signal.SIGUSR2) == (), "where nobody listens no signal is sent"


def test_python_lines_stand_for_the_interpreters_frames() -> None:
    native = [CrashFrame("native", name) for name in ("wait", "search", "_PyEval_EvalFrameDefault", "main")]
    line = CrashFrame("python", "mine", "train.py", 211)
    assert [frame.function for frame in merge_python(native, [line])] == ["wait", "search", "mine"]


# What `ps` of a Mac prints, read for another host


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("01:40", 100), ("02:00:00", 7200), ("12-03:04:05", 1_047_845), ("0:07.25", 7.25), ("123:00.50", 7380.5)],
)
def test_a_time_of_ps(text: str, seconds: float) -> None:
    assert parse_clock_s(text) == seconds


def test_a_row_of_ps() -> None:
    row = "s  4711    88 me  01:40   0:07.25 204800 Ss+  /opt/My/Python train.py --name x"
    ((pid, seen),) = read_ps(["s   PID  PPID USER ELAPSED TIME RSS STAT COMMAND", row, "m 4711        5", "m 4712 9"])
    assert (pid, seen.names, seen.ppid, seen.user, seen.state) == (4711, ("Python",), 88, "me", "S")
    assert (seen.age_s, seen.cpu_s, seen.rss_bytes, seen.threads) == (100, 7.25, 200 << 20, 4)
    assert seen.argv == ("/opt/My/Python", "train.py", "--name", "x")


@pytest.mark.parametrize(
    "row",
    [
        "s",
        "s 1 2 me 01:40 0:07 3 S",
        "s 1 2 me 01:40 0:07 3 S \u2028",
        "s x 2 me 01:40 0:07 3 S python",
        f"s {'9' * 5000} 2 me 1:4 0:7 3 S python",
    ],
)
def test_what_is_no_row_of_ps_is_no_process(row: str) -> None:
    assert not dict(read_ps([row, "m 1 x", "m"]))


def test_a_size_that_no_process_has_is_none() -> None:
    for words, size in (("1.5G", 3 << 29), ("20K", 20 << 10), ("9" * 400, None), ("1.2.3G", None)):
        (process,) = read_sample(HUNG.replace("1.5G", words)).processes
        assert process.rss_bytes == size
