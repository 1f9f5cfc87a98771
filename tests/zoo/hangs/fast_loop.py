"""A fast loop that writes a line each time round: its log grows between any two looks.

Some hundred lines a second and a flush after each. The control does not flush and is slower: for half a minute only
the buffer of stdout grows, not the file. Seen: the file grew from 3.7 to 16 KB in a second; in the control it stayed
at 0 bytes.
"""

import signal
import sys
import time

from stage import say_ready

EXPECT = {
    "kind": "progressing",
    "status": "established",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "write_rows",
    "python_line_text": None,
    "facts": ["stdout"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def write_rows(pause_s, flush):
    row = "one more row of the table"
    while True:
        print(row, flush=flush)
        time.sleep(pause_s)


signal.alarm(LIMIT_S)
say_ready()
if "--control" in sys.argv:
    write_rows(pause_s=0.1, flush=False)
else:
    write_rows(pause_s=0.002, flush=True)
