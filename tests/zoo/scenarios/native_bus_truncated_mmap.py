"""A file is truncated while it is mapped; then its second page is read.
mmap(2): a page wholly beyond the end of the file gives SIGBUS, BUS_ADRERR, at an address inside the mapping."""

import mmap
import os
import shutil
import sys
import tempfile

EXPECT = {
    "kind": "bus-error",
    "status": "established",
    "exit": 135,
    "signal": "SIGBUS",
    "role": "main",
    "user_function": "read_shard",
    "component": "mmap",
    "component_function": None,
    "faulting_image": "mmap",
    "fault": ["shard.bin"],
    "headline": ["read_shard"],
}
CONTROL = {"kind": "clean", "exit": 0}


def read_shard(mapping):
    print("byte", mapping[4096])


directory = tempfile.mkdtemp()
with open(os.path.join(directory, "shard.bin"), "w+b") as shard:
    shard.truncate(8192)
    mapping = mmap.mmap(shard.fileno(), 8192)
    if "--control" not in sys.argv:
        shard.truncate(0)
    read_shard(mapping)
shutil.rmtree(directory)
