"""Files that become links and files again: ended at every step, changed in between, and never half undone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.documents.openmp_fix import Link
from harness.errors import HarnessError
from harness.remedy.links import JOURNAL, ORIGINAL, describe_link, make_links, read_journal, undo_links

KEPT, FIRST, SECOND = "a/lib/kept.so", "b/first.so", "c/d/second.so"
TIME_NS = 1_600_000_000_123_456_789


class Ended(BaseException):
    """Stands for SIGKILL: nobody catches it and cleans up."""


class EndAt:
    """Ends at the nth step; counts them when there is none."""

    def __init__(self, last: int | None) -> None:
        self.last, self.steps = last, 0

    def __call__(self, step: str) -> None:
        if self.steps == self.last:
            raise Ended(step)
        self.steps += 1


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    for name in (KEPT, FIRST, SECOND):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(f"the content of {name}")
        path.chmod(0o751)
        os.utime(path, ns=(TIME_NS, TIME_NS))
    return tmp_path


def describe(prefix: Path) -> tuple[Link, ...]:
    return tuple(describe_link(prefix, prefix / name, prefix / KEPT) for name in (FIRST, SECOND))


def read_tree(prefix: Path) -> dict[str, tuple[object, ...]]:
    return {
        str(path.relative_to(prefix)): (
            path.is_symlink(),
            path.read_bytes(),
            path.stat().st_mode,
            os.lstat(path).st_mtime_ns,
        )
        for path in sorted(prefix.rglob("*"))
        if not path.is_dir()
    }


def is_done(prefix: Path) -> bool:
    return all((prefix / name).is_symlink() and (prefix / name).samefile(prefix / KEPT) for name in (FIRST, SECOND))


def count_steps(prefix: Path) -> tuple[int, int]:
    making, undoing = EndAt(None), EndAt(None)
    make_links(prefix, describe(prefix), making)
    undo_links(prefix, undoing)
    return making.steps, undoing.steps


def test_links_are_made_and_undone_to_the_last_bit(prefix: Path) -> None:
    before = read_tree(prefix)

    made = make_links(prefix, describe(prefix))

    assert made.changed == (FIRST, SECOND)
    assert is_done(prefix)
    assert not (prefix / SECOND).readlink().is_absolute()
    assert undo_links(prefix).changed == (FIRST, SECOND)
    assert read_tree(prefix) == before


def test_a_second_time_does_nothing(prefix: Path) -> None:
    links = describe(prefix)
    make_links(prefix, links)
    after = read_tree(prefix)

    assert make_links(prefix, ()).changed == ()
    assert make_links(prefix, links).already == (FIRST, SECOND)
    assert read_tree(prefix) == after


def test_undo_with_nothing_done_does_nothing(prefix: Path) -> None:
    before = read_tree(prefix)
    assert undo_links(prefix).changed == ()
    assert read_tree(prefix) == before


def test_ended_at_any_step_both_ways_are_open(prefix: Path) -> None:
    before, links = read_tree(prefix), describe(prefix)
    making, undoing = count_steps(prefix)
    assert (making, undoing) == (1 + 3 * 2, 2 + 1)
    for last in range(making):
        for way in (undo_links, lambda prefix: make_links(prefix, links), lambda prefix: make_links(prefix, ())):
            with pytest.raises(Ended):
                make_links(prefix, links, EndAt(last))
            assert all((prefix / name).exists() for name in (KEPT, FIRST, SECOND)), last
            way(prefix)
            undo_links(prefix)
            assert read_tree(prefix) == before, last
    for last in range(undoing):
        make_links(prefix, links)
        with pytest.raises(Ended):
            undo_links(prefix, EndAt(last))
        assert all((prefix / name).exists() for name in (KEPT, FIRST, SECOND)), last
        undo_links(prefix)
        assert read_tree(prefix) == before, last


def test_ended_while_undoing_it_can_be_made_again(prefix: Path) -> None:
    links = describe(prefix)
    for last in range(3):
        make_links(prefix, links)
        with pytest.raises(Ended):
            undo_links(prefix, EndAt(last))
        make_links(prefix, links)
        assert is_done(prefix), last
        undo_links(prefix)


def test_without_hard_links_it_works_as_well(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    before, links = read_tree(prefix), describe(prefix)
    for last in range(7):
        with pytest.raises(Ended):
            make_links(prefix, links, EndAt(last))
        undo_links(prefix)
        assert read_tree(prefix) == before, last
        with pytest.raises(Ended):
            make_links(prefix, links, EndAt(last))
        make_links(prefix, links)
        assert is_done(prefix), last
        undo_links(prefix)


@pytest.mark.parametrize("name", [KEPT, FIRST, SECOND])
def test_a_file_that_changed_since_the_plan_is_refused_before_anything_is_touched(prefix: Path, name: str) -> None:
    links = describe(prefix)
    (prefix / name).write_text("upgraded")
    before = read_tree(prefix)

    with pytest.raises(HarnessError, match="has changed since"):
        make_links(prefix, links)

    assert read_tree(prefix) == before


@pytest.mark.parametrize("name", [FIRST, FIRST + ORIGINAL])
def test_undo_refuses_what_was_changed_after_the_fix(prefix: Path, name: str) -> None:
    make_links(prefix, describe(prefix))
    (prefix / name).unlink()
    (prefix / name).write_text("another release")
    before = read_tree(prefix)

    with pytest.raises(HarnessError, match="has changed since"):
        undo_links(prefix)

    assert read_tree(prefix) == before


def test_a_package_installed_anew_over_its_link_can_be_fixed_again(prefix: Path) -> None:
    make_links(prefix, describe(prefix))
    (prefix / FIRST).unlink()
    (prefix / FIRST).write_text("another release")

    make_links(prefix, (describe_link(prefix, prefix / FIRST, prefix / KEPT),))

    assert is_done(prefix)
    undo_links(prefix)
    assert (prefix / FIRST).read_text() == "another release"


def test_a_copy_that_serves_others_does_not_become_a_link(prefix: Path) -> None:
    make_links(prefix, describe(prefix)[:1])
    with pytest.raises(HarnessError, match="already serves"):
        make_links(prefix, (describe_link(prefix, prefix / KEPT, prefix / SECOND),))


@pytest.mark.parametrize("text", ["", "{", '{"schema":"harness.openmp-fix/9","links":[]}', '{"links":[1]}'])
def test_a_journal_that_is_none_is_one_sentence(prefix: Path, text: str) -> None:
    (prefix / JOURNAL).write_text(text)
    with pytest.raises(HarnessError, match="cannot read the journal"):
        undo_links(prefix)


def test_a_journal_does_not_lead_out_of_the_environment(prefix: Path) -> None:
    make_links(prefix, describe(prefix))
    journal = (prefix / JOURNAL).read_text()
    (prefix / JOURNAL).write_text(journal.replace(FIRST, "../outside.so"))
    with pytest.raises(HarnessError, match="outside of the environment"):
        read_journal(prefix)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_an_environment_of_somebody_else_is_one_sentence(prefix: Path) -> None:
    links = describe(prefix)
    for parent in (prefix, *prefix.parents):
        if parent.stat().st_mode & 0o005 != 0o005 and "pytest" in str(parent):
            parent.chmod(0o755)
    os.seteuid(65534)
    try:
        with pytest.raises(HarnessError, match="cannot write in"):
            make_links(prefix, links)
    finally:
        os.seteuid(0)
    assert not (prefix / JOURNAL).exists()


def test_two_at_once_is_one_sentence(prefix: Path) -> None:
    def second(step: str) -> None:
        with pytest.raises(HarnessError, match="another harness"):
            undo_links(prefix)

    make_links(prefix, describe(prefix), second)
    assert is_done(prefix)
