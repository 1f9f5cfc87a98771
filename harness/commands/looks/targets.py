"""Which processes of which hosts a command is about, and how they are reached: the words, --hosts, --match, --via."""

from __future__ import annotations

import argparse
import shlex
from typing import NamedTuple

from harness.capture.remote.connection import Reach, parse_via
from harness.capture.remote.target import HERE, Host, by_host, parse_target, read_hosts
from harness.commands.durations import parse_duration
from harness.errors import UsageError


class Asked(NamedTuple):
    """`hosts`: with the processes named for each; none named: all that match, or the host as a whole."""

    hosts: dict[Host, list[int]]
    reach: Reach
    match: str | None

    def is_far(self, host: Host) -> bool:
        """Not this machine as we see it: another host, or something in between."""
        return host != HERE or bool(self.reach.via) or self.reach.sudo

    @property
    def is_here(self) -> bool:
        return not any(map(self.is_far, self.hosts))

    @property
    def names_processes(self) -> bool:
        return self.match is not None or any(self.hosts.values())

    def address(self, host: Host) -> str:
        """How a process of that host is named to harness, with {pid} in it."""
        words = ["--via", shlex.join(self.reach.via)] if self.reach.via else []
        words += ["--sudo"] if self.reach.sudo else []
        return " ".join([*map(shlex.quote, words), host.target("{pid}")])


def read_targets(arguments: argparse.Namespace, *, bare_host: bool = False) -> Asked:
    """UsageError: a word names nothing that could be asked."""
    places = [parse_target(word, bare_host=bare_host) for word in arguments.targets]
    if file := getattr(arguments, "hosts", None):
        places += read_hosts(file)
    reach = Reach(
        via=parse_via(arguments.via) if arguments.via else (),
        sudo=arguments.sudo,
        keep=getattr(arguments, "keep_tool", False),
        connect_s=parse_duration(getattr(arguments, "connect_timeout", "10")),
    )
    if (reach.via or reach.sudo) and not places:
        places = [parse_target("0")._replace(pid=None)]
    hosts = by_host(places)
    if reach.via and any(host.name for host in hosts):
        raise UsageError(
            "--via leads to one place: processes are named by their PID there.", hint="--via 'ssh host' PID"
        )
    return Asked(hosts, reach, getattr(arguments, "match", None))
