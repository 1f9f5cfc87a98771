"""Which integers of a `while` stay as they are while it turns, and what its source says of its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.capture.living.source.lock_lines import Sources
from harness.capture.living.source.unchanged import find_unchanged
from harness.capture.stacks.py_spy import Frame, Local, Sighting, Thread
from harness.evidence.crash import CrashFrame
from harness.evidence.living.look import Unchanged
from tests.builders.looks import busy, judge, line, process, words

BISECT = """
def find(rows, key, lo, hi):
    while lo < hi:
        mid = (lo + hi) // 2
        if rows[mid] < key:
            lo = mid
"""
TURNING = (4, 5, 6, 4, 5)
STILL = {"rows": "[]", "key": "7", "lo": "388", "hi": "389", "mid": "388"}


def ask(path: Path, source: str, values: list[dict[str, str]], lines: tuple[int, ...] = TURNING) -> list[Unchanged]:
    path.write_text(source)
    os.utime(path, (0, 0))
    seen = []
    for at, (number, now) in enumerate(zip(lines, values, strict=True)):
        here = tuple(Local(name, 4096, value) for name, value in now.items())
        frame = Frame("find", str(path), number, here)
        seen.append(Sighting(float(at), (Thread((frame,), active=True, owns_gil=True, tid=100),)))
    return list(find_unchanged(seen, Sources(os.getpid())))


def test_bounds_that_stay_are_told_with_what_is_computed_from_them(tmp_path: Path) -> None:
    (found,) = ask(tmp_path / "x.py", BISECT, [STILL] * 5)
    assert (found.names, found.seen, found.of, found.closed) == (("hi", "lo", "mid"), 5, 5, True)


def test_a_value_that_was_read_after_it_had_gone_spoils_its_sample_alone(tmp_path: Path) -> None:
    torn = {**STILL, "mid": "777"}
    (found,) = ask(tmp_path / "x.py", BISECT, [STILL, torn, STILL, torn, STILL])
    assert (found.seen, found.of) == (3, 5)
    assert ask(tmp_path / "x.py", BISECT, [STILL, torn, {**STILL, "lo": "9"}, torn, STILL]) == []


def test_bounds_that_close_in_are_not(tmp_path: Path) -> None:
    assert ask(tmp_path / "x.py", BISECT, [{**STILL, "hi": str(900 - at)} for at in range(5)]) == []


def test_what_is_not_shown_to_turn_is_not(tmp_path: Path) -> None:
    assert ask(tmp_path / "x.py", BISECT, [STILL] * 5, (5,) * 5) == []
    assert ask(tmp_path / "x.py", BISECT, [STILL] * 4, TURNING[:4]) == []


@pytest.mark.parametrize("line", ["for mid in rows:", "if [lo for _ in rows]:"])
def test_a_loop_inside_may_be_what_turns(tmp_path: Path, line: str) -> None:
    assert ask(tmp_path / "x.py", BISECT.replace("if rows[mid] < key:", line), [STILL] * 5) == []


@pytest.mark.parametrize("test", ["ask(mid)", "self.rows[mid] < key", "rows.pop() < key", "TABLE[mid] < key"])
def test_where_something_else_may_end_it_only_the_fact_is_told(tmp_path: Path, test: str) -> None:
    source = BISECT.replace("rows[mid] < key", test)
    (found,) = ask(tmp_path / "x.py", source, [STILL] * 5)
    assert not found.closed
    assert ask(tmp_path / "x.py", source, [*[STILL] * 4, {**STILL, "mid": "777"}]) == []


def test_an_error_counter_beside_what_moves_is_not(tmp_path: Path) -> None:
    source = BISECT.replace("mid = (lo + hi) // 2", "mid = rows[key]")
    assert ask(tmp_path / "x.py", source, [{**STILL, "mid": str(at)} for at in range(5)]) == []


def tell(seen: int, *, closed: bool) -> str:
    place: CrashFrame = line("find", 4)
    main = busy(100, place, changed=True)
    return words(judge(process(main, unchanged=(Unchanged(("hi", "lo"), place, seen, 7, closed, 100),))))


def test_the_words() -> None:
    never = "hi, lo in find (train.py:4) never changed in 7 samples while the loop ran"
    assert f"{never}: it most likely never ends" in tell(7, closed=True)
    assert never in tell(7, closed=False) and "never ends" not in tell(7, closed=False)
    assert "were the same in 4 of 7 samples while the loop ran: it most" in tell(4, closed=True)
