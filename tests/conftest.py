"""What holds for every test: no record that an OpenMP runtime left behind in a dead process, no timed examples, and
that what a test starts begins with no signal ignored."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def stop_ignoring_signals() -> None:
    """Under nohup SIGHUP is ignored, in the background of a script SIGINT and SIGQUIT, and children inherit that.

    A handler that does nothing keeps us as deaf, and is reset when a child is executed. xdist's workers are such
    children: they are to survive a closed terminal if the one that started them does, and end with it if not.
    """
    for signo in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        deaf = signal.getsignal(signo) == signal.SIG_IGN
        if deaf or (signo == signal.SIGHUP and "PYTEST_XDIST_WORKER" in os.environ):
            signal.signal(signo, lambda signo, frame: None)


stop_ignoring_signals()


@pytest.fixture(scope="module", autouse=True)
def no_stale_records() -> Iterator[None]:
    """LLVM's runtime finds them by pid: one of an earlier process with the same pid makes it stop with Error #15."""
    remove_stale_records()
    yield
    remove_stale_records()


def remove_stale_records() -> None:
    for record in Path("/dev/shm").glob(f"__KMP_REGISTERED_LIB_*_{os.getuid()}"):
        pid = record.name.split("_")[-2]
        if not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                record.unlink()
