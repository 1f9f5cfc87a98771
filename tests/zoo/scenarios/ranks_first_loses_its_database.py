"""Of two ranks rank 0 fails first: its database refuses the connection. Rank 1 then says that rank 0 did not answer.
Who lost a connection is a consequence only of one that had fallen before. The launcher leaves as it did."""

import os
import socket
import subprocess
import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "worker",
    "rank": "0",
    "user_function": "open_database",
    "headline": ["ConnectionRefusedError", "rank 0"],
}
CONTROL = {"kind": "clean", "exit": 0}


def open_database():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        socket.create_connection(unused.getsockname())


def start_rank(rank, *rest, **facts):
    environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2")
    return subprocess.Popen([sys.executable, __file__, *rest, *sys.argv[1:]], env=environment, **facts)


def launch():
    first = start_rank(0)
    second = start_rank(1, stdin=subprocess.PIPE)
    codes = [first.wait()]
    second.stdin.close()
    return max(*codes, second.wait())


if "RANK" not in os.environ:
    sys.exit(launch())
if "--control" not in sys.argv:
    if os.environ["RANK"] == "0":
        open_database()
    sys.stdin.read()  # ends when rank 0 has ended
    raise RuntimeError("rank 0 did not answer")
