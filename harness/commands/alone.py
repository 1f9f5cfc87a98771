"""Runs the command in our own place, as if harness had not been there: the machine refuses what supervision needs.

Loaded with the command line itself, because by then nothing may load any more; it needs no descriptor, no process and
hardly any memory.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import os
import sys
from typing import NoReturn


def run_alone(argv: list[str], reason: str) -> NoReturn:
    """OSError: it cannot be executed. What is ours ends with this program, but for what is put back here."""
    with contextlib.suppress(OSError):
        os.write(2, f"harness: {reason} The command runs without harness.\n".encode())
    for name in ("SIGPIPE", "SIGXFSZ"):  # CPython ignores them for itself
        _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
    os.execvpe(argv[0], argv, _given_environment())


def _given_environment() -> dict[bytes, bytes]:
    """CPython sets LC_CTYPE in its own when the locale is C (PEP 538)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError), open("/proc/self/environ", "rb", buffering=0) as file:  # noqa: PTH123
            pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if pair]
            return {name: value for name, _, value in pairs}
    return dict(os.environb)
