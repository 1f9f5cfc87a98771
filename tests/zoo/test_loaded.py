"""The same verdicts when the machine is loaded: the scenarios of which a rule, or a look, once depended on time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.literals import SCENARIOS
from tests.zoo.judging import run_and_check
from tests.zoo.load import busy_machine

ON_TIME = (
    "cpp_exception_slow_handler",
    "cpp_exception_thread",
    "exit_after_caught_memory_error",
    "killed_from_outside",
    "native_stack_overflow_main",
    "native_two_threads",
    "oom_kill_control_group",
    "python_exception_after_handled_pool_loss",
    "python_exception_slow_teardown",
    "python_exception_then_helper_segfaults",
    "ranks_first_exits",
    "ranks_first_raises",
    "terminated_sigterm",
    "worker_killed",
    "worker_pool_fork_segfault",
    "worker_pool_spawn_segfault",
)


@pytest.fixture(scope="module", autouse=True)
def loaded() -> Iterator[None]:
    with busy_machine():
        yield


@pytest.mark.parametrize("name", ON_TIME)
def test_verdict(name: str, tmp_path: Path, built: Path) -> None:
    run_and_check(SCENARIOS / f"{name}.py", sys.executable, "fault", "preload", tmp_path, built)
