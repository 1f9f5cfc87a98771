"""`harness repro` on real torch and faiss: clean, with two OpenMP runtimes, with faults that the tests make."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

from harness.capture.experiment.reproducers import list_reproducers
from harness.capture.run.stand_in import NAME
from harness.commands.main import main
from harness.commands.repro.resume import open_session
from harness.report.schemas import DIRECTORY
from tests.builders.kept_cases import check_run
from tests.builders.literals import read_literals
from tests.builders.runs import RAN, make_plan, make_run
from tests.builders.two_runtimes import Environment, Unavailable, make_environment
from tests.live.processes import Terminal, is_gone, shell_status

pytest.importorskip("torch")
pytest.importorskip("faiss")

BREAKING = Path(__file__).with_name("breaking")
REPRODUCERS = Path(__file__).parents[2] / "reproducers"
TEST_DEADLINE_S = 900  # thirty processes that import torch, on a machine that does other things as well
PACE = ("--arm-timeout", "5m")
SAME_PACE = "--arm-timeout 300"
_UNSET = ("PYTHONUNBUFFERED", "OMP_NUM_THREADS", "KMP_DUPLICATE_LIB_OK", "PYTHONPATH", "PYTORCH_ENABLE_MPS_FALLBACK")


class Answer(NamedTuple):
    status: int
    document: dict[str, Any]
    stderr: str

    def rows(self, name: str) -> dict[str, dict[str, Any]]:
        return {run["arm"]: run for run in self.document["runs"] if run["name"] == name}

    @property
    def decision(self) -> dict[str, Any]:
        return self.document["decision"]


class Repro:
    def __init__(self, directory: Path) -> None:
        self.cases = directory / "cases"
        self.env = {name: value for name, value in os.environ.items() if name not in _UNSET}
        # Threads that spin while they wait would take the cores from each other here, for minutes.
        self.env |= {"HARNESS_CASES": str(self.cases), "TMPDIR": str(directory), "OMP_WAIT_POLICY": "passive"}

    def line(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "harness", "repro", *map(str, words)]

    def __call__(self, *words: object, python: object = sys.executable, **variables: str) -> Answer:
        line = self.line(*words, *PACE, "--json", *(("--python", python) if python else ()))
        done = subprocess.run(line, capture_output=True, text=True, env=self.env | variables, check=False)
        document = json.loads(done.stdout)
        if document["schema"] == "harness.repro/1":
            jsonschema.validate(document, json.loads((DIRECTORY / "repro-1.json").read_text()))
        return Answer(done.returncode, document, done.stderr)


@pytest.fixture
def repro(tmp_path: Path) -> Repro:
    return Repro(tmp_path)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    path = tmp_path_factory.mktemp("breaking") / "libbreak.so"
    subprocess.run(["gcc", "-g", "-O0", "-shared", "-fPIC", "-o", path, BREAKING / "break.c"], check=True)
    return str(path)


@pytest.fixture
def broken(repro: Repro, library: str) -> Callable[..., Answer]:
    def run(what: str, *words: object, **variables: str) -> Answer:
        return repro(*words, PYTHONPATH=str(BREAKING), BREAK=what, BREAK_LIB=library, **variables)

    return run


# The clean environment


def test_every_arm_is_clean_where_nothing_is_wrong_and_proves_that_it_differs(repro: Repro) -> None:
    answer = repro("all", "--device", "cpu", "--scale", "tiny")

    assert answer.status == 0, answer.document["decision"]
    told = {(run["name"], run["arm"]): (run["state"], run["valid"], run["why"]) for run in answer.document["runs"]}
    expected = {
        (name, arm): ("clean", True, None)
        for name, reproducer in list_reproducers().items()
        for arm, about in reproducer.arms.items()
        if "clear_cache" not in about.changed  # a cpu has no cache
    }
    assert told == expected
    for run in answer.document["runs"]:
        assert run["steps_done"] == run["steps_asked"] and run["ran"]["device"] == ["cpu"]
    assert answer.decision["next"] == f"harness repro twotower --python {sys.executable} --scale small {SAME_PACE}"
    assert len(answer.decision["bounds"]) == 5 and "per 1000 steps at 95%" in answer.decision["bounds"][0]
    assert "not a Mac" in answer.document["patients"][0]["devices"]["mps"]
    assert [path.name for path in repro.cases.iterdir()] == [Path(answer.document["case"]).name]  # only its own


# Two OpenMP runtimes


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    try:
        return make_environment(tmp_path_factory.mktemp("two") / "venv")
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_two_runtimes_are_established_in_the_order_that_fails(two: Environment, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    words = ("all", "--arm", "base", "--arm", "control", "--save-repro", saved)
    answer = Repro(tmp_path)(*words, python=two.python)

    assert answer.status == 10
    for name in ("openmp", "twotower"):
        expected = read_literals(REPRODUCERS / f"{name}.py")["EXPECT_TWO_RUNTIMES"]
        rows = answer.rows(name)
        verdict = rows["base"]["verdict"]["verdict"]
        assert (verdict["kind"], verdict["status"]) == (expected["base"]["kind"], "established")
        assert verdict["component"]["distribution"] == expected["base"]["component"]
        assert verdict["component"]["image"] == str(two.copies["faiss"])
        assert (rows["base"]["step"], rows["base"]["at"]) == (expected["base"]["step"], expected["base"]["at"])
        assert (rows["control"]["state"], rows["control"]["valid"]) == ("clean", True)
    for name in ("gru", "accum", "faiss"):
        assert {row["state"] for row in answer.rows(name).values()} == {"clean"}
    decision = answer.decision
    assert decision["status"] == "established" and decision["component"]["distribution"] == "faiss-cpu"
    assert "torch" in decision["headline"] and "faiss-cpu" in decision["headline"]
    assert decision["recommend"][0]["do"] == "Launch with torch imported before faiss."
    assert decision["avoid"][0]["do"] == "Launch with faiss imported before torch."
    assert any("KMP_DUPLICATE_LIB_OK" in advice["do"] for advice in decision["avoid"])
    check_saved(saved, two)


def check_saved(saved: Path, two: Environment) -> None:
    """It runs alone, in the same environment, and dies in the same way; its control does not."""
    assert {path.name for path in saved.iterdir()} == {
        "openmp_base.py",
        "requirements.txt",
        "environment.txt",
        "verdict.json",
    }
    assert "torch==2.13.0\nfaiss-cpu==" in (saved / "requirements.txt").read_text()
    assert json.loads((saved / "verdict.json").read_text())["verdict"]["kind"] == "duplicate-openmp"
    environment = {name: value for name, value in os.environ.items() if name not in _UNSET}
    for words, expected in (((), 134), (("--control",), 0)):
        line = [two.python, saved / "openmp_base.py", *words]
        done = subprocess.run(line, capture_output=True, text=True, env=environment, check=False)
        assert shell_status(done.returncode) == expected, done.stderr
        assert ("OMP: Error #15" in done.stderr) == (expected == 134)


# Injected faults: pinned to the right component, at the right step


def test_a_broken_gru_is_pinned(broken: Callable[..., Answer]) -> None:
    answer = broken("gru 7", "gru", "--arm", "base", "--arm", "control", "--arm", "lstm")

    assert answer.status == 10
    check_pinned(answer, "gru", "break_gru", 7, "forward")
    assert {row["state"] for arm, row in answer.rows("gru").items() if arm != "base"} == {"clean"}
    assert any("cell lstm" in advice["do"] for advice in answer.decision["recommend"])


def test_a_broken_accumulation_is_pinned(broken: Callable[..., Answer]) -> None:
    answer = broken("accumulation 16", "accum", *arms("base", "control", "16x4", "16x16"))

    assert answer.status == 10
    check_pinned(answer, "accum", "break_accumulation", 16, "backward")
    states = {arm: row["state"] for arm, row in answer.rows("accum").items()}
    assert states == {"base": "fault", "control": "clean", "16x4": "clean", "16x16": "fault"}
    assert any("accumulation ≤ 4" in advice["do"] for advice in answer.decision["recommend"])
    assert any("accumulation ≥ 16" in advice["do"] for advice in answer.decision["avoid"])


def test_a_broken_search_is_pinned_and_repeats_make_it_supported(broken: Callable[..., Answer]) -> None:
    answer = broken("search 5", "faiss", *arms("base", "control", "k-32"), "--repeat", "2")

    assert answer.status == 10
    check_pinned(answer, "faiss", "break_search", 5, "search")
    (contrast,) = [line for line in answer.decision["because"] if "k ≤ 32" in line]
    assert contrast.endswith("[supported]")


def arms(*names: str) -> list[str]:
    return [word for name in names for word in ("--arm", name)]


def check_pinned(answer: Answer, name: str, function: str, step: int, at: str) -> None:
    decision = answer.decision
    assert decision["status"] == "established"
    assert decision["component"]["function"] == function
    assert Path(decision["component"]["image"]).name == "libbreak.so"
    base = answer.rows(name)["base"]
    assert (base["step"], base["at"], base["steps_done"]) == (step, at, step - 1)
    assert base["verdict"]["outcome"]["signal"] == "SIGSEGV"


def test_numbers_that_drift_are_a_finding_of_their_own(broken: Callable[..., Answer]) -> None:
    answer = broken("drift 3", "gru", "--arm", "base", "--repeat", "2")

    assert answer.status == 10
    assert {run["state"] for run in answer.document["runs"]} == {"clean"}
    assert "must be equal" in answer.decision["headline"]


# What else can happen to an arm


def test_a_hung_arm_gets_its_verdict_and_is_ended(repro: Repro, library: str) -> None:
    line = repro.line("gru", "--arm", "base", "--json", "--python", sys.executable, "--arm-timeout", "15")
    env = repro.env | {"PYTHONPATH": str(BREAKING), "BREAK": "hang 4", "BREAK_LIB": library}
    done = subprocess.run(line, capture_output=True, text=True, env=env, check=False)
    answer = Answer(done.returncode, json.loads(done.stdout), done.stderr)

    assert answer.status == 10, answer.decision
    row = answer.rows("gru")["base"]
    assert (row["state"], row["step"], row["at"]) == ("hang", 4, "forward")
    assert row["verdict"]["verdict"]["kind"] == "blocked-io"
    assert Path(row["verdict"]["case"], "stall.json").exists()
    check_run(Path(row["verdict"]["case"]))
    assert not Path("/proc", str(row["verdict"]["target"]["pid"])).exists()


def test_a_killed_arm_says_nothing_about_the_arm(repro: Repro, library: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    line = repro.line("gru", "--arm", "base", *PACE, "--json", "--python", sys.executable)
    env = repro.env | {"PYTHONPATH": str(BREAKING), "BREAK": "wait 4", "BREAK_LIB": library, "BREAK_GATE": str(gate)}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        held = os.open(gate, os.O_WRONLY)  # returns when the arm has opened the other end
        try:
            os.kill(find_arm(process.pid, b"/gru.py"), signal.SIGKILL)
            stdout, stderr = process.communicate(timeout=TEST_DEADLINE_S)
        finally:
            os.close(held)
            process.kill()
    answer = Answer(process.returncode, json.loads(stdout), stderr)
    assert answer.status == 11
    row = answer.rows("gru")["base"]
    check_run(Path(row["verdict"]["case"]))
    assert (row["state"], row["valid"], row["step"]) == ("ended", None, 4)
    assert row["verdict"]["verdict"]["kind"] == "killed"


def find_arm(parent: int, script: bytes) -> int:
    """The reproducer: a grandchild of the command. Its stand-in repeats its words behind a name of its own."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            ppid = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            grandparent = int(Path("/proc", str(ppid), "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        is_arm = words[0] != NAME.encode() and any(word.endswith(script) for word in words)
        if grandparent == parent and is_arm:
            return int(entry.name)
    raise AssertionError(f"no reproducer below {parent}")


