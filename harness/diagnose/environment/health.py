"""Whether this machine lets harness do its work: everything, some of it, or nothing.

Looks at nothing itself; every row comes from `capture.facilities`.
"""

from __future__ import annotations

from harness.documents.doctor import Health
from harness.evidence.facility import Facility, State

_STATES: tuple[State, ...] = ("yes", "no", "unknown")


# What each row lets harness see. Rows that describe the machine are not sights.
_SIGHTS = {
    "injection": "crashes with their stacks",
    "ptrace, harness run": "stacks of what it starts",
    "ptrace, running jobs": "stacks of running jobs",
    "exit statuses": "how every process of a job ended",
    "OOM kill counters": "OOM kills",
    "kernel log": "the kernel's own words",
    "killers": "who sent a SIGKILL",
    "core destination": "cores",
    "others' processes": "other users' processes",
    "crash reports": "the system's crash reports",
}


def summarize_sight(facilities: tuple[Facility, ...]) -> str:
    """One line: what harness can and cannot see here."""
    told = {state: [_SIGHTS[f.name] for f in facilities if f.state == state and f.name in _SIGHTS] for state in _STATES}
    parts = [f"sees {', '.join(told['yes'])}" if told["yes"] else "sees nothing"]
    if told["no"]:
        parts.append(f"cannot see {', '.join(told['no'])}")
    if told["unknown"]:
        parts.append(f"may not see {', '.join(told['unknown'])}")
    return f"Here harness {'; it '.join(parts)}."


def judge_health(facilities: tuple[Facility, ...]) -> Health:
    """One essential "no" stops every capture; "could not check" is neither a "no" nor a clean bill of health."""
    essential = [facility.state for facility in facilities if facility.essential]
    if "no" in essential or not essential:
        return "cannot-capture"
    return "works" if all(facility.state == "yes" for facility in facilities) else "degraded"
