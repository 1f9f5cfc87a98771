"""A multiprocessing.Lock whose holder, a child, was killed: nobody will release it, and nobody can see that.

Such a lock is a number in shared memory, and whoever has it open may release it: a wait, and no proof. In the control
the holder computes with the lock in its hands, slow or endless. Seen: the parent in futex on memory that is shared, in
the control a child in state R.
"""

import multiprocessing
import os
import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "status": "supported",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "take_turn",
    "python_line_text": "with turn:  # parent",
    "facts": [],
}
CONTROL = {"kind": "busy-python"}
LIMIT_S = 110


def hold(turn, held):
    signal.alarm(LIMIT_S)  # fork clears alarms
    with turn:
        held.set()
        if "--control" not in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        seed = 1
        while True:
            seed = seed * 69069 % 2**32


def take_turn(turn):
    with turn:  # parent
        print("its turn", flush=True)


def main():
    fork = multiprocessing.get_context("fork")
    turn, held = fork.Lock(), fork.Event()
    holder = fork.Process(target=hold, args=(turn, held))
    holder.start()
    held.wait()
    if "--control" not in sys.argv:
        holder.join()
    say_ready()
    take_turn(turn)


signal.alarm(LIMIT_S)
main()
