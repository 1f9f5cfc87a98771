"""Which integers of a frame count what a loop uses up: `for` and `while`, nested, over what is shown to end or not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.capture.living.source.lock_lines import Sources
from harness.capture.living.source.loops import mark_consuming
from harness.evidence.living.look import Counter
from tests.builders.crashes import python

FINITE = """
def work(rows):
    {loop}
        total = number * 2; count += 1
        HERE(number)
"""


def ask(path: Path, source: str, name: str, function: str = "work", known: tuple[str, ...] = ("rows",)) -> bool | None:
    """At the line that says HERE, in a file that is older than this process. `known`: locals with a length."""
    path.write_text(source)
    os.utime(path, (0, 0))
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "HERE" in text)
    frame = python(function, str(path), line)
    (marked,) = mark_consuming(
        [Counter("local", f"{name} in {function} (x.py:{line})", (0, 1), (1, 2), frame)],
        Sources(os.getpid()),
        lambda _, other: other in known,
    )
    return marked.consumes


ENDS = """
import itertools
from tqdm.auto import tqdm as bar, tqdm
loader = torch.utils.data.DataLoader(words)
def batches(items, size):
    for at in range(0, len(items), size):
        yield items[at : at + size]
def doubled(numbers):
    for one in numbers:
        yield 2 * one
    yield from [1, 2]
def chosen():
    return sorted(read())
class Rows:
    def __init__(self):
        self.held = list(read())
    def __len__(self):
        return 3
class Trainer:
    def __init__(self, model, loader, kept=None):
        self.model, self.size = model, 3
        self.loader = loader
        self.kept = kept
def main():
    rows = [1, 2]
    Trainer(None, loader, kept=rows)
"""


@pytest.mark.parametrize(
    "loop",
    [
        "for number in range(10):",
        "for number in rows:",
        "for number, row in enumerate(rows):",
        "for (number, a), *b in zip(rows, itertools.count()):",
        "for number, row in enumerate(tqdm(loader, total=9)):",
        "for number, row in bar(loader):",
        "for number in itertools.islice(itertools.count(), 5):",
        "for number in itertools.repeat(1, 5):",
        "for number, row in self.rows.items():",
        "for number in rows[2:]:",
        "for number in [*endless()] * 3:",
        "for number in (row for row in rows if row):",
        "for number in batches(rows, 4):",
        "for number in doubled(batches(rows, size=4)):",
        "for number in chosen():",
        "for number in Rows():",
        "for number in self.held:",
        "for number, batch in enumerate(self.loader):",
        "for number, batch in enumerate(self.kept):",
        "for number in open('x'):",
        "async for number in rows:",
    ],
)
def test_a_for_over_something_finite(tmp_path: Path, loop: str) -> None:
    source = ENDS + FINITE.format(loop=loop)
    if loop.startswith("async"):
        source = source.replace("def work", "async def work")
    assert ask(tmp_path / "x.py", source, "number") is True
    assert ask(tmp_path / "x.py", source, "count") is True and ask(tmp_path / "x.py", source, "total") is True
    assert ask(tmp_path / "x.py", source, "other") is False


@pytest.mark.parametrize(
    "loop",
    [
        "while number:",
        "while True:",
        "for number in itertools.count():",
        "for number in tqdm(itertools.count()):",
        "for number, row in enumerate(cycle(rows)):",
        "for number in itertools.repeat(1):",
        "for number in iter(read, b''):",
        "for number in endless():",
        "for number in self.endless():",
        "for number in (x for x in endless()):",
        "for number in doubled():",
        "for number in numbers:",
        "for number, pair in enumerate(zip(itertools.count(), endless())):",
        "for number in items:",
        "for number, item in enumerate(items):",
        "for number in read():",
        "for number in poll():",
        "for number in rows.poll():",
        "for number in self.stream:",
        "for number in self.source:",
        "for number in self.given:",
        "for number in Stream():",
        "for number in enumerate(Stream()):",
        "for number in both:",
        "for number in ended():",
        "for number in doubled_of(items):",
        "for number in doubled_of(endless()):",
        "for number in rows.count():",
        "for number in itertools.islice(endless(), None):",
        "for number in itertools.takewhile(ready, endless()):",
        "for number in range(3) if rows else endless():",
    ],
)
def test_loops_without_an_end(tmp_path: Path, loop: str) -> None:
    head = """
