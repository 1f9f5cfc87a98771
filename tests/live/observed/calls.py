"""Blocking calls of Python, and what they returned; whoever looks on must not change it.

Each ends by itself, in a process of its own, so that one look at the parent is one at all.
"""

import multiprocessing
import os
import select
import signal
import socket
import sys
import threading
import time

LARGE = 1 << 20
LIMIT_S = float(sys.argv[1])


def in_a_while(serve):
    threading.Thread(target=lambda: (time.sleep(LIMIT_S / 2), serve()), daemon=True).start()


def recv_all():
    """In two parts."""
    here, there = socket.socketpair()

    def serve():
        there.sendall(b"x" * 64)
        time.sleep(LIMIT_S / 4)
        there.sendall(b"x" * 64)

    in_a_while(serve)
    return len(here.recv(128, socket.MSG_WAITALL))


def write_large():
    read_end, write_end = os.pipe()

    def serve():
        left = LARGE
        while left:
            left -= len(os.read(read_end, left))

    in_a_while(serve)
    return os.write(write_end, bytes(LARGE))


def epoll():
    return select.epoll().poll(LIMIT_S)


def wait_for_signal():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    return signal.sigtimedwait([signal.SIGUSR1], LIMIT_S)


def say_much(queue):
    queue.put(b"x" * LARGE)


def queue_joined():
    """The child cannot end before its queue is drained; the drain comes late."""
    queue = multiprocessing.Queue()
    child = multiprocessing.Process(target=say_much, args=(queue,))
    child.start()
    child.join(LIMIT_S / 2)
    was_alive = child.is_alive()
    size = len(queue.get())
    child.join()
    return was_alive, size, child.exitcode


def run(ask, out):
    os.write(out, f"{ask.__name__} {ask()!r}\n".encode())


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    asked = [recv_all, write_large, epoll, wait_for_signal, queue_joined]
    children = [multiprocessing.Process(target=run, args=(ask, 1)) for ask in asked]
    for child in children:
        child.start()
    print("ready", file=sys.stderr, flush=True)
    for child in children:
        child.join()
