"""A thread died of an exception between acquire and release of an RLock; the main thread wants it.

The RLock still names the dead thread as its owner. In the control the owner is alive and sleeps. Seen: one thread
left, in a futex wait, gdb has rlock_acquire and an rlock_owner that is no thread; py-spy has it in read_settings.
"""

import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "deadlock-lock",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "read_settings",
    "python_line_text": "settings_lock.acquire()  # reader",
    "facts": ["settings_lock"],
}
CONTROL = {"kind": "waiting"}
LIMIT_S = 110

settings_lock = threading.RLock()
taken = threading.Event()


def write_settings():
    settings_lock.acquire()
    taken.set()
    raise ValueError("the settings are not valid")


def write_settings_slowly():
    settings_lock.acquire()
    taken.set()
    time.sleep(LIMIT_S)


def read_settings():
    say_ready()
    settings_lock.acquire()  # reader
    print("read")


signal.alarm(LIMIT_S)
control = "--control" in sys.argv
writer = threading.Thread(target=write_settings_slowly if control else write_settings, name="writer", daemon=True)
writer.start()
taken.wait()
if not control:
    writer.join()
read_settings()
