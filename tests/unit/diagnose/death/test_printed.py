"""Printed words: whose they are and whether they were the last, each with the twin in which they are quoted."""

from __future__ import annotations

import signal

import pytest

from harness.diagnose.death import matching
from harness.diagnose.death.judge import judge
from harness.diagnose.death.kinds import KINDS
from harness.diagnose.death.matching import Marker
from harness.evidence.crash import Crash
from harness.evidence.memory import Kill
from harness.evidence.run import Channel, Ending, Exit, Part, PassedSignal, Process, Transcript, Uncaught
from tests.builders.crashes import ABRT, FAISS, GOMP, LIBC, PYTHON, TKILL, crash, native, thread
from tests.builders.evidence import LOGS, run_evidence, told

FAILED = Ending(exit_code=1)
INTERRUPTED = Ending(signo=int(signal.SIGINT))
HEAD = 'Traceback (most recent call last):\n  File "/job/train.py", line 9, in main\n    run()\n'
KERNEL, LINK = "kernel, signal:signal_generate", "crash link"


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("MemoryError", "MemoryError", "allocation-failure"),
        ("MemoryError: x", "MemoryError", "allocation-failure"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable", "_ArrayMemoryError", "allocation-failure"),
        ("CorruptSharedMemoryError: magic is 0x0", "CorruptSharedMemoryError", "python-exception"),
        ("RuntimeError: can't start new thread", "RuntimeError", "resource-limit"),
        ("RuntimeError: can't start new thread pool: no name", "RuntimeError", "python-exception"),
        ("RuntimeError: std::bad_alloc", "RuntimeError", "allocation-failure"),
        ("RuntimeError: std::bad_alloc is not caught in rows.cc", "RuntimeError", "python-exception"),
        ("ImportError: numpy.core.multiarray failed to import", "ImportError", "abi-mismatch"),
        ("RuntimeError: it said: numpy.core.multiarray failed to import", "RuntimeError", "python-exception"),
        ("ImportError: it said: numpy.core.multiarray failed to import", "ImportError", "python-exception"),
        ("KeyboardInterruptTooLate: x", "KeyboardInterruptTooLate", "python-exception"),
    ],
)
def test_an_exception_is_known_by_its_whole_name_and_by_how_its_text_begins(text: str, name: str, kind: str) -> None:
    verdict = judge(run_evidence(f"{HEAD}{text}\n", FAILED, **told(name))).verdict
    assert (verdict.kind, verdict.status) == (kind, "established")


def sigint(sender: int | None, at_s: float, source: str = KERNEL) -> Kill:
    return Kill("SIGINT", 100, at_s, sender, 0, "python", source)


@pytest.mark.parametrize(
    ("message", "kills", "kind", "status"),
    [
        ("", (sigint(77, 9.7), sigint(100, 9.9)), "interrupted", "established"),
        ("", (sigint(None, 9.7), sigint(100, 9.9)), "interrupted", "established"),
        ("", (sigint(100, 9.7), sigint(100, 9.9)), "interrupted", "established"),
        (": asked to", (sigint(77, 9.7), sigint(100, 9.9)), "interrupted", "supported"),
        ("", (sigint(100, 9.9),), "python-exception", "established"),
        (": early stopping", (sigint(100, 9.9),), "python-exception", "established"),
        ("", (sigint(77, 9.85), sigint(100, 9.9)), "python-exception", "established"),  # in its teardown
        ("", (sigint(100, 9.9, LINK),), "interrupted", "supported"),
        (": early stopping", (sigint(100, 9.9, LINK),), "python-exception", "established"),
        ("", (), "interrupted", "supported"),
    ],
)
def test_ctrl_c_is_a_sigint_that_had_come(message: str, kills: tuple[Kill, ...], kind: str, status: str) -> None:
    raised = {"uncaught": (Uncaught(100, 9.8, "KeyboardInterrupt"),)}
    verdict = judge(run_evidence(f"{HEAD}KeyboardInterrupt{message}\n", INTERRUPTED, kills=kills, **raised)).verdict
    assert (verdict.kind, verdict.status) == (kind, status)
    assert bool(verdict.against) is (status == "supported")


