"""Samples without a stop: what a running thread can make of an integer, and what rose across a stop of ours."""

from __future__ import annotations

from harness.capture.alive.counting import discount, make_counter
from harness.capture.alive.spying import Frame, Local, Sighting, Spy, Thread
from harness.capture.alive.tearing import Value, is_sure_to_rise


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
