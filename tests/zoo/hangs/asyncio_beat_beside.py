"""The main task awaits a future that nobody sets; another task of its loop, which nobody awaits, writes for ever.

In the control the main task writes, too. Seen: py-spy: MainThread in select; asyncio's own list of tasks.
"""

import asyncio
import signal
import sys

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


async def fetch(answer, log):
    while "--control" in sys.argv:
        print("part", file=log)
        await asyncio.sleep(0.1)
    return await answer


async def main():
    log = open("beats.log", "w", buffering=1)
    beside = asyncio.create_task(beat(log), name="beat")
    say_ready()
    await fetch(asyncio.get_running_loop().create_future(), log)
    beside.cancel()


signal.alarm(LIMIT_S)
asyncio.run(main())
