"""Where a file descriptor of a process leads, in words: a file, a pipe and who has its other end, a peer. Linux.

Reads /proc/PID/{fd,fdinfo,net} and, for pipes and peers, the descriptors of the other processes that we may see, within
bounds. Cannot see into a pipe: that it is empty or full follows from somebody waiting there.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import stat
import struct
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Optional

from harness.capture.living.waits.unix_peers import find_unix_peer

_SEARCH_S = 0.15
_MOST_LINKS = 50_000
_MOST_ROWS = 20_000
_MOST_NAMED = 4
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_STATES = {
    "R": "running", "S": "sleeping", "D": "in uninterruptible sleep", "T": "stopped", "t": "traced",
    "Z": "zombie: dead and not collected", "X": "dead", "I": "idle",
}  # fmt: skip
_TCP = (
    "", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK",
    "LISTEN", "CLOSING", "NEW_SYN_RECV",
)  # fmt: skip

Direction = Optional[Literal["read", "write"]]  # noqa: UP045 (evaluated, on other hosts by Python 3.9 too)


class Leads(NamedTuple):
    """`peer_pids`: who else could end a wait there, as far as can be seen; `is_own`: nobody but the process itself.

    `alone`: nobody else, and all could be seen. `named`: a FIFO, which anybody may still open.
    """

    words: str
    peer_pids: tuple[int, ...] = ()
    is_own: bool = False
    alone: bool = False
    named: bool = False


class Row(NamedTuple):
    """One line of /proc/net/{tcp,udp}; addresses as they stand there."""

    protocol: str
    local: str
    remote: str
    state: str
    unsent: int
    unread: int
    inode: int


class Holders(NamedTuple):
    """Who has one pipe or socket open, by what they opened it for. `complete`: nobody could be overlooked."""

    readers: tuple[int, ...]
    writers: tuple[int, ...]
    complete: bool


def describe_all(pid: int, fds: Mapping[int, Direction], proc: Path) -> list[Leads]:
    """Each with what somebody waits to do there. One search through the other processes serves all."""
    links = {fd: link for fd in fds if (link := _read_link(pid, fd, proc))}
    pipes = {fd for fd, link in links.items() if _is_pipe(pid, fd, link, proc)}
    sockets = {_inode_of(link) for link in links.values() if link.startswith("socket:")}
    rows = _read_rows(pid, proc) if sockets else {}
    peers = {inode: f"socket:[{_find_peer(inode, rows, pid, proc)}]" for inode in sockets}
    holders = find_holders({*peers.values(), *(links[fd] for fd in pipes)}, proc) if sockets or pipes else {}

    def describe(fd: int) -> Leads:
        link = links.get(fd)
        if link is None:
            return Leads(f"descriptor {fd}, of which nothing can be seen")
        if fd in pipes:
            return _describe_pipe(pid, link, holders[link], fds[fd])
        if inode := _inode_of(link):
            return _describe_socket(inode, rows, holders[peers[inode]], pid, proc)
        return _describe_other(pid, fd, link, proc)

    return [describe(fd) for fd in fds]


def read_fdinfo(pid: int, fd: int, proc: Path) -> list[str]:
    try:
        return (proc / str(pid) / "fdinfo" / str(fd)).read_text().splitlines()
    except OSError:
        return []


def name_process(pid: int, proc: Path) -> str:
    try:
        return f"{pid} ({(proc / str(pid) / 'comm').read_text(errors='replace').strip()})"
    except OSError:
        return str(pid)


def name_state(pid: int, proc: Path) -> str:
    """ "1234 (python, sleeping)" """
    try:
        head, _, rest = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return f"{pid} (gone)"
    state = rest.split(maxsplit=1)[0] if rest.split() else "gone"
    return f"{pid} ({head.partition('(')[2]}, {_STATES.get(state, state)})"


def find_holders(links: Iterable[str], proc: Path) -> dict[str, Holders]:
    """Who has these open, by the text of the link: a pipe's or socket's holds its number, a FIFO's is its path."""
    readers: dict[str, set[int]] = defaultdict(set)
    writers: dict[str, set[int]] = defaultdict(set)
    sought, end, seen, complete = set(links), time.thread_time() + _SEARCH_S, 0, True
    for name in os.listdir(proc):  # noqa: PTH208 (names are enough, and there are many)
        if not name.isdigit():
            continue
        try:
            fds = os.listdir(f"{proc}/{name}/fd")  # noqa: PTH208
        except PermissionError:
            complete = complete and _is_kernel_thread(name, proc)
            continue
        except OSError:
            continue
        seen += len(fds)
        if seen > _MOST_LINKS or time.thread_time() > end:
            complete = False
            break
        for fd in fds:
            link = _read_link(int(name), int(fd), proc)
            if link in sought:
                mode = _read_mode(int(name), int(fd), proc)
                if mode != os.O_WRONLY:
                    readers[link].add(int(name))
                if mode != os.O_RDONLY:
                    writers[link].add(int(name))
    return {link: Holders(tuple(sorted(readers[link])), tuple(sorted(writers[link])), complete) for link in sought}


