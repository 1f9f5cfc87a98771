"""An exception that is called as if a signal had come, and none has: nobody sent anything.
The same words as in python_exception_of_sigterm; who reads a sender into them is wrong."""

import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "leave",
    "headline": ["SignalException", "got signal 15"],
}
CONTROL = {"kind": "clean", "exit": 0}


class SignalException(Exception):
    pass


def leave(signo, frame):
    raise SignalException(f"got signal {signo}")


print("training")
if "--control" not in sys.argv:
    leave(15, None)
