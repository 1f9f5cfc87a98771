"""`harness doctor`: look at every facility, judge, print one answer on stdout.

Changes nothing on the machine; the fixes are for the user to type.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig

import msgspec

from harness.capture.doctor.facilities import look_at_facilities
from harness.capture.remote.remote_look import prepare
from harness.commands.looks.hosts import name_place, open_there, start_agent
from harness.commands.looks.targets import Asked, read_targets
from harness.commands.output import print_answer
from harness.diagnose.environment.health import judge_health, summarize_sight
from harness.documents.doctor import Doctor
from harness.errors import UsageError
from harness.evidence.facility import Facility
from harness.report.doctor import render
from harness.version import __version__

_ANSWER_S = 60.0


class _Answer(msgspec.Struct, frozen=True):
    python: str
    facilities: tuple[Facility, ...]


def doctor_command(arguments: argparse.Namespace) -> int:
    asked = read_targets(arguments, bare_host=True)
    doctor = _look_here() if asked.is_here else _look_there(asked)
    print_answer(doctor, render, arguments.json)
    return doctor.exit_code


def _look_here() -> Doctor:
    facilities = look_at_facilities(sys.platform)
    return Doctor(
        harness=__version__,
        python=sys.version.split()[0],
        platform=sysconfig.get_platform(),
        facilities=facilities,
        status=judge_health(facilities),
        summary=summarize_sight(facilities),
    )


def _look_there(asked: Asked) -> Doctor:
    """What a look would have over there: py-spy is sent as it would be then."""
    (host, *others) = asked.hosts
    if others:
        raise UsageError("One machine at a time.", hint=f"harness doctor {host.target()}")
    with open_there(asked, host) as session:
        if session.facts.python is None:
            start_agent(session)
        prepare(session)
        answer = session.call("facilities", {}, _Answer, _ANSWER_S)
        name = name_place(asked, host, host.name or "")
    system = f"{session.facts.system} {session.facts.release} {session.facts.machine}"
    health = judge_health(answer.facilities)
    sight = summarize_sight(answer.facilities)
    return Doctor(__version__, answer.python, system, answer.facilities, health, summary=sight, host=name)
