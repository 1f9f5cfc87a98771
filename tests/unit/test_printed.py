"""Printed words: whose they are and whether they were the last, each with the twin in which they are quoted."""

from __future__ import annotations

import signal

import pytest

from harness.diagnose.judge import judge
from harness.evidence.memory import Kill
from harness.evidence.model import Ending, PassedSignal, Uncaught
from tests.unit.evidence import run_evidence, told

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