import itertools
from itertools import cycle
numbers = itertools.count(3)
def endless():
    while True:
        yield from read()
def doubled():
    for one in endless():
        yield 2 * one
def doubled_of(some):
    for one in some:
        yield 2 * one
def ended():
    return endless()
both = [1]
both = endless()
given = [1]
Stream(endless(), read())
class Stream:
    def __iter__(self):
        return self
    def __next__(self):
        return 1
    def __init__(self, source, given):
        self.source = source
        self.given = given
    def open(self):
        self.stream = []
        self.stream = endless()
"""
    for name in ("number", "count", "total"):
        assert ask(tmp_path / "x.py", head + FINITE.format(loop=loop), name) is False


@pytest.mark.parametrize("end", ["break", "return"])
def test_a_generator_with_a_way_out_may_never_take_it(tmp_path: Path, end: str) -> None:
    head = f"""
def pages():
    while True:
        if not read():
            {end}
        yield 1
"""
    assert ask(tmp_path / "x.py", head + FINITE.format(loop="for number in pages():"), "number") is False


def test_nested_loops(tmp_path: Path) -> None:
    source = """
def work(rows):
    n = 0
    for epoch in range(10):
        done = True
        while rows:
            polled += 1
            for item in rows:
                seen += 1
                HERE(item)
"""
    told = {name: ask(tmp_path / "x.py", source, name) for name in ("epoch", "done", "item", "n", "polled", "seen")}
    assert told == {"epoch": True, "done": True, "item": True, "n": False, "polled": False, "seen": False}


def test_a_line_after_the_loop_or_in_its_else_is_not_in_it(tmp_path: Path) -> None:
    source = """
def work(rows):
    for number in rows:
        pass
    else:
        {0}
    {1}
"""
    assert ask(tmp_path / "x.py", source.format("HERE()", "pass"), "number") is False
    assert ask(tmp_path / "x.py", source.format("pass", "HERE()"), "number") is False
    assert ask(tmp_path / "x.py", source.replace("rows:", "rows:  # HERE"), "number") is True


def test_a_comprehension_is_a_loop_too(tmp_path: Path) -> None:
    source = "def work(rows):\n    while True:\n        return [HERE(number) for number in rows]\n"
    assert ask(tmp_path / "x.py", source, "number") is True
    assert ask(tmp_path / "x.py", source, "number", "<listcomp>") is True
    assert ask(tmp_path / "x.py", source, "number", "<listcomp>", known=()) is False
    assert ask(tmp_path / "x.py", source.replace("rows]", "iter(read, 0)]"), "number", "<listcomp>") is False


def test_a_source_that_is_not_there_or_newer_than_the_process_tells_nothing(tmp_path: Path) -> None:
    frame = python("work", str(tmp_path / "x.py"), 3)
    rising = Counter("local", "number in work (x.py:3)", (0, 1), (1, 2), frame)
    assert mark_consuming([rising], Sources(os.getpid()))[0].consumes is None
    (tmp_path / "x.py").write_text(FINITE.format(loop="for number in rows:"))
    assert mark_consuming([rising], Sources(os.getpid()))[0].consumes is None
    os.utime(tmp_path / "x.py", (0, 0))
    assert mark_consuming([rising], Sources(os.getpid()))[0].consumes is False
    assert mark_consuming([rising], Sources(os.getpid()), lambda *_: True)[0].consumes is True
