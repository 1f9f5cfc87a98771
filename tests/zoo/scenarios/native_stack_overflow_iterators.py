"""A million iterators, each wrapped in the next: one next() descends through all of them.
itertools.chain calls the inner iterator in C without counting the depth, in every version up to 3.13."""

import itertools
import sys

EXPECT = {
    "kind": "stack-overflow",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "read_next",
    "component": "interpreter",
    "component_function": None,
    "headline": ["read_next"],
}
CONTROL = {"kind": "clean", "exit": 0}


def read_next(batches):
    print("first", next(batches))


def wrap(batches, times):
    for _ in range(times):
        batches = itertools.chain(batches)
    return batches


read_next(wrap(iter([1]), 100 if "--control" in sys.argv else 1000000))
