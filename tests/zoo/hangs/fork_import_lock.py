"""A child forked while another thread was importing a module; the child imports the same module.

The module's lock belongs to a thread that the child does not have. In the control nobody imports at the moment of the
fork. Seen: the child has one thread, in a futex wait, py-spy has it in load_codec under importlib's
_ModuleLock.acquire; the parent's are in wait4 and, in the module's body, in clock_nanosleep.
"""

import os
import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "deadlock-fork",
    "pid_role": "worker",
    "thread": "MainThread",
    "python_function": "load_codec",
    "python_line_text": "import fork_import_lock as codec",
    "facts": ["import"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110

importing = threading.Event()


def import_slowly():
    import fork_import_lock  # noqa: F401  (this file once more, under its own name: the last lines)


def import_nothing():
    importing.set()
    time.sleep(LIMIT_S)


def load_codec():
    import fork_import_lock as codec

    return codec.__name__


def run_child():
    signal.alarm(LIMIT_S)  # fork clears alarms
    say_ready(pid=os.getpid())
    while True:
        print("loaded", "nothing" if "--control" in sys.argv else load_codec(), flush=True)
        time.sleep(0.05)


def run():
    target = import_nothing if "--control" in sys.argv else import_slowly
    threading.Thread(target=target, name="importer", daemon=True).start()
    importing.wait()
    child = os.fork()
    if child == 0:
        run_child()
    os.waitpid(child, 0)


if __name__ == "__main__":
    signal.alarm(LIMIT_S)
    sys.dont_write_bytecode = True
    run()
else:
    sys.modules["__main__"].importing.set()
    time.sleep(LIMIT_S)
