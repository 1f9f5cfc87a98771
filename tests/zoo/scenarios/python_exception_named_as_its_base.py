"""Raises an exception whose __name__ is that of its base, as NumPy's decorator _display_as_base makes them.
A traceback prints the qualified name, which is the class's own: `load_rows.<locals>.ShapeError`."""

import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "load_rows",
    "headline": ["ShapeError: 3 columns", "load_rows"],
}
CONTROL = {"kind": "clean", "exit": 0}


def load_rows(columns):
    class ShapeError(ValueError):
        pass

    ShapeError.__name__ = "ValueError"
    if columns != 4:
        raise ShapeError(f"{columns} columns")
    print("loaded")


load_rows(4 if "--control" in sys.argv else 3)