def _is_kernel_thread(name: str, proc: Path) -> bool:
    try:
        return not (proc / name / "cmdline").read_bytes()
    except OSError:
        return False


def _read_link(pid: int, fd: int, proc: Path) -> str | None:
    try:
        return os.fsencode(os.readlink(f"{proc}/{pid}/fd/{fd}")).decode("utf-8", "replace")  # noqa: PTH115
    except OSError:
        return None


def _read_mode(pid: int, fd: int, proc: Path) -> int:
    for line in read_fdinfo(pid, fd, proc):
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE
    return os.O_RDWR


def _is_pipe(pid: int, fd: int, link: str, proc: Path) -> bool:
    if link.startswith("pipe:["):
        return True
    try:
        return link.startswith("/") and stat.S_ISFIFO(os.stat(f"{proc}/{pid}/fd/{fd}").st_mode)  # noqa: PTH116
    except OSError:
        return False


def _describe_pipe(pid: int, link: str, holders: Holders, direction: Direction) -> Leads:
    named = not link.startswith("pipe:")
    name = f"the FIFO {link}" if named else link
    if direction is None:
        others = {*holders.readers, *holders.writers} - {pid}
        return Leads(name, tuple(sorted(others)), named=named)
    role, ends = ("writer", holders.writers) if direction == "read" else ("reader", holders.readers)
    others = set(ends) - {pid}
    state = "which is empty" if direction == "read" else "which is full"
    words = f"{name}, {state} and {_count_ends(role, ends, pid, holders.complete)}"
    return Leads(words, tuple(sorted(others)), alone=holders.complete and not others, named=named)


def _count_ends(role: str, ends: Sequence[int], pid: int, complete: bool) -> str:
    others = [end for end in ends if end != pid]
    visible = "" if complete else " that we can see"
    if not ends:
        return f"has no {role}{visible}"
    if not others:
        return f"whose only {role}{visible} is itself"
    named = ", ".join(map(str, others[:_MOST_NAMED])) + (
        f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    )
    return f"whose {role}{'s are' if len(others) > 1 else ' is'} {named}{' and itself' if pid in ends else ''}"


def _read_rows(pid: int, proc: Path) -> dict[int, Row]:
    """Of the network namespace that the process is in."""
    rows: dict[int, Row] = {}
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        with contextlib.suppress(OSError), (proc / str(pid) / "net" / protocol).open() as file:
            next(file, None)
            for number, line in enumerate(file):
                if number > _MOST_ROWS:
                    break
                words = line.split()
                unsent, _, unread = words[4].partition(":")
                row = Row(protocol, words[1], words[2], words[3], int(unsent, 16), int(unread, 16), int(words[9]))
                rows[row.inode] = row
    return rows


