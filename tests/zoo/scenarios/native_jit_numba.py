"""A function that numba has compiled writes far past the end of its array.
numba checks no index unless it is told to: NUMBA_BOUNDSCHECK=1 makes an IndexError of it."""

import sys

import numba
import numpy

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "step",
    "component": "[JIT-compiled code]",
    "faulting_image": "[JIT-compiled code]",
    "headline": ["JIT-compiled code", "numba", "is loaded", "called from step"],
    "not_in_headline": ["???"],
    "remedy": ["NUMBA_BOUNDSCHECK=1"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["numba"]


@numba.njit
def fill(values, count):
    for index in range(count):
        values[index * 512] = index


def step(values, count):
    fill(values, count)
    print("filled", count)


step(numpy.zeros(1024), 2 if "--control" in sys.argv else 1 << 40)
