"""Whose memory it was, and looks near a limit: real processes, the kernel's own numbers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.capture.run.glimpses import Glimpses
from harness.capture.run.process_tree import Tree
from tests.live.processes import Harness, until

MIB = 1 << 20
WORKER = """
import os, sys
pid = os.fork()
if pid == 0:
    held = b"x" * (300 << 20)
    os._exit(0)
os.waitpid(pid, 0)
print(pid, flush=True)
sys.exit(3)
"""
GROW = """
import time
def collate(kept):
    while True:
        kept.append(b"x" * (1 << 20))
        time.sleep(0.05)
collate([])
"""
STAND = """
import sys
def stand():
    print("ready", flush=True)
    sys.stdin.read()
stand()
"""


def read(harness: Harness, name: str) -> Any:
    return json.loads((harness.case / f"{name}.json").read_bytes())


def test_a_workers_peak_is_not_its_parents(harness: Harness, script: Callable[[str], list[str]]) -> None:
    ended = harness(*script(WORKER))
    processes = {one["pid"]: one for one in read(harness, "evidence")["timeline"]["processes"]}
    main = processes.pop(read(harness, "evidence")["pid"])
    assert ended.status == 3
    assert main["peak_rss_bytes"] < 100 * MIB <= 300 * MIB <= main["most_rss_bytes"]
    use = read(harness, "verdict")["memory"]
    assert use["peak_bytes"] >= 300 * MIB and use["largest_pid"] in (int(ended.stdout), None)
    because = next(
        row["because"] for row in read(harness, "verdict")["differential"] if row["hypothesis"] == "oom-kill"
    )
    assert "(at most 0.3" in because


def test_one_that_collected_nobody_has_the_kernels_last_number(
    harness: Harness, script: Callable[[str], list[str]]
) -> None:
    harness(*script("held = b'x' * (200 << 20)\ndel held\nraise SystemExit(3)"))
    (process,) = read(harness, "evidence")["timeline"]["processes"]
    assert 200 * MIB <= process["peak_rss_bytes"] < 300 * MIB and "most_rss_bytes" not in process


def test_what_the_one_that_started_harness_had_is_nobodys(harness: Harness, script: Callable[[str], list[str]]) -> None:
    """A notebook of 500 MiB starts harness: the kernel gives a new program the peak of whoever started it."""
    line = harness.line(*script(WORKER))
    starter = f"import subprocess\nheld = b'x' * (500 << 20)\nraise SystemExit(subprocess.call({line!r}))"
    assert subprocess.run([sys.executable, "-c", starter], env=harness.env, check=False).returncode == 3
    evidence = read(harness, "evidence")
    main = next(one for one in evidence["timeline"]["processes"] if one["pid"] == evidence["pid"])
    assert main["peak_rss_bytes"] < 100 * MIB and 300 * MIB <= main["most_rss_bytes"] < 400 * MIB


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Path]:
    base = Path("/sys/fs/cgroup/memory")
    if os.getuid() != 0 or not (base / "memory.limit_in_bytes").exists():
        pytest.skip("needs root and a version 1 memory control group")
    made = base / f"harness-live-{os.getpid()}-{tmp_path.name}"
    made.mkdir()
    yield made
    until(lambda: not (made / "cgroup.procs").read_text(), "the control group is not empty")
    made.rmdir()


def test_where_harness_itself_has_no_room_nobody_looks_and_it_is_said(
    harness: Harness, script: Callable[[str], list[str]], group: Path
) -> None:
    """The command shares our control group, as in a container: the look itself could be what fills it."""
    (group / "memory.limit_in_bytes").write_text(str(160 * MIB))
    ended = harness(*script(GROW), preexec_fn=lambda: (group / "cgroup.procs").write_text("0"))
    assert ended.status == 128 + signal.SIGKILL
    assert read(harness, "verdict")["verdict"]["kind"] == "oom-kill"
    assert read(harness, "evidence")["glimpses"] == []
    gaps = [gap["why"] for gap in read(harness, "verdict")["gaps"] if "near its limit" in gap["what"]]
    assert len(gaps) == 1 and "too little for a safe look" in gaps[0]


def test_a_glimpse_stops_nothing_and_its_tool_is_not_the_commands(
    script: Callable[[str], list[str]],
) -> None:
    command = script(STAND)
    read_end, write_end = os.pipe()
    out, out_end = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, read_end, 0), (os.POSIX_SPAWN_DUP2, out_end, 1)]
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    assert os.read(out, 5) == b"ready"
    tree = Tree(time.monotonic_ns(), set())
    tree.add(pid, os.getpid())
    glimpses = Glimpses(tree)
    before = Path(f"/proc/{pid}/status").read_text().partition("nonvoluntary_ctxt_switches:")[2]
    glimpses.take([pid, 1], "somebody asked")
    (tool,) = tree.not_ours
    assert glimpses.note_exit(*os.waitpid(tool, 0)) and not glimpses.note_exit(tool, 0)
    after = Path(f"/proc/{pid}/status").read_text().partition("nonvoluntary_ctxt_switches:")[2]
    seen, unseen = glimpses.collect()
    os.close(write_end)
    assert os.waitpid(pid, 0)[1] == 0
    assert unseen == {} and before == after
    (one,) = seen
    assert (one.pid, one.event, one.why) == (pid, "failure", "somebody asked")
    assert [frame.function for frame in one.threads[0].frames] == ["stand", "<module>"]
    for fd in (read_end, out, out_end):
        os.close(fd)


def test_a_tool_that_does_not_come_back_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = tmp_path / "py-spy"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o700)
    monkeypatch.setattr("harness.capture.stacks.ladder.find_py_spy", lambda: str(slow))
    monkeypatch.setattr("harness.capture.run.glimpses._DEADLINE_S", 0.0)
    tree = Tree(time.monotonic_ns(), set())
    tree.add(os.getpid(), os.getppid())
    glimpses = Glimpses(tree)
    glimpses.take([os.getpid()], "somebody asked")
    (tool,) = tree.not_ours
    assert glimpses.due <= time.monotonic()
    glimpses.tend()
    _, status = os.waitpid(tool, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL and glimpses.note_exit(tool, status)
    seen, unseen = glimpses.collect()
    assert seen == () and os.getpid() in unseen and glimpses.due == float("inf")
