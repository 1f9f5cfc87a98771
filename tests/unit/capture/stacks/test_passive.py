"""Samples without a stop: what a running thread can make of an integer, and what rose across a stop of ours."""

from __future__ import annotations

from harness.capture.living.counters.process import discount
from harness.capture.living.holding import Moment, is_held_at_times
from harness.capture.stacks.py_spy import Frame, Local, Sighting, Spy, Thread
from harness.capture.stacks.tearing import Value, is_sure_to_rise, leave_out_torn
from harness.evidence.living.look import make_counter
from tests.builders.looks import judge, line, process, thread


def seen(*values: int, ran: bool = True) -> list[Value]:
    return [Value(float(at), value, ran) for at, value in enumerate(values)]


def spied(*steps: int, active: bool = True) -> Spy:
    spy = Spy(1)
    for at, step in enumerate(steps):
        frame = Frame("train", "/job/train.py", 7, (Local("step", 4096, str(step)),))
        spy.sightings.append(Sighting(float(at), (Thread((frame,), active, True, 11),)))
    return spy


def test_what_rises_again_and_again_rises() -> None:
    assert is_sure_to_rise(seen(1, 2, 3)) and is_sure_to_rise(seen(4, 4, 5, 5))


def test_one_torn_value_makes_nothing_rise() -> None:
    assert not is_sure_to_rise(seen(5, 5, 5, 900))
    assert not is_sure_to_rise(seen(0, 5, 5, 5))
    assert not is_sure_to_rise(seen(5, 900, 5, 5))


def test_the_memory_of_a_sleeping_thread_is_not_torn() -> None:
    assert is_sure_to_rise(seen(5, 5, 6, ran=False)) and not is_sure_to_rise(seen(5, 5, 5, ran=False))


def test_a_torn_value_is_no_local_that_rises_but_one_that_moved() -> None:
    rising, moved = spied(5, 5, 5, 900).locals()
    assert (rising, [one.values for one in moved]) == ([], [(5, 5, 5, 900)])
    rising, moved = spied(5, 6, 7).locals()
    assert ([one.values for one in rising], moved) == ([(5, 6, 7)], [])


def test_a_last_value_that_is_another_objects_leaves_what_rose_before() -> None:
    rising, _ = spied(5, 6, 7, 8, 1 << 50).locals()
    assert [one.values for one in rising] == [(5, 6, 7, 8)]
    assert spied(5, 6, 7, 8, 1 << 50, active=False).locals() == ([], []), "it slept: that is its value"
    assert spied(5, 6, 7, 8, 1 << 50, 1 << 50).locals() == ([], [])
    left = spied(5, 6, 7, 8)
    left.sightings.append(Sighting(4.0, (Thread((Frame("save", "/job/train.py", 9),), True, True, 11),)))
    assert left.locals() == ([], []), "that function has ended"


def test_another_sample_is_wanted_where_one_value_alone_has_risen() -> None:
    assert spied(5, 5, 6).is_unsure and not spied(5, 5, 6, 6).is_unsure
    assert not spied(5, 5, 5).is_unsure and spied(5, 6).is_unsure
    assert not spied(5, 5, 6, active=False).is_unsure


def test_what_rose_across_a_stop_of_ours_is_no_movement() -> None:
    written = make_counter("io", "bytes written", [(0.0, 100), (0.5, 65636), (1.0, 65636)])
    assert discount(written, {0.0}).values == (100, 100, 100) and not discount(written, {0.0}).rises
    assert discount(written, {0.5}) == written and discount(written, set()) == written


def test_what_rises_beside_a_stop_still_rises() -> None:
    written = make_counter("io", "bytes written", [(0.0, 100), (0.5, 200), (1.0, 300)])
    assert discount(written, {0.0}).values == (100, 100, 200) and discount(written, {0.0}).rises


def test_who_stays_stopped_without_a_turn_is_not_held_at_times_only() -> None:
    stays, runs = Moment(True, "7 0 3"), Moment(False, "7 0 3")
    assert not is_held_at_times([stays, stays]) and not is_held_at_times([runs, stays, stays])
    assert not is_held_at_times([stays]) and not is_held_at_times([runs, runs]) and not is_held_at_times([])


def test_who_had_a_turn_or_was_held_by_a_look_is_held_at_times() -> None:
    stays, limited = Moment(True, "7 0 3"), Moment(True, "8 0 4")
    assert is_held_at_times([stays, limited]) and is_held_at_times([stays, Moment(False, "8 0 4")])
    assert is_held_at_times([stays, stays, limited, limited._replace(turns="9 0 5"), limited._replace(turns="9 0 5")])
    assert is_held_at_times([Moment(False, "7 0 3"), stays]), "a state in one sample only is no stop"
    assert is_held_at_times([stays, Moment(True, "7 0 3", by_look=True)])


def test_who_is_stopped_at_times_is_not_stopped() -> None:
    stopped = thread(100, line("train", 60), state="T")
    assert judge(process(stopped)).verdict.kind == "stopped"
    assert judge(process(stopped, stopped_at_times=True)).verdict.kind != "stopped"
    assert judge(process(stopped, stopped_at_times=True, frozen=True)).verdict.kind == "stopped"


def test_what_another_object_had_in_its_place_is_left_out() -> None:
    """A loop of short calls: the integer of a row is gone before it is read, and a temporary one lies there."""
    read = seen(55, 432, 1_000_001, 812, 1275, 1300)
    assert [one.value for one in leave_out_torn(read)] == [55, 432, 812, 1275, 1300]
    last = seen(55, 432, 812, 1275, 1300, 1_000_001)
    assert leave_out_torn(last)[-1].value == 1_000_001 and is_sure_to_rise(last)  # it may have been so


def test_nothing_is_left_out_of_what_starts_again_or_was_read_of_a_thread_that_slept() -> None:
    for values in ((1, 2, 0, 1, 2, 0), (1, 5, 3, 7, 2, 12), (5, 5, 0, 5, 5, 6)):  # within the others, or it stood
        assert [one.value for one in leave_out_torn(seen(*values))] == list(values)
    slept = seen(55, 432, 1_000_001, 812, 1275, 1300, ran=False)
    assert leave_out_torn(slept) == slept
