"""Which threads stand in one call of the interpreter: on one line, with the same objects, in the same function."""

from __future__ import annotations

import pytest

from harness.capture.living.counters.process import Sample, Tally
from harness.capture.living.threads import Standing
from harness.capture.proc import Stat
from harness.capture.stacks.py_spy import Frame, Local, Sighting, Spy, Thread
from harness.evidence.crash import CrashFrame, CrashThread
from tests.builders.crashes import PYTHON, native, python

LINE = python("count_keys", "/job/train.py", 25)
POWER = native("long_pow", PYTHON), native("PyNumber_Power", PYTHON)
EVALUATES = native("_PyEval_EvalFrameDefault", PYTHON)


def sighting(address: int = 7, line: int = 25) -> Sighting:
    frame = Frame("count_keys", "/job/train.py", line, (Local("letters", address, "3"),))
    return Sighting(0.0, (Thread((frame,), active=True, owns_gil=True, tid=100),))


def calls(walks: list[tuple[CrashFrame, ...]], sightings: list[Sighting], state: str = "R") -> list[str | None]:
    tally, spy = Tally(100), Spy(100)
    stat = Stat(**dict.fromkeys(Stat._fields, 0) | {"state": state})  # type: ignore[arg-type]
    tally.samples.append(Sample(0.0, stat, {100: stat}, None, {}, 0, 0, 0, None, {}))
    spy.sightings += sightings
    standing = Standing(100, tally, spy, "auto")
    standing.stacks += [(CrashThread(100, None, False, walk, "own walk"),) for walk in walks]
    return [frame.function for frame in standing.list_in_call().get(100, [])]


def test_a_thread_that_every_walk_finds_in_one_function_stands_in_its_call() -> None:
    walks = [(native("x_mul", PYTHON), *POWER, LINE), (native("k_mul", PYTHON), *POWER, LINE)]
    assert calls(walks, [sighting()] * 5) == ["long_pow", "PyNumber_Power"]


def test_what_the_c_library_does_for_it_is_part_of_the_call() -> None:
    copies = native("__memmove_avx_unaligned_erms", "/usr/lib/x86_64-linux-gnu/libc.so.6")
    assert calls([(copies, *POWER, LINE), (*POWER, LINE)], [sighting()] * 5) == ["long_pow", "PyNumber_Power"]


@pytest.mark.parametrize(
    "walks",
    [
        [(*POWER, LINE), (EVALUATES, LINE)],
        [(*POWER, LINE), (native("long_mod", PYTHON), LINE)],
        [(EVALUATES, LINE)] * 2,
        [(LINE,)] * 2,
        [(native(None, PYTHON), LINE)] * 2,
        [(native("zoo_spin", "/job/native_waits.so"), native("PyObject_Call", PYTHON), LINE)] * 2,
    ],
)
def test_one_that_comes_back_to_the_evaluation_or_has_left_the_interpreter_does_not(
    walks: list[tuple[CrashFrame, ...]],
) -> None:
    assert calls(walks, [sighting()] * 5) == []


@pytest.mark.parametrize("sightings", [[sighting()], [sighting(), sighting(9)], [sighting(), sighting(line=26)]])
def test_new_objects_and_other_lines_are_no_single_call(sightings: list[Sighting]) -> None:
    assert calls([(*POWER, LINE)] * 2, sightings) == []


def test_what_sleeps_is_in_no_call_that_computes() -> None:
    assert calls([(*POWER, LINE)] * 2, [sighting()] * 5, "S") == []
