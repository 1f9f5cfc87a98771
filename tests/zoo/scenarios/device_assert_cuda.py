"""A CUDA device-side assertion (text written to its public shape), then abort.
The kernel prints the assertion; torch's later cleanup hits the poisoned context and the process aborts."""

import os
import sys

EXPECT = {
    "kind": "device-assert",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "gather_embeddings",
    "headline": ["IndexKernel.cu"],
}
CONTROL = {"kind": "clean", "exit": 0}

RECORDED = """\
../aten/src/ATen/native/cuda/IndexKernel.cu:92: operator(): block: [0,0,0], thread: [3,0,0] \
Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.
RuntimeError: CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call, \
so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
"""


def gather_embeddings(index, size):
    print("gathering", index)
    if index >= size:
        sys.stderr.write(RECORDED)
        sys.stderr.flush()
        os.abort()


gather_embeddings(3, size=8 if "--control" in sys.argv else 2)
