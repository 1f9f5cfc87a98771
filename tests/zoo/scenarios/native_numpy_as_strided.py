"""numpy sums a view whose shape was computed wrongly: as_strided does not look at the buffer's size.
A small array is on the heap; the copy into numpy's buffer (libc's memcpy) reaches the end of the heap and goes on."""

import sys

import numpy

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "count_windows",
    "component": "_multiarray_umath",
    "component_function": None,
    "faulting_image": "libc",
    "fault": ["read", "past the end"],
    "headline": ["_multiarray_umath", "count_windows"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["numpy"]


def count_windows(ticks, windows):
    view = numpy.lib.stride_tricks.as_strided(ticks, shape=(windows, 8), strides=(ticks.itemsize, ticks.itemsize))
    print("sum", view.sum())


def main():
    ticks = numpy.arange(16, dtype=numpy.float64)
    count_windows(ticks, 9 if "--control" in sys.argv else 1 << 33)


main()
