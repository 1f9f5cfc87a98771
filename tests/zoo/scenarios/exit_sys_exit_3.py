"""The program decides to leave with sys.exit(3).
SystemExit with an int becomes the exit status without a traceback (handle_system_exit in pythonrun.c)."""

import sys

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 3,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["3"],
}
CONTROL = {"kind": "clean", "exit": 0}


def check_loss(loss, limit):
    print("loss", loss)
    if loss > limit:
        sys.exit(3)


check_loss(9.5, limit=10.0 if "--control" in sys.argv else 1.0)
