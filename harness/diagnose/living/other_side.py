"""Can a wait for a file, a pipe, a socket or a file lock still end, as far as its other side shows? Pure.

That nobody has answered for some seconds says nothing about the next one. A handler of a signal may answer what its
own process waits for: a pipe to itself is there to be woken by. Whoever knows the name of a FIFO may come and open it:
so idle servers wait. And a disk or a file server may always answer yet.
"""

from __future__ import annotations

from harness.diagnose.living.thread_waits import is_timed
from harness.diagnose.words import name_some
from harness.evidence.living.look import LivingProcess, LivingThread, Peer, Wait

NOT_KNOWN = "whether somebody answers cannot be known from here"


def tell_hopeless(process: LivingProcess, thread: LivingThread, wait: Wait) -> str | None:
    """Why it does not end by itself, in words. Null: nothing shows that."""
    if thread.state == "D" or wait.named:
        return None
    if not all(_rests(other) for other in process.threads if other is not thread):
        return None
    if wait.alone:
        handles = process.rest is not None and process.rest.handled_signals != ()
        return None if handles else "no other process has its other end open"
    if not wait.peers or {peer.pid for peer in wait.peers} != set(wait.peer_pids):
        return None
    ring = {process.pid, *wait.peer_pids}
    told = [words for peer in wait.peers if (words := _tell_peer(peer, ring))]
    return " and ".join(told) if len(told) == len(wait.peers) else None


def _tell_peer(peer: Peer, ring: set[int]) -> str | None:
    if peer.state == "T" and peer.still:
        return f"process {peer.pid} is stopped by a signal"
    if peer.awaits and set(peer.awaits) <= ring:
        return f"process {peer.pid} itself waits for process {name_some([str(pid) for pid in peer.awaits], 4)}"
    return None


def _rests(thread: LivingThread) -> bool:
    """Another thread of its process would have to wake it: it will not end the wait of a third."""
    wait = thread.wait
    if thread.state != "S" or thread.changed or wait is None or wait.syscall != "futex" or is_timed(thread):
        return False
    return "with a timeout" not in (wait.target or "") and "shared with" not in (wait.target or "")
