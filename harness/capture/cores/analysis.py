"""A crash read from a core: the same evidence as the crash link's, for a process that nobody held.

Signal, registers, mappings and images by our own reader; stacks by pystack, else by gdb, in children with a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import structs

from harness import native
from harness.capture.cores.file import CoreFile
from harness.capture.cores.signal_frame import find_interrupted
from harness.capture.crash.crash_link import LONGEST_INSTRUCTION
from harness.capture.crash.snapshot import Snapshot, complete, stack_gaps
from harness.capture.files.images import find_python, list_images, list_mappings
from harness.capture.openmp.live_images import look_at_memory
from harness.capture.stacks.callers import demangle, find_function
from harness.capture.stacks.frames import Places, clean_symbol, read_engine, strip_own_frames
from harness.capture.stacks.gdb import ask_gdb, read_gdb
from harness.capture.stacks.pystack_engine import print_answer, read_core_threads
from harness.capture.stacks.tools import Said, fork_tool
from harness.capture.stacks.walk.chain import OwnFrames
from harness.errors import Unreadable
from harness.evidence.crash import Crash, CrashThread, Image, Step, ToolRun
from harness.evidence.gap import Gap

# The process is dead: nobody waits but the reader of the report. gdb needs 5 s with torch's symbols.
_DEADLINE_S = 10.0
_SIGNALS_WITH_SENDER = 0  # si_code of a signal that was sent is not positive


def read_crash(path: Path, at_s: float, *, with_pystack: bool = True) -> Crash:
    """BadCore: it cannot be read. `with_pystack` false: this stack has broken it once."""
    with CoreFile(path) as core:
        first = find_interrupted(core)
        thread = core.crashed
        registers = first.registers if first else thread.registers
        siginfo = first.siginfo if first else core.siginfo
        code, address = (siginfo.code, siginfo.address) if siginfo else (0, 0)
        sent = code <= _SIGNALS_WITH_SENDER
        seen = complete(_look(core, registers, with_pystack))
        pc, sp = ("rip", "rsp") if core.machine == "x86_64" else ("pc", "sp")
        return Crash(
            pid=core.pid or thread.tid,
            tid=thread.tid,
            signo=thread.signo,
            si_code=code,
            fault_address=hex(0 if sent else address),
            pc=hex(registers[pc]),
            sp=hex(registers[sp]),
            registers={name: hex(value) for name, value in registers.items()},
            raw_frames=(),
            at_s=at_s,
            held_s=0.0,
            step=seen.step,
            threads=tuple(_name_at(thread, registers[pc]) for thread in seen.threads),
            images=seen.images,
            mappings=seen.mappings,
            tools=seen.tools,
            threads_total=len(core.threads),
            packages=seen.packages,
            openmp=seen.openmp,
            sender_pid=siginfo.sender_pid if siginfo and sent else None,
            origin="core",
            code=core.read(registers[pc], LONGEST_INSTRUCTION).hex() or None,
            gaps=(*seen.gaps, *_core_gaps(core)),
        )


def _name_at(thread: CrashThread, pc: int) -> CrashThread:
    """Behind a signal's frame pystack looks a program counter up as if it were a return address: one byte before."""
    if not thread.crashed or thread.source.startswith("gdb"):
        return thread
    frames = [
        structs.replace(frame, function=clean_symbol(demangle(name)))
        if frame.kind == "native"
        and frame.address == hex(pc)
        and frame.image
        and frame.offset
        and (name := find_function(frame.image, int(frame.offset, 16)))
        else frame
        for frame in thread.frames
    ]
    return structs.replace(thread, frames=tuple(frames))


def _core_gaps(core: CoreFile) -> list[Gap]:
    if not core.missing_bytes:
        return []
    why = f"the core is cut off: {core.missing_bytes:,} bytes of it are missing (size limit, or a full disk)"
    return [Gap("all of the dead process's memory", why, "harness run --core always …")]


