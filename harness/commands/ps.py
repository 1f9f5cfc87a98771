"""`harness ps`: the Python processes of this machine or of others, and the command that looks at one of them."""

from __future__ import annotations

import argparse
import os

import msgspec

from harness.capture.living.processes import list_python_processes
from harness.capture.remote.target import Host
from harness.capture.run.channels import say
from harness.commands.looks.hosts import MOST_BESIDES_S, ask_hosts, list_there, name_place, open_there, start_agent
from harness.commands.looks.targets import Asked, read_targets
from harness.commands.output import print_answer
from harness.errors import EXIT_USAGE
from harness.evidence.living.processes import ProcessRow, ProcessTable, choose_next
from harness.report.ps import render_ps, render_whole
from harness.version import __version__

_LOOK_S = 0.3


def ps_command(arguments: argparse.Namespace) -> int:
    asked = read_targets(arguments, bare_host=True)
    if asked.is_here:
        table = ProcessTable(__version__, None, _LOOK_S, tuple(list_python_processes(asked.match, _LOOK_S)))
    else:
        table = _list_hosts(asked)
    print_answer(table, render_ps if os.isatty(1) else render_whole, arguments.json)
    return 0


def show_choice(arguments: argparse.Namespace) -> int:
    """For a command that needs a process and was given none: a script with an empty $PID must not see success."""
    ps_command(arguments)
    say("No process was named.")
    return EXIT_USAGE


def _list_hosts(asked: Asked) -> ProcessTable:
    found, unseen = ask_hosts(asked, lambda host, name: _list(asked, host, name), deadline_s=MOST_BESIDES_S)
    rows = tuple(row for some in found.values() for row in some)
    several = len(asked.hosts) > 1
    (first, *_) = asked.hosts
    host = None if several else name_place(asked, first, first.name or "here")
    chosen = choose_next(rows)
    address = next((asked.address(host) for host, some in found.items() if chosen in some), "{pid}")
    return ProcessTable(__version__, host, _LOOK_S, rows, tuple(unseen), address)


def _list(asked: Asked, host: Host, name: str) -> list[ProcessRow]:
    if not asked.is_far(host):
        return list_python_processes(asked.match, _LOOK_S)
    with open_there(asked, host) as session:
        start_agent(session)
        rows = list_there(session, asked.match).rows
    return [msgspec.structs.replace(row, host=name) for row in rows]
