"""Near-miss: MemoryError and ENOSPC are caught and logged with their tracebacks, then the program chooses sys.exit(1).
The output ends like that of an uncaught MemoryError; the interpreter itself says that nothing was uncaught."""

import errno
import os
import sys
import traceback

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["exit status 1"],
}
CONTROL = {"kind": "clean", "exit": 0}


def save_checkpoint():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def load_bank():
    raise MemoryError("Unable to allocate 2.21 GiB")


def run():
    for step in (save_checkpoint, load_bank):
        try:
            step()
        except (MemoryError, OSError):
            traceback.print_exc()
    return 1


sys.exit(0 if "--control" in sys.argv else run())
