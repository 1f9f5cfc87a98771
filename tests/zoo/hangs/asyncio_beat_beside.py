"""The main task awaits a future that nobody sets; another task of its loop, which nobody awaits, writes for ever.

In the control the main task gets parts from a queue that a thread fills, and writes them. Seen: py-spy: MainThread in
select; asyncio's own list of tasks.
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
    "facts": ["in fetch (asyncio_beat_beside.py:", "awaits a future", "in a task that is not awaited"],
}
CONTROL = {"kind": "progressing", "status": "supported"}
LIMIT_S = 110


async def beat(log):
    while True:
        print("alive", file=log)
        await asyncio.sleep(0.2)


async def fetch(answer, parts, log):
    while "--control" in sys.argv:
        part = await parts.get()
        print("part", part, file=log)
    return await answer


def feed(loop, parts):
    for number in itertools.count():
        loop.call_soon_threadsafe(parts.put_nowait, number)
        time.sleep(0.1)


async def main():
    log = open("beats.log", "w", buffering=1)
    beside = asyncio.create_task(beat(log), name="beat")
    loop, parts = asyncio.get_running_loop(), asyncio.Queue()
    if "--control" in sys.argv:
        threading.Thread(target=feed, args=(loop, parts), daemon=True).start()
    say_ready()
    await fetch(loop.create_future(), parts, log)
    beside.cancel()


signal.alarm(LIMIT_S)
asyncio.run(main())