def _find_peer(inode: int, rows: dict[int, Row], pid: int, proc: Path) -> int | None:
    """The inode of the socket at the other end, when that is on this machine too."""
    if own := rows.get(inode):
        ends = (own.remote, own.local)
        return next((row.inode for row in rows.values() if (row.local, row.remote) == ends and row.inode), None)
    return find_unix_peer(inode) if _shares_network(pid, proc) else None


def _inode_of(link: str) -> int:
    found = _SOCKET.match(link)
    return int(found[1]) if found else 0


def _shares_network(pid: int, proc: Path) -> bool:
    try:
        return os.readlink(f"{proc}/{pid}/ns/net") == os.readlink("/proc/self/ns/net")  # noqa: PTH115
    except OSError:
        return False


def _describe_socket(inode: int, rows: dict[int, Row], peer: Holders, pid: int, proc: Path) -> Leads:
    pids = tuple(one for one in peer.readers if one != pid)
    more = f" and {len(pids) - _MOST_NAMED} more" if len(pids) > _MOST_NAMED else ""
    at = f", at its other end {', '.join(name_process(one, proc) for one in pids[:_MOST_NAMED])}{more}" if pids else ""
    if peer.readers == (pid,):
        at = ", at its other end this process itself"
    row = rows.get(inode)
    words = (_describe_unix(inode, pid, proc) if row is None else _describe_row(row)) + at
    is_own = peer.readers == (pid,)
    return Leads(words, pids, is_own, is_own and peer.complete)


def _describe_row(row: Row) -> str:
    local, remote = _parse_endpoint(row.local), _parse_endpoint(row.remote)
    if row.protocol.startswith("udp"):
        return f"UDP {local}" + (f" to {remote}" if int(row.remote.rpartition(":")[2], 16) else "")
    state = _TCP[int(row.state, 16)] if int(row.state, 16) < len(_TCP) else row.state
    if state == "LISTEN":
        return f"{local} (LISTEN, {row.unread or 'nobody'} waiting)"
    received = f"{row.unread} bytes received and not read" if row.unread else "nothing received"
    unsent = f", {row.unsent} bytes not acknowledged" if row.unsent else ""
    return f"{remote} ({state}, {received}{unsent})"


def _parse_endpoint(text: str) -> str:
    """Words of four bytes in the machine's order, port in hexadecimal."""
    address, _, port = text.partition(":")
    raw = b"".join(struct.pack("<I", int(address[at : at + 8], 16)) for at in range(0, len(address), 8))
    if len(raw) == 4:
        return f"{ipaddress.IPv4Address(raw)}:{int(port, 16)}"
    six = ipaddress.IPv6Address(raw)
    return f"{six.ipv4_mapped}:{int(port, 16)}" if six.ipv4_mapped else f"[{six}]:{int(port, 16)}"


def _describe_unix(inode: int, pid: int, proc: Path) -> str:
    with contextlib.suppress(OSError), (proc / str(pid) / "net" / "unix").open(errors="replace") as file:
        for line in file:
            words = line.split(maxsplit=7)
            if len(words) > 6 and words[6] == str(inode):
                return f"Unix socket {words[7].strip()}" if len(words) > 7 else f"Unix socket:[{inode}]"
    return f"socket:[{inode}]"


def _describe_other(pid: int, fd: int, link: str, proc: Path) -> Leads:
    for line in read_fdinfo(pid, fd, proc):
        if line.startswith("Pid:"):
            other = int(line.split()[1])
            return Leads(f"the end of process {name_state(other, proc)}", (other,))
    if link.startswith("anon_inode:"):
        return Leads(f"{link.removeprefix('anon_inode:').strip('[]')} (descriptor {fd})")
    return Leads(f"the terminal {link}" if link.startswith(("/dev/pts/", "/dev/tty")) else link)
