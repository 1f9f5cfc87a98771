"""Near-miss: a thread dies of a KeyError, the main thread does not care and the program ends with 0.
An exception in a thread is printed but never changes the exit status (threading.excepthook)."""

import sys
import threading

EXPECT = {
    "kind": "clean",
    "status": "established",
    "exit": 0,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": [],
}
CONTROL = {"kind": "clean", "exit": 0}


def upload_metrics(endpoints):
    print("uploaded to", endpoints["tensorboard"])


endpoints = {"tensorboard": "local"} if "--control" in sys.argv else {}
uploader = threading.Thread(target=upload_metrics, args=(endpoints,))
uploader.start()
uploader.join()
print("training finished")
