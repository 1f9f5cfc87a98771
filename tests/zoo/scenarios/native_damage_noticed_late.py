"""Native code overwrites an item of a list with a number; much later the garbage collector follows it.
The line that Python is in when it faults has nothing to do with it."""

import ctypes
import gc
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "forget",
    "blames_nobody": True,
    "faulting_image": "interpreter",
    "headline": ["damaged earlier", "noticed while Python was in forget"],
    "remedy": ["PYTHONMALLOC=debug", "Do not look at forget"],
}
STRIPPED = {
    "because": "the functions of the garbage collector have no names there",
    "blames_nobody": ...,
    "headline": ["forget"],
    "remedy": ["PYTHONMALLOC=debug"],
}
CONTROL = {"kind": "clean", "exit": 0}
WILD = 0x123456789000
OB_ITEM = object.__basicsize__ + 8  # what every object has, the size, then the pointer to the items


def damage(items):
    slots = ctypes.c_void_p.from_address(id(items) + OB_ITEM).value
    ctypes.c_void_p.from_address(slots).value = WILD


def forget():
    print("collected", gc.collect())


gc.disable()
keep = [object(), object()]
if "--control" not in sys.argv:
    damage(keep)
forget()
