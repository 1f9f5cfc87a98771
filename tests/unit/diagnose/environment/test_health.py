"""What follows from the rows of `harness doctor`: one status, one exit code, one readable page."""

from __future__ import annotations

import pytest

from harness.diagnose.environment.health import judge_health, summarize_sight
from harness.documents.doctor import Doctor, Health
from harness.evidence.facility import Facility, State
from harness.report.doctor import render


def row(state: State, *, essential: bool = False, name: str = "kernel log") -> Facility:
    missing = state != "yes"
    return Facility(
        name=name,
        state=state,
        detail="the kernel's own lines about crashes",
        why="only root may read it" if missing else None,
        fix="sudo sysctl kernel.dmesg_restrict=0" if missing else None,
        essential=essential,
    )


LIBRARY = row("yes", essential=True, name="native library")


def doctor(*facilities: Facility) -> Doctor:
    return Doctor("0.1.0", "3.11.7", "linux-x86_64", facilities, judge_health(facilities))


@pytest.mark.parametrize(
    ("facilities", "status", "exit_code"),
    [
        ((LIBRARY, row("yes")), "works", 0),
        ((LIBRARY, row("no")), "degraded", 11),
        ((LIBRARY, row("unknown")), "degraded", 11),
        ((LIBRARY, row("no"), row("unknown")), "degraded", 11),
        ((row("no", essential=True), row("yes")), "cannot-capture", 10),
        ((row("no", essential=True), row("unknown")), "cannot-capture", 10),
        ((LIBRARY, row("no", essential=True, name="process list")), "cannot-capture", 10),
        # Could not check is not "no": it may well work.
        ((row("unknown", essential=True), row("yes")), "degraded", 11),
        # Nothing that could be observed with, and nothing looked at.
        ((row("yes"),), "cannot-capture", 10),
        ((), "cannot-capture", 10),
    ],
)
def test_exit_code_follows_from_the_rows(facilities: tuple[Facility, ...], status: Health, exit_code: int) -> None:
    answer = doctor(*facilities)
    assert (answer.status, answer.exit_code) == (status, exit_code)


def test_why_and_fix_stand_under_each_row_that_is_not_yes() -> None:
    lines = render(doctor(LIBRARY, row("no"), row("unknown", name="gdb")), width=100, color=False).splitlines()
    words = [line.split() for line in lines]
    assert [line[0] for line in words[1:-1]] == ["yes", "no", "why", "fix", "?", "why", "fix"]
    assert lines[4].endswith("fix  sudo sysctl kernel.dmesg_restrict=0")
    assert lines[-1].startswith("Degraded: 1 missing, 1 not checkable, of 3.")


def test_a_fix_stays_on_one_line_and_everything_else_is_wrapped_and_aligned() -> None:
    fix = "docker run --device /dev/kmsg --cap-add=SYSLOG --cap-add=SYS_PTRACE …"
    facility = Facility("kernel log", "no", "word " * 30, "reason " * 30, fix, essential=False)
    lines = render(doctor(LIBRARY, facility), width=60, color=False).splitlines()
    assert [line for line in lines if len(line) > 60] == [line for line in lines if fix in line]
    column = lines[1].index(LIBRARY.detail)
    continued = [line for line in lines[2:] if line.startswith(" ") and line.split()[0] in ("word", "reason")]
    assert {len(line) - len(line.lstrip()) for line in continued} == {column, column + len("why  ")}


def test_a_tools_escape_sequences_do_not_reach_the_terminal() -> None:
    facility = Facility("gdb", "no", "reads cores", "\x1b[2Jgone\a", "sudo \x1b[31mfix", essential=False)
    text = render(doctor(LIBRARY, facility), width=80, color=False)
    assert "\x1b" not in text and "\a" not in text


def test_colour_changes_no_word() -> None:
    answer = doctor(LIBRARY, row("no"), row("unknown"))
    coloured = render(answer, width=80, color=True)
    for code in ("\x1b[2m", "\x1b[31m", "\x1b[1m", "\x1b[0m"):
        assert code in coloured
        coloured = coloured.replace(code, "")
    assert coloured == render(answer, width=80, color=False)


def test_the_last_line_names_what_is_essential_and_missing() -> None:
    answer = doctor(row("no", essential=True, name="native library"), row("no", name="gdb"))
    last = render(answer, width=100, color=False).splitlines()[-1]
    assert "native library" in last and "gdb" not in last


def test_one_line_says_what_is_seen_and_what_is_not() -> None:
    rows = (LIBRARY, row("no"), row("yes", name="injection"), row("unknown", name="killers"), row("no", name="swap"))
    assert summarize_sight(rows) == (
        "Here harness sees crashes with their stacks; it cannot see the kernel's own words; it may not see who sent a "
        "SIGKILL."
    )
    assert summarize_sight((LIBRARY,)) == "Here harness sees nothing."
    answer = Doctor("0", "3.11", "linux", rows, judge_health(rows), summarize_sight(rows))
    assert "Here harness sees crashes" in render(answer, width=100, color=False)
