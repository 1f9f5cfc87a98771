"""A file is truncated while numpy has it mapped; then the array is summed.
mmap(2): a page wholly beyond the end of the file gives SIGBUS; numpy's own loop does the reading."""

import os
import shutil
import sys
import tempfile

import numpy

EXPECT = {
    "kind": "bus-error",
    "status": "established",
    "exit": 135,
    "signal": "SIGBUS",
    "role": "main",
    "user_function": "sum_shard",
    "component": "_multiarray_umath",
    "component_function": None,
    "faulting_image": "_multiarray_umath",
    "fault": ["shard.bin"],
    "headline": ["_multiarray_umath", "sum_shard"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["numpy"]


def sum_shard(shard):
    print("sum", shard.sum())


directory = tempfile.mkdtemp()
path = os.path.join(directory, "shard.bin")
shard = numpy.memmap(path, dtype=numpy.float32, mode="w+", shape=(4096,))
if "--control" not in sys.argv:
    os.truncate(path, 0)
sum_shard(shard)
shutil.rmtree(directory)
