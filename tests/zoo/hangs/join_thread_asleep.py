"""The main thread joins a thread that sleeps for an hour in what it was asked to do; another one writes meanwhile.

In the control the joined thread writes. Seen: py-spy: MainThread in join, background in init.
"""

import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "pid_role": "main",
    "thread": "background",
    "python_function": "init",
    "python_line_text": "time.sleep(3600)",
    "facts": ["MainThread → background", "thread stats"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def init():
    time.sleep(3600)


def write(path):
    with open(path, "w", buffering=1) as log:
        while True:
            print("alive", file=log)
            time.sleep(0.2)


signal.alarm(LIMIT_S)
well = "--control" in sys.argv
threading.Thread(target=write, args=("stats.log",), name="stats", daemon=True).start()
background = threading.Thread(target=write if well else init, args=("work.log",) if well else (), name="background")
background.start()
say_ready()
background.join()
