"""Near-miss: prints the recorded text of "OMP: Error #15", line by line as libomp does, then calls os.abort() itself.
The runtime that prints it in earnest calls abort(); here the interpreter did (duplicate_openmp_real is the twin)."""

import os
import sys

EXPECT = {
    "kind": "abort",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "mine_hard_negatives",
    "headline": ["SIGABRT", "mine_hard_negatives"],
}
CONTROL = {"kind": "clean", "exit": 0}

RECORDED = """\
OMP: Error #15: Initializing libomp.so.5, but found libomp.so.5 already initialized.
OMP: Hint This means that multiple copies of the OpenMP runtime have been linked into the program. \
That is dangerous, since it can degrade performance or cause incorrect results. \
The best thing to do is to ensure that only a single OpenMP runtime is linked into the process, \
e.g. by avoiding static linking of the OpenMP runtime in any library. \
As an unsafe, unsupported, undocumented workaround you can set the environment variable \
KMP_DUPLICATE_LIB_OK=TRUE to allow the program to continue to execute, \
but that may cause crashes or silently produce incorrect results. \
For more information, please see http://openmp.llvm.org/
"""


def mine_hard_negatives(runtimes):
    print("runtimes", runtimes)
    if runtimes > 1:
        sys.stderr.write(RECORDED)
        sys.stderr.flush()
        os.abort()


mine_hard_negatives(1 if "--control" in sys.argv else 2)
