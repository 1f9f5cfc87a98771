"""Near-miss: shows an old log with an uncaught C++ exception, goes on, and forgets a running std::thread.
The C++ runtime prints both and calls abort() after both: what it printed last is why."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "abort",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "load_shards",
    "headline": ["terminate called without an active exception", "load_shards"],
    "not_in_headline": ["yesterday", "runtime_error"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "abort_thread_lost_after_quoted_exception.cpp"
BUILD_FLAGS = ["-pthread"]
QUOTED = """\
terminate called after throwing an instance of 'std::runtime_error'
  what():  the shard of yesterday
"""

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def load_shards(forget):
    library.load(ctypes.c_long(forget))
    print("loaded")


sys.stderr.write(QUOTED)
print("going on", file=sys.stderr, flush=True)
load_shards(0 if "--control" in sys.argv else 1)
