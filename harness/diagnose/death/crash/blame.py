"""Who did it: the image that faulted, the component behind it, the Python line above it, the thread it was on.

Pure: reads one crash. What kind of death it was, and whether this crash is the cause of it, is decided elsewhere.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from harness.diagnose.death.crash.address import describe_fault
from harness.diagnose.death.crash.damage import find_notice, lacks_gil
from harness.diagnose.death.crash.jit import JIT, is_jit, mark_jit
from harness.diagnose.death.crash.recursion import find_recurring
from harness.diagnose.frames import (
    find_component_frame,
    find_crossing,
    innermost_user_frame,
    is_openmp_function,
    list_python_frames,
)
from harness.diagnose.plumbing import (
    INHERITED_NAME,
    is_exit,
    is_ours,
    is_plumbing,
    is_trampoline,
    shorten_function,
    symbol_of,
)
from harness.diagnose.signature import sign_stack
from harness.documents.verdict import Component, Frame
from harness.evidence.crash import Crash, CrashFrame, CrashThread, Image
from harness.evidence.run import name_signal

_PIN_MEMORY = re.compile(r"pin_memory|pt_data_pin")


class Blame(NamedTuple):
    """`frames_below`: native and Python frames of the crashed thread, merged, from the program counter outwards.

    `component_frame` is the frame `component` was read from: it has the offset. `context_frame`: where the main thread
    was, when the crashed one had no Python frame. `noticed`: the function that came upon damage done earlier; there is
    no component then. `without_gil`: it was in the interpreter's code, on a thread that did not hold the GIL.
    """

    faulting_image: Component | None
    component: Component | None
    component_frame: CrashFrame | None
    python_frames: tuple[Frame, ...]
    user_frame: Frame | None
    context_frame: Frame | None
    thread_name: str | None
    signature: str | None
    frames_below: tuple[CrashFrame, ...]
    noticed: CrashFrame | None = None
    without_gil: bool = False


def blame(crash: Crash) -> Blame:
    thread = crashed_thread(crash)
    frames = tuple(mark_jit(crash, frame) for frame in _frames_from_pc(crash, thread))
    python_frames = list_python_frames(frames)
    signame = name_signal(crash.signo)
    overflowed = describe_fault(crash).kind_hint == "guard-page"
    without_gil = not overflowed and lacks_gil(crash, thread, frames)
    noticed = None if overflowed or without_gil else find_notice(frames, signame)
    relevant = _below_handler(frames)
    culprit = None if noticed else _find_recursing(crash, frames) if overflowed else find_component_frame(relevant)
    return Blame(
        faulting_image=_faulting_image(crash, frames),
        component=_component(crash, culprit) if culprit else None,
        component_frame=culprit,
        python_frames=python_frames,
        user_frame=innermost_user_frame(python_frames),
        context_frame=None if python_frames else _context_frame(crash),
        thread_name=_thread_name(crash, thread),
        signature=sign_stack(signame, frames),
        frames_below=frames,
        noticed=noticed,
        without_gil=without_gil,
    )


def crashed_thread(crash: Crash) -> CrashThread | None:
    candidates = [thread for thread in crash.threads if thread.tid == crash.tid]
    candidates += [thread for thread in crash.threads if thread.crashed]
    return next(iter(candidates), None)


def describe_thread(crash: Crash) -> str:
    """For "… on X": the main thread, an OpenMP worker, thread NAME."""
    if crash.tid == crash.pid:
        return "the main thread"
    thread = crashed_thread(crash)
    if thread is not None and _is_openmp_worker(crash, thread):
        return "an OpenMP worker"
    name = thread.name if thread else None
    if name is None or INHERITED_NAME.fullmatch(name):
        return f"thread {crash.tid}"
    return "a DataLoader pin-memory thread" if _PIN_MEMORY.search(name) else f"thread {name}"


def crosses_openmp(crash: Crash) -> tuple[Image, Image] | None:
    """The (calling, called) OpenMP images, when on the crashed stack one copy calls straight into another.

    Two copies with other code between them are nested regions, which work: not a crossing.
    """
    thread = crashed_thread(crash)
    images = [find_image(crash, frame) for frame in _carried(thread.frames)] if thread else []
    crossing = find_crossing([image.base if image else None for image in images], _openmp_bases(crash))
    by_base = {image.base: image for image in images if image}
    return (by_base[crossing[0]], by_base[crossing[1]]) if crossing else None


def _carried(frames: tuple[CrashFrame, ...]) -> list[CrashFrame]:
    return [frame for frame in frames if not is_plumbing(frame)]


def find_image(crash: Crash, frame: CrashFrame) -> Image | None:
    """By address; by path only where a single image has it: two copies are told apart by their base."""
    if frame.kind == "python":
        return None
    if frame.address is not None and (image := _image_at(crash, frame.address)):
        return image
    named = [image for image in crash.images if frame.image is not None and image.path == frame.image]
    return named[0] if len(named) == 1 else None


def _image_at(crash: Crash, address: str) -> Image | None:
    number = int(address, 16)
    return next((image for image in crash.images if int(image.base, 16) <= number < int(image.end, 16)), None)


def _frames_from_pc(crash: Crash, thread: CrashThread | None) -> tuple[CrashFrame, ...]:
    """What a tool read, without what stands above the fault; the raw return addresses where no tool could."""
    frames = tuple(frame for frame in thread.frames if not is_ours(frame)) if thread else ()
    if not any(frame.kind == "native" for frame in frames):
        return (*_raw_frames(crash), *frames)
    at_pc = [
        index for index, frame in enumerate(frames) if frame.address and int(frame.address, 16) == int(crash.pc, 16)
    ]
    if at_pc:
        return frames[at_pc[0] :]
    image = _image_at(crash, crash.pc)
    if image is None and is_jit(crash, crash.pc):
        return (CrashFrame("native", None, address=crash.pc), *frames)
    first = find_image(crash, frames[0])
    if image is None or (first is not None and first.base == image.base) or frames[0].image == image.path:
        return frames
    return (_raw_frame(crash, crash.pc, image), *frames)


def _raw_frames(crash: Crash) -> tuple[CrashFrame, ...]:
    addresses = dict.fromkeys([crash.pc, *crash.raw_frames])
    found = [(address, _image_at(crash, address)) for address in addresses]
    frames = [_raw_frame(crash, address, image) for address, image in found if image]
    compiled = [CrashFrame("native", None, address=crash.pc)] if is_jit(crash, crash.pc) else []
    return (*compiled, *(frame for frame in frames if not is_ours(frame)))


def _raw_frame(crash: Crash, address: str, image: Image) -> CrashFrame:
    """Only where it was is certain; that anything returns to the other addresses is not."""
    offset = hex(int(address, 16) - int(image.base, 16))
    guessed = int(address, 16) != int(crash.pc, 16)
    return CrashFrame("native", None, image=image.path, offset=offset, address=address, guessed=guessed)


def _below_handler(frames: tuple[CrashFrame, ...]) -> tuple[CrashFrame, ...]:
    """Where a handler of its own abort() has faulted, whoever called abort() is what happened."""
    for index, handled in enumerate(frames):
        if is_trampoline(handled) and _calls_exit(frames[index + 1 :]):
            return frames[index + 1 :]
    return frames


def _calls_exit(frames: tuple[CrashFrame, ...]) -> bool:
    """In a stripped C library what raise() calls has no name."""
    named = next((frame for frame in frames if frame.function or frame.image != frames[0].image), None)
    return named is not None and named.image == frames[0].image and is_exit(named)


def _find_recursing(crash: Crash, frames: tuple[CrashFrame, ...]) -> CrashFrame | None:
    """Of a stack that ran over. Whoever happened to touch its end is not it: then callers must have been read."""
    standard = frozenset(
        image.path for image in crash.images if image.owner == "interpreter" or "/lib-dynload/" in image.path
    )
    read = [frame for frame in frames if frame.kind == "native" and not frame.guessed]
    return find_recurring(frames, standard) or (find_component_frame(frames) if len(read) > 1 else None)


def _faulting_image(crash: Crash, frames: tuple[CrashFrame, ...]) -> Component | None:
    """The image holding the program counter; after a jump to nowhere there is none."""
    native = [frame for frame in frames if frame.kind == "native" and frame.image]
    image = _image_at(crash, crash.pc)
    if image is None:
        return Component(None, None, JIT, None) if is_jit(crash, crash.pc) else None
    holds_pc = bool(native) and (native[0].image == image.path or find_image(crash, native[0]) == image)
    return _component(crash, native[0] if holds_pc else _raw_frame(crash, crash.pc, image))


def _component(crash: Crash, frame: CrashFrame) -> Component:
    image = find_image(crash, frame)
    symbol = symbol_of(frame)
    function = shorten_function(symbol) if symbol else f"+{frame.offset}" if frame.offset else None
    if image is None:
        return Component(None, None, frame.image, function)
    return Component(image.distribution, image.version, image.path, function)


def _context_frame(crash: Crash) -> Frame | None:
    if crash.tid == crash.pid:
        return None
    main = next((thread for thread in crash.threads if thread.tid == crash.pid), None)
    return innermost_user_frame(list_python_frames(main.frames)) if main else None


def _thread_name(crash: Crash, thread: CrashThread | None) -> str | None:
    if crash.tid == crash.pid:
        return "MainThread"
    return thread.name if thread else None


def _openmp_bases(crash: Crash) -> frozenset[str]:
    """Runtimes by their content, and the images in which some thread stands in a runtime's function."""
    known = {runtime.place.base for runtime in crash.openmp.runtimes if not runtime.static} if crash.openmp else set()
    frames = (frame for thread in crash.threads for frame in thread.frames if is_openmp_function(frame))
    return frozenset(
        {base for base in known if base} | {image.base for frame in frames if (image := find_image(crash, frame))}
    )


def _is_openmp_worker(crash: Crash, thread: CrashThread) -> bool:
    """A runtime started it. gomp_thread_start is not exported: its frame may have no name, only its image."""
    frames = [frame for frame in thread.frames if not is_plumbing(frame)]
    if not frames or frames[-1].kind == "python":
        return False
    image = find_image(crash, frames[-1])
    return is_openmp_function(frames[-1]) or (image is not None and image.base in _openmp_bases(crash))
