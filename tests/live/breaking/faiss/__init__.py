"""Stands before the real faiss on PYTHONPATH and breaks its search, as BREAK says.

search N: from the Nth on, one with k >= 100 writes to address 8, in C. wait N: the Nth, with k < 100, waits for a byte
from the FIFO in BREAK_GATE.
"""

import ctypes
import importlib
import os
import sys
from pathlib import Path

here = str(Path(__file__).absolute().parents[1])
sys.path.remove(here)
del sys.modules["faiss"]
faiss = importlib.import_module("faiss")
sys.path.insert(0, here)

what, _, number = os.environ["BREAK"].partition(" ")
search = faiss.IndexFlatIP.search
calls = 0


def count_search(self, queries, k, **named):
    global calls
    calls += 1
    if what == "search" and k >= 100 and calls >= int(number):
        ctypes.CDLL(os.environ["BREAK_LIB"]).break_search()
    if what == "wait" and k < 100 and calls == int(number):
        Path(os.environ["BREAK_GATE"]).read_bytes()
    return search(self, queries, k, **named)


faiss.IndexFlatIP.search = count_search
