"""Reports are sections that a painter lays out: what is said is told once, how it looks on a terminal in one file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.documents.verdict import (
    Call,
    Component,
    Document,
    Ground,
    Hypothesis,
    Living,
    MemoryUse,
    Node,
    Outcome,
    Printed,
    ProcessRef,
    Progress,
    Remedy,
    Stack,
    Target,
    Upstream,
    Verdict,
)
from harness.evidence.gap import Gap
from harness.report.sections import Item, Section, Table, make_section
from harness.report.terminal import paint
from harness.report.text import render, render_line, verdict_line
from harness.report.verdict import list_sections

REPORT = Path(__file__).parents[2] / "harness" / "report"
# Their layouts are tables of their own, for a terminal only; the document is --json.
OF_THEIR_OWN = {"doctor.py", "ps.py", "watch.py"}

VERDICT = Verdict(
    kind="segfault",
    status="established",
    headline="Segmentation fault in libwalk.so",
    component=Component("walk", "2.1", "libwalk.so", "walk", "0x1a"),
    faulting_image=Component(None, None, "libc.so.6", "strlen"),
    process=ProcessRef(7, "main", tid=7, python="3.11.7"),
    python_frame=None,
    user_frame=None,
    context_frame=None,
    signature=None,
    grounds=(Ground("siginfo SEGV_MAPERR", "crash link"),),
    against=("it ran as root",),
    upstream=(Upstream("acme/walk#7", "the same function"),),
    remedies=(
        Remedy("pip install 'walk<2'", True, "2.1 brought it", verify="harness run python train.py"),
        Remedy("export WALK_CHECKS=0", False, "hides the fault"),
    ),
    next="harness repro gru",
    fault="read of 0x0: null pointer",
    stack=Stack((Call("native", "walk", "src/list.cpp", 3, "/a/libwalk.so", times=2),), more=1),
)
DIED = Document(
    harness="1",
    case="/cases/7",
    target=Target(None, 7, ("python",), "3.11.7", "linux"),
    outcome=Outcome("died", 139, "SIGSEGV", core="/cases/7/core.7.gz", duration_s=1.25),
    verdict=VERDICT,
    differential=(
        Hypothesis("oom-kill", "ruled-out", "no SIGKILL"),
        Hypothesis("python-exception", "open", "no words"),
    ),
    progress=Progress(None, None, "step 3", 0.5),
    gaps=(Gap("core", "the limit is 0", "ulimit -c unlimited"),),
    memory=MemoryUse(
        2**30, 3.0, 2**30, 1, 7, 2**30, 2**31, "ulimit -v", None, 0, None, None, samples=9, course=(0, 2**29, 2**30)
    ),
)
DIED_SAYS = """\
harness: Segmentation fault in libwalk.so  [segfault, established]
  fault      read of 0x0: null pointer
  component  walk  libwalk.so +0x1a (walk 2.1)
             faulting image: strlen  libc.so.6
  stack      walk (list.cpp:3) in libwalk.so  × 2
             … and 1 more frame
  process    pid 7, Python 3.11.7, after 1.2 s
  memory     peak 1.00 GiB at 3.0 s; the limit is 2.00 GiB (ulimit -v)
             ▁▄█  0 to 1.00 GiB
  grounds    siginfo SEGV_MAPERR  [crash link]
  against    it ran as root
  not seen   core: the limit is 0  (ulimit -c unlimited)
  ruled out  oom-kill: no SIGKILL
  still open python-exception: no words
  output     last line: 'step 3', 0.5 s before the end
  known as   acme/walk#7: the same function
  do         pip install 'walk<2'  (2.1 brought it)
  do not     export WALK_CHECKS=0  (hides the fault)
  verify     harness run python train.py
  next       harness repro gru
  core       /cases/7/core.7.gz  (for gdb: gunzip -k it first)
  case       /cases/7
"""
STANDS = replace(
    DIED,
    case=None,
    outcome=Outcome("alive", None, None, duration_s=300.0),
    verdict=replace(
        VERDICT,
        kind="deadlock-lock",
        headline="Deadlock",
        component=None,
        faulting_image=None,
        fault=None,
        stack=None,
        grounds=(),
        against=(),
        upstream=(),
        remedies=(),
        next=None,
    ),
    differential=(),
    gaps=(),
    memory=None,
    progress=Progress(False, None, None, None, looked_s=5.0, samples=10),
    living=Living(
        7,
        ("MainThread (7): asleep",),
        ("done in main (a.py:3)",),
        (Printed(7, "stdout", 12, "epoch 1\nloss", False),),
        0.0,
        3,
        tree=Node(("main (a.py:3)",), 3, "rank 0-2"),
        tasks=("fetch: awaits a future",),
    ),
)
STANDS_SAYS = """\
harness: Deadlock  [deadlock-lock, established]
  process    pid 7, Python 3.11.7, running for 5.0 min
  tree       3 × rank 0-2
               main (a.py:3)
  threads    MainThread (7): asleep
  tasks      fetch: awaits a future
  moving     done in main (a.py:3)
  unflushed  12 bytes of stdout, printed and not written yet:
             > epoch 1
             > loss
  stopped    not at all by this look of 5.0 s, 10 samples