def test_ctrl_c_at_the_terminal_reaches_harness_too() -> None:
    facts = {"uncaught": (Uncaught(100, 9.8, "KeyboardInterrupt"),)}
    typed = (PassedSignal("SIGINT", 9.7, 0, 0, None, False),)
    verdict = judge(run_evidence(f"{HEAD}KeyboardInterrupt\n", INTERRUPTED, signals=typed, **facts)).verdict
    assert (verdict.kind, verdict.status) == ("interrupted", "established")


ABORTED = Ending(signo=ABRT)
CPP = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"
# An image that each speaker is known by.
SPEAKERS = {
    matching.LIBC: LIBC,
    matching.CPP_RUNTIME: CPP,
    matching.TORCH: CPP,
    matching.RUST_RUNTIME: "/usr/lib/libstd-0123456789abcdef.so",
    matching.OPENBLAS: "/job/libopenblas64.so",
    matching.OPENMP: GOMP,
    matching.CUDA: "/job/libc10_cuda.so",
    matching.METAL: "/job/libMPSCore.dylib",
    matching.MAC_MALLOC: "/usr/lib/system/libsystem_malloc.dylib",
}
MARKERS = [pytest.param(kind.name, one, id=one.pattern.pattern[:40]) for kind in KINDS for one in kind.markers]
DAMAGED = "free(): invalid pointer\n"
ASSERTED = "python: lib.c:5: fail: Assertion `x == 3' failed.\n"
THROWN = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  shape\n"
REFUSED = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
LOST = "terminate called without an active exception\n"
PANIC = "thread 'main' panicked at src/probe.rs:3:5:\nno device\n"


def aborted_by(image: str, *above: str, open_files: tuple[str, ...] = ()) -> Crash:
    frames = (native("raise", LIBC), native("abort", LIBC), *(native(name, image) for name in above or (None,)))
    return crash(
        thread(100, *frames, native("main", PYTHON)), signo=ABRT, si_code=TKILL, at_s=9.9, open_files=open_files
    )


def sample_of(marker: Marker) -> str:
    """What the marker matches in its recorded sample."""
    text = (LOGS / marker.sample).read_text() if marker.sample.endswith(".txt") else marker.sample
    found = marker.pattern.search(text)
    assert found is not None
    return found[0]


def endings_of(marker: Marker) -> list[tuple[Ending, dict[str, object]]]:
    """Each end that it may explain, brought about by the one who prints it."""
    image = SPEAKERS.get(marker.speaker, FAISS)
    ends: list[tuple[Ending, dict[str, object]]] = []
    for end in marker.ends - {"exception"}:
        name, _, code = end.partition("=")
        if name == "exit":
            left = Exit(100, 9.95, int(code or 1), False, None, image)
            ends.append((Ending(exit_code=int(code or 1)), {"exits": (left,)}))
        else:
            seen = (aborted_by(image),) if name == "SIGABRT" else ()
            ends.append((Ending(signo=int(signal.Signals[name])), {"crashes": seen}))
    if "exception" in marker.ends:
        ends.append((FAILED, told("ValueError")))
        ends.append((FAILED, told(None)))
    return ends


@pytest.mark.parametrize(("kind", "marker"), MARKERS)
def test_a_marker_that_is_quoted_and_gone_on_after_establishes_nothing(kind: str, marker: Marker) -> None:
    sample = sample_of(marker)
    for said in (f"{sample}\n", f"the other job said: {' '.join(sample.split())}\n", f"{HEAD}{sample}\n"):
        for ending, facts in endings_of(marker):
            raised = f"{HEAD}ValueError: it said: {' '.join(sample.split())}\n" if facts.get("uncaught") else ""
            verdict = judge(run_evidence(f"{said}going on\nepoch 3\n{raised}", ending, **facts)).verdict
            own = verdict.kind == kind and verdict.status == "established"
            assert not own or kind in ("abort", "exit-nonzero"), (said, verdict.headline)
            assert not own or sample.splitlines()[0] not in verdict.headline, (said, verdict.headline)


