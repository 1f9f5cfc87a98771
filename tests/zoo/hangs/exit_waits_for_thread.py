"""The program has ended, and the interpreter waits for a thread that is no daemon and sleeps for an hour.

In the control that thread writes. Seen: py-spy: MainThread in threading._shutdown, uploader in upload.
"""

import os
import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "pid_role": "main",
    "thread": "uploader",
    "python_function": "upload",
    "python_line_text": "time.sleep(3600)",
    "facts": ["the program has ended; the interpreter waits for the non-daemon thread uploader"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def upload(well):
    main = threading.main_thread()
    while "_shutdown" not in [frame.f_code.co_name for frame in walk(main)]:
        os.sched_yield()
    say_ready()
    if well:
        write("upload.log")
    time.sleep(3600)


def walk(thread):
    frame = sys._current_frames().get(thread.ident)
    while frame is not None:
        yield frame
        frame = frame.f_back


def write(path):
    with open(path, "w", buffering=1) as log:
        while True:
            print("sent", file=log)
            time.sleep(0.2)


signal.alarm(LIMIT_S)
threading.Thread(target=upload, args=("--control" in sys.argv,), name="uploader").start()
