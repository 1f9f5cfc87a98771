"""How long without movement is a stall."""

from __future__ import annotations

from harness.diagnose.stalling import Pace


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