"""
ENDED = replace(
    DIED,
    outcome=Outcome("exited", 3, None, duration_s=1.0),
    verdict=replace(VERDICT, kind="exit-nonzero", headline="Exited with status 3"),
)
ENDED_SAYS = """\
harness: Exited with status 3  [exit-nonzero, established]
  but        it ran as root
  output     last line: 'step 3', 0.5 s before the end
  next       harness repro gru
  case       /cases/7
"""
SAYS = {"died": (DIED, DIED_SAYS), "stands": (STANDS, STANDS_SAYS), "ended": (ENDED, ENDED_SAYS)}


@pytest.mark.parametrize("name", SAYS)
def test_a_terminal_shows_every_section_in_its_order(name: str) -> None:
    document, text = SAYS[name]
    assert render(document, width=110, color=False, terminal=True) == text


@pytest.mark.parametrize("name", SAYS)
def test_sections_say_something_and_the_headline_comes_first(name: str) -> None:
    document, text = SAYS[name]
    head, *others = list_sections(document)
    assert (head.role, head.items[0].source) == ("alarm", f"{document.verdict.kind}, {document.verdict.status}")
    assert all(section.items for section in others)
    labels = [line[2:13].strip() for line in text.splitlines()[1:]]
    assert [section.label for section in others] == [label for label in labels if label]


def test_a_painter_is_told_what_is_safe_what_is_not_and_what_is_to_be_typed() -> None:
    roles = {section.label: section.role for section in list_sections(DIED)}
    told = {"do": "remedy", "do not": "danger", "verify": "next", "next": "next", "stack": "drawing"}
    assert {label: roles[label] for label in told} == told
    assert {roles[label] for label in roles.keys() - told.keys()} == {"alarm", "facts"}


def test_sources_reasons_and_the_words_of_others_are_not_mixed_into_the_text() -> None:
    items = {section.label: section.items for section in (*list_sections(DIED), *list_sections(STANDS))}
    assert items["grounds"] == (Item("siginfo SEGV_MAPERR", source="crash link"),)
    assert items["do not"] == (Item("export WALK_CHECKS=0", aside="hides the fault"),)
    assert items["unflushed"][0].quoted == ("epoch 1", "loss")


def test_values_over_time_are_drawn_only_where_somebody_looks() -> None:
    drawn = "             ▁▄█  0 to 1.00 GiB\n"
    assert render(DIED, width=110, color=False) == DIED_SAYS.replace(drawn, "")


def test_long_lines_break_between_words_and_colours_break_nothing() -> None:
    section = make_section("next", ["harness attach " + "h" * 40, "b"], "next")
    plain = paint([section], width=40, color=False)
    assert plain == f"  next       harness attach\n             {'h' * 40}\n             b\n"
    dim = "\x1b[2m  next       \x1b[0m"
    assert paint([section], width=40, color=True).startswith(f"{dim}harness attach\n")
    copied = make_section("load", ["np.load(" + "a b " * 20 + ")"], wrap=False)
    assert paint([copied], width=40, color=True) == f"  load       np.load({'a b ' * 20})\n"


def test_a_headline_is_as_loud_as_its_role() -> None:
    line = "harness: Deadlock  [deadlock-lock, established]"
    assert verdict_line(STANDS) == line
    assert render_line(STANDS, width=110, color=True) == f"\x1b[1m\x1b[31m{line}\x1b[0m\n"
    assert paint([make_section("harness", "Done", "answer")], width=110, color=True) == "\x1b[1mharness: Done\x1b[0m\n"
    assert paint([make_section("harness", "Done", "notice")], width=110, color=True) == "harness: Done\n"


def test_a_row_of_a_table_that_shows_a_fault_is_red() -> None:
    table = Table(("ARM", "OUTCOME"), (("gru", "segfault"), ("control", "clean")), alarming=(True, False))
    plain = "\n  ARM      OUTCOME\n  gru      segfault\n  control  clean\n\n"
    assert paint([table], width=80, color=False) == plain
    assert "\n\x1b[31m  gru      segfault\x1b[0m\n  control  clean\n" in paint([table], width=80, color=True)


def test_what_a_process_has_said_does_not_act_on_the_terminal() -> None:
    shouting = Section("said", (Item("\x1b[2Jred", quoted=("a\x07b",)),))
    assert paint([shouting], width=80, color=False) == "  said       red\n             > ab\n"


def test_only_the_painter_knows_of_widths_colours_and_markup() -> None:
    for path in {*REPORT.glob("*.py")} - {REPORT / name for name in {"terminal.py", *OF_THEIR_OWN}}:
        tree = ast.parse(path.read_text())
        words = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        assert not any("\x1b" in word for word in words), path
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert not names & {"textwrap", "shutil"}, path
    for name in ("sections.py", "verdict.py", "living.py", "memory.py"):
        assert "terminal" not in {
            (node.module or "").rpartition(".")[2]
            for node in ast.walk(ast.parse((REPORT / name).read_text()))
            if isinstance(node, ast.ImportFrom)
        }
