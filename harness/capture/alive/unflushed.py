"""What a living process has printed but not flushed, by way of a probe that reads its memory.

Does not stop the process, and reads nothing of it here: whatever the probe meets, it meets in a child.
"""

from __future__ import annotations

import subprocess
import sys

import msgspec

from harness.capture.payload import payload
from harness.evidence.gap import Gap
from harness.evidence.unflushed import Unflushed

_DEADLINE_S = 10.0
_WHAT = "output not flushed"


class _Answer(msgspec.Struct):
    streams: tuple[Unflushed, ...]
    why: str | None


def read_unflushed(pid: int) -> tuple[tuple[Unflushed, ...], Gap | None]:
    """A gap beside streams: these are exact, but there may be others."""
    try:
        child = subprocess.run(
            [sys.executable, "-I", "-S", str(payload("probes/unflushed.py")), str(pid)],
            capture_output=True,
            timeout=_DEADLINE_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        answer = msgspec.json.decode(child.stdout, type=_Answer)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        return (), Gap(what=_WHAT, why=str(error))
    return answer.streams, Gap(what=_WHAT, why=answer.why) if answer.why else None
