"""A coroutine calls something that blocks, so that the event loop does not get to run the other tasks.

The control does the same with `await asyncio.sleep`, in a loop that prints. Seen: one thread, state S in
clock_nanosleep, the loop's _run_once below `handle` on its stack.
"""

import asyncio
import signal
import sys
import time

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "ask_database",
    "python_line_text": "time.sleep(LIMIT_S)",
    "facts": ["event loop is blocked by task `handler`, 4 other tasks cannot run", "ask_database"],
}
CONTROL = {"kind": "progressing"}
LIMIT_S = 110


def ask_database():
    time.sleep(LIMIT_S)


async def handle():
    while "--control" in sys.argv:
        await asyncio.sleep(0.05)
        print("answer", flush=True)
    say_ready()
    ask_database()


async def listen(number):
    await asyncio.sleep(1000 + number)


async def serve():
    listening = [asyncio.create_task(listen(number)) for number in range(3)]
    await asyncio.sleep(0)
    if "--control" in sys.argv:
        say_ready()
    await asyncio.gather(asyncio.create_task(handle(), name="handler"), *listening)


signal.alarm(LIMIT_S)
asyncio.run(serve())
