"""The crash link when its other end misbehaves: the command always dies as it would have died."""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DEADLINE_S = 60
# Says where it is, waits for a line, then reads address 0.
VICTIM = """
import ctypes, os, sys
print(os.getpid(), os.environ["HARNESS_LINK"], flush=True)
sys.stdin.readline()
ctypes.string_at(0)
"""
PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(autouse=True)
def adopt_orphans() -> Iterator[None]:
    """The command's status comes to us when its supervisor is gone."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def start(tmp_path: Path, program: str = VICTIM, core: str = "auto") -> tuple[subprocess.Popen[str], int, Path]:
    command = [
        sys.executable,
        "-m",
        "harness",
        "run",
        "--core",
        core,
        "--verdict",
        tmp_path / "v.json",
        "--",
        sys.executable,
        "-c",
        program,
    ]
    environment = {**os.environ, "HARNESS_CASES": str(tmp_path / "cases")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # Without its supervisor nobody moves its core: that stays where it worked.
    supervisor = subprocess.Popen(command, env=environment, text=True, cwd=tmp_path, **pipes)
    assert supervisor.stdout is not None
    pid, link = supervisor.stdout.readline().split()
    return supervisor, int(pid), Path(link)


def go_on(supervisor: subprocess.Popen[str]) -> None:
    assert supervisor.stdin is not None
    supervisor.stdin.write("\n")
    supervisor.stdin.flush()


def wait_for_end(pid: int) -> None:
    pidfd = os.pidfd_open(pid)
    assert select.select([pidfd], [], [], DEADLINE_S)[0], "it did not end"
    os.close(pidfd)


def wait_until_stopped(pid: int) -> None:
    until = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < until
        os.sched_yield()


def test_a_stopped_supervisor_costs_the_command_its_deadline_and_no_more(tmp_path: Path) -> None:
    supervisor, pid, _ = start(tmp_path)
    supervisor.send_signal(signal.SIGSTOP)
    wait_until_stopped(supervisor.pid)
    go_on(supervisor)
    wait_for_end(pid)  # while the supervisor still stands
    supervisor.send_signal(signal.SIGCONT)
    assert supervisor.wait(DEADLINE_S) == 128 + signal.SIGSEGV


def test_a_supervisor_killed_while_the_command_waits_lets_it_go(tmp_path: Path) -> None:
    supervisor, pid, _ = start(tmp_path)
    supervisor.send_signal(signal.SIGSTOP)  # so that it is surely killed before it could have answered
    wait_until_stopped(supervisor.pid)
    go_on(supervisor)
    supervisor.kill()
    supervisor.wait(DEADLINE_S)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGSEGV


def test_a_removed_link_directory_costs_the_capture_only(tmp_path: Path) -> None:
    supervisor, _, link = start(tmp_path, core="never")
    shutil.rmtree(link.parent)
    go_on(supervisor)
    assert supervisor.wait(DEADLINE_S) == 128 + signal.SIGSEGV
    document = json.loads((tmp_path / "v.json").read_bytes())
    assert document["verdict"]["kind"] == "segfault"
    assert "native stack" in [gap["what"] for gap in document["gaps"]]


def test_the_link_directory_is_private(tmp_path: Path) -> None:
    supervisor, _, link = start(tmp_path)
    assert link.parent.stat().st_mode & 0o777 == 0o700
    if os.getuid() == 0:
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect({str(link)!r})"
        stranger = subprocess.run(["/usr/bin/python3", "-c", connect], user=65534, capture_output=True, text=True)
        assert "PermissionError" in stranger.stderr
    go_on(supervisor)
    assert supervisor.wait(DEADLINE_S) == 128 + signal.SIGSEGV


@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.0\r\n\r\n", b"\0" * 100_000], ids=["nothing", "text", "zeros"])
def test_a_stranger_on_the_link_is_no_crash(words: bytes, tmp_path: Path) -> None:
    """Same user, but not below the supervisor: whatever it says is not a crash of the command."""
    supervisor, _, link = start(tmp_path, VICTIM.replace("ctypes.string_at(0)", "print('done')"))
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(link))
        try:
            stranger.sendall(words)
            assert stranger.recv(1) == b""  # turned away
        except OSError:
            pass  # or already gone while we were talking
    go_on(supervisor)
    assert supervisor.wait(DEADLINE_S) == 0
    assert json.loads((tmp_path / "v.json").read_bytes())["verdict"]["kind"] == "clean"


def test_nothing_is_left_of_the_link(tmp_path: Path) -> None:
    supervisor, _, link = start(tmp_path)
    go_on(supervisor)
    assert supervisor.wait(DEADLINE_S) == 128 + signal.SIGSEGV
    assert not link.parent.exists()


LISTEN = """
import os, socket, sys
folder = os.path.dirname(sys.argv[1])
os.mkdir(folder)
os.chmod(folder, 0o777)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
listener.listen()
print("ready", flush=True)
connection, _ = listener.accept()
print(len(connection.recv(1)), flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_a_crash_is_told_to_nobody_who_has_taken_the_place_of_the_link(tmp_path: Path) -> None:
    supervisor, _, link = start(tmp_path, core="never")
    shutil.rmtree(link.parent)
    command = ["/usr/bin/python3", "-c", LISTEN, str(link)]
    with subprocess.Popen(command, user=65534, stdout=subprocess.PIPE) as stranger:
        try:
            assert stranger.stdout is not None and stranger.stdout.readline() == b"ready\n"
            go_on(supervisor)
            assert supervisor.wait(DEADLINE_S) == 128 + signal.SIGSEGV
            assert stranger.stdout.readline() == b"0\n"
        finally:
            stranger.kill()
            shutil.rmtree(link.parent, ignore_errors=True)


def test_what_a_killed_supervisor_has_left_is_gone_after_the_next_run(tmp_path: Path) -> None:
    supervisor, pid, link = start(tmp_path, core="never")
    supervisor.kill()
    supervisor.wait(DEADLINE_S)
    os.kill(pid, signal.SIGKILL)
    assert link.parent.exists()
    os.utime(link.parent, (0, 0))  # as if it were some minutes later
    again = [sys.executable, "-m", "harness", "run", "--cases", str(tmp_path / "again"), "--", "true"]
    subprocess.run(again, check=True, timeout=DEADLINE_S, env={**os.environ, "TMPDIR": str(link.parent.parent)})
    assert not link.parent.exists()
