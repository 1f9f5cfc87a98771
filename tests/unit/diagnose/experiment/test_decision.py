"""All arms in, one decision out; every rule with what it must say, what it must not, and a near miss."""

from __future__ import annotations

import ast
import math
from typing import Any

import pytest

from harness.commands.repro.standalone import pin_requirements, write_standalone
from harness.diagnose.experiment.arm import check_runs
from harness.diagnose.experiment.decision import Asked, bound_rate, decide
from harness.diagnose.experiment.factors import contrast_factors
from harness.documents.repro import ReproDocument, Run
from harness.evidence.experiment import Patient
from harness.report.repro import render_repro
from tests.builders.runs import PYTHON, RAN, make_document, make_plan, make_run


def repeated(times: int, *arguments: Any, **changes: Any) -> list[Run]:
    return [make_run(*arguments, repeat=number, **changes) for number in range(1, times + 1)]


def decided(*runs: Run, agree: Any = (), usual_python: str = PYTHON, **plan: Any) -> Any:
    return decide(check_runs(runs), {"gru": agree}, Asked(make_plan(**plan), usual_python))


def absent(device: str, why: str, **changes: Any) -> Run:
    return make_run(state="not-run", device=device, why=f"no {device}: {why}", steps_done=0, ran={}, **changes)


UNNAMED = make_document("killed", "supported", named=False)


# The statement where nothing failed


def test_the_bound_is_the_exact_rule_of_three() -> None:
    assert (1 - bound_rate(1000)) ** 1000 == pytest.approx(0.05)
    assert bound_rate(1000) == pytest.approx(3 / 1000, rel=0.01)


def test_no_fault_is_a_bound_and_not_a_promise() -> None:
    decision = decided(*repeated(3))
    assert decision.exit_code == 0 and decision.component is None
    rate = 1000 * (1 - math.exp(math.log(0.05) / 300))
    assert decision.bounds == (
        f"gru on cpu: no fault in 300 steps: this bounds the failure rate below {rate:.3g} per 1000 steps at 95%",
    )
    assert "works" not in decision.headline


def test_steps_of_other_arms_do_not_bound_the_base() -> None:
    decision = decided(make_run(), make_run("lstm", changed={"cell": "lstm"}))
    assert "no fault in 100 steps" in decision.bounds[0]


def test_an_invalid_row_is_inconclusive_and_none_at_all_could_not_look() -> None:
    invalid = make_run("lstm", changed={"cell": "lstm"}, ran={"cell": "gru", "device": ["cpu"]})
    assert decided(make_run(), invalid).exit_code == 11
    assert decided(make_run(), make_run("lstm", "not-run", why="no torch")).exit_code == 11
    nothing = decided(make_run(state="not-run", why="no torch", ran={}))
    assert nothing.exit_code == 3 and nothing.headline == "Nothing could be run: no torch"
    assert decided(make_run(state="ended", why="ended")).exit_code == 11


def test_only_devices_where_something_counts_are_in_the_headline() -> None:
    linux = "this is Linux, not a Mac"
    no_mps = [absent("mps", linux), absent("mps", linux, arm="lstm", changed={"cell": "lstm"})]
    told = decided(make_run(), *no_mps).headline
    assert told == f"No fault in 100 steps of 1 arm on cpu; nothing ran on mps: {linux}"
    on_mps = make_run(device="mps", ran={**RAN, "device": ["mps"]})
    assert decided(make_run(), on_mps).headline == "No fault in 200 steps of 2 arms on cpu, mps"
    invalid = make_run("lstm", changed={"cell": "lstm"}, ran=RAN)
    assert decided(make_run(), invalid, *no_mps).headline == (
        f"No fault in 100 steps of 1 arm on cpu; 1 of 2 arms do not count; nothing ran on mps: {linux}"
    )
    elsewhere = make_run(device="mps")  # near miss: it ran, but on the cpu
    assert decided(make_run(), elsewhere).headline.endswith("; nothing counts on mps: it ran on cpu, not on mps")


# The next command


@pytest.mark.parametrize(
    ("names", "plan", "expected"),
    [
        (["gru"], {}, "harness repro gru --scale small"),
        (["gru"], {"scale": "small", "steps": 7, "repeat": 2}, "harness repro gru --scale seed"),
        (["gru"], {"scale": "seed"}, "harness repro gru --scale seed --repeat 3"),
        (["gru"], {"scale": "seed", "repeat": 3}, None),  # it has been done
        (["faiss", "twotower", "gru"], {}, "harness repro twotower --scale small"),
        (["openmp", "gru"], {}, "harness repro openmp --scale small"),  # the first that was named
        (["gru"], {"timeout_s": 600.0}, "harness repro gru --scale small --arm-timeout 600"),
        (["openmp", "gru"], {"arms": ("base", "lstm")}, "harness repro openmp --arm base --scale small"),
    ],
)
def test_after_a_clean_run_it_is_one_larger_step_with_one_of_them(
    names: list[str], plan: dict[str, Any], expected: str | None
) -> None:
    runs = [make_run(name=name) for name in names]
    assert decided(*runs, names=tuple(names), **plan).next == expected


