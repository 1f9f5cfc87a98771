"""What holds for every test: no record that an OpenMP runtime left behind in a dead process, no timed examples."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


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
