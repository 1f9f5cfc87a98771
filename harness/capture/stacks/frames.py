"""The frames of a thread as tools tell them, made one: native and Python merged, placed in images, ours taken out.

Pure but for two questions to the target's memory (the signal trampoline, the loop of the interpreter). Runs no tool.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct, structs

from harness.capture.stacks.cpython.evaluating import Evaluators
from harness.evidence.crash import CrashFrame, CrashThread, Image
from harness.evidence.text.answers import decode_json
from harness.evidence.text.numbers import read_number

_C_LIBRARY = re.compile(r"(libc|libpthread|ld-linux|ld-musl|ld)[-.]")
_DECORATION = re.compile(
    r"(?:@@?[A-Za-z0-9_.]+| \[clone [^]]+\]|(?:\.(?:constprop|isra|part|cold|lto_priv|llvm|localalias)(?:\.\d+)*)+)*"
    r"(?: \(inlined\))?$"
)
_NO_NAME = ("", "???")
_NO_FILE = ("[", "linux-vdso")  # code of the kernel's, which is no image
# What is kept of a deep stack: the recursion shows in the innermost frames, where it began in the outermost, and what
# was asked of it where Python comes in.
_INNERMOST, _AROUND, _OUTERMOST = 200, 20, 50
_UNMERGED = "native and Python frames of thread {} could not be merged"
SIGNAL_FRAME = "__restore_rt"
_TRAMPOLINES = {SIGNAL_FRAME, "__restore", "__kernel_rt_sigreturn", "__default_rt_sa_restorer", "_sigtramp"}
# What a trampoline is made of, the way gdb and libgcc know it: in a stripped libc it has no name.
SIGRETURN = {
    "x86_64": bytes.fromhex("48c7c00f0000000f05"),  # mov $__NR_rt_sigreturn, %rax; syscall
    "aarch64": struct.pack("<II", 0xD2801168, 0xD4000001),  # mov x8, #__NR_rt_sigreturn; svc #0
}


class NativeFrame(Struct, frozen=True):
    """As pystack's engine tells it. `evaluates`: this frame runs Python frames."""

    address: int
    symbol: str
    file: str
    line: int
    image: str
    evaluates: bool = False


class PythonFrame(Struct, frozen=True):
    """`entry`: the outermost that its evaluating native frame runs. `shim`: made by the interpreter, nobody's code."""

    function: str
    file: str
    line: int
    entry: bool = False
    shim: bool = False


class EngineThread(Struct, frozen=True):
    """Outermost frame first.

    `whole`: the native frames reach the thread's beginning. `torn`: it went on between the two readings.
    """

    tid: int
    name: str | None
    native: tuple[NativeFrame, ...]
    python: tuple[PythonFrame, ...]
    python_state: bool | None = None
    holds_gil: bool | None = None
    whole: bool = True
    torn: bool = False


class SpyFrame(Struct, frozen=True):
    """`module` is the image of a native frame, null for a Python one. An unnamed one has its address for a name."""

    name: str
    filename: str
    line: int
    module: str | None = None


class SpyThread(Struct, frozen=True):
    """Innermost frame first."""

    frames: tuple[SpyFrame, ...]
    os_thread_id: int | None = None
    thread_name: str | None = None


class Places:
    """Which image holds an address, by where it is loaded: two copies of a library may share a path."""

    def __init__(self, images: Iterable[Image], read: Callable[[int, int], bytes] | None = None) -> None:
        """`read` gives the bytes at an address, as many as there are."""
        self._images = sorted(images, key=lambda image: int(image.base, 16))
        self._bases = [int(image.base, 16) for image in self._images]
        self._read = read
        self._code = None if read is None else SIGRETURN.get(os.uname().machine)
        self._known: dict[int, bool] = {}
        self._evaluators = None if read is None else Evaluators(read)

    @property
    def known(self) -> bool:
        """False: the images could not be read, and what is in none of them says nothing."""
        return bool(self._images)

    def find(self, address: int) -> Image | None:
        at = bisect_right(self._bases, address) - 1
        return self._images[at] if at >= 0 and address < int(self._images[at].end, 16) else None

    def evaluates(self, address: int) -> bool:
        """Whether a frame without a name is in the interpreter's loop."""
        return self._evaluators is not None and self._evaluators.evaluates(address, self.find(address))

    def holds_trampoline(self, address: int) -> bool:
        if self._read is not None and self._code is not None and address not in self._known:
            self._known[address] = self._read(address, len(self._code)) == self._code
        return self._known.get(address, False)


