"""How long without movement is a stall."""

from __future__ import annotations

import pytest

from harness.diagnose.living.pace import Pace, tell_quiet
from harness.diagnose.living.scene import Scene
from harness.diagnose.stalled_end import add_cause
from harness.evidence.living.look import LivingProcess, Wait
from tests.builders.looks import ASLEEP, CONDITION, busy, counter, judge, line, look, process, thread

SILENT = thread(100, line("ask", 9), wait=Wait("recvfrom", fd=3, target="socket 10.0.0.9:80"))
BESIDE = thread(101, line("work", 3), wait=Wait("clock_nanosleep"))


@pytest.mark.parametrize(
    ("seen", "rests"),
    [
        (process(SILENT, BESIDE), True),
        (process(SILENT, BESIDE, counters=(counter("io", "bytes written", 1, 2, tid=101),)), False),
        (process(SILENT, BESIDE, counters=(counter("io", "bytes read", 1, 2),)), False),
        (process(SILENT, busy(101, line("work", 3))), False),
        (process(SILENT, thread(101, line("save", 3), state="D", wait=Wait("fsync", fd=4))), False),
    ],
)
def test_whatever_moves_computes_or_is_at_a_disk_stirs(seen: LivingProcess, rests: bool) -> None:
    child = process(thread(99, wait=Wait("clock_nanosleep")), children=(seen.pid,))
    assert Scene(look(seen)).rests is rests and Scene(look(child, seen)).rests is rests


def test_what_was_quiet_is_told_as_it_was_measured() -> None:
    assert "nothing outside has changed for 8 s" in tell_quiet(8.2, rests=True)
    told = tell_quiet(8.2, rests=False)
    assert "known" in told and "its line of work" in told and "something of it moves" in told


def test_only_what_was_established_as_a_fault_was_stuck() -> None:
    ended = judge(process(SILENT))
    stuck = judge(process(thread(100, *CONDITION, line("take", 4)), rest=ASLEEP))
    assert stuck.verdict.kind == "deadlock-lock" and ended.verdict.kind == "waiting"
    assert "It was stuck: Deadlock" in add_cause(ended, stuck).verdict.headline
    assert "It stood still: Waiting" in add_cause(ended, ended).verdict.headline


def test_a_minute_until_longer_quiet_was_seen() -> None:
    pace = Pace(0.0)
    assert not pace.is_over(59.9) and pace.is_over(60.0)
    assert pace.tell() == "a stall is 60 s without movement, or 3 times the longest quiet period seen if that is more"


def test_three_times_the_longest_quiet_period() -> None:
    pace = Pace(0.0)
    assert pace.note_movement(146.0) == 146.0
    pace.note_movement(150.0)
    assert pace.longest_s == 146.0 and not pace.is_over(150.0 + 146.0) and pace.is_over(150.0 + 438.0)
    assert pace.tell() == "a stall is 438 s without movement: 3 times the longest quiet period seen"


def test_a_short_quiet_period_changes_nothing() -> None:
    pace = Pace(0.0)
    pace.note_movement(19.0)
    assert pace.threshold_s == 60.0


def test_quiet_before_we_came_counts_when_it_ends_while_we_watch() -> None:
    pace = Pace(0.0, before_s=371.0)
    assert pace.threshold_s == 60.0 and pace.quiet_s(5.0) == 5.0
    assert pace.note_movement(9.0) == 9.0
    assert pace.longest_s == 380.0
    pace.note_movement(10.0)
    assert pace.longest_s == 380.0


def test_an_old_log_says_nothing_of_a_process_that_moves_elsewhere() -> None:
    pace = Pace(0.0, before_s=371.0)
    pace.note_movement(1.0)
    assert pace.threshold_s == 60.0


def test_the_users_word_is_the_rule() -> None:
    pace = Pace(0.0, asked_s=2.0)
    pace.note_movement(100.0)
    assert pace.threshold_s == 2.0 and pace.tell() == "a stall is 2 s without movement, as --stall-after says"


def test_what_was_not_quiet_is_no_quiet_period() -> None:
    pace = Pace(0.0)
    pace.begin_again(60.0)
    assert pace.longest_s == 0.0 and pace.quiet_s(70.0) == 10.0 and pace.threshold_s == 60.0
