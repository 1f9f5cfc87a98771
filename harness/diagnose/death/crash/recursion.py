"""Who recurses: of a stack that ran over, the code that comes again and again, not the last small function it called.

Pure: reads the innermost frames of one thread.
"""

from __future__ import annotations

from collections import Counter

from harness.diagnose.plumbing import is_interpreter, is_plumbing, plain_function
from harness.evidence.crash import CrashFrame

# A function that is on a stack three times, within as many frames as are kept of a deep one, recurses.
_TIMES = 3


def find_recurring(frames: tuple[CrashFrame, ...], standard: frozenset[str]) -> CrashFrame | None:
    """The innermost native frame that recurs: one of an extension, else of a library in `standard`, else Python's own.

    `standard`: images that come with the interpreter. Null: nothing recurs in what was read.
    """
    native = [frame for frame in frames if frame.kind == "native" and frame.image and not frame.guessed]
    counts = Counter(map(_name, native))
    recurring = [frame for frame in native if counts[_name(frame)] >= _TIMES and not is_plumbing(frame)]
    return min(recurring, key=lambda frame: _rank(frame, standard), default=None)


def _name(frame: CrashFrame) -> tuple[str | None, str | None]:
    return frame.image, plain_function(frame) or frame.offset


def _rank(frame: CrashFrame, standard: frozenset[str]) -> int:
    if is_interpreter(frame.image):
        return 2
    return 1 if frame.image in standard else 0
