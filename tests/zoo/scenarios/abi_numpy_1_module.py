"""A module built for NumPy 1.x is imported under NumPy 2 (recorded text, faiss-cpu 1.7.4).
numpy prints the banner when old code asks for _ARRAY_API; the import then fails, uncaught."""

import sys

EXPECT = {
    "kind": "abi-mismatch",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "import_faiss",
    "headline": ["NumPy"],
}
CONTROL = {"kind": "clean", "exit": 0}

BANNER = """
A module that was compiled using NumPy 1.x cannot be run in
NumPy 2.4.6 as it may crash. To support both 1.x and 2.x
versions of NumPy, modules must be compiled with NumPy 2.0.
Some module may need to rebuild instead e.g. with 'pybind11>=2.12'.

If you are a user of the module, the easiest solution will be to
downgrade to 'numpy<2' or try to upgrade the affected module.
We expect that some modules will need time to support NumPy 2.

"""


def import_faiss(built_for_numpy):
    if built_for_numpy == 1:
        sys.stderr.write(BANNER)
        raise ImportError("numpy.core.multiarray failed to import")
    print("imported")


import_faiss(built_for_numpy=2 if "--control" in sys.argv else 1)
