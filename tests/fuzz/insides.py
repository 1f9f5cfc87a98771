"""Readers of what stands in another process and in its files: names of functions, lines, tasks, buffered output."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import io
import os
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Any

from harness.capture.files.formats.elf import Elf
from harness.capture.files.layout import find_rows, read_layout
from harness.capture.living.locks.lock_objects import read_lock_objects
from harness.capture.living.tasks.coroutines import Coroutines, Torn
from harness.capture.living.tasks.wakers import Task, describe, find_wakers
from harness.capture.living.waits.unix_peers import _read_peer
from harness.capture.stacks.cpython.own_reader import find_line
from harness.capture.stacks.function_names import name_functions
from harness.evidence.crash import Image
from tests.fuzz.answers import WAITING, TornMemory
from tests.fuzz.files import NATIVES
from tests.fuzz.registry import keep, scratch, target

PROBES = Path(__file__).parents[2] / "probes"
BASE = 1 << 32


@target("names of functions", *NATIVES, text=False)
def read_names(data: bytes) -> None:
    """Of a file that is the one that was loaded, and of memory whose file is gone."""
    for path in (str(keep(data, "named.so")), "/nowhere.so"):
        image = Image(path, hex(BASE), hex(BASE + len(data)))
        wanted = set(range(BASE, BASE + len(data), max(64, len(data) // 16)))
        names = name_functions({image: wanted}, lambda at, size: data[max(0, at - BASE) : at - BASE + size], scratch())
        assert names.keys() <= wanted


@target("layout", *NATIVES, text=False)
def read_elf_layout(data: bytes) -> None:
    with Elf(data) as elf:
        read_layout(elf)


RELOCATIONS = b"".join(struct.pack("<QQq", 0x1000 + 8 * row, row << 32 | 6, 0) for row in range(64))


@target("relocations", RELOCATIONS, text=False)
def read_relocations(data: bytes) -> None:
    assert all(number in (3, 7) for _, number in find_rows(data, {3, 7}))


@target("lines of code", *(code.co_linetable for code in (find_line.__code__, keep.__code__)), text=False)
def read_lines(data: bytes) -> None:
    """Whoever reads it takes one that is cut off for one that has changed meanwhile."""
    for offset in (0, 40, 1 << 20):
        with contextlib.suppress(IndexError):
            find_line(data, 1, offset)


PEER = struct.pack("<IHHII", 40, 20, 0, 1, 0) + bytes(16) + struct.pack("<HHI", 8, 2, 4711)


@target("unix sockets", PEER, text=False)
def read_peer(data: bytes) -> None:
    assert data != PEER or _read_peer(data) == 4711
    _read_peer(data)


@cache
def make_tasks() -> tuple[Any, ...]:
    """A gather of two sleeps in a loop that does not run any more, and what keeps all that alive."""
    loop = asyncio.new_event_loop()

    async def rest() -> None:
        await asyncio.gather(asyncio.sleep(1000), asyncio.sleep(1000))

    task = loop.create_task(rest())
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()
    return loop, task, *asyncio.all_tasks(loop)


@target("wakers of tasks", b"", bytes(range(64)), text=False)
def read_wakers(data: bytes) -> None:
    """Of this very process, some words of which are others."""
    objects = Coroutines(TornMemory(data), sys.version_info[1])  # type: ignore[arg-type]
    with contextlib.suppress(Torn):
        chain = objects.follow(id(WAITING))
        tasks = {
            id(one): Task(id(one), "t", chain, id(one), (id(make_tasks), *map(id, make_tasks()[1:])))
            for one in make_tasks()[1:]
        }
        describe(tasks, find_wakers(objects, tasks))


MEMORY = struct.pack("<64Q", *(0x10000 + 8 * (number * 7 % 64) for number in range(64))) * 4
ASLEEP = b"Name:\tx\nState:\tS (sleeping)\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t1\n"


@target("locks", MEMORY, text=False)
def read_locks(data: bytes) -> None:
    """A process whose memory is this, and whose threads 7 and 8 sleep on two words of it."""
    keep(bytes(0x10000) + data, "locks/proc/7/mem")
    keep(f"10000-{0x10000 + 4096:x} rw-p 00000000 00:00 0 \n".encode(), "locks/proc/7/maps")
    for tid in (7, 8):
        keep(ASLEEP, f"locks/proc/7/task/{tid}/status")
    read_lock_objects(7, {7: 0x10010, 8: 0x10110}, {8}, {7, 8}, scratch() / "locks/proc")


@cache
def load_probe() -> Any:
    spec = importlib.util.spec_from_file_location("unflushed", PROBES / "unflushed.py")
    assert spec is not None and spec.loader is not None
    probe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(probe)
    return probe


@cache
def open_streams() -> tuple[Any, ...]:
    return tuple(io.TextIOWrapper(io.BufferedWriter(io.FileIO(os.dup(fd), "w")), "utf-8") for fd in (1, 2))


@cache
def know_interpreter() -> tuple[Any, Any]:
    probe = load_probe()
    memory = probe.Memory(os.getpid())
    return probe, probe.find_image(memory, os.getpid())


@target("buffered output", b"", bytes(range(64)), text=False)
def read_buffers(data: bytes) -> None:
    """The probe, of this very process, some words of which are others."""
    probe, image = know_interpreter()
    torn = TornMemory(data)

    class Memory(probe.Memory):  # type: ignore[misc]
        def __init__(self) -> None:
            self.cut_short = self.is_swapped = False

        def peek(self, address: int, size: int) -> bytes:
            with contextlib.suppress(OSError, OverflowError):
                return torn.read(address, size)
            return b""

    with contextlib.suppress(probe.CouldNot, probe.Moved):
        streams = probe.Streams(probe.Interpreter(Memory(), image))
        streams.recall([id(one) for stream in open_streams() for one in (stream, stream.buffer)])
        probe.read_all(streams)