def test_an_arm_that_is_refused_memory(broken: Callable[..., Answer]) -> None:
    answer = broken("memory 3", "gru", "--arm", "base")

    assert answer.status == 10
    row = answer.rows("gru")["base"]
    assert (row["state"], row["step"]) == ("fault", 3)
    assert row["verdict"]["verdict"]["kind"] == "allocation-failure"


def test_an_arm_that_did_not_differ_is_invalid(repro: Repro) -> None:
    answer = repro("faiss", "--arm", "base", "--arm", "threads-1", OMP_NUM_THREADS="1")

    assert answer.status == 11
    rows = answer.rows("faiss")
    assert (rows["base"]["state"], rows["base"]["valid"]) == ("clean", True)
    assert (rows["threads-1"]["valid"], rows["threads-1"]["state"]) == (False, "clean")
    assert "did not differ from base" in rows["threads-1"]["why"]


def test_accumulation_that_was_never_executed_is_invalid(repro: Repro) -> None:
    answer = repro("accum", *arms("base", "16x64"), "--steps", "40")
    row = answer.rows("accum")["16x64"]
    assert answer.status == 11 and (row["valid"], row["state"]) == (False, "clean")
    assert "never showed that accumulation was 64" in row["why"]


def test_an_arm_that_has_nothing_to_be_compared_with_is_told(repro: Repro) -> None:
    alone = repro("accum", *arms("base", "32x16"))
    told = "accum 32x16 has nothing to be compared with: 16x16 was not run; to run it, too: --arm 16x16"
    assert alone.status == 0 and alone.document["notes"] == [told]
    together = repro("accum", *arms("base", "16x16", "32x16"))
    assert together.status == 0 and together.document["notes"] == []


