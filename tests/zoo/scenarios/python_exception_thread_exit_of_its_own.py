"""Near-miss of python_exception_thread: a thread dies of a ConnectionError, and the program leaves for another reason.
From outside both look the same: no more than supported, and the other reading is told."""

import sys
import threading

EXPECT = {
    "kind": "python-exception",
    "status": "supported",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "send_metrics",
    "headline": ["ConnectionError"],
    "against": ["ends that thread only"],
}
CONTROL = {"kind": "clean", "exit": 0}


def send_metrics(server):
    if server is None:
        raise ConnectionError("the metrics server is gone")


thread = threading.Thread(target=send_metrics, args=("here" if "--control" in sys.argv else None,))
thread.start()
thread.join()
if "--control" not in sys.argv:
    print("validation failed: accuracy 0.1 is below 0.9", file=sys.stderr)
    sys.exit(1)
