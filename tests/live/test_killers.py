"""Real deaths by memory, by limits and by somebody: the killer or the limit is named, and a near-miss is not.

As root on a machine with version 1 memory and pids control groups; each group is made and removed by its test.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.processes import Harness, until, why_no_namespaces

PYTHON = sys.executable
GROUPS = Path("/sys/fs/cgroup")
LIMIT_BYTES = 200 << 20
EAT = """
import os, sys
for path in sys.argv[1:]:
    open(path + "/cgroup.procs", "w").write(str(os.getpid()))
kept = []
while True:
    kept.append(b"x" * (1 << 20))
"""
WAIT = """
import os, signal, sys
held = b"x" * int(sys.argv[2]) if len(sys.argv) > 2 else b""
open(sys.argv[1], "w").write(str(os.getpid()))
while True:
    signal.pause()
"""

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


@pytest.fixture
def make_group() -> Iterator[Callable[..., Path]]:
    """A control group below that of the test, with the given files written."""
    made: list[Path] = []

    def make(controller: str, **files: int) -> Path:
        if os.getuid() != 0 or not (GROUPS / controller / "cgroup.procs").exists():
            pytest.skip(f"needs root and a version 1 {controller} control group")
        path = GROUPS / controller / f"harness-test-{os.getpid()}-{len(made)}"
        path.mkdir()
        made.append(path)
        for name, value in files.items():
            (path / name.replace("__", ".")).write_text(str(value))
        return path

    yield make
    for path in made:
        until(lambda path=path: not (path / "cgroup.procs").read_text(), "the control group is not empty")
        path.rmdir()


def verdict_of(document: dict[str, Any] | None) -> dict[str, Any]:
    assert document is not None
    return document["verdict"]


def facts(document: dict[str, Any] | None) -> str:
    return "\n".join(ground["fact"] for ground in verdict_of(document)["grounds"])


def oom_row(document: dict[str, Any] | None) -> dict[str, str]:
    assert document is not None
    return next(row for row in document["differential"] if row["hypothesis"] == "oom-kill")


def start(
    harness: Harness, tmp_path: Path, code: str, *arguments: object, options: tuple[str, ...] = ()
) -> tuple[subprocess.Popen[bytes], int]:
    """`harness run` of a program that has said it is ready, and the pid that it told."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    options = ("--verdict", str(harness.verdict_file), *options)
    process = harness.start(PYTHON, "-c", code, ready, *arguments, options=options)
    return process, int(ready.read_text())


def test_a_control_group_that_runs_out_of_memory(harness: Harness, make_group: Callable[..., Path]) -> None:
    group = make_group("memory", memory__limit_in_bytes=LIMIT_BYTES)
    ended = harness(PYTHON, "-c", EAT, group)
    verdict = verdict_of(ended.verdict)
    assert (ended.status, verdict["kind"], verdict["status"]) == (137, "oom-kill", "established")
    assert group.name in verdict["headline"] + facts(ended.verdict)
    assert ended.verdict is not None
    memory = ended.verdict["memory"]
    assert (memory["limit_bytes"], memory["limit"]) == (LIMIT_BYTES, f"control group {group}")
    assert 0.5 * LIMIT_BYTES < memory["peak_bytes"] < 1.2 * LIMIT_BYTES


SIBLING = """
import os, subprocess, sys, signal
ready, group, eat = sys.argv[1:]
sibling = subprocess.Popen([sys.executable, "-c", eat, group])
assert sibling.wait() == -signal.SIGKILL
open(group + "/cgroup.procs", "w").write(str(os.getpid()))
open(ready, "w").write(str(os.getpid()))
while True:
    signal.pause()
"""


@needs_root
def test_an_oom_kill_of_a_sibling_is_not_the_cause(
    harness: Harness, make_group: Callable[..., Path], tmp_path: Path
) -> None:
    """The group did count a kill during the run; ours died of another's SIGKILL, and the report says whose."""
    group = make_group("memory", memory__limit_in_bytes=LIMIT_BYTES)
    process, pid = start(harness, tmp_path, SIBLING, group, EAT)
    os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=60)
    document = harness.read_verdict()
    assert verdict_of(document)["kind"] == "killed"
    assert str(os.getpid()) in verdict_of(document)["headline"]
    assert oom_row(document)["state"] == "ruled-out"


