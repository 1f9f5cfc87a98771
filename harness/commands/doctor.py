"""`harness doctor`: look at every facility, judge, print one answer on stdout.

Changes nothing on the machine; the fixes are for the user to type.
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig

import msgspec

from harness import __version__
from harness.capture.facilities import look_at_facilities
from harness.diagnose.health import Doctor, judge_health
from harness.report.doctor import render
from harness.report.text import look_of


def doctor_command(arguments: argparse.Namespace) -> int:
    facilities = look_at_facilities(sys.platform)
    doctor = Doctor(
        harness=__version__,
        python=sys.version.split()[0],
        platform=sysconfig.get_platform(),
        facilities=facilities,
        status=judge_health(facilities),
    )
    answer = msgspec.json.encode(doctor) + b"\n" if arguments.json else render(doctor, **look_of(1)).encode()
    try:
        os.write(1, answer)
    except OSError:
        pass  # nobody reads stdout; the exit status still tells
    return doctor.exit_code
