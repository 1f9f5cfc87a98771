"""An ssh that plays many hosts: it speaks the far side's part with looks that were made beforehand. No network."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from harness.evidence.crash import CrashFrame
from harness.evidence.living.look import HotSpot, LivingProcess, LivingThread, Look

_SSH = """#!{python} -IS
import re, sys
host, command = sys.argv[sys.argv.index("--") + 1:]
if host.startswith("dead"):
    sys.exit("ssh: connect to host " + host + " port 22: No route to host")
token = re.search("t=([0-9a-f]+);", command)[1]
facts = ["hello", "us Linux", "um x86_64", "un " + host, "ur 6.1", "id 0"]
facts += ["python 311 /usr/bin/python3", "spy /usr/bin/py-spy"]
print("".join(token + " " + fact + "\\n" for fact in [*facts, "end"]), end="", flush=True)
for line in sys.stdin.buffer:
    asked = re.search(rb'"call":"look","id":(\\d+)', line)
    if asked:
        look = open("{folder}/" + host + ".json", errors="surrogateescape").read()
        sys.stdout.reconfigure(errors="surrogateescape")
        print(token + ' {{"id":' + asked[1].decode() + ',"kind":"done","body":' + look + "}}", flush=True)
"""


def play_hosts(folder: Path, ranks: Iterable[int], odd: int = 12) -> dict[str, str]:
    """Hosts gpu00, gpu01, … with one rank each; the environment in which ssh leads there. `odd` is elsewhere."""
    ssh = folder / "ssh"
    ssh.write_text(_SSH.format(python=os.path.realpath(sys.executable), folder=folder))
    ssh.chmod(0o755)
    for rank in ranks:
        (folder / f"gpu{rank:02}.json").write_bytes(msgspec.json.encode(make_look(rank, rank == odd)))
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HARNESS_CASES": str(folder / "cases")}


def make_look(rank: int, is_odd: bool) -> Look:
    pid = 100 + rank % 4  # the same numbers on many hosts
    main = CrashFrame("python", "<module>", "/job/train.py", 99)
    inside = (CrashFrame("native", "gloo::wait", image="/job/site-packages/torch/lib/libtorch_cpu.so"),)
    stack = (
        (CrashFrame("python", "refill", "/job/train.py", 88), main)
        if is_odd
        else (
            *inside,
            CrashFrame("python", "all_reduce", "/job/site-packages/torch/distributed/distributed_c10d.py", 9),
            CrashFrame("python", "sync", "/job/train.py", 40),
            main,
        )
    )
    thread = LivingThread(pid, "MainThread", "R" if is_odd else "S", 1.0 if is_odd else 0.0, stack, changed=False)
    hot = (HotSpot(stack[0], 4, 4, pid),) if is_odd else ()
    process = LivingProcess(
        pid,
        1,
        "python",
        ("python", "train.py"),
        "/usr/bin/python3",
        "3.11",
        thread.state,
        60.0,
        rank=str(rank),
        threads=(thread,),
        hot=hot,
    )
    started = f"2026-11-{1 + rank % 28:02}T00:00:00+0000"
    return Look("0.1.0", "linux-x86_64", started, 1.0, 4, (pid,), (process,))