def test_it_names_the_python_unless_a_bare_command_would_take_it() -> None:
    clean, unnamed = make_run(), make_run(state="fault", verdict=UNNAMED)
    for run, more in ((clean, "--scale small"), (unnamed, "--repeat 3"), (make_run(state="fault"), "--save-repro DIR")):
        assert decided(run).next == f"harness repro gru {more}"
        assert decided(run, usual_python="/usr/bin/python3").next == f"harness repro gru --python {PYTHON} {more}"
    spaced = make_run(python="/my env/python")
    assert (
        decided(spaced, pythons=("/my env/python",)).next == "harness repro gru --python '/my env/python' --scale small"
    )


def test_it_names_only_what_ran_and_devices_where_several_were_asked_for() -> None:
    gone = make_run(state="not-run", why="/gone does not exist", python="/gone", ran={})
    decision = decided(make_run(), absent("mps", "no Mac"), gone, devices=("cpu", "mps"), pythons=(PYTHON, "/gone"))
    assert decision.next == "harness repro gru --device cpu --scale small"


def test_a_fault_is_run_again_as_it_was() -> None:
    fault = make_run(state="fault", verdict=UNNAMED, steps_asked=500)
    assert decided(fault, scale="seed", steps=500).next == "harness repro gru --scale seed --steps 500 --repeat 3"


def test_numbers_that_differ_are_repeated_and_not_enlarged() -> None:
    decision = decided(make_run(), make_run(repeat=2, checksum="bad"), repeat=2)
    assert decision.exit_code == 10 and decision.next == "harness repro gru --repeat 6"


# Faults


def test_a_captured_component_is_established_by_one_run() -> None:
    decision = decided(make_run(state="fault"), make_run("lstm", changed={"cell": "lstm"}))
    assert (decision.exit_code, decision.status) == (10, "established")
    assert decision.component.function == "gru_backward"
    assert decision.headline.startswith("gru dies at step 42 of 100, in backward")
    assert "gru base: 1 of 1 failed, at step 42 in backward" in decision.because


def test_without_a_stack_one_run_is_a_hypothesis_and_repeats_support_it() -> None:
    clean = {"changed": {"accumulation": 4}}
    once = decided(make_run(state="fault", verdict=UNNAMED), make_run("x4", **clean))
    assert once.status == "hypothesis" and "--repeat 3" in once.next
    twice = decided(*repeated(2, state="fault", verdict=UNNAMED), *repeated(2, "x4", **clean))
    assert twice.status == "supported"
    mixed = decided(
        make_run(state="fault", verdict=UNNAMED), make_run(repeat=2), *repeated(2, "x4", **clean)
    )  # near miss: it fails only now and then
    assert mixed.status == "hypothesis"


def test_numbers_give_a_bound_of_what_to_launch() -> None:
    runs = [make_run(state="fault"), make_run("x16", "fault", changed={"accumulation": 16})]
    runs += [make_run(f"x{count}", changed={"accumulation": count}) for count in (1, 4)]
    decision = decided(*runs)
    assert [advice.do for advice in decision.recommend] == ["Launch with accumulation ≤ 4."]
    assert [advice.do for advice in decision.avoid] == ["Launch with accumulation ≥ 16."]
    assert decision.avoid[0].because == "gru on cpu: 2 of 2 failed"


def test_overlapping_numbers_give_none() -> None:
    runs = [make_run(state="fault"), make_run("x64", changed={"accumulation": 64})]
    runs += [make_run("x4", changed={"accumulation": 4})]
    (contrast,) = contrast_factors(check_runs(runs))
    assert contrast.advise() == "Launch with accumulation 64 or accumulation 4."


def openmp_run(arm: str, state: str, **changed: Any) -> Run:
    options = {"order": "faiss,torch", "faiss": "on", "k": 1000, **changed}
    ran = {**options, "device": ["cpu"]}
    return make_run(arm, state, name="openmp", changed=changed, options=options, ran=ran)


def test_what_is_recommended_is_not_warned_of() -> None:
    base, control = openmp_run("base", "fault"), openmp_run("control", "clean", order="torch,faiss")
    off, small = openmp_run("faiss-off", "clean", faiss="off"), openmp_run("k-10", "fault", k=10)
    both = decided(base, control, off, small)
    assert [advice.do for advice in both.recommend] == [
        "Launch with torch imported before faiss.",
        "Launch with no faiss in the process.",
    ]
    assert [advice.do for advice in both.avoid] == ["Launch with faiss imported before torch."]
    assert both.avoid[0].because == "openmp on cpu: 2 of 2 failed"
    only_off = decided(base, off, small)  # near miss: no order is known to be clean
    assert [advice.do for advice in only_off.avoid] == ["Launch with faiss in the process."]


