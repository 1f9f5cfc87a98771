"""The variables that steer OpenMP and BLAS runtimes in a running process, as it started and as they are now. Linux.

/proc/PID/environ is what the process was started with; what it has set since (`os.environ[…] = …`) is found where libc
keeps it. Settings are kept by allow-list, and nothing else of the environment.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from harness.evidence.openmp import Setting

STARTED_WITH = "environment"
SET_SINCE = "environment, set by the process itself"
_PREFIXES = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "GOTO_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_LOADER = ("LD_PRELOAD", "LD_LIBRARY_PATH")  # they decide which copy is loaded
_PROC = Path("/proc")
_MOST_VARIABLES = 4096
_LONGEST = 4096


def steers(name: str) -> bool:
    """Whether a variable is one of those."""
    return name.startswith(_PREFIXES) or name in _LOADER


def read_settings(pid: int, now: list[bytes] | None, proc: Path = _PROC) -> tuple[Setting, ...]:
    """`now`: what `read_variables` found, null when it could not look."""
    started = _keep_settings((proc / str(pid) / "environ").read_bytes().split(b"\0"))
    return tuple(
        Setting(name, value, STARTED_WITH if started.get(name) == value else SET_SINCE)
        for name, value in sorted((started if now is None else _keep_settings(now)).items())
    )


def _keep_settings(entries: list[bytes]) -> dict[str, str]:
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries)
    return {name: value for name, _, value in pairs if steers(name)}


def read_variables(read: Callable[[int, int], bytes], environ: int) -> list[bytes]:
    """All that are set now, from the array that `environ` points to. OSError, struct.error: it cannot be read."""
    (array,) = struct.unpack("<Q", read(environ, 8))
    entries = []
    for number in range(_MOST_VARIABLES):
        (entry,) = struct.unpack("<Q", read(array + 8 * number, 8))
        if not entry:
            break
        entries.append(_read_text(read, entry))
    return entries


def _read_text(read: Callable[[int, int], bytes], address: int) -> bytes:
    """To the zero byte, and not past the page that it is in unless it goes on there."""
    text = b""
    while len(text) < _LONGEST:
        piece = read(address + len(text), 4096 - (address + len(text)) % 4096)
        text += piece
        if b"\0" in piece or not piece:
            break
    return text.partition(b"\0")[0]
