"""A cache that does not fit under the address-space limit is refused, the MemoryError caught, and training goes on.
Memory that was refused and done without is no death: the command ends with status 0."""

import resource
import sys

EXPECT = {"kind": "clean", "exit": 0, "signal": None, "role": "main"}
CONTROL = {"kind": "clean", "exit": 0}


def make_cache(size_bytes):
    try:
        return bytearray(size_bytes)
    except MemoryError as error:
        print("no cache:", repr(error), file=sys.stderr)
        return bytearray(1 << 20)


resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
print("cached", len(make_cache(1 << 20 if "--control" in sys.argv else 8 << 30)))
