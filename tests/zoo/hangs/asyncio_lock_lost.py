"""Tasks wait for an asyncio.Lock that its holder has never released; the holder is done.

The control is a near-miss: a timer releases it, long after the look. Seen: one thread, state S in epoll_wait.
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
    "python_function": "run_writers",
    "python_line_text": "asyncio.run(write_all())",
    "facts": ["20 tasks", "in write (asyncio_lock_lost.py:", "awaits a Lock", "22 tasks not done"],
}
CONTROL = {"kind": "waiting"}
LIMIT_S = 110
LATE_S = 100


async def take(lock):
    await lock.acquire()
    if "--control" in sys.argv:
        asyncio.get_running_loop().call_later(LATE_S, lock.release)


async def write(lock):
    async with lock:
        print("written")


async def flush(tasks):
    await asyncio.wait(tasks)


async def write_all():
    lock = asyncio.Lock()
    await take(lock)
    asyncio.get_running_loop().call_later(0.05, say_ready)
    await flush_in_task([asyncio.create_task(write(lock)) for _ in range(20)])


async def flush_in_task(tasks):
    await asyncio.create_task(flush(tasks), name="flush")


def run_writers():
    asyncio.run(write_all())


signal.alarm(LIMIT_S)
run_writers()
