"""Which processes are harness itself, by their command line or name: a command, a supervisor, a relay of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from harness.capture.proc import read_argv, read_stat


def is_harness(pid: int) -> bool:
    """A command, a supervisor or a relay of ours: it is nobody's job, and what it reads and writes no progress."""
    named = names_harness(read_argv(pid))
    with contextlib.suppress(OSError):
        return named or read_stat(pid).name in ("output-relay", "output-holder", "signals-of")
    return named


def names_harness(argv: Sequence[str]) -> bool:
    return any(Path(word).name == "harness" for word in argv[:2]) or tuple(argv[1:3]) == ("-m", "harness")
