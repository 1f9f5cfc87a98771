"""Compiled code that does not fit: each of the loader's sentences, and the same sentence where it is only quoted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harness.diagnose.death.judge import judge
from harness.diagnose.death.loading import MARKERS
from harness.evidence.run import Ending
from tests.builders.evidence import run_evidence, told

RAISED = 'Traceback (most recent call last):\n  File "/job/train.py", line 3, in load\n    import x\n'
FAILED = Ending(exit_code=1)
MISSING = "train: error while loading shared libraries: libq.so.1: cannot open shared object file: No such file\n"
LOOKUP = "train: symbol lookup error: /env/x.so: undefined symbol: gemm\n"
VERSION = "train: /lib/libc.so.6: version `GLIBC_2.38' not found (required by train)\n"


@pytest.mark.parametrize("marker", MARKERS, ids=lambda marker: marker.pattern.pattern[:60])
def test_raised_it_is_the_cause_and_its_own_remedy_is_told(marker) -> None:
    raised = told(marker.sample.partition(":")[0])
    verdict = judge(run_evidence(RAISED + marker.sample + "\n", FAILED, **raised)).verdict
    assert (verdict.kind, verdict.status) == ("abi-mismatch", "established")
    if marker.remedy is not None:
        assert [remedy.why for remedy in verdict.remedies] == [marker.remedy.why]
        assert all("{" not in remedy.do for remedy in verdict.remedies)


@pytest.mark.parametrize("marker", MARKERS, ids=lambda marker: marker.pattern.pattern[:60])
def test_quoted_it_is_another_exception(marker) -> None:
    for sentence in (f"ValueError: the worker said '{marker.sample}'", f"KeyError: {marker.sample!r}"):
        assert judge(run_evidence(f"{RAISED}{sentence}\n", FAILED)).verdict.kind == "python-exception"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [(MISSING, 127, "libq.so.1"), (LOOKUP, 127, "undefined symbol: gemm"), (VERSION, 1, "`GLIBC_2.38' not found")],
)
def test_the_loader_ends_the_program_that_it_names_with_its_own_status(words: str, status: int, said: str) -> None:
    evidence = run_evidence(words, Ending(exit_code=status))
    named = replace(evidence.processes[0], argv=("train", "--fast"))
    verdict = judge(replace(evidence, processes=(named,))).verdict
    assert (verdict.kind, verdict.status) == ("abi-mismatch", "established") and said in verdict.headline
    other = judge(evidence).verdict  # the words name another program, which may have taken its place unseen
    assert (other.kind, other.status) == (
        ("abi-mismatch", "supported") if status == 127 else ("exit-nonzero", "established")
    )
    told_exit = judge(run_evidence(words, Ending(exit_code=status), **told(None, exit_code=status))).verdict
    assert told_exit.kind == "exit-nonzero"
    other = replace(named, ending=Ending(exit_code=3))
    assert judge(replace(evidence, processes=(other,))).verdict.kind == "exit-nonzero"
    quoted = run_evidence(f"retrying after '{words.strip()}'\n", Ending(exit_code=status))
    assert judge(replace(quoted, processes=(named,))).verdict.kind == "exit-nonzero"


@pytest.mark.parametrize(("execs", "status"), [(2, "established"), (1, "supported"), (0, "supported")])
def test_what_became_another_program_and_was_gone_is_known_by_the_kernels_word(execs: int, status: str) -> None:
    """The first program is the command itself; where it was not described either, it may only quote the loader."""
    evidence = run_evidence(MISSING, Ending(exit_code=127))
    gone = replace(evidence.processes[0], name="", argv=(), executable=None, execs=execs)
    verdict = judge(replace(evidence, processes=(gone,))).verdict
    assert (verdict.kind, verdict.status) == ("abi-mismatch", status)