def test_what_fails_only_together_is_warned_of_together() -> None:
    clean = [make_run("lstm", changed={"cell": "lstm"}), make_run("x4", changed={"accumulation": 4})]
    decision = decided(make_run(state="fault"), *clean)
    assert [advice.do for advice in decision.avoid] == ["Launch with accumulation 32 and cell gru."]
    assert decision.avoid[0].because == "gru on cpu: 1 of 1 failed"


def test_an_invalid_clean_arm_recommends_nothing() -> None:
    invalid = make_run("lstm", changed={"cell": "lstm"}, ran={"cell": "gru", "device": ["cpu"]})
    decision = decided(make_run(state="fault"), invalid)
    assert decision.recommend == ()
    (avoid,) = decision.avoid
    assert avoid.do == "Launch with accumulation 32, cell gru, the default number of threads."
    assert avoid.because == "gru on cpu: 1 of 1 failed"


def test_arms_are_compared_in_their_own_place_only() -> None:
    elsewhere = make_run("lstm", changed={"cell": "lstm"}, device="mps", ran={"cell": "lstm", "device": ["mps"]})
    assert not list(contrast_factors(check_runs([make_run(state="fault"), elsewhere])))


def test_a_hang_is_a_fault_that_stands() -> None:
    document = make_document("deadlock-openmp", state="alive")
    decision = decided(make_run(state="hang", verdict=document))
    assert decision.exit_code == 10 and decision.headline.startswith("gru stands still at step 42")
    assert decision.next == "harness openmp"


def test_a_second_fault_is_told_too() -> None:
    other = make_document("abort")
    decision = decided(make_run(state="fault"), make_run("lstm", "fault", changed={"cell": "lstm"}, verdict=other))
    assert any("another fault, in gru lstm: it ended: abort" in line for line in decision.because)


# Numbers


def test_repeats_and_arms_that_must_agree_are_compared() -> None:
    same = decided(*repeated(2))
    assert same.exit_code == 0
    repeats = decided(make_run(), make_run(repeat=2, checksum="bad"))
    assert repeats.exit_code == 10 and repeats.status == "supported" and "base #1 and base #2" in repeats.because[0]
    orders = [make_run(), make_run("control", changed={"cell": "lstm"}, checksum="bad")]
    assert decided(*orders, agree=[["base", "control"]]).exit_code == 10
    assert decided(*orders).exit_code == 0  # near miss: these need not agree


def test_a_gpu_is_not_called_corrupt_for_another_last_bit() -> None:
    ran = {**RAN, "device": ["mps"]}
    decision = decided(make_run(device="mps", ran=ran), make_run(repeat=2, checksum="bad", device="mps", ran=ran))
    assert (decision.exit_code, decision.status) == (11, "hypothesis")


# The table


def test_an_arm_says_what_it_is_compared_with_unless_it_is_the_base() -> None:
    runs = check_runs(
        [
            make_run(),
            make_run("x16", changed={"accumulation": 16}),
            make_run("x16-lstm", changed={"cell": "lstm"}, against="x16"),
        ]
    )
    document = ReproDocument("0", None, make_plan(), (), runs, decided(*runs), complete=True)
    table = [line.split() for line in render_repro(document, width=110, color=False).splitlines()]
    assert ["gru", "base", "-", "clean"] in [words[:4] for words in table]
    assert ["gru", "x16", "accumulation", "16", "clean"] in [words[:5] for words in table]
    assert ["gru", "x16-lstm", "cell", "lstm", "(against", "x16)", "clean"] in [words[:7] for words in table]


# The script of its own

SOURCE = """# /// script
# requires-python = ">=3.9"
# dependencies = ["torch>=2"]
# ///
\"\"\"What it is.\"\"\"
DEFAULTS = {"device": "cpu", "scale": "tiny", "steps": None}
OPTIONS = {
    "accumulation": 1,
}
print(OPTIONS)
"""


def test_a_saved_script_has_the_arm_as_its_defaults_and_says_what_happened() -> None:
    patient = Patient("python", "3.13.7", {"torch": "2.7.1+cpu", "faiss-cpu": "1.11.0.post1", "other": "1"})
    pins = pin_requirements(("torch", "faiss", "numpy"), patient)
    assert pins == ["torch==2.7.1", "faiss-cpu==1.11.0.post1"]
    text = write_standalone(SOURCE, make_run(state="fault"), "seed", patient, pins, {"OMP_NUM_THREADS": "4"})
    literals = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert literals["OPTIONS"] == make_run().options
    assert literals["DEFAULTS"] == {"device": "cpu", "scale": "seed", "steps": 100}
    assert ast.get_docstring(ast.parse(text)) == "What it is."
    assert '# requires-python = ">=3.13"\n# dependencies = ["torch==2.7.1", "faiss-cpu==1.11.0.post1"]\n' in text
    for words in ("Verdict: it ended: segfault [segfault, established]", "step 42 of 100", "OMP_NUM_THREADS=4"):
        assert words in text
