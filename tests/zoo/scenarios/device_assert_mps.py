"""A failed assertion of Metal Performance Shaders (text written to its public shape), then abort.
MPS checks its arguments with MTLReportFailure, which prints "failed assertion `…'" and calls abort()."""

import os
import sys

EXPECT = {
    "kind": "device-assert",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "push_memory_bank",
    "headline": ["MPS"],
}
CONTROL = {"kind": "clean", "exit": 0}

RECORDED = (
    "/AppleInternal/Library/BuildRoots/00000000-0000-11ee-0000-000000000000/Library/Caches/com.apple.xbs/Sources/"
    "MetalPerformanceShaders/MPSCore/Types/MPSNDArray.mm:724: failed assertion "
    "`[MPSNDArray initWithDevice:descriptor:] Error: total bytes of NDArray > 2**32'\n"
)


def push_memory_bank(total_bytes):
    print("pushing", total_bytes)
    if total_bytes > 2**32:
        sys.stderr.write(RECORDED)
        sys.stderr.flush()
        os.abort()


push_memory_bank(2**20 if "--control" in sys.argv else 2**33)