@pytest.mark.parametrize(
    ("text", "image", "kind", "words"),
    [
        (DAMAGED + ASSERTED, LIBC, "abort", "Assertion"),
        (DAMAGED + "going on\n" + ASSERTED, LIBC, "abort", "Assertion"),
        (ASSERTED + DAMAGED, LIBC, "memory-corruption", "free(): invalid pointer"),
        (REFUSED + THROWN, CPP, "cpp-exception", "std::runtime_error"),
        (THROWN + "going on\n" + LOST, CPP, "abort", "without an active exception"),
        (THROWN + REFUSED, CPP, "allocation-failure", "std::bad_alloc"),
    ],
)
def test_of_what_one_speaker_prints_the_last_counts(text: str, image: str, kind: str, words: str) -> None:
    verdict = judge(run_evidence(text, ABORTED, crashes=(aborted_by(image),))).verdict
    assert (verdict.kind, verdict.status) == (kind, "established") and words in verdict.headline


def timed(*lines: tuple[str, float]) -> tuple[Transcript, ...]:
    return (Transcript("stderr", (Part("stderr.log", *map(tuple, zip(*lines, strict=True))),)),)  # type: ignore[arg-type]


def child(born_s: float, ended_s: float | None, **facts: object) -> Process:
    argv = ("python", "probe.py")
    ending = None if ended_s is None else Ending(exit_code=0)
    return Process(101, 100, "python", argv, "/usr/bin/python3.11", born_s, None, ended_s, ending)


@pytest.mark.parametrize(
    ("born_s", "ended_s", "after", "target", "status"),
    [
        (1.0, 2.0, None, "pipe:[7]", "established"),  # gone by then, and its words would stand before the culprit's
        (1.0, 2.0, None, "pipe:[8]", "supported"),  # whose own words went elsewhere
        (1.0, 2.0, "leaving", "pipe:[7]", "supported"),  # which may show that it went on, or be the rest of a message
        (1.0, None, None, "pipe:[7]", "supported"),
        (9.99, None, None, "pipe:[7]", "established"),  # not yet there
    ],
)
def test_a_line_that_another_may_have_printed_is_no_more_than_supported(
    born_s: float, ended_s: float | None, after: str | None, target: str, status: str
) -> None:
    lines = [(DAMAGED.strip(), 9.8), *([(after, 9.8)] if after else [])]
    evidence = run_evidence(
        "",
        ABORTED,
        transcripts=timed(*lines),
        crashes=(aborted_by(LIBC, open_files=("2 -> pipe:[7]",)),),
        others=(child(born_s, ended_s),),
        channels=(Channel("stderr", "pipe", 99, 9.8, target=target),),
    )
    verdict = judge(evidence).verdict
    assert (verdict.kind, verdict.status) == ("memory-corruption", status) and bool(verdict.against) is (
        status == "supported"
    )


C10 = """\
terminate called after throwing an instance of 'c10::Error'
  what():  CUDA error: an illegal memory access was encountered
CUDA kernel errors might be asynchronously reported at some other API call
Exception raised from c10_cuda_check at ../c10/cuda/CUDAException.cpp:43 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57
"""


@pytest.mark.parametrize(("text", "status"), [(C10, "established"), (f"{THROWN}shape 3\nshape 4\n", "supported")])
def test_the_rest_of_a_message_is_not_taken_for_going_on(text: str, status: str) -> None:
    verdict = judge(run_evidence(text, ABORTED, crashes=(aborted_by(CPP),))).verdict
    assert (verdict.kind, verdict.status) == ("cpp-exception", status)