def read_memory(pid: int) -> Callable[[int, int], bytes]:
    """Of a living process."""

    def read(address: int, length: int) -> bytes:
        try:
            with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
                return os.pread(memory.fileno(), length, address)
        except (OSError, OverflowError):
            return b""  # not allowed, or nothing there: then only its name can tell

    return read


def read_engine(output: bytes, places: Places, source: str) -> Iterator[tuple[CrashThread, str | None]]:
    """What the pystack child printed: each thread, and what is wrong with it. Unreadable."""
    for thread in decode_json(output, list[EngineThread]):
        frames, merged = merge_frames(thread, places)
        note = None if merged else _UNMERGED.format(thread.tid)
        state, gil = thread.python_state, thread.holds_gil
        yield CrashThread(thread.tid, thread.name, False, fold(frames), source, state, gil), note


class _Walked(Struct, frozen=True):
    threads: tuple[EngineThread, ...]
    notes: tuple[str, ...] = ()


def read_walk(output: bytes, places: Places, source: str) -> Iterator[tuple[CrashThread, str | None]]:
    """What own_walk printed. Unreadable."""
    walked = decode_json(output, _Walked)
    for index, thread in enumerate(walked.threads):
        frames, merged = merge_frames(thread, places)
        notes = [*(walked.notes if index == 0 else ()), *([] if merged else [_UNMERGED.format(thread.tid)])]
        state, gil = thread.python_state, thread.holds_gil
        yield CrashThread(thread.tid, thread.name, False, fold(frames), source, state, gil), "; ".join(notes) or None


def read_spy(output: bytes, places: Places, source: str) -> Iterator[tuple[CrashThread, str | None]]:
    """What `py-spy dump --json` printed. Unreadable."""
    for thread in decode_json(output, list[SpyThread]):
        frames = tuple(_spy_frame(frame, places) for frame in thread.frames)
        yield CrashThread(thread.os_thread_id or 0, thread.thread_name, False, fold(frames), source), None


def merge_frames(thread: EngineThread, places: Places) -> tuple[tuple[CrashFrame, ...], bool]:
    """Innermost first, each evaluating native frame replaced by the Python frames it runs; false: could not merge.

    The rule of pystack/traceback_formatter.py: as many evaluating frames as entry frames, else nobody can tell which
    runs which. Unlike there no native frame is left out, and an evaluating frame that was itself interrupted stays.
    Where the outer native frames are not known, the inner ones run the inner Python frames.
    """
    runs = _split_at_entries(thread.python)
    natives = [place_native(frame, places) for frame in thread.native]
    evaluating = _list_evaluating(thread.native, places, len(runs))
    outer = len(runs) - sum(evaluating)
    if thread.torn or outer < 0 or (outer and thread.whole):
        pythons = [frame for run in runs for frame in run]
        return (*reversed(natives), *reversed(pythons)), thread.torn or not (natives and pythons)
    merged = [frame for run in runs[:outer] for frame in run]
    next_run = iter(runs[outer:])
    for index, (evaluates, frame) in enumerate(zip(evaluating, natives, strict=True)):
        if evaluates:
            merged += next(next_run)
        if not evaluates or _is_innermost(natives[index + 1 : index + 2]):
            merged.append(frame)
    return tuple(reversed(merged)), True


def _list_evaluating(natives: Sequence[NativeFrame], places: Places, runs: int) -> list[bool]:
    """By their names; where those are too few, also the frames that have none."""
    found = [frame.evaluates for frame in natives]
    if sum(found) >= runs:
        return found
    return [
        known or (frame.symbol in _NO_NAME and places.evaluates(frame.address))
        for known, frame in zip(found, natives, strict=True)
    ]


