"""A module that is made on the spot cannot be compiled: its SyntaxError names a line that no frame stands on.
The traceback ends with that line; whoever imported it is the frame before."""

import sys
import tempfile
from pathlib import Path

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "headline": ["SyntaxError: ", "made_on_the_spot.py:2"],
}
CONTROL = {"kind": "clean", "exit": 0}


def import_made(source):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "made_on_the_spot.py").write_text(source)
        sys.path.insert(0, folder)
        import made_on_the_spot

        print(made_on_the_spot.rows)


import_made("rows = 3\n" if "--control" in sys.argv else "rows = 3\nprint(rows\n")