def _look(core: CoreFile, registers: dict[str, int], with_pystack: bool) -> Snapshot:
    begun = time.monotonic()
    images = list_images(core.rows)
    python = find_python(core.executable, images)
    own = OwnFrames(core.crashed.tid, registers, core.rows, images, core.read, core.machine)
    step, threads, tools = own.join(*_take_stacks(core, images, python, with_pystack))
    return Snapshot(
        pid=core.pid or core.crashed.tid,
        step=step,
        threads=threads,
        tools=tools,
        images=images,
        mappings=list_mappings(core.rows),
        open_files=(),
        rss_bytes=None,
        peak_rss_bytes=None,
        threads_total=len(core.threads),
        shm_free_bytes=None,
        executable=core.executable,
        packages={},
        gaps=(*stack_gaps(step, tools), *own.gaps(threads)),
        seconds=time.monotonic() - begun,
        sighting=look_at_memory(core.pid or core.crashed.tid, core.rows, core.executable, core.read),
        owners_sought=False,
    )


def _take_stacks(
    core: CoreFile, images: tuple[Image, ...], python: str | None, with_pystack: bool
) -> tuple[Step, tuple[CrashThread, ...], tuple[ToolRun, ...]]:
    """pystack reads what is a Python; gdb the rest, and what pystack could not: its native frames."""
    places = Places(images, core.read)
    tools: list[ToolRun] = []
    executable = core.executable
    if python and executable and with_pystack:
        for mode, step in (("ALL", "native-all"), ("PYTHON", "native")):
            threads, overdue = _ask_pystack(core, executable, mode, places, tools)
            if any(thread.frames for thread in threads if thread.crashed):
                return ("native-all" if step == "native-all" else "native"), threads, tuple(tools)
            if overdue:
                break  # the other mode would take as long
    if executable and (threads := _ask_gdb(core, executable, places, tools)):
        return ("native" if python else "native-all"), threads, tuple(tools)
    return "raw", (), tuple(tools)


def _ask_pystack(
    core: CoreFile, executable: str, mode: str, places: Places, tools: list[ToolRun]
) -> tuple[tuple[CrashThread, ...], bool]:
    begun = time.monotonic()
    said = fork_tool(lambda: print_answer(read_core_threads(str(core.path), executable, mode)), _DEADLINE_S)
    name = "pystack native-all core" if mode == "ALL" else "pystack native core"
    threads, error = _read(said, places, name, core.crashed.tid, read_engine)
    tools.append(ToolRun(name, round(time.monotonic() - begun, 4), error, said.pid))
    return threads, said.overdue


def _read(
    said: Said, places: Places, name: str, tid: int, read: Callable[..., Iterator[tuple[CrashThread, str | None]]]
) -> tuple[tuple[CrashThread, ...], str | None]:
    if said.error is not None:
        return (), said.error
    try:
        told = list(read(said.output, places, name))
    except Unreadable as error:
        return (), f"its answer cannot be read: {error}"
    notes = "; ".join(note for _, note in told if note)
    return tuple(_finish(thread, tid) for thread, _ in told), notes or None


def _finish(thread: CrashThread, tid: int) -> CrashThread:
    frames = strip_own_frames(thread.frames, str(native.LIBRARY))
    return structs.replace(thread, frames=frames, crashed=thread.tid == tid)


def _ask_gdb(core: CoreFile, executable: str, places: Places, tools: list[ToolRun]) -> tuple[CrashThread, ...]:
    begun = time.monotonic()
    said = ask_gdb([executable, str(core.path)], _DEADLINE_S)
    threads, error = _read(said, places, "gdb core", core.crashed.tid, read_gdb)
    has_frames = any(thread.frames for thread in threads if thread.crashed)
    error = error or (None if has_frames else "no frames")
    tools.append(ToolRun("gdb core", round(time.monotonic() - begun, 4), error, said.pid))
    return threads if has_frames else ()