@pytest.mark.parametrize(
    ("image", "functions", "in_headline"),
    [
        (FAISS, ("std::process::abort", "panic_abort::__rust_start_panic", "std::panicking::rust_panic"), True),
        (FAISS, ("_RNvNtCs5_3std9panicking10rust_panic",), True),
        (FAISS, ("give_up",), False),
        (FAISS, ("std::panicking::rust_panic_count",), False),
    ],
)
def test_a_panic_is_the_reason_of_an_abort_where_it_is_on_the_stack(
    image: str, functions: tuple[str, ...], in_headline: bool
) -> None:
    verdict = judge(run_evidence(PANIC, ABORTED, crashes=(aborted_by(image, *functions),))).verdict
    assert (verdict.kind, verdict.status) == ("abort", "established")
    assert ("no device" in verdict.headline) is in_headline
    assert any("no device" in ground.fact for ground in verdict.grounds)


def printed(message: str, at_s: float, *lines: int, head: str = "") -> list[tuple[str, float]]:
    """A traceback through these lines, the outermost first."""
    frames = [f'  File "/job/train.py", line {line}, in step' for line in lines]
    said = [*([head] if head else []), "Traceback (most recent call last):", *frames, f"ValueError: {message}"]
    return [(line, at_s) for line in said]


@pytest.mark.parametrize(
    ("texts", "lines", "words"),
    [
        (printed("its own", 9.82, 3, 9), (3, 9, 9), "its own"),
        (printed("its own", 9.79, 3, 9), (3, 9, 9), "its own"),  # a line may have been read later than its time
        (printed("handled", 9.82, 2, 9), (3, 9, 9), None),
        (printed("handled", 9.82, 3, 8), (3, 8, 9), None),
        (printed("handled", 9.82, 3, 7, 9), (3, 8, 9), None),
        (printed("handled", 9.0, 3, 9), (3, 9, 9), None),
        (printed("handled", 9.0, 3, 9), (), None),
        (printed("its own", 9.82, 3, 9), (), "its own"),
        (printed("handled", 9.79, 2, 9) + printed("its own", 9.82, 3, 9), (3, 9, 9), "its own"),
        (printed("its own", 9.82, 3), (3, 0, 3), "its own"),
        (printed("handled", 9.82, 3, 3), (3, 0, 3), None),
    ],
)
def test_what_was_told_of_is_the_traceback_that_was_printed_then_and_goes_through_its_lines(
    texts: list[tuple[str, float]], lines: tuple[int, ...], words: str | None
) -> None:
    facts = {**told("ValueError"), "uncaught": (Uncaught(100, 9.8, "ValueError", lines),)}
    verdict = judge(run_evidence("", FAILED, transcripts=timed(*texts), **facts)).verdict
    assert (verdict.kind, verdict.status) == ("python-exception", "established")
    assert (words or "ValueError") in verdict.headline and "handled" not in verdict.headline
    assert (verdict.user_frame is None) is (words is None)


GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/job/train.py", line 7, in <module>
  |     asyncio.run(main())
  |   File "/usr/lib/python3.11/asyncio/runners.py", line 190, in run
  |     return runner.run(main)
  |   File "/job/train.py", line 5, in main
  |     async with asyncio.TaskGroup() as g:
  |   File "/usr/lib/python3.11/asyncio/taskgroups.py", line 145, in __aexit__
  |     raise me from None
  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/job/train.py", line 2, in a
    |     async def a(): raise ValueError("in a")
    | ValueError: in a
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/job/train.py", line 3, in b
    |     async def b(): raise KeyError("in b")
    | KeyError: 'in b'
    +------------------------------------
