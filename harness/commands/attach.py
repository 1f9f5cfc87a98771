"""`harness attach`: look at running processes for some seconds, here or on other hosts, judge, let go.

Without a process it shows the table of `harness ps`, which is no success. Several targets are merged into one answer.
"""

from __future__ import annotations

import argparse

from harness.commands.durations import parse_duration
from harness.commands.looks.case import Answer, keep_look
from harness.commands.looks.hosts import take_looks
from harness.commands.looks.targets import Asked, read_targets
from harness.commands.output import print_answer
from harness.commands.ps import show_choice
from harness.diagnose.living.document import judge_living
from harness.diagnose.living.group import exit_code_of_group, judge_group
from harness.diagnose.living.kinds import exit_code_of
from harness.evidence.living.look import Look
from harness.report.group import render_group, render_group_line
from harness.report.text import render, render_line


def attach_command(arguments: argparse.Namespace) -> int:
    for_s = parse_duration(arguments.for_s)
    asked = read_targets(arguments)
    if not asked.names_processes:
        return show_choice(arguments)
    looks, unseen = take_looks(asked, for_s, arguments.native)
    if len(looks) > 1 or unseen or len(looks[0].targets) > 1 or sum(map(len, asked.hosts.values())) > 1:
        group = _keep(asked, looks, judge_group(*looks, unseen=unseen), arguments.cases)
        print_answer(group, render_group_line if arguments.quiet else render_group, arguments.json)
        return exit_code_of_group(group)
    document = _keep(asked, looks, judge_living(looks[0]), arguments.cases)
    print_answer(document, render_line if arguments.quiet else render, arguments.json)
    return exit_code_of(document)


def _keep(asked: Asked, looks: list[Look], answer: Answer, chosen: str | None) -> Answer:
    """A process of our own can be looked at again; another host may be gone by then."""
    return answer if asked.is_here and chosen is None else keep_look(looks, answer, chosen)
