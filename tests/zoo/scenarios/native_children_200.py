"""200 children read address 0 at the same moment; the parent names them all and exits with 1.
Each child's wait status is SIGSEGV; RuntimeError in the parent follows from them."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "encode_all",
    "headline": ["RuntimeError: 200 children died"],
    "against": ["died of SIGSEGV", "and 197 more processes"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"
SLOW = True

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_read.argtypes = [ctypes.c_void_p]


def encode_shard(token):
    library.zoo_read(token)


def start_child(token, start_line):
    pid = os.fork()
    if pid:
        return pid
    reader, writer = start_line
    os.close(writer)
    os.read(reader, 1)  # returns when the parent has closed its end: all 200 are alive by then
    encode_shard(token)
    os._exit(0)


def encode_all(token):
    start_line = os.pipe()
    children = [start_child(token, start_line) for _ in range(200)]
    os.close(start_line[1])
    dead = [pid for pid in children if os.waitpid(pid, 0)[1] != 0]
    if dead:
        raise RuntimeError(f"{len(dead)} children died: {dead}")


token = ctypes.c_long(6)
encode_all(ctypes.byref(token) if "--control" in sys.argv else None)
