"""Which process on which host a TARGET means: `PID`, `[user@]host:PID`, `ssh://[user@]host[:port]/PID`, `host:`.

Refuses whatever could be taken for an option or a command by ssh or a shell on the way. Connects to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.errors import UsageError

# What ssh and shells pass on untouched. A name that starts with "-" would be an option.
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_ADDRESS = re.compile(r"[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?")
_HINT = "harness attach user@host:PID, or ssh://user@host:2222/PID"
_MOST_HOSTS = 4096


class Host(NamedTuple):
    """`name` null: this machine, or what --via leads to."""

    name: str | None = None
    user: str | None = None
    port: int | None = None

    @property
    def destination(self) -> str:
        return f"{self.user}@{self.name}" if self.user else str(self.name)

    def target(self, pid: int | str = "") -> str:
        """As it is typed."""
        if self.name is None:
            return str(pid)
        shown = f"[{self.name}]" if ":" in self.name else self.name
        user = f"{self.user}@" if self.user else ""
        return f"ssh://{user}{shown}:{self.port}/{pid}" if self.port else f"{user}{shown}:{pid}"


HERE = Host()


class Place(NamedTuple):
    """`pid` null: the host as a whole."""

    host: Host
    pid: int | None


def parse_target(word: str, *, bare_host: bool = False) -> Place:
    """`bare_host`: a word without a colon may be a host. UsageError: it is none of these."""
    if word.isascii() and word.isdigit():
        return Place(HERE, int(word))
    if word.startswith("ssh://"):
        match = re.fullmatch(r"ssh://(?:(.+)@)?(\[[^]]*\]|[^:/@]*)(?::([^/]*))?(?:/(.*))?", word)
        user, host, port, pid = match.groups() if match else (None, "", None, None)
    else:
        match = re.fullmatch(r"(?:(.+)@)?(\[[^]]*\]|[^:@]*)(?::(.*))?", word)
        user, host, pid = match.groups() if match else (None, "", None)
        port = None
        if pid is None and not bare_host and match:
            raise UsageError(f"{word!r} is no process id.", hint="harness ps")
    return Place(_check_host(word, user, host, port), _check_pid(word, pid))


def _check_host(word: str, user: str | None, host: str, port: str | None) -> Host:
    name = host[1:-1] if host.startswith("[") else host
    pattern = _ADDRESS if host.startswith("[") else _HOST
    if not pattern.fullmatch(name):
        raise UsageError(f"{word!r} names no host that can be passed on safely.", hint=_HINT)
    if user is not None and not _USER.fullmatch(user):
        raise UsageError(f"{word!r} names no user that can be passed on safely.", hint=_HINT)
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise UsageError(f"{word!r}: {port!r} is no port.", hint=_HINT)
    return Host(name, user, int(port) if port else None)


def _check_pid(word: str, pid: str | None) -> int | None:
    if not pid:
        return None
    if not (pid.isascii() and pid.isdigit()):
        raise UsageError(f"{word!r}: {pid!r} is no process id.", hint=_HINT)
    return int(pid)


def read_hosts(file: str) -> list[Place]:
    """One per line, as a target is written or as a bare host; `#` starts a comment."""
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"{file} cannot be read: {why}.", hint="--hosts FILE: one host per line") from error
    words = [line.partition("#")[0].strip() for line in lines]
    places = [parse_target(word, bare_host=True) for word in words if word]
    if not places:
        raise UsageError(f"{file} names no host.", hint="--hosts FILE: one host per line")
    if len(places) > _MOST_HOSTS:
        raise UsageError(f"{file} names more than {_MOST_HOSTS} hosts.", hint="--hosts FILE: one host per line")
    return places


def by_host(places: Sequence[Place]) -> dict[Host, list[int]]:
    """In the order in which the hosts were named."""
    found: dict[Host, list[int]] = {}
    for host, pid in places:
        pids = found.setdefault(host, [])
        if pid is not None and pid not in pids:
            pids.append(pid)
    return found


def name_hosts(hosts: Sequence[Host]) -> Iterator[str]:
    """Short names, unless two hosts would be called the same."""
    names = [host.name or "here" for host in hosts]
    for host, name in zip(hosts, names, strict=True):
        yield name if names.count(name) == 1 else host.target().rstrip(":/")
