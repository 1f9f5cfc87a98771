"""Near-miss: the name of the exception ends like that of a refused allocation, and its message quotes another kind.
Only a whole name is a name, and only the beginning of a message is the library's own."""

import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "attach",
    "headline": ["CorruptSharedMemoryError: magic is 0x0"],
    "not_in_headline": ["Memory was refused", "does not fit"],
}
CONTROL = {"kind": "clean", "exit": 0}


class CorruptSharedMemoryError(Exception):
    pass


def attach(magic):
    if magic != 0xFEED:
        said = "numpy.core.multiarray failed to import"
        raise CorruptSharedMemoryError(f"magic is {magic:#x}; the worker had said: {said}")
    print("attached")


attach(0xFEED if "--control" in sys.argv else 0)
