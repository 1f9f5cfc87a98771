"""64 children live at once; number 37 aborts, the parent waits for all and exits with 1.
Only that child's wait status is a signal (SIGABRT); the other 63 end with 0."""

import os
import sys
import time

EXPECT = {
    "kind": "abort",
    "status": "supported",
    "exit": 1,
    "signal": "SIGABRT",
    "role": "worker",
    "user_function": "encode_shard",
    "headline": ["encode_shard"],
}
CONTROL = {"kind": "clean", "exit": 0}


def encode_shard(number, broken):
    if broken and number == 37:
        os.abort()


def start_child(number, broken, start_line):
    pid = os.fork()
    if pid:
        return pid
    reader, writer = start_line
    os.close(writer)
    os.read(reader, 1)  # returns when the parent has closed its end: all 64 are alive by then
    encode_shard(number, broken)
    os._exit(0)


def encode_all(broken):
    start_line = os.pipe()
    children = [start_child(number, broken, start_line) for number in range(64)]
    time.sleep(0.1)  # a child that lives shorter than a look at the process table can be missed
    os.close(start_line[1])
    statuses = [os.waitpid(pid, 0)[1] for pid in children]
    return 1 if any(statuses) else 0


sys.exit(encode_all(broken="--control" not in sys.argv))
