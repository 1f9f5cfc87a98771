"""A forked child closes every descriptor and reads address 0; the parent passes the status on.
faulthandler has nowhere to write; what is known of the stack was seen while the child stood still."""

import ctypes
import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "worker",
    "user_function": "serve_request",
    "component": "native_faults",
    "component_function": "zoo_read",
    "faulting_image": "native_faults",
    "fault": ["read", "null"],
    "headline": ["native_faults", "serve_request"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_faults.c"

library = ctypes.CDLL(os.environ["ZOO_LIB"])
library.zoo_read.argtypes = [ctypes.c_void_p]


def serve_request(token):
    os.closerange(0, 256)
    library.zoo_read(token)


def start_server(token):
    pid = os.fork()
    if pid == 0:
        serve_request(token)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


token = ctypes.c_long(6)
sys.exit(start_server(ctypes.byref(token) if "--control" in sys.argv else None))
