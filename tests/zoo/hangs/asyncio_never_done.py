"""An asyncio task waits for a future that nobody sets, and nothing is left that could.

Proven from outside: the loop's epoll has no timeout and watches one descriptor, the socket by which the loop wakes
itself; the process has one thread, no child, no signal handler. The coroutine `receive` is on no thread's stack. In the
control each future is set after 50 ms. Seen: one thread, state S in epoll_wait; its innermost own frame is run_client.
"""

import asyncio
import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "deadlock-lock",
    "weaker": ["waiting"],
    "status": "established",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "run_client",
    "python_line_text": "asyncio.run(receive())",
    "facts": ["`Task-1` in receive (asyncio_never_done.py:", "awaits a future", "run_client"],
}
CONTROL = {"kind": "progressing", "weaker": ["waiting"]}
LIMIT_S = 110


async def receive():
    while True:
        answer = asyncio.get_running_loop().create_future()
        if "--control" in sys.argv:
            asyncio.get_running_loop().call_later(0.05, answer.set_result, "answer")
        say_ready()
        print(await answer, flush=True)


def run_client():
    asyncio.run(receive())


signal.alarm(LIMIT_S)
run_client()
