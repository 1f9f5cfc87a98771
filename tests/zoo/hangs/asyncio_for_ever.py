"""A loop that runs for ever: its task `train` awaits a future that nobody sets, another one writes for ever.

No task is the main one. In the control there is the one task that writes. Seen: py-spy: MainThread in select.
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
    "facts": ["task `train` in train (asyncio_for_ever.py:", "awaits a future", "MainThread moves"],
}
CONTROL = {"kind": "progressing", "status": "established"}
LIMIT_S = 110


async def beat(log):
    while True:
        print("alive", file=log)
        await asyncio.sleep(0.2)


async def train():
    await asyncio.get_running_loop().create_future()


signal.alarm(LIMIT_S)
loop = asyncio.new_event_loop()
jobs = [loop.create_task(beat(open("beats.log", "w", buffering=1)), name="beat")]
if "--control" not in sys.argv:
    jobs.append(loop.create_task(train(), name="train"))
say_ready()
loop.run_forever()