@needs_root
def test_sigkill_while_memory_is_high_is_not_called_oom(
    harness: Harness, make_group: Callable[..., Path], tmp_path: Path
) -> None:
    """INCIDENTS A, "out of memory, 80 %": 90 % of its limit in use, and killed by somebody."""
    group = make_group("memory", memory__limit_in_bytes=LIMIT_BYTES)
    held = int(0.85 * LIMIT_BYTES)
    code = f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')\n" + WAIT
    process, pid = start(harness, tmp_path, code, held)
    os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=60)
    document = harness.read_verdict()
    assert document is not None
    assert (document["verdict"]["kind"], oom_row(document)["state"]) == ("killed", "ruled-out")
    assert document["memory"]["peak_bytes"] > held


@needs_root
@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("inject", ["preload", "none"])
def test_an_outside_kill_is_named(harness: Harness, tmp_path: Path, signo: signal.Signals, inject: str) -> None:
    """A sender that lives on; without anything in the process the kernel alone tells."""
    process, pid = start(harness, tmp_path, WAIT, options=("--inject", inject))
    os.kill(pid, signo)
    process.communicate(timeout=60)
    verdict = verdict_of(harness.read_verdict())
    assert process.returncode == 128 + signo
    assert verdict["kind"] == ("killed" if signo == signal.SIGKILL else "terminated")
    assert f"sent by process {os.getpid()} (" in verdict["headline"]
    assert Path(PYTHON).name in verdict["headline"]


@needs_root
def test_a_signal_in_the_commands_first_moment_is_told(harness: Harness) -> None:
    """Over before harness has looked at the command once."""
    verdict = verdict_of(harness("sh", "-c", "kill -9 $$").verdict)
    assert "sent by itself" in verdict["headline"]


@pytest.mark.parametrize(
    ("signo", "words"), [(15, "sent by itself"), (9, "nothing that was seen says who sent it, or why")]
)
def test_without_the_kernels_word_the_process_itself_tells_and_of_sigkill_nobody_does(
    harness: Harness, signo: int, words: str
) -> None:
    """As for anybody who is not root: no right to trace, and the kernel log is closed."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to give up rights")
    rights = "-sys_admin,-perfmon,-syslog"
    line = harness.line("sh", "-c", f"kill -{signo} $$")
    ended = subprocess.run(
        ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}", *line],
        capture_output=True,
        text=True,
        env=harness.env,
        timeout=60,
    )
    text = " ".join(ended.stderr.split())
    assert ended.returncode == 128 + signo
    assert words in text
    assert "senders of SIGKILL: the kernel tells this to root only" in text
    assert ("no sign of a killer in:" in text) == (signo == 9)


PARENT = """
import multiprocessing, time
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
worker.start()
getattr(worker, {how!r})()
worker.join()
raise RuntimeError(f"DataLoader worker (pid {{worker.pid}}) is killed by signal: Killed. ")
"""


@needs_root
def test_a_parent_that_kills_its_workers_is_named(harness: Harness) -> None:
    ended = harness(PYTHON, "-c", PARENT.format(how="kill"))
    verdict = verdict_of(ended.verdict)
    assert verdict["kind"] == "killed" and verdict["process"]["role"] == "worker"
    assert "sent by its parent, process" in verdict["headline"]


@needs_root
def test_nothing_of_the_listening_is_left_when_harness_is_killed(harness: Harness, tmp_path: Path) -> None:
    """The kernel's record is bound to descriptors: no tracing instance, no mount."""
    mounts = Path("/proc/mounts").read_text()
    process, pid = start(harness, tmp_path, WAIT)
    process.kill()
    process.wait(60)
    assert Path("/proc/mounts").read_text() == mounts
    assert not [fd for fd in Path(f"/proc/{pid}/fd").iterdir() if "perf_event" in str(fd.readlink())]
    os.kill(pid, signal.SIGKILL)


def test_ulimit_v_is_named_and_is_no_oom_kill(harness: Harness) -> None:
    ended = harness("bash", "-c", f"ulimit -v 2097152; exec {PYTHON} -c 'x = bytearray(8 << 30)'")
    verdict = verdict_of(ended.verdict)
    assert verdict["kind"] == "allocation-failure"
    assert "the address space is limited to 2.00 GiB (ulimit -v)" in verdict["headline"]
    assert oom_row(ended.verdict)["state"] == "ruled-out"


