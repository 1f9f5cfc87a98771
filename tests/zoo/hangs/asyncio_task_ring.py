"""Two asyncio tasks await each other, behind a gather, and nothing else is scheduled.

asyncio only refuses a task that awaits itself. The control is a near-miss: the second awaits an Event that a timer sets
long after the look, so that the loop will wake by itself. Seen: one thread, state S in epoll_wait.
"""

import asyncio
import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "deadlock-lock",
    "status": "established",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "run_pipeline",
    "python_line_text": "asyncio.run(join_stages())",
    "facts": ["`load`", "`store`", "in load (asyncio_task_ring.py:", "in store (asyncio_task_ring.py:"],
}
CONTROL = {"kind": "waiting"}
LIMIT_S = 110
LATE_S = 100


async def load(stages):
    await stages["store"]


async def store(stages):
    if "--control" in sys.argv:
        written = asyncio.Event()
        asyncio.get_running_loop().call_later(LATE_S, written.set)
        await written.wait()
    await stages["load"]


async def join_stages():
    stages = {}
    for function in (load, store):
        stages[function.__name__] = asyncio.create_task(function(stages), name=function.__name__)
    asyncio.get_running_loop().call_later(0.05, say_ready)
    await asyncio.gather(*stages.values())


def run_pipeline():
    asyncio.run(join_stages())


signal.alarm(LIMIT_S)
run_pipeline()
