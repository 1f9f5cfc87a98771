"""Fixtures of the live tests; what they hand out is in processes.py."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live.processes import Harness, Terminal

TEST_DEADLINE_S = 60


@pytest.fixture(autouse=True)
def deadline(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that waits for what never comes fails, where it waits. A module may have a TEST_DEADLINE_S of its own."""
    seconds = getattr(request.module, "TEST_DEADLINE_S", TEST_DEADLINE_S)

    def give_up(signo: int, frame: object) -> None:
        pytest.fail(f"not over within {seconds} s")

    previous = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    running = Harness(tmp_path)
    yield running
    running.end_what_is_left()


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], list[str]]:
    """Turns Python source into the words that run it."""

    def write(source: str, name: str = "job.py") -> list[str]:
        path = tmp_path / name
        path.write_text(source)
        return [sys.executable, str(path)]

    return write


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A FIFO a command waits at by reading it; `open_gate` lets it go on."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.end_what_is_left()


@pytest.fixture
def new_terminal() -> Iterator[Callable[[], Terminal]]:
    """For tests that compare two runs: each gets a terminal of its own."""
    made: list[Terminal] = []

    def make() -> Terminal:
        made.append(Terminal())
        return made[-1]

    yield make
    for one in made:
        one.end_what_is_left()