# What is missing


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A Python without any package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return tmp_path / "bare/bin/python"


def test_without_torch_nothing_runs(repro: Repro, bare: Path) -> None:
    answer = repro("gru", "--arm", "base", python=bare)
    assert answer.status == 3
    assert "has no torch" in answer.decision["headline"]
    assert any(f"--python {sys.executable}" in note for note in answer.document["notes"])
    assert answer.decision["next"] == f"harness repro gru --python {sys.executable} --arm base {SAME_PACE}"
    assert answer.stderr.startswith("[1/1] gru base: not run")  # a log is told of each arm
    assert [(run["state"], run["steps_done"]) for run in answer.document["runs"]] == [("not-run", 0)]
    refused = repro("gru", "--device", "mps", python=bare)
    assert refused.status == 3
    assert refused.document["next"] == f"harness repro gru --device mps --python {sys.executable} {SAME_PACE}"


@pytest.mark.parametrize(
    ("name", "needs"), [("gru", "torch"), ("faiss", "faiss"), ("openmp", "torch/and/faiss"), ("all", None)]
)
def test_a_python_to_be_found_is_one_with_what_is_needed(
    name: str, needs: str | None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if needs is not None:  # else that of harness has all of it, and is named
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["repro", name, "--json", "--python", "/nowhere/python3"]) == 3
    python = sys.executable if needs is None else f"/path/to/a/python/with/{needs}"
    names = " ".join(list_reproducers()) if name == "all" else name
    assert json.loads(capfd.readouterr().out)["next"] == f"harness repro {names} --python {python}"


