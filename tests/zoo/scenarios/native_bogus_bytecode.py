"""exec() of a code object whose instructions find nothing on the interpreter's own stack.
After CPython's Lib/test/crashers/bogus_code_obj.py: the interpreter itself faults, whatever an unwinder makes of it.
Where in it, each version decides; in one the object is released, and then nobody can tell where that came from."""

import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "component": None,
    "faulting_image": "interpreter",
    "headline": ["bogus"],
    "not_in_headline": ["had been damaged", "GIL", "zlib", "libz", "???"],
}
CONTROL = {"kind": "clean", "exit": 0}


def bogus():
    return None


if "--control" not in sys.argv:
    bogus.__code__ = bogus.__code__.replace(co_code=bytes([4, 0] * 8), co_stacksize=16)
bogus()
