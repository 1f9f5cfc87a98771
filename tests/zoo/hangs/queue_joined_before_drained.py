"""A multiprocessing.Queue that is joined before it is drained, as the library's own documentation warns.

The child cannot end before its feeder thread has written everything; only the parent could read, and it waits for the
child. In the control the parent drains slowly. Seen: the parent in wait4; the child in a join of QueueFeederThread,
which is in write; /proc/PID/io at rest. A stop makes that write return early and counts as movement.
"""

import multiprocessing
import signal
import sys
import time

from stage import say_ready

EXPECT = {
    "kind": "blocked-child",
    "pid_role": "worker",
    "thread": None,
    "python_function": None,
    "python_line_text": None,
    "facts": ["pipe"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110
LARGE = 1 << 20


def produce(queue, started):
    queue.put(bytes(LARGE))
    if "--control" in sys.argv:
        for number in range(1000):
            queue.put(number)
            time.sleep(0.1)
    started.set()


def main():
    queue, started = multiprocessing.Queue(), multiprocessing.Event()
    child = multiprocessing.Process(target=produce, args=(queue, started))
    child.start()
    if "--control" in sys.argv:
        say_ready()
        while (item := queue.get()) is not None:
            print(item if isinstance(item, int) else len(item), flush=True)
    started.wait()
    say_ready(pid=child.pid)
    child.join()
    return queue.get()


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    signal.alarm(LIMIT_S)
    main()