def test_without_faiss_the_others_run(repro: Repro, tmp_path: Path) -> None:
    try:
        environment = make_environment(tmp_path / "venv", replace=False)
    except Unavailable as reason:
        pytest.skip(str(reason))
    shutil.rmtree(environment.site_packages / "faiss")
    answer = repro("gru", "openmp", "--arm", "base", python=environment.python)
    assert answer.status == 11
    assert answer.rows("gru")["base"]["state"] == "clean"
    row = answer.rows("openmp")["base"]
    assert row["state"] == "not-run" and "has no faiss" in row["why"]


def test_wrong_interpreters_are_named(repro: Repro, bare: Path) -> None:
    answer = repro("faiss", "--arm", "base", python="/bin/sh")
    assert answer.status == 3 and answer.document["schema"] == "harness.failure/1"
    assert "is not a Python interpreter" in answer.document["error"]

    both = repro("faiss", "--arm", "base", "--python", sys.executable, python="/nowhere/python3")
    assert both.status == 11
    states = {run["python"]: (run["state"], run["why"]) for run in both.document["runs"]}
    assert states[sys.executable] == ("clean", None)
    assert states["/nowhere/python3"] == ("not-run", "/nowhere/python3 does not exist")


@pytest.mark.parametrize(("device", "why"), [("mps", "not a Mac"), ("cuda", "is built without CUDA")])
def test_a_device_that_is_not_there_is_never_replaced(repro: Repro, device: str, why: str) -> None:
    answer = repro("gru", "--device", device, PYTORCH_ENABLE_MPS_FALLBACK="1")
    assert answer.status == 3
    assert why in answer.document["error"]
    assert "PYTORCH_ENABLE_MPS_FALLBACK=1 is set" in answer.document["error"]
    assert answer.document["next"] == f"harness repro gru --device cpu --python {sys.executable} {SAME_PACE}"
    assert not repro.cases.exists() or not list(repro.cases.iterdir())
    unnamed = repro("gru", "--device", device, python=None, VIRTUAL_ENV=sys.prefix)
    assert unnamed.document["next"] == f"harness repro gru --device cpu {SAME_PACE}"


