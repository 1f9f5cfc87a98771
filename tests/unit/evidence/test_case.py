"""Cases among whatever else lies in their directory, others that prune at the same time, and clocks that go back."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import BadCase
from harness.evidence import case as cases

_DEADLINE_S = 60
MALFORMED = {
    "empty": b"",
    "no JSON": b"{",
    "no object": b"[]",
    "null": b"null",
    "no field": b'{"schema": "harness.case/1", "complete": false}',
    "a pid that is text": b'{"schema": "harness.case/1", "complete": false, "supervisor_pid": "7"}',
    "complete as a number": b'{"schema": "harness.case/1", "complete": 1, "supervisor_pid": 7}',
    "no UTF-8": b'"\xff"',
    "200,000 brackets": b"[" * 200_000,
    "5,000 digits": b'{"schema": "harness.case/1", "complete": true, "supervisor_pid": %s}' % (b"9" * 5000),
    "another schema": b'{"schema": "harness.case/9", "complete": true, "supervisor_pid": 7}',
}
ODD_PIDS = [0, -1, -(2**70), 2**31, 2**70]


def make_case(place: Path, name: str, *, complete: bool = True, pid: int = 0, **more: object) -> Path:
    case = place / name
    case.mkdir(parents=True)
    told = {"schema": "harness.case/1", "complete": complete, "supervisor_pid": pid, **more}
    (case / "case.json").write_text(json.dumps(told))
    return case


def names(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "MOST_CASES", 3)


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_damaged_case_is_told_and_hinders_no_other(tmp_path: Path, few: None, kind: str) -> None:
    damaged = tmp_path / "20200101T000000Z-aaaaaaaa"
    damaged.mkdir()
    (damaged / "case.json").write_bytes(MALFORMED[kind])
    own = make_case(tmp_path, "20210101T000000Z-aaaaaaaa")
    for ask in (cases.is_complete, cases.is_being_written):
        with pytest.raises(BadCase):
            ask(damaged)
    cases.prune_cases(tmp_path, own)
    assert names(tmp_path) == {damaged.name, own.name}


@pytest.mark.parametrize("pid", ODD_PIDS)
def test_a_pid_that_nobody_can_have_is_nobodys(tmp_path: Path, pid: int) -> None:
    assert not cases.is_being_written(make_case(tmp_path, "20200101T000000Z-aaaaaaaa", complete=False, pid=pid))


def make_garbage(place: Path, kind: str) -> None:
    strange = place / "20200101T000000Z-aaaaaaaa"
    strange.mkdir()
    marker = strange / "case.json"
    if kind == "FIFO":
        os.mkfifo(marker)
    elif kind == "link":
        marker.symlink_to(make_case(place.parent / "else", "there") / "case.json")
    elif kind == "directory":
        marker.mkdir()
    elif kind == "endless":
        marker.symlink_to("/dev/zero")
    elif kind == "sparse":
        with marker.open("wb") as file:
            file.truncate(1 << 40)


@pytest.mark.parametrize("kind", ["FIFO", "link", "directory", "endless", "sparse"])
def test_what_is_no_file_of_ours_is_neither_read_nor_removed(tmp_path: Path, few: None, kind: str) -> None:
    place = tmp_path / "cases"
    place.mkdir()
    make_garbage(place, kind)
    own = make_case(place, "20210101T000000Z-aaaaaaaa")
    before = names(place)
    cases.prune_cases(place, own)
    assert names(place) == before


def test_other_directories_are_left_alone_even_with_a_marker(tmp_path: Path, few: None) -> None:
    notes = make_case(tmp_path, "my-notes")
    elsewhere = make_case(tmp_path / "elsewhere", "20200101T000000Z-bbbbbbbb")
    (tmp_path / "20200101T000001Z-cccccccc").symlink_to(elsewhere)
    made = [make_case(tmp_path, f"2021010{day}T000000Z-aaaaaaaa") for day in range(1, 7)]
    cases.prune_cases(tmp_path, made[-1])
    assert notes.exists() and elsewhere.exists() and [case.exists() for case in made] == [False] * 3 + [True] * 3


def test_the_own_case_stays_and_so_do_those_made_since_the_clock_went_back(tmp_path: Path, few: None) -> None:
    now = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    future = [make_case(tmp_path, f"2199010{day}T000000Z-aaaaaaaa") for day in range(1, 5)]
    since = [make_case(tmp_path, f"{now}Z-{number}aaaaaaa") for number in range(2)]
    cases.prune_cases(tmp_path, since[0])
    assert names(tmp_path) == {future[-1].name, *(case.name for case in since)}


def test_the_zone_of_the_clock_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for zone in ("UTC-14", "UTC+12", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        made.append(cases.create_case(str(tmp_path), [], 0)[0].name[:13])
    monkeypatch.undo()
    time.tzset()
    assert len(set(made)) <= 2  # an hour may have ended meanwhile


def test_names_never_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter([b"\0" * 4, b"\0" * 4, b"\1" * 4])
    monkeypatch.setattr(os, "urandom", lambda size: next(numbers))
    monkeypatch.setattr(time, "strftime", lambda form, when: "20260101T000000")
    assert cases.create_case(str(tmp_path), [], 0)[0] != cases.create_case(str(tmp_path), [], 0)[0]


def test_one_that_is_being_written_stays_here_and_on_another_machine(tmp_path: Path, few: None) -> None:
    here = {"supervisor_start": cases.read_start(os.getpid()), "node": os.uname().nodename}
    living = make_case(tmp_path, "20200101T000000Z-aaaaaaaa", complete=False, pid=os.getpid(), **here)
    other = make_case(tmp_path, "20200101T000001Z-aaaaaaaa", complete=False, pid=1, node="another")
    reused = make_case(tmp_path, "20200101T000002Z-aaaaaaaa", complete=False, pid=os.getpid(), supervisor_start="1")
    made = [make_case(tmp_path, f"2021010{day}T000000Z-aaaaaaaa") for day in range(1, 5)]
    cases.prune_cases(tmp_path, made[-1])
    assert living.exists() and other.exists() and not reused.exists()


def prune(place: Path, go: Callable[[], object]) -> None:
    go()
    for number in range(20):
        own = make_case(place, f"20300101T0000{number:02}Z-{os.getpid():08x}", complete=False, pid=os.getpid())
        (own / "evidence.json").write_text("{}")
        cases.mark_case(own, [], 0, complete=True)
        cases.prune_cases(place, own)


def test_those_who_prune_at_the_same_time_do_not_trip_each_other(tmp_path: Path, few: None) -> None:
    context = multiprocessing.get_context("fork")
    together = context.Barrier(4)
    pruners = [context.Process(target=prune, args=(tmp_path, together.wait)) for _ in range(4)]
    for pruner in pruners:
        pruner.start()
    for pruner in pruners:
        pruner.join(_DEADLINE_S)
    assert [pruner.exitcode for pruner in pruners] == [0] * 4
    assert len(names(tmp_path)) <= 3 + len(pruners)
    shutil.rmtree(tmp_path)
