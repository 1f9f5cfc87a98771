"""Where a CPython process keeps its GIL, also if its functions have no names: in `_PyRuntime`, an exported name. Linux.

Read from the process's own memory, so that the file may be replaced, or in a container. Stops nothing. Says nothing of
who holds the GIL. The only condition variables in there are the GIL's, from 3.9 on (Python/ceval_gil.c): every other
lock of the runtime is allocated apart, or parks on the waiter's stack (3.13). An interpreter with a GIL of its own
has it elsewhere: of that one only the names of its functions tell.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from harness.capture.files.formats.elf import Elf
from harness.capture.files.images import PYTHON_FILE, list_images
from harness.capture.stacks.cpython.process_memory import Memory
from harness.evidence.crash import Image

_PROC = Path("/proc")


def find_runtime_states(pid: int, proc: Path = _PROC) -> tuple[range, ...]:
    """The addresses of each `_PyRuntime`; none where there is no CPython, or it may not be read."""
    try:
        memory = Memory(pid, proc)
    except OSError:
        return ()
    try:
        pythons = [image for image in list_images(memory.rows) if PYTHON_FILE.search(image.path)]
        return tuple(state for image in pythons for state in _read_state(memory, image))
    finally:
        memory.close()


def _read_state(memory: Memory, image: Image) -> Iterator[range]:
    base = int(image.base, 16)
    try:
        elf = Elf.of_memory(memory.read, base, int(image.end, 16) - base)
        if symbol := elf.find(b"_PyRuntime"):
            start = symbol.address + elf.bias
            yield range(start, start + symbol.size)
    except (ValueError, struct.error):
        return
