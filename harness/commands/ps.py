"""`harness ps`: the Python processes of this machine, and the command that looks at one of them."""

from __future__ import annotations

import argparse

from harness import __version__
from harness.capture.alive.processes import list_python_processes
from harness.commands.output import print_answer
from harness.evidence.processes import ProcessTable
from harness.report.ps import render_ps

_LOOK_S = 0.3


def ps_command(arguments: argparse.Namespace) -> int:
    table = ProcessTable(__version__, None, _LOOK_S, tuple(list_python_processes(arguments.match, _LOOK_S)))
    print_answer(table, render_ps, arguments.json)
    return 0
