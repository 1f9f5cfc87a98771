"""Where a word stands in the memory of a process, which tells where it has put it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.capture.stacks.cpython.process_memory import Memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux and its /proc")

WORDS = (0x5EA4C4ED00000001, 0x5EA4C4ED00000002)
SOURCE = f"""
import ctypes, struct
buffer = ctypes.create_string_buffer(8 << 20)
start = ctypes.addressof(buffer) + -ctypes.addressof(buffer) % 8
places = range(start + 4096, start + (8 << 20), 2 << 20)
for place in places:
    ctypes.memmove(place, struct.pack("<QQ", *{WORDS}), 16)
print(*places, flush=True)
input()
"""


def test_a_search_inside_a_search_takes_nothing_away_from_it() -> None:
    """The inner one reads on to the end, beyond where the outer one is."""
    command = [sys.executable, "-c", SOURCE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        places = set(map(int, process.stdout.readline().split()))
        memory = Memory(process.pid)
        search = memory.find(WORDS[0])
        first = next(search)
        inner = set(memory.find(WORDS[1]))
        outer = {first, *search}
        memory.close()
        process.kill()
    assert places <= outer
    assert {place + 8 for place in places} <= inner
