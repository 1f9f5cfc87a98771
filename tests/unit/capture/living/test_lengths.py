"""Whether what stands at an address has an end: of this very process, whose objects are known."""

from __future__ import annotations

import itertools
import os
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.capture.living.source.lengths import has_end

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Rows:
    def __len__(self) -> int:
        return 3


class MoreRows(Rows):
    pass


class Stream:
    def __iter__(self) -> Iterator[int]:
        return itertools.count()


tqdm = type("tqdm", (Rows,), {})


def endless() -> Iterator[int]:
    while True:
        yield 1


@pytest.mark.parametrize(
    "one",
    [[1], (1, 2), {"a": 1}, {1}, "text", b"bytes", range(3), array("i", [1]), {"a": 1}.items(), Rows(), MoreRows()],
    ids=lambda one: type(one).__name__,
)
def test_what_has_a_length_has_an_end(one: Any) -> None:
    assert has_end(os.getpid(), id(one))


def test_a_file_has_an_end() -> None:
    with Path(__file__).open() as text, Path(__file__).open("rb") as binary:
        assert has_end(os.getpid(), id(text)) and has_end(os.getpid(), id(binary))


@pytest.mark.parametrize(
    "one",
    [endless(), enumerate(endless()), itertools.cycle([1]), map(str, [1]), zip([1]), Stream(), 7, None, tqdm()],
    ids=lambda one: type(one).__name__,
)
def test_what_only_gives_the_next_one_is_not_shown_to_have(one: Any) -> None:
    """A bar has a length whatever it goes through."""
    assert not has_end(os.getpid(), id(one))


def test_no_object_shows_nothing() -> None:
    assert not has_end(os.getpid(), 8) and not has_end(1 << 22, id(endless))