def fold(frames: tuple[CrashFrame, ...]) -> tuple[CrashFrame, ...]:
    """The same stack without the inside of an endless recursion; how much is missing is told where it is missing."""
    count = len(frames)
    if count <= _INNERMOST + _AROUND + _OUTERMOST:
        return frames
    kept = {*range(_INNERMOST), *range(count - _OUTERMOST, count)}
    python = next((index for index, frame in enumerate(frames) if frame.kind == "python"), count)
    kept |= {*range(max(0, python - 1), min(count, python + _AROUND))}
    order = sorted(kept)
    return tuple(
        structs.replace(frames[index], omitted=after - index - 1) if after - index > 1 else frames[index]
        for index, after in zip(order, [*order[1:], count], strict=True)
    )


def _split_at_entries(frames: Sequence[PythonFrame]) -> list[list[CrashFrame]]:
    runs: list[list[CrashFrame]] = []
    for frame in frames:
        if frame.entry or not runs:
            runs.append([])
        if not frame.shim:
            runs[-1].append(CrashFrame("python", frame.function, frame.file, frame.line))
    return runs


def _is_innermost(inner: list[CrashFrame]) -> bool:
    """The program was here: what follows, if anything, is a signal handler."""
    return not inner or is_trampoline(inner[0])


def place_native(frame: NativeFrame, places: Places) -> CrashFrame:
    image = places.find(frame.address)
    function = clean_symbol(frame.symbol)
    path: str | None = image.path if image else frame.image
    if image is None and (frame.image in _NO_NAME or (places.known and not frame.image.startswith(_NO_FILE))):
        # In no image that is loaded: a tool then tells the one that is next to it, whatever that is.
        path = function = None
    if (path is None or _is_c_library(path)) and places.holds_trampoline(frame.address):
        function = SIGNAL_FRAME
    known = frame.line > 0
    return CrashFrame(
        kind="native",
        function=function,
        file=frame.file if known else None,
        line=frame.line if known else None,
        image=path,
        offset=hex(frame.address - int(image.base, 16)) if image else None,
        address=hex(frame.address),
    )


@lru_cache(maxsize=4096)
def clean_symbol(symbol: str) -> str | None:
    """The function's own name: no symbol version, no mark of the compiler's copy of it, no "(inlined)"."""
    return None if symbol in _NO_NAME else _DECORATION.sub("", symbol)


def _spy_frame(frame: SpyFrame, places: Places) -> CrashFrame:
    if frame.module is None:
        # py-spy gives the qualified name where it can; the others do not.
        return CrashFrame("python", frame.name.rpartition(".")[2], frame.filename, frame.line)
    if frame.name.startswith("0x"):
        return place_native(NativeFrame(read_number(frame.name, 16), "", "", 0, frame.module), places)
    file, line = (frame.filename, frame.line) if frame.line > 0 else (None, None)
    return CrashFrame("native", clean_symbol(frame.name), file, line, frame.module)


def strip_own_frames(frames: Sequence[CrashFrame], our_library_path: str) -> tuple[CrashFrame, ...]:
    """Innermost first, without our handler, what it called in libc, and the trampoline that called it.

    Again as long as that holds: a thread can be parked while it waits in a crash of its own. Our library's frames
    further out are real and stay: it also starts threads, and calls the handlers of others.
    """
    rest = tuple(frames)
    while length := _handler_length(rest, our_library_path):
        rest = rest[length:]
    return rest


def _handler_length(frames: Sequence[CrashFrame], ours: str) -> int:
    seen_ours = False
    for index, frame in enumerate(frames):
        if is_trampoline(frame):
            return index + 1 if seen_ours else 0
        if frame.kind == "python" or frame.image is None:
            return 0
        if frame.image == ours:
            seen_ours = True
        elif not _is_c_library(frame.image):
            return 0
    return 0


def is_trampoline(frame: CrashFrame) -> bool:
    return frame.kind == "native" and frame.function in _TRAMPOLINES


def _is_c_library(path: str) -> bool:
    return bool(_C_LIBRARY.match(path.rpartition("/")[2]))
