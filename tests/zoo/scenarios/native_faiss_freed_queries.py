"""faiss searches with queries over memory that their owner has given back.
faiss takes the array's address; after munmap(2) its own distance kernel reads unmapped pages."""

import ctypes
import mmap
import sys

import faiss
import numpy

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "mine_hard_negatives",
    "component": "libfaiss",
    "component_function": None,
    "faulting_image": "libfaiss",
    "fault": ["read", "unmapped"],
    "headline": ["libfaiss", "mine_hard_negatives"],
}
CONTROL = {"kind": "clean", "exit": 0}
NEEDS = ["faiss", "numpy"]
WIDTH = 1024  # a row is a page, and small enough that faiss compares row by row instead of asking BLAS


def map_rows(rows, width):
    mapping = mmap.mmap(-1, rows * width * 4)
    return numpy.frombuffer(mapping, dtype=numpy.float32).reshape(rows, width)


def give_back(rows):
    """What a C library does that frees a buffer it has lent: numpy still holds the address."""
    libc = ctypes.CDLL(None)
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    assert libc.munmap(rows.ctypes.data, rows.nbytes) == 0


def mine_hard_negatives(index, queries):
    print("found", index.search(queries, 1)[1].shape)


index = faiss.IndexFlatL2(WIDTH)
index.add(numpy.zeros((8, WIDTH), dtype=numpy.float32))
faiss.omp_set_num_threads(1)
queries = map_rows(4, WIDTH)
index.search(queries, 1)  # what faiss maps the first time must not be mapped where the queries were
if "--control" not in sys.argv:
    give_back(queries)
mine_hard_negatives(index, queries)