def test_a_device_that_is_not_there_beside_one_that_is(repro: Repro) -> None:
    answer = repro("gru", "--arm", "base", "--device", "cpu", "--device", "mps")
    assert answer.status == 11 and answer.document["notes"] == []
    steps = list_reproducers()["gru"].steps["tiny"]
    told = f"No fault in {steps} steps of 1 arm on cpu; nothing ran on mps: this is Linux, not a Mac"
    assert answer.decision["headline"] == told


def test_the_fallback_is_told_of_arms_that_ran_on_mps(repro: Repro) -> None:
    """There is no such device here: the row is what a Mac would have kept."""
    plan = make_plan(devices=("cpu", "mps"), pythons=(sys.executable,), arms=("base",))
    ran = {**RAN, "device": ["mps"], "mps_fallback": "1"}
    if (child := os.fork()) == 0:  # a case is not interrupted as long as the process that began it lives
        try:
            open_session(plan, str(repro.cases)).add(make_run(device="mps", python=sys.executable, ran=ran))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    answer = repro("--resume", python=None)
    assert answer.document["notes"] == ["PYTORCH_ENABLE_MPS_FALLBACK was 1 in the arms on mps"]
    assert "on cpu, mps" in answer.decision["headline"]


@pytest.mark.parametrize(
    "words", [(), ("gur",), ("gru", "--arm", "nothing"), ("gru", "--repeat", "0"), ("--resume",), ("gru", "--resume")]
)
def test_what_was_not_meant(repro: Repro, words: tuple[str, ...]) -> None:
    answer = repro(*words)
    assert answer.status == 2 and answer.document["next"]


# Ctrl-C and --resume


def test_ctrl_c_keeps_what_is_done_and_resume_continues(repro: Repro, terminal: Terminal, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    env = repro.env | {"PYTHONPATH": str(BREAKING), "BREAK": "wait 3", "BREAK_GATE": str(gate)}
    words = ("faiss", *arms("base", "control", "k-32"), "--python", sys.executable, *PACE)
    process = terminal.start(repro.line(*words), env=env)
    held = os.open(gate, os.O_WRONLY)  # returns when the second arm, k = 10, has opened the other end
    arm = find_arm(process.pid, b"/faiss_flat.py")
    terminal.type(b"\x03")
    assert terminal.read_to_end(process) == 130
    os.close(held)
    assert b"faiss base: clean" in terminal.seen
    plain = re.sub(rb"\x1b\[\d*m", b"", terminal.seen)
    assert re.findall(rb"^  next +(.*?)\r?$", plain, re.MULTILINE) == [b"harness repro --resume"]
    assert is_gone(arm)
    (file,) = repro.cases.glob("*/repro.json")
    kept = json.loads(file.read_bytes())["runs"]
    assert [run["arm"] for run in kept] == ["base"]

    answer = repro("--resume", python=None)

    assert answer.status == 0, answer.stderr
    assert [run["arm"] for run in answer.document["runs"]] == ["base", "control", "k-32"]
    assert answer.document["runs"][0] == {**kept[0], "valid": True}
    assert answer.document["complete"] and repro("--resume", python=None).status == 2


@pytest.mark.parametrize(
    ("name", "kept", "then"),
    [
        ("faiss", ["base"], "--resume --cases {cases}"),
        ("gru", [], "gru --python {python} --arm base --arm control {pace}"),
    ],
)
def test_only_what_is_kept_can_be_resumed(
    repro: Repro, library: str, tmp_path: Path, name: str, kept: list[str], then: str
) -> None:
    """The gate stops the first arm of gru, and the second of faiss."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    words = (name, *arms("base", "control"), *PACE, "--json", "--python", sys.executable, "--cases", repro.cases)
    env = repro.env | {"PYTHONPATH": str(BREAKING), "BREAK": "wait 3", "BREAK_LIB": library, "BREAK_GATE": str(gate)}
    with subprocess.Popen(repro.line(*words), stdout=subprocess.PIPE, text=True, env=env) as process:
        held = os.open(gate, os.O_WRONLY)  # returns when the arm has opened the other end
        try:
            process.terminate()
            stdout, _ = process.communicate(timeout=TEST_DEADLINE_S)
        finally:
            os.close(held)
            process.kill()
    document = json.loads(stdout)
    assert process.returncode == 130 and [run["arm"] for run in document["runs"]] == kept
    told = then.format(cases=repro.cases, python=sys.executable, pace=SAME_PACE)
    assert document["decision"]["next"] == f"harness repro {told}"
    assert len(list(repro.cases.glob("*/repro.json"))) == len(kept)
