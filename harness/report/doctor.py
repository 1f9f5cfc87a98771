"""The doctor's answer for a terminal: one row per facility, under each "no" and "?" why and what to type.

Does not decide anything. A fix is never wrapped: it is there to be copied.
"""

from __future__ import annotations

import textwrap

from harness.documents.doctor import Doctor
from harness.evidence.facility import Facility
from harness.evidence.text.transcript import clean_for_terminal

_MARKS = {"yes": "yes", "no": "no", "unknown": "?"}
_COLORS = {"yes": "\x1b[2m", "no": "\x1b[31m", "unknown": "\x1b[1m"}
_OFF = "\x1b[0m"
_MARK, _LABEL = 5, 5


def render(doctor: Doctor, *, width: int, color: bool) -> str:
    name_width = max((len(facility.name) for facility in doctor.facilities), default=0) + 2
    where = f"{doctor.host}: " if doctor.host else ""
    lines = [clean_for_terminal(f"{where}harness {doctor.harness}, Python {doctor.python}, {doctor.platform}")]
    for facility in doctor.facilities:
        lines += _row(facility, name_width, width, color)
    lines += textwrap.wrap(doctor.summary, width)
    lines += textwrap.wrap(summarize(doctor), width)
    return "\n".join(lines) + "\n"


def summarize(doctor: Doctor) -> str:
    if doctor.status == "works":
        return "Everything works."
    if doctor.status == "cannot-capture":
        missing = [facility.name for facility in doctor.facilities if facility.essential and facility.state == "no"]
        return f"Nothing can be captured on this machine. It needs: {', '.join(missing) or 'Linux or macOS'}."
    states = [facility.state for facility in doctor.facilities]
    words = (("no", "missing"), ("unknown", "not checkable"))
    gaps = ", ".join(f"{states.count(state)} {word}" for state, word in words if state in states)
    return f"Degraded: {gaps}, of {len(states)}. Reports will say what was not seen for that reason."


def _row(facility: Facility, name_width: int, width: int, color: bool) -> list[str]:
    mark = f"{_MARKS[facility.state]:<{_MARK}}"
    indent = " " * (2 + _MARK + name_width)
    lines = _wrap(facility.detail, f"  {mark}{facility.name:<{name_width}}", indent, width)
    if facility.why:
        lines += _wrap(facility.why, f"{indent}{'why':<{_LABEL}}", indent + " " * _LABEL, width)
    if facility.fix:
        lines.append(f"{indent}{'fix':<{_LABEL}}{clean_for_terminal(facility.fix)}")
    if color:
        lines[0] = f"  {_COLORS[facility.state]}{mark}{_OFF}{lines[0][2 + _MARK :]}"
    return lines


def _wrap(text: str, first: str, rest: str, width: int) -> list[str]:
    return textwrap.wrap(
        clean_for_terminal(text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