@pytest.mark.parametrize(("option", "status"), [("-t", 137), ("-S -t", 152)])
def test_ulimit_t_is_named_whichever_signal_the_kernel_sends(harness: Harness, option: str, status: int) -> None:
    """At the soft limit SIGXCPU; where soft and hard are the same, SIGKILL."""
    ended = harness("bash", "-c", f"ulimit {option} 1; exec {PYTHON} -c 'while True: pass'")
    verdict = verdict_of(ended.verdict)
    assert (ended.status, verdict["kind"], verdict["status"]) == (status, "resource-limit", "established")
    assert "ulimit -t" in verdict["headline"] and "1 s" in verdict["headline"]


THREADS = """
import threading, time
for _ in range(200):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
"""


def test_a_pids_group_that_allows_no_more_threads(harness: Harness, make_group: Callable[..., Path]) -> None:
    group = make_group("pids", pids__max=100)
    ended = harness(PYTHON, "-c", THREADS, preexec_fn=lambda: (group / "cgroup.procs").write_text("0"))
    verdict = verdict_of(ended.verdict)
    assert verdict["kind"] == "resource-limit"
    assert "the control group allows 100 processes and threads (pids.max)" in verdict["headline"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.getuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "harness-test", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


SAVE = """
import sys
open(sys.argv[1] + "/model.pt", "wb", 0).write(bytes(int(sys.argv[2])))
open(sys.argv[1] + "/optimizer.pt", "wb", 0).write(bytes(65536))
"""


@pytest.mark.parametrize("megabytes", [4, 0])
def test_a_full_disk_is_named(harness: Harness, small_disk: Path, megabytes: int) -> None:
    ended = harness(PYTHON, "-c", SAVE, small_disk, megabytes << 20)
    verdict = verdict_of(ended.verdict)
    if megabytes == 0:
        assert verdict["kind"] == "clean"
        return
    assert verdict["kind"] == "resource-limit"
    assert f"{small_disk} (tmpfs, 1 MiB) is full" in verdict["headline"]


GROW = """
import os, sys, time
kept, until_s = [], time.monotonic() + 60
open(sys.argv[1], "w").write(str(os.getpid()))
while time.monotonic() < until_s:
    kept.append(b"x" * (2 << 20))
    time.sleep(0.05)
"""


@needs_root
def test_steady_growth_is_named_with_its_rate(harness: Harness, tmp_path: Path) -> None:
    """Truth: 2 MiB in each of its rounds of 50 ms; under load a round takes longer, so the rate is an upper bound."""
    process, pid = start(harness, tmp_path, GROW)
    time.sleep(7)  # not for readiness: growth is over time
    os.kill(pid, signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    document = harness.read_verdict()
    assert document is not None
    growth = document["memory"]["growth"]
    assert growth is not None and growth["fit"] >= 0.95
    assert 10 << 20 < growth["bytes_per_s"] < 42 << 20
    assert b"steadily (" in stderr and b"would reach the limit" not in stderr  # it is over
    assert document["memory"]["samples"] > 20


OOM_DAY = """
"$@" &
supervisor=$!
read ready < "$READY"
avoid="^(python.*|harness.*|sh|sleep)\\$"
earlyoom -m 99,1 -s 100,100 -r 0 --prefer "^$VICTIM\\$" --avoid "$avoid" 2>&1 | grep -m 1 "SIGTERM to"
wait $supervisor
"""


@pytest.mark.skipif(shutil.which("earlyoom") is None, reason="needs earlyoom; next: apt-get install earlyoom")
def test_earlyoom_is_named_and_can_reach_nobody_else(harness: Harness, tmp_path: Path) -> None:
    """In a pid namespace of its own it sees our victim and us, and nobody else; its first kill is its last words."""
    if reason := why_no_namespaces():
        pytest.skip(reason)
    victim, ready = tmp_path / f"victim{os.getpid() % 10**6}", tmp_path / "ready"
    shutil.copy(shutil.which("dash") or "/bin/sh", victim)
    os.mkfifo(ready)
    line = harness.line(
        victim, "-c", f"echo ready > {ready}; sleep 600", options=("--verdict", str(harness.verdict_file))
    )
    variables = {**harness.env, "READY": str(ready), "VICTIM": victim.name}
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", OOM_DAY, "sh", *line]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
    verdict = verdict_of(harness.read_verdict())
    assert victim.name in done.stdout, done
    assert (done.returncode, verdict["kind"], verdict["status"]) == (143, "oom-kill", "established"), verdict
    assert "earlyoom" in verdict["headline"]
