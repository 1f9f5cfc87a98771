"""Signals that are sent and counted, and what a process makes of them."""

from __future__ import annotations

import subprocess

from tests.live.processes import DEADLINE_S

# Tells its counts on SIGWINCH: harness passes signals on in the order they came, and sigwait takes the lowest number
# first, so by then every other signal has been passed on and counted. No handlers: one that runs just before the wait
# would leave it waiting.
COUNTER = """
import os, signal
counts = dict.fromkeys((signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM), 0)
awaited = [*counts, signal.SIGWINCH]
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
print("ready")
while (signo := signal.sigwait(awaited)) != signal.SIGWINCH:
    counts[signo] += 1
    print("got", int(signo))
print("counted", *counts.values())
raise SystemExit(5)
"""


def send_from_elsewhere(signo: int, pid: int) -> int:
    """Sends as a process of its own; returns that process's pid, which stays known until its end."""
    sender = subprocess.Popen(["sh", "-c", f"kill -{signo} {pid}"])
    assert sender.wait(DEADLINE_S) == 0
    return sender.pid


def masks(status: bytes) -> dict[str, int]:
    fields = dict(line.split(":", 1) for line in status.decode().splitlines())
    return {name: int(fields[name], 16) for name in ("SigBlk", "SigIgn", "SigCgt")}
