"""A supervisor that was kept from running: what happened meanwhile is told in the order in which it happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.capture.cores.finding import read_pattern
from tests.zoo.driver import find_child

DEADLINE_S = 60
POOL = """
import concurrent.futures, ctypes, os, signal, sys
def die(how):
    ctypes.string_at(0) if how == "SIGSEGV" else os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        pool.submit(len, "").result()
        open(sys.argv[2], "w").close()
        open(sys.argv[3]).read()
        pool.submit(die, sys.argv[1]).result()
"""


ALONE = """
import ctypes, sys
def read_row():
    return ctypes.string_at(0)
open(sys.argv[1], "w").close()
open(sys.argv[2]).read()
read_row()
"""


@pytest.mark.parametrize(("signame", "kind"), [("SIGSEGV", "segfault"), ("SIGKILL", "killed")])
def test_a_worker_that_died_first_is_the_cause_whenever_it_was_noticed(signame: str, kind: str, tmp_path: Path) -> None:
    told = supervise_late(POOL, [signame], 1, tmp_path)
    assert (told["kind"], told["process"]["role"]) == (kind, "worker"), told


def test_what_left_before_it_could_be_looked_at_is_read_from_its_core(tmp_path: Path) -> None:
    if not read_pattern()[0].startswith("core"):
        pytest.skip("needs a core_pattern that writes into the working directory")
    told = supervise_late(ALONE, [], 139, tmp_path)
    assert (told["kind"], told["status"], told["user_frame"]["function"]) == ("segfault", "established", "read_row")
    assert Path(told["faulting_image"]["image"]).name.startswith("libc")


def supervise_late(source: str, words: list[str], status: int, tmp_path: Path) -> dict[str, Any]:
    """The verdict of a supervisor that is stopped from when the program is ready until that is dead."""
    script, ready, go, verdict = (tmp_path / name for name in ("program.py", "ready", "go", "verdict.json"))
    script.write_text(source)
    os.mkfifo(ready)
    os.mkfifo(go)
    command = [sys.executable, str(script), *words, str(ready), str(go)]
    run = [sys.executable, "-m", "harness", "run", "--verdict", str(verdict), "--", *command]
    environment = {**os.environ, "HARNESS_CASES": str(tmp_path / "cases")}
    with subprocess.Popen(run, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL) as harness:
        try:
            ready.read_text()
            main = find_child(harness.pid, command)
            harness.send_signal(signal.SIGSTOP)
            go.write_text("")
            wait_until_dead(main)
        finally:
            harness.send_signal(signal.SIGCONT)
        assert harness.wait(DEADLINE_S) == status
    return json.loads(verdict.read_bytes())["verdict"]


def wait_until_dead(pid: int) -> None:
    """Its parent is stopped and cannot collect it."""
    give_up = time.monotonic() + DEADLINE_S
    while " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < give_up
        time.sleep(0.02)
