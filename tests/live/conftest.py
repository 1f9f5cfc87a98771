"""Fixtures of the live tests; what they hand out is in processes.py."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.live.processes import Harness, Terminal

TEST_DEADLINE_S = 180  # only what hangs meets it; a machine that does other things as well takes 60 s for some


@contextlib.contextmanager
def deadline(item: pytest.Item) -> Iterator[None]:
    """What waits for what never comes fails, where it waits. A module may have a TEST_DEADLINE_S of its own.

    Around each phase alone: an alarm while pytest writes its report would end the whole session.
    """
    seconds = getattr(getattr(item, "module", None), "TEST_DEADLINE_S", TEST_DEADLINE_S)

    def give_up(signo: int, frame: object) -> None:
        pytest.fail(f"not over within {seconds} s")

    previous = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with deadline(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with deadline(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with deadline(item):
        return (yield)


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
