"""`harness doctor`: look at every facility, judge, print one answer on stdout.

Changes nothing on the machine; the fixes are for the user to type.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig

from harness import __version__
from harness.capture.facilities import look_at_facilities
from harness.commands.output import print_answer
from harness.diagnose.health import Doctor, judge_health
from harness.report.doctor import render


def doctor_command(arguments: argparse.Namespace) -> int:
    facilities = look_at_facilities(sys.platform)
    doctor = Doctor(
        harness=__version__,
        python=sys.version.split()[0],
        platform=sysconfig.get_platform(),
        facilities=facilities,
        status=judge_health(facilities),
    )
    print_answer(doctor, render, arguments.json)
    return doctor.exit_code
