"""`harness attach`: look at running processes for some seconds, judge, let go.

Without a target it shows the table of `harness ps`. Several targets are merged into one answer.
"""

from __future__ import annotations

import argparse

from harness.capture.alive.look import take_look
from harness.capture.alive.processes import leave_out_descendants, list_python_processes
from harness.commands.durations import parse_duration
from harness.commands.output import print_answer
from harness.commands.ps import ps_command
from harness.diagnose.alive import exit_code_of
from harness.diagnose.group import exit_code_of_group, judge_group
from harness.diagnose.living import judge_living
from harness.errors import HarnessError, UsageError
from harness.report.group import render_group, render_group_line
from harness.report.text import render, render_line


def attach_command(arguments: argparse.Namespace) -> int:
    for_s = parse_duration(arguments.for_s)
    pids = find_targets(arguments)
    if not pids:
        return ps_command(arguments)
    look = take_look(pids, for_s)
    if len(pids) > 1:
        group = judge_group(look)
        print_answer(group, render_group_line if arguments.quiet else render_group, arguments.json)
        return exit_code_of_group(group)
    document = judge_living(look)
    print_answer(document, render_line if arguments.quiet else render, arguments.json)
    return exit_code_of(document)


def find_targets(arguments: argparse.Namespace) -> list[int]:
    """Those below another one that matches are looked at with it, and are no targets of their own."""
    for word in arguments.targets:
        if not (word.isascii() and word.isdigit()):
            raise UsageError(f"{word!r} is no process id.", hint="harness ps")
    named = [int(word) for word in arguments.targets]
    if arguments.match is None:
        return list(dict.fromkeys(named))
    found = [row.pid for row in list_python_processes(arguments.match)]
    if not found:
        raise HarnessError(f"No Python process has {arguments.match!r} in its command line.", hint="harness ps")
    return list(dict.fromkeys([*named, *leave_out_descendants(found)]))
