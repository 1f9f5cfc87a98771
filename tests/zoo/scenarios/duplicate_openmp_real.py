"""Two copies of LLVM's libomp in one process; the second one to initialise refuses.
__kmp_register_library_startup finds the other's registration, prints "OMP: Error #15" and aborts."""

import ctypes
import os
import shutil
import sys
import tempfile

EXPECT = {
    "kind": "duplicate-openmp",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": "mine_hard_negatives",
    "headline": ["libomp.so.5"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS_FILES = ["/usr/lib/llvm-14/lib/libomp.so.5"]


def copy_runtime(directory, owner):
    os.mkdir(os.path.join(directory, owner))
    return shutil.copy(NEEDS_FILES[0], os.path.join(directory, owner))


def mine_hard_negatives(runtimes):
    for path in runtimes:
        print("threads", ctypes.CDLL(path, mode=os.RTLD_LOCAL).omp_get_max_threads())


directory = tempfile.mkdtemp()
copies = [copy_runtime(directory, owner) for owner in ("torch", "faiss")]
mine_hard_negatives(copies[:1] if "--control" in sys.argv else copies)
shutil.rmtree(directory)
