"""Guard pages that are no mapping of their own: glibc 2.42 and later make them below every thread's stack."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.capture.files.guards import show_guard
from harness.capture.files.images import read_mappings
from harness.evidence.crash import Mapping

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux and its /proc")

PAGE = mmap.PAGESIZE
MADV_GUARD_INSTALL = 102  # <asm-generic/mman-common.h>, Linux 6.13


def find(mappings: tuple[Mapping, ...], address: int) -> Mapping:
    return next(one for one in mappings if int(one.start, 16) <= address < int(one.end, 16))


@pytest.fixture
def guarded() -> Iterator[int]:
    """The address of eight pages of our own, of which the third and the fourth are guards."""
    memory = mmap.mmap(-1, 8 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.madvise(ctypes.c_void_p(start + 2 * PAGE), ctypes.c_size_t(2 * PAGE), MADV_GUARD_INSTALL):
        pytest.skip(f"needs Linux 6.13: {os.strerror(ctypes.get_errno())}")
    with Path("/proc/self/pagemap").open("rb", buffering=0) as file:
        if not os.pread(file.fileno(), 8, (start + 2 * PAGE) // PAGE * 8)[7] & 4:
            pytest.skip("needs Linux 6.15, whose pagemap shows guard pages")
    yield start
    memory.close()


def test_a_guard_is_shown_as_memory_without_access(guarded: int) -> None:
    before = read_mappings(os.getpid())
    shown = show_guard(os.getpid(), before, guarded + 3 * PAGE + 5)
    guard = find(shown, guarded + 3 * PAGE)
    assert guard.permissions == "---p"
    assert (int(guard.start, 16), int(guard.end, 16)) == (guarded + 2 * PAGE, guarded + 4 * PAGE)
    around = find(before, guarded)
    assert find(shown, guarded).permissions == find(shown, guarded + 4 * PAGE).permissions == around.permissions
    assert (find(shown, guarded).start, find(shown, guarded + 7 * PAGE).end) == (around.start, around.end)


@pytest.mark.parametrize("page", [1, 4])
def test_the_page_beside_a_guard_is_none(guarded: int, page: int) -> None:
    before = read_mappings(os.getpid())
    assert show_guard(os.getpid(), before, guarded + page * PAGE) == before


def test_no_mapping_and_no_process_is_no_error() -> None:
    before = read_mappings(os.getpid())
    assert show_guard(os.getpid(), before, 8) == before
    assert show_guard(2**22 + 1, before, int(before[0].start, 16)) == before
