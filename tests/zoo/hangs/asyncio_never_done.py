"""An asyncio task waits for a future that nobody sets.

An idle server looks the same, so it is "waiting"; the coroutine `receive` is on no thread's stack. In the control
each future is set after 50 ms. Seen: one thread, state S in epoll_wait; py-spy's innermost own frame is run_client.
"""

import asyncio
import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "run_client",
    "python_line_text": "asyncio.run(receive())",
    "facts": ["run_client"],
}
CONTROL = {"kind": "progressing"}
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
