"""Supervisor, relays and tools killed within 50 ms: some seeds of killing.py, which runs a thousand by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.killing import run_trial
from tests.live.processes import DEADLINE_S, Harness, bare, open_gate, relays_of, until

SLOW_JOB = """
import os
os.write(1, b"begun\\n")
open({gate!r}).read()
for i in range(20000):
    os.write(1, b"%07d\\n" % i * 8)
os.write(2, b"the end\\n")
os._exit(5)
"""
WHOLE = b"begun\n" + b"".join(b"%07d\n" % i * 8 for i in range(20000))


@pytest.mark.parametrize("seed", range(8))
def test_killed_together(seed: int) -> None:
    found = run_trial(seed)
    assert found.wrong is None, f"killed {found.killed}: {found.wrong}"


@pytest.mark.parametrize("order", [("relays", "supervisor"), ("supervisor", "relays")])
def test_both_gone_while_it_writes_nothing(
    harness: Harness, script, gate: Path, tmp_path: Path, order: tuple[str, str]
) -> None:
    """Nobody was in the middle of a chunk: not a byte is missing, and its status is its own."""
    job = script(SLOW_JOB.format(gate=str(gate)))
    keeps = f'"$@"; echo $? > {tmp_path}/status'
    process = harness.start("sh", "-c", keeps, "sh", *job)
    assert process.stdout.read(6) == b"begun\n"
    relays = until(lambda: len(found := relays_of(process.pid)) == 2 and found, "no two relays")
    for whom in order:
        for pid in relays if whom == "relays" else [process.pid]:
            os.kill(pid, signal.SIGKILL)
    assert process.wait(DEADLINE_S) == -signal.SIGKILL
    open_gate(gate)
    assert process.stdout.read() == WHOLE[6:]
    assert process.stderr.read() == b"the end\n"
    assert until((tmp_path / "status").exists, "no status") and (tmp_path / "status").read_text() == "5\n"


def test_pkill_by_name_hits_the_supervisor_only(harness: Harness, script, gate: Path) -> None:
    """As the installed command is called; by name, and by command line."""
    process = harness.start(*script(SLOW_JOB.format(gate=str(gate))))
    assert process.stdout.read(6) == b"begun\n"
    children = subprocess.run(["ps", "-o", "comm=,args=", "--ppid", str(process.pid)], capture_output=True, check=True)
    ours = [line for line in children.stdout.decode().splitlines() if "job.py" not in line]
    assert len(ours) >= 3 and not any("harness" in line for line in ours), ours
    open_gate(gate)
    process.communicate(timeout=DEADLINE_S)


def test_a_reader_that_has_gone_ends_the_command(harness: Harness) -> None:
    """The holder lets go of the read end: `| head` ends the command by SIGPIPE as it would without us."""
    job = (sys.executable, "-c", "import signal; signal.signal(13, 0)\nwhile True: print('y' * 100)")
    quoted = " ".join(f"'{word}'" if " " not in word else f'"{word}"' for word in harness.line(*job)[:-1])
    line = f'{quoted} "$0" | head -1 | wc -l; echo ${{PIPESTATUS[0]}}'
    ended = bare("bash", "-c", line, job[2], env=harness.env)
    assert ended.stdout.split() == [b"1", b"141"], ended.stderr
