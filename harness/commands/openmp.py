"""`harness openmp`: take a census of one place, judge it, print one answer on stdout.

Only `fix --apply` and `fix --undo` change anything, and only in the environment they were given.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from harness.capture.openmp.environment import find_python, take_environment_census
from harness.capture.run.channels import say
from harness.commands.looks.hosts import open_there, start_agent
from harness.commands.looks.targets import read_targets
from harness.commands.output import print_answer
from harness.diagnose.environment.openmp import judge_openmp
from harness.errors import UsageError
from harness.evidence.openmp import Census
from harness.report.openmp import render
from harness.version import __version__

_WAYS = ("targets", "modules", "wheels", "requirements")
_CENSUS_S = 60.0


def openmp_command(arguments: argparse.Namespace) -> int:
    _refuse_mixtures(arguments)
    if arguments.targets == ["fix"]:
        return _fix(arguments)
    document = judge_openmp(__version__, _take(arguments))
    print_answer(document, render, arguments.json)
    return document.exit_code


def _refuse_mixtures(arguments: argparse.Namespace) -> None:
    given = [name for name in _WAYS if getattr(arguments, name)]
    if len(given) > 1:
        raise UsageError("One place at a time: a PID, --import, --wheels or --requirements.", hint="harness openmp -h")
    changing = arguments.apply or arguments.undo or arguments.keep
    if changing and arguments.targets != ["fix"]:
        raise UsageError("--apply, --undo and --keep belong to fix.", hint="harness openmp fix")
    if arguments.apply and arguments.undo:
        raise UsageError("--apply and --undo exclude each other.", hint="harness openmp fix --undo")
    if (arguments.platform or arguments.python_version) and not arguments.requirements:
        hint = "harness openmp --requirements requirements.txt --platform macosx_14_0_arm64 --python-version 3.13"
        raise UsageError("--platform and --python-version belong to --requirements.", hint=hint)


def _take(arguments: argparse.Namespace) -> list[Census]:
    if arguments.targets:
        return [_take_living(arguments)]
    if arguments.wheels or arguments.requirements:
        return [_take_wheels(arguments)]
    python = find_python(arguments.python, imports=arguments.modules is not None)
    if arguments.modules is not None:
        from harness.capture.openmp.imports import take_import_censuses

        return take_import_censuses(python, _modules(arguments.modules))
    return [take_environment_census(python)]


def _take_living(arguments: argparse.Namespace) -> Census:
    from harness.capture.openmp.live_census import take_census

    for word in arguments.targets:
        if not word.isdigit() and ":" not in word:
            raise UsageError(f"{word!r} is neither a process id nor fix.", hint="harness openmp --help")
    asked = read_targets(arguments)
    ((host, pids),) = asked.hosts.items()
    if len(pids) != 1:
        raise UsageError("Which process is meant?", hint=f"harness ps {host.target()}".rstrip())
    if not asked.is_far(host):
        return take_census(pids[0])
    with open_there(asked, host) as session:
        start_agent(session)
        census = session.call("census", {"pid": pids[0]}, Census, _CENSUS_S)
    # What it is about stands in commands to type, and is ours to say.
    return msgspec.structs.replace(census, subject="process", name=str(pids[0]))


def _modules(words: str) -> list[str]:
    modules = [word.strip() for word in words.split(",")]
    if not all(part.isidentifier() for module in modules for part in module.split(".")):
        raise UsageError(f"{words!r} is no list of modules.", hint="harness openmp --import torch,faiss")
    return modules


def _take_wheels(arguments: argparse.Namespace) -> Census:
    from harness.capture.openmp.wheels import find_wheels, read_wheels

    if arguments.wheels:
        return read_wheels(find_wheels(map(Path, arguments.wheels)))
    from harness.capture.openmp.platform_tags import check_target
    from harness.capture.openmp.wheel_download import fetch_wheels

    target = check_target(arguments.platform, arguments.python_version)
    fetched = fetch_wheels(Path(arguments.requirements), target, tell=lambda name: say(f"fetching {name} …"))
    return read_wheels(
        fetched.wheels, platform=target.platform, python=target.python, absent=fetched.absent, gaps=fetched.gaps
    )


def _fix(arguments: argparse.Namespace) -> int:
    from harness.capture.files.interpreter import ask_interpreter
    from harness.documents.openmp_fix import FixDocument
    from harness.remedy.openmp import apply, plan_fix, undo
    from harness.report.fix import render_fix

    python = find_python(arguments.python)
    prefix = Path(ask_interpreter(python).prefix)
    if arguments.undo:
        document = FixDocument(__version__, python, "undo", None, undo(prefix))
    else:
        plan = plan_fix(take_environment_census(python), prefix, arguments.keep)
        outcome = apply(plan) if arguments.apply else None
        document = FixDocument(__version__, python, "apply" if arguments.apply else "dry-run", plan, outcome)
    print_answer(document, render_fix, arguments.json)
    return 0
