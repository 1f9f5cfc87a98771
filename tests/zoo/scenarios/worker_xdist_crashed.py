"""A test segfaults in a worker of pytest-xdist; pytest itself goes on, says that the worker crashed, and leaves with 1.
Its sentence names no process; which one it lost is read from the tree."""

import ctypes
import os

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 1,
    "signal": "SIGSEGV",
    "role": "child",
    "user_function": "test_search",
    "headline": ["test_search"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["xdist"]
SHIM = {"user_function": ..., "headline": [], "because": "execnet starts its workers its own way"}
COMMAND = [
    "sh",
    "-c",
    'ZOO_CONTROL={control} exec {python} -m pytest -q -p no:cacheprovider --noconftest --rootdir "$TMPDIR" -n 1 {file}',
]


def test_search():
    if not os.environ.get("ZOO_CONTROL"):
        ctypes.string_at(0)
