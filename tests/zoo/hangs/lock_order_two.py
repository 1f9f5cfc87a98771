"""Two threads take two plain locks in opposite order.

In the control the other thread gives up after a while, and lets go of its own: the same ring, but it comes undone.
Seen: both threads in futex waits; py-spy has each on its second lock. Control: one of the waits has a timeout.
"""

import signal
import sys
import threading

from stage import say_ready

EXPECT = {
    "kind": "deadlock-lock",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "transfer",
    "python_line_text": "with journal_lock:  # transfer",
    "cycle": [
        {"thread": "MainThread", "function": "transfer", "line_text": "with journal_lock:  # transfer"},
        {"thread": "journal-writer", "function": "write_journal", "line_text": "with accounts_lock:  # journal"},
    ],
    "facts": ["accounts_lock", "journal_lock", "journal-writer"],
}
CONTROL = {"kind": "waiting"}
LIMIT_S = 110

accounts_lock = threading.Lock()
journal_lock = threading.Lock()
both = threading.Barrier(2)


def transfer():
    with accounts_lock:
        both.wait()
        say_ready()
        with journal_lock:  # transfer
            print("transferred")


def write_journal():
    with journal_lock:
        both.wait()
        with accounts_lock:  # journal
            print("written")


def write_if_possible():
    with journal_lock:
        both.wait()
        if accounts_lock.acquire(timeout=LIMIT_S):
            print("written")


signal.alarm(LIMIT_S)
target = write_if_possible if "--control" in sys.argv else write_journal
threading.Thread(target=target, name="journal-writer", daemon=True).start()
transfer()
