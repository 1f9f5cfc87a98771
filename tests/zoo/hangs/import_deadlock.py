"""A module starts a thread while it is being imported and joins it; the thread imports the same module.

The main thread has the module's lock and waits for the thread, the thread waits for the module's lock. The
interpreter's own check sees only rings of module locks, not the join. In the control the thread sleeps instead. Seen:
both threads in futex waits; py-spy has one in load_plugin, the other in set_up_plugins under the import.
"""

import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "deadlock-lock",
    "pid_role": "main",
    "thread": "plugin-loader",
    "python_function": "load_plugin",
    "python_line_text": "import import_deadlock as plugin",
    "cycle": [
        {"thread": "plugin-loader", "function": "load_plugin", "line_text": "import import_deadlock as plugin"},
        {"thread": "MainThread", "function": "set_up_plugins", "line_text": "loader.join()"},
    ],
    "facts": ["import"],
}
CONTROL = {"kind": "waiting"}
LIMIT_S = 110


def load_plugin():
    say_ready()
    if "--control" in sys.argv:
        time.sleep(LIMIT_S)
    import import_deadlock as plugin

    print("loaded", plugin)


def set_up_plugins():
    loader = threading.Thread(target=load_plugin, name="plugin-loader", daemon=True)
    loader.start()
    loader.join()


if __name__ == "__main__":
    signal.alarm(LIMIT_S)
    sys.dont_write_bytecode = True
    import import_deadlock  # noqa: F401  (this file once more, under its own name)
else:
    set_up_plugins()
