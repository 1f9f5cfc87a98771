"""From the fault to the answer: the crash link against "core written, then gdb" and "core written, then pystack".

The clock starts in the dying process, just before the fault, and stops when the answer is printed. Needs a core_pattern
that writes a file (core, in the working directory); without one the peers cannot be measured and that is said.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.bench import targets
from tests.bench.measure import HARNESS, PYTHON, RUN, environment, interleave, require
from tests.bench.table import Note, Plan, Row, met, timing_row

_GIB = 1024**3
_NO_CORE = ["sh", "-c", 'ulimit -S -c 0; exec "$@"', "sh"]


def measure_crash(plan: Plan) -> Iterator[Row | Note]:
    sizes = plan.resident_gib

    def crash(size: float) -> float:
        with _holding(max(sizes) - size):
            return _linked_s(size, 3)

    rounds = interleave(plan.stream_pairs, *(lambda size=size: crash(size) for size in sizes))
    ours = {size: median(figures) for size, figures in zip(sizes, rounds, strict=True)}
    for size in sizes:
        for name, command in _peers():
            peer, core_bytes = _core_s(size, command)
            yield Row(
                f"crash to answer, {size} GiB resident, against core + {name}",
                f"{ours[size]:.2f} s",
                f"{peer:.2f} s (core {core_bytes / _GIB:.2f} GiB)",
                f"{peer / ours[size]:.1f} x faster",
                *((">= 10 x", met(peer / ours[size] >= 10)) if size == 2.0 else ()),
            )
    small, large = ours[min(sizes)], ours[max(sizes)]
    yield Row(
        f"crash to answer, {max(sizes)} GiB / {min(sizes)} GiB",
        f"{large:.2f} s",
        f"{small:.2f} s",
        f"{large / small:.2f}",
        "<= 1.3",
        met(large / small <= 1.3),
    )
    few, *others = plan.threads
    few_s = _linked_s(0.1, few)
    for many in others:
        many_s = _linked_s(0.1, many)
        cells = (f"{many_s:.2f} s", f"{few_s:.2f} s", f"{many_s / few_s:.2f}")
        yield Row(f"crash to answer, {many} threads / {few}", *cells)


def measure_case_size(plan: Plan) -> Iterator[Row | Note]:
    """What is left on disk of the same crash, as blocks: a core may have holes."""
    for size in plan.resident_gib[:2]:
        with tempfile.TemporaryDirectory() as cases:
            _linked_s(size, 3, cases)
            case_bytes = sum(path.stat().st_blocks * 512 for path in Path(cases).rglob("*"))
        _, core_bytes = _core_s(size, ["true"])
        yield Row(
            f"case directory, {size} GiB resident, against a core",
            f"{case_bytes / 1024:.0f} KiB",
            f"{core_bytes / 1024:.0f} KiB",
            f"1/{core_bytes / case_bytes:.0f}",
        )


def measure_stillness(plan: Plan) -> Iterator[Row | Note]:
    """From the fault until faulthandler, the next handler in line, says its first word. The other threads idle."""
    rounds = {}
    for threads in plan.threads:
        words = [PYTHON, "-c", targets.FAULT, str(threads)]
        rounds[threads] = interleave(
            plan.pairs, lambda words=words: _still_ms([*RUN, *words]), lambda words=words: _still_ms(words)
        )
        ours, bare = rounds[threads]
        yield Row(
            f"stood still in a crash, {threads} threads, against bare",
            f"{median(ours):.1f} ms",
            f"{median(bare):.1f} ms",
            f"+{median(ours) - median(bare):.1f} ms ({min(ours):.1f} to {max(ours):.1f})",
        )
        yield _look_note(threads)
    few, *others = plan.threads
    for many in others:
        yield timing_row(f"stood still in a crash, {many} threads / {few}", rounds[many][0], rounds[few][0], "ms")


def _look_note(threads: int) -> Note:
    """What was had for that time: a look that ran into its deadline is not a fast look."""
    with tempfile.TemporaryDirectory() as cases:
        _linked_s(0, threads, cases)
        crash = json.loads(next(Path(cases).glob("*/evidence.json")).read_text())["crashes"][0]
    failed = [f"; {tool['tool']}: {tool['error']}" for tool in crash["tools"] if tool["error"]]
    stacks = f"stacks of {len(crash['threads'])} of {crash['threads_total']} threads"
    return Note(f"one more crash like it: {stacks}, {crash['held_s'] * 1e3:.0f} ms by its own clock{''.join(failed)}")


def _still_ms(argv: list[str]) -> float:
    """The program writes the time of its fault to a pipe of its own, and faulthandler to another."""
    with contextlib.ExitStack() as open_files:
        (fault, fault_end), (words, words_end) = os.pipe(), os.pipe()
        for descriptor in (fault, words):
            open_files.callback(os.close, descriptor)
        process = subprocess.Popen(
            [*_NO_CORE, *argv, str(fault_end), str(words_end)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[fault_end, words_end],
            env=environment(),
        )
        os.close(fault_end)
        os.close(words_end)
        first = os.read(words, 1)
        spoken_ns = time.monotonic_ns()
        _, said = process.communicate()
        require(bool(first), f"faulthandler said nothing: {said[-300:]!r}")
        return (spoken_ns - int(os.read(fault, 64))) / 1e6


def _linked_s(size_gib: float, threads: int, cases: str | None = None) -> float:
    """Until the whole report has been printed. harness itself leaves when the kernel has freed the memory."""
    where = ["--cases", cases] if cases else []
    argv = [*_NO_CORE, *HARNESS, "run", *where, "--", *_victim(size_gib, threads)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert process.stdout is not None and process.stderr is not None
    text, printed = b"", 0.0
    while part := os.read(process.stderr.fileno(), 1 << 16):
        text += part
        printed = time.monotonic()
    fault = process.stdout.read()
    status = process.wait()
    whole = b"siginfo SEGV_MAPERR" in text and b"\n  case " in text
    require(status == 139 and whole, f"no crash was seen: {text[-300:]!r}")
    return printed - float(fault)


@contextlib.contextmanager
def _holding(size_gib: float) -> Iterator[None]:
    """Another process has as much as the largest victim would have more, so that only the victim's own size differs.

    Where this machine is a guest, memory that it has not used lately comes from the host and is slow for everybody.
    """
    words = [PYTHON, "-c", targets.HOLD, str(int(size_gib * _GIB))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        require(holder.stdout.readline() == b"ready\n", "there is not that much memory")
        yield
        holder.stdin.close()


def _victim(size_gib: float, threads: int) -> list[str]:
    return [PYTHON, "-c", targets.CRASH, str(int(size_gib * _GIB)), str(threads)]


def _peers() -> list[tuple[str, list[str]]]:
    tools = {
        "gdb": ["gdb", "-nx", "-batch", "-ex", "thread apply all bt", PYTHON, "core"],
        "pystack": [str(Path(PYTHON).with_name("pystack")), "core", "core", "--native-all"],
    }
    return [(name, command) for name, command in tools.items() if shutil.which(command[0])]


def _core_s(size_gib: float, tool: list[str]) -> tuple[float, int]:
    """Bare, with cores allowed: until the tool has read the core. Also the size of the core on disk."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    require(pattern == "core", f"core_pattern is {pattern!r}, so there is no core file to compare with")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/tmp")) as folder:
        command = ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "sh", *_victim(size_gib, 3)]
        crashed = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment(), check=False)
        subprocess.run(tool, cwd=folder, capture_output=True, env=environment(), check=False)
        ended = time.monotonic()
        core = next(iter(Path(folder).glob("core*")), None)
        require(core is not None, "no core was written")
        assert core is not None
        return ended - float(crashed.stdout), core.stat().st_blocks * 512


CRASH_ROWS = {"crash": measure_crash, "size": measure_case_size, "still": measure_stillness}
