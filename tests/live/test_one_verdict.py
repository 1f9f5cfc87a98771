"""One hang of real ranks below a real torchrun, asked for in every way there is: one verdict.

A heartbeat writes beside the rank that has not come, and beside the one that waits for it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.processes import DEADLINE_S, until

RANKS = """
import os, sys, threading, time
import torch.distributed as dist

def beat(path):
    with open(path, "w", buffering=1) as log:
        while True:
            print("alive", file=log)
            time.sleep(0.05)

def load(parts):
    return os.read(parts, 100)

def sync():
    dist.barrier()

here, folder, rank = sys.argv[1], os.path.dirname(sys.argv[1]), os.environ["RANK"]
dist.init_process_group("gloo")
sync()
threading.Thread(target=beat, args=(f"{folder}/{rank}.log",), daemon=True).start()
with open(here, "w") as ready:
    print(rank, os.getpid(), os.getppid(), file=ready)
if rank == "1":
    load(os.pipe()[0])
sync()
"""
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2")
ENVIRONMENT = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


def test_every_way_of_asking_gives_one_verdict(harness: Any, script: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    python, job = script(RANKS, name=f"ranks-{os.getpid()}.py")
    options, env = ("--stall-after", "8s"), {**harness.env, **ENVIRONMENT}
    os.mkfifo(here := tmp_path / "here")
    run = harness.start(python, *LAUNCH, job, here, options=options, env=env, start_new_session=True)
    try:
        with os.fdopen(os.open(here, os.O_RDWR)) as told_here:  # for both ways: it has no end between two ranks
            (_, first, launcher), (_, second, _) = sorted([*map(int, told_here.readline().split())] for _ in range(2))
        watch = start("watch", launcher, "--stall-after", "3", "--json-lines")
        ways = ((launcher,), ("--match", Path(job).name), (first, second))
        looks = [start("attach", *way, "--for", "3", "--json") for way in ways]
        answers = [(json.loads(look.communicate(timeout=2 * DEADLINE_S)[0]), look.returncode) for look in looks]
        told = {essence(document) for document, _ in answers}
        assert {status for _, status in answers} == {10}
        stall = next(event for line in watch.stdout or () if (event := json.loads(line))["event"] == "stall")
        assert "something of it moves" in stall["text"]
        kept = until(lambda: next(harness.cases.glob("*/stall.json"), None), "the stall of harness run")
        told |= {essence(stall["verdict"]), essence(json.loads(kept.read_bytes()))}
        line = Path(job).read_text().splitlines().index("    return os.read(parts, 100)") + 1
        assert told == {("blocked-collective", "established", second, "load", line)}
    finally:
        os.killpg(run.pid, signal.SIGTERM)
        run.communicate(timeout=DEADLINE_S)
    assert watch.wait(DEADLINE_S) in (10, 11)


def start(*words: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "harness", *map(str, words)], stdout=subprocess.PIPE)


def essence(document: dict[str, Any]) -> tuple[object, ...]:
    """Of several targets, what is told of the one that waits for the other."""
    targets = document["targets"] if document["schema"] == "harness.group/1" else [document]
    verdict = next(one["verdict"] for one in targets if one["verdict"]["kind"] == "blocked-collective")
    frame = verdict["user_frame"]
    return verdict["kind"], verdict["status"], verdict["process"]["pid"], frame["function"], frame["line"]
