"""What to do about a wait for something outside, by what it is that is waited for. Words only."""

from __future__ import annotations

import re

from harness.diagnose.living.thread_waits import FILE_LOCKS
from harness.documents.verdict import Remedy
from harness.evidence.living.look import SLEEPS_AGAIN, LivingThread, Wait

_SLEEP = re.compile(r"sleeps, .* left|waits for no descriptor: a sleep")
_NETWORK = re.compile(r"\b(?:TCP|UDP|unix socket)\b|\bsocket\b", re.IGNORECASE)
_PIPE = re.compile(r"pipe:\[|\bFIFO ")


def is_sleeping(thread: LivingThread) -> bool:
    """One sleep, which ends by itself; not one that is slept again and again in a loop."""
    return thread.wait is not None and _SLEEP.search(thread.wait.target or "") is not None


def sleeps_again(thread: LivingThread) -> bool:
    """It was seen in two sleeps that end at different times."""
    return thread.wait is not None and thread.wait.target == SLEEPS_AGAIN


def advise(wait: Wait, thread: LivingThread) -> Remedy:
    target = wait.target or ""
    if FILE_LOCKS.fullmatch(wait.syscall or ""):
        do = "Look at who holds the file lock; to give up instead, take it with LOCK_NB and try again until a limit."
        return Remedy(do, True, "it comes back when its holder lets go of it or ends")
    if _PIPE.search(target):
        do = "Look at the other end of the pipe: who should read or write there, and who keeps it open without need."
        return Remedy(do, True, "a pipe has no time limit; it ends when its other end is closed")
    if wait.syscall == "connect" or _NETWORK.search(target):
        do = "Look at the other end, and set a time limit (socket.settimeout, or the client's own timeout)."
        return Remedy(do, True, "nobody has answered")
    if thread.state == "D":
        do = "Look at the storage behind it: dmesg, the server of a network mount, the disk."
        return Remedy(do, True, "the kernel waits for a device or a file server, and no signal gets through")
    return Remedy("Look at what should answer it.", True, "nobody has answered")
