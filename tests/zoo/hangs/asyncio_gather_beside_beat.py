"""gather() of a task that awaits an Event which nobody sets, and of one that writes for ever: both are awaited.

In the control both get parts from queues that a thread fills, and write. Seen: py-spy: MainThread in select; asyncio's
own list of tasks.
"""

import asyncio
import itertools
import signal
import sys
import threading
import time

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "moving": False,
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "<module>",
    "facts": ["in train (asyncio_gather_beside_beat.py:", "awaits an Event", "in a task that is not awaited"],
}
CONTROL = {"kind": "progressing", "status": "supported"}
LIMIT_S = 110


async def beat(log):
    while True:
        print("alive", file=log)
        await asyncio.sleep(0.2)


async def train(started):
    await started.wait()


async def write(parts, log):
    while True:
        part = await parts.get()
        print("part", part, file=log)


def feed(loop, queues):
    for number in itertools.count():
        for parts in queues:
            loop.call_soon_threadsafe(parts.put_nowait, number)
        time.sleep(0.1)


async def main():
    log = open("parts.log", "w", buffering=1)
    queues = [asyncio.Queue(), asyncio.Queue()]
    if "--control" in sys.argv:
        threading.Thread(target=feed, args=(asyncio.get_running_loop(), queues), daemon=True).start()
        both = (write(parts, log) for parts in queues)
    else:
        both = (train(asyncio.Event()), beat(log))
    say_ready()
    await asyncio.gather(*both)


signal.alarm(LIMIT_S)
asyncio.run(main())