"""
SYNTAX = """\
  File "/job/train.py", line 2
    print("hi"
         ^
SyntaxError: '(' was never closed
"""
IMPORTED = """\
Traceback (most recent call last):
  File "/job/train.py", line 4, in <module>
    import rows
  File "/job/rows.py", line 2
    print("hi"
         ^
SyntaxError: '(' was never closed
"""


@pytest.mark.parametrize(
    ("text", "name", "lines", "headline"),
    [
        (
            GROUP,
            "ExceptionGroup",
            (7, 190, 145),
            "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions), in main (train.py:5)",
        ),
        (SYNTAX, "SyntaxError", (), "SyntaxError: '(' was never closed, in <module> (train.py:2)"),
        (IMPORTED, "SyntaxError", (4, 0, 4), "SyntaxError: '(' was never closed, in <module> (rows.py:2)"),
    ],
)
def test_the_other_forms_of_a_traceback_are_read(text: str, name: str, lines: tuple[int, ...], headline: str) -> None:
    facts = {**told(name), "uncaught": (Uncaught(100, 9.8, name, lines),)}
    verdict = judge(run_evidence(text, FAILED, **facts)).verdict
    assert (verdict.kind, verdict.status, verdict.headline) == ("python-exception", "established", headline)
    printed_only = judge(run_evidence(text, FAILED)).verdict
    assert (printed_only.status, printed_only.headline) == ("supported", headline)
    got_over = judge(run_evidence(f"{text}\ngoing on\n", FAILED)).verdict
    assert got_over.kind == "exit-nonzero"


def test_what_an_exception_is_a_group_of_is_not_the_one_that_ended_it() -> None:
    other = judge(run_evidence(GROUP, FAILED, **told("KeyError"))).verdict
    assert other.headline == "KeyError"


IN_THREAD = HEAD.replace("Traceback", "Exception in thread beat:\nTraceback") + "ConnectionError: gone\n"


def test_of_an_exception_in_a_thread_and_an_exit_both_readings_are_told() -> None:
    for facts in (told(None), {}):
        verdict = judge(run_evidence(IN_THREAD, FAILED, **facts)).verdict
        assert (verdict.kind, verdict.status) == ("python-exception", "supported")
        assert any("ends that thread only" in sentence for sentence in verdict.against)


def test_a_line_on_the_other_channel_may_show_that_the_program_went_on() -> None:
    text = f"{HEAD}ValueError: bad field\n"
    stderr = Transcript("stderr", (Part("stderr.log", tuple(text.splitlines()), (9.8,) * 4),))
    for at_s, is_told in ((9.0, False), (9.79, True), (9.9, True)):
        stdout = Transcript("stdout", (Part("stdout.log", ("validation failed",), (at_s,)),))
        verdict = judge(run_evidence("", FAILED, transcripts=(stdout, stderr))).verdict
        assert (verdict.kind, verdict.status) == ("python-exception", "supported")
        assert any("validation failed" in sentence for sentence in verdict.against) is is_told


@pytest.mark.parametrize("ending", [ABORTED, Ending(signo=int(signal.SIGSEGV))])
def test_an_exception_before_the_signal_that_ended_it_is_told_beside_it(ending: Ending) -> None:
    text = f"{HEAD}ValueError: bad row 7\nFatal Python error: Segmentation fault\n"
    raised = {"uncaught": (Uncaught(100, 9.8, "ValueError", (9, 0, 9)),)}
    document = judge(run_evidence(text, ending, **raised))
    assert document.verdict.kind in ("segfault", "abort") and document.verdict.status == "established"
    assert any("ValueError: bad row 7, in main (train.py:9)" in one.fact for one in document.verdict.grounds)
    (row,) = [row for row in document.differential if row.hypothesis == "python-exception"]
    assert row.state == "open" and "ValueError: bad row 7" in row.because
    none = judge(run_evidence(text, ending)).differential
    assert [row.state for row in none if row.hypothesis == "python-exception"] == ["ruled-out"]
