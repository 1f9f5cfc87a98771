"""How an arm ended, and whether it was what it claims to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.capture.experiment.steps import StepFile
from harness.diagnose.experiment.arm import check_runs, describe_run
from harness.documents.verdict import Progress
from harness.evidence.experiment import Arm, Patient, Told
from tests.builders.runs import RAN, make_document, make_run

ARM = Arm("gru", "base", {}, None, {})


def state_of(told: Told, document: Any, **more: Any) -> tuple[str, str | None]:
    run = describe_run(ARM, Patient("python"), "cpu", 1, 10, 1.0, told, document, **more)
    return run.state, run.why


@pytest.mark.parametrize(
    ("document", "told", "state"),
    [
        (make_document("clean", exit_code=0), Told(finished=True), "clean"),
        (make_document("clean", exit_code=0), Told(steps_done=9), "not-run"),  # near miss: status 0, not all steps
        (make_document("segfault"), Told(step=3), "fault"),
        (make_document("python-exception", exit_code=1), Told(step=3), "fault"),
        (make_document("exit-nonzero", exit_code=77), Told(), "not-run"),
        (make_document("exit-nonzero", exit_code=2), Told(), "not-run"),
        (make_document("exit-nonzero", exit_code=2), Told(steps_done=1), "fault"),  # near miss: it had begun
        (make_document("killed", "unknown"), Told(step=3), "ended"),
        (make_document("oom-kill"), Told(step=3), "fault"),  # near miss: killed, but with a known reason
        (make_document("terminated"), Told(step=3), "ended"),
        (None, Told(), "not-run"),
    ],
)
def test_how_it_ended(document: Any, told: Told, state: str) -> None:
    assert state_of(told, document)[0] == state


@pytest.mark.parametrize(
    ("document", "state"),
    [
        (make_document("deadlock-openmp", state="alive"), "hang"),
        (make_document("busy-native", state="alive"), "slow"),
        (make_document("progressing", state="alive"), "slow"),
        (make_document("terminated"), "slow"),  # it could not be looked at, and was ended by us
    ],
)
def test_without_a_step_it_hangs_only_if_the_look_says_so(document: Any, state: str) -> None:
    assert state_of(Told(step=3), document, hung=True)[0] == state


def test_what_it_lacks_is_told_in_its_own_words() -> None:
    progress = Progress(None, None, "not run: python3 has no torch", None)
    document = replace(make_document("exit-nonzero", exit_code=77), progress=progress)
    assert state_of(Told(), document) == ("not-run", "python3 has no torch")


def check(*runs: Any) -> tuple[bool | None, str | None]:
    """Of the last one."""
    last = check_runs(runs)[-1]
    return last.valid, last.why


def test_an_arm_that_shows_its_difference_counts() -> None:
    assert check(make_run(), make_run("lstm", changed={"cell": "lstm"})) == (True, None)
    assert check(make_run("lstm", changed={"cell": "lstm"})) == (True, None)  # no base to compare with
    assert check(make_run()) == (True, None)


@pytest.mark.parametrize(
    ("changed", "ran", "words"),
    [
        ({"cell": "lstm"}, RAN, "asked for cell lstm, it ran with gru"),
        ({"threads": 1}, {**RAN, "threads": {"torch": 1, "faiss": 4}}, "it ran with torch 1, faiss 4"),
        ({"threads": 4}, {**RAN, "threads": {"torch": 4}}, "did not differ from base: threads was torch 4 in both"),
        ({"accumulation": 64}, {"device": ["cpu"]}, "never showed that accumulation was 64"),
        ({"clear_cache": "on"}, RAN, "asked for clear_cache on, it ran with off"),
        ({}, {**RAN, "device": ["cpu", "mps"]}, "it ran on cpu, mps, not on cpu"),
    ],
)
def test_an_arm_that_did_not_differ_does_not(changed: dict[str, Any], ran: dict[str, Any], words: str) -> None:
    valid, why = check(make_run(), make_run("arm", changed=changed, ran=ran))
    assert valid is False and words in (why or "")


def test_a_base_that_was_too_short_for_its_suspect_does_not_count() -> None:
    seen = {name: value for name, value in RAN.items() if name != "accumulation"}
    (short,) = check_runs([make_run(ran=seen)])
    assert short.valid is False and short.why == "it never showed that accumulation was 32"
    (died,) = check_runs([make_run(state="fault", ran=seen)])
    assert died.valid is True


def test_cache_calls_are_counted() -> None:
    run = make_run("clear", changed={"clear_cache": "on"}, ran={**RAN, "clear_cache": 12})
    assert check(make_run(), run) == (True, None)


def test_one_that_died_too_early_to_show_it_is_neither() -> None:
    run = make_run("x64", "fault", changed={"accumulation": 64}, ran={})
    assert check(make_run(), run) == (None, "it ended before it could show that accumulation was 64")


def test_other_places_are_no_reference() -> None:
    elsewhere = make_run(ran={**RAN, "cell": "lstm"}, python="/other/bin/python")
    assert check(elsewhere, make_run("lstm", changed={"cell": "lstm"})) == (True, None)


def test_the_side_channel_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    steps = StepFile(path)
    assert not steps.read() and steps.told == Told()
    lines = [
        {"step": 1, "at": "forward", "ran": {"cell": "gru"}},
        {"done": 1, "loss": 0.5, "checksum": "aa", "ran": {"cell": "gru", "k": 3}},
        {"step": 2, "at": "backward", "ran": {"cell": "gru", "k": 3}},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text[:-9])
    assert steps.read() and (steps.told.steps_done, steps.told.step, steps.told.at) == (1, 1, "forward")
    path.write_text(text + json.dumps({"finished": True}) + "\n")
    assert steps.read()
    assert steps.told == Told(1, 2, "backward", {"cell": "gru", "k": 3}, "aa", True)
    assert not steps.read()
