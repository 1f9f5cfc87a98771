"""Supervisor, relays and tools killed together: a seeded trial each, of a job that talks, leaves or crashes.

`make killing TRIALS=1000 SEED=1`: what is found wrong is printed with its seed, and then the figures. Within 50 ms some
of them are killed with SIGKILL, in any order. The job must go on to the end that it would have had, with all its
output, but for 64 KiB of a channel whose relay was among them; nothing stays stopped or is left behind.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from harness.capture.proc import read_argv
from tests.live.processes import Harness, state_of

LINES, WIDTH, LEAVES, CRASHES = 400, 64, 5, 139
_DEADLINE_S = 60.0
# Numbered lines on both channels for a fifth of a second, then its end; its parent, a shell, keeps the status.
JOB = """
import ctypes, os, sys, time
for number in range({lines}):
    for fd in (1, 2):
        os.write(fd, b"%0{width}d\\n" % number)
    time.sleep(0.0005)
if {crashes}:
    ctypes.string_at(0)
os._exit({leaves})
"""
_LOST_BYTES = 64 * 1024


class Found(NamedTuple):
    """`killed`: roles, in order."""

    killed: tuple[str, ...]
    wrong: str | None


def run_trial(seed: int) -> Found:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="harness-killing-") as folder:
        return _run(chance, Path(folder))


def _run(chance: random.Random, folder: Path) -> Found:
    crashes = chance.random() < 0.5
    job = folder / "job.py"
    job.write_text(JOB.format(lines=LINES, width=WIDTH - 1, crashes=crashes, leaves=LEAVES))
    harness = Harness(folder)
    keeps = f'{sys.executable} {job}; echo $? > "{folder}/status"'
    files = [(folder / name).open("wb") for name in ("stdout", "stderr")]
    readers = [subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file) for file in files]
    process = subprocess.Popen(
        harness.line("sh", "-c", keeps),
        stdin=subprocess.DEVNULL,
        stdout=readers[0].stdin,
        stderr=readers[1].stdin,
        env=harness.env,
    )
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.close()
    killed = _kill_some(chance, process, folder)
    try:
        for reader in readers:
            reader.wait(_DEADLINE_S)
        process.wait(_DEADLINE_S)
        wrong = _check(folder, killed, CRASHES if crashes else LEAVES)
    except subprocess.TimeoutExpired as error:
        states = {pid: (state_of(pid), read_argv(pid)[:3]) for pid in _list_of(folder)}
        wrong = f"not over: {error}; {states}"
    for pid in _list_of(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for one in (process, *readers):
        one.kill()
        one.wait()
    return Found(tuple(role for role, _ in killed), wrong)


def _kill_some(chance: random.Random, process: subprocess.Popen[bytes], folder: Path) -> list[tuple[str, int]]:
    """At any moment from the first line on to some time after the last; who is there then is known by its work."""
    until = time.monotonic() + _DEADLINE_S
    while not (folder / "stdout").stat().st_size and process.poll() is None and time.monotonic() < until:
        time.sleep(0.001)
    time.sleep(chance.uniform(0.0, 1.3))
    there = list(_find_ours(process.pid))
    chosen = chance.sample(there, chance.randint(1, len(there))) if there else []
    moments = sorted(chance.uniform(0.0, 0.05) for _ in chosen) if chance.random() < 0.8 else [0.0] * len(chosen)
    begun = time.monotonic()
    for moment, (_, pid) in zip(moments, chosen, strict=True):
        time.sleep(max(0.0, begun + moment - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return chosen


def _find_ours(supervisor: int) -> Iterator[tuple[str, int]]:
    """The supervisor, its relays and its tools; the holder is what this is about and stays."""
    if state_of(supervisor) in (None, "Z"):
        return
    yield "supervisor", supervisor
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    for pid in map(int, children):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            if name == "output-relay":
                yield f"relay of {_channel_of(pid)}", pid
            elif name not in ("output-holder", "signals-of", "sh"):
                yield "tool", pid


def _channel_of(relay: int) -> str:
    """By the copy that it keeps."""
    kept = {os.readlink(entry).rpartition("/")[2] for entry in Path(f"/proc/{relay}/fd").iterdir()}  # noqa: PTH115
    return "stdout" if "stdout.log" in kept else "stderr"


def _check(folder: Path, killed: list[tuple[str, int]], status: int) -> str | None:
    told = (folder / "status").read_text().strip() if (folder / "status").exists() else "none"
    if told != str(status):
        return f"the job's status is {told}, not {status}"
    whole = b"".join(b"%0*d\n" % (WIDTH - 1, number) for number in range(LINES))
    for name in ("stdout", "stderr"):
        got = b"".join(line + b"\n" for line in (folder / name).read_bytes().splitlines() if _is_numbered(line))
        may_lose = _LOST_BYTES if f"relay of {name}" in dict(killed) else 0
        if len(got) > len(whole) or len(got) < len(whole) - may_lose or (not may_lose and got != whole):
            return f"{name} has {len(got)} of {len(whole)} bytes"
    give_up = time.monotonic() + 5.0
    while left := [pid for pid in _list_of(folder) if state_of(pid) not in (None, "Z")]:
        if time.monotonic() > give_up:
            return f"left behind: {[(state_of(pid), read_argv(pid)) for pid in left]}"
        time.sleep(0.01)
    return None


def _is_numbered(line: bytes) -> bool:
    return len(line) == WIDTH - 1 and line.isdigit()


def _list_of(folder: Path) -> list[int]:
    """Processes that have this trial's folder in their environment or open: all that it has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if os.fsencode(folder) in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def main() -> int:
    trials, first = (int(word) for word in (*sys.argv[1:], *("1000", "1")[len(sys.argv) - 1 :]))
    begun = time.monotonic()
    found: list[Found] = []
    with ThreadPoolExecutor(4) as pool:
        for seed, one in enumerate(pool.map(run_trial, range(first, first + trials)), first):
            found.append(one)
            if one.wrong:
                print(f"seed {seed}, killed {', '.join(one.killed)}: {one.wrong}", flush=True)
    roles = [role.split(" ")[0] for one in found for role in one.killed]
    counts = ", ".join(f"{roles.count(role)} {role}s" for role in ("supervisor", "relay", "tool"))
    wrong = sum(one.wrong is not None for one in found)
    print(f"{trials} trials, {wrong} wrong; killed {counts}, in {time.monotonic() - begun:.0f} s")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
