"""`harness openmp` as a user types it: the incident predicted, seen alive, proven at death, fixed and undone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.builders import two_runtimes

ROOT = Path(__file__).parents[2]
HOLD = "\nprint('ready', flush=True); import time; time.sleep(120)"
FLAG = "KMP_DUPLICATE_LIB_OK"


def ask(*words: str | Path, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", "openmp", *map(str, words)]
    environment = {name: value for name, value in os.environ.items() if name not in (FLAG, "VIRTUAL_ENV")}
    environment |= {"PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment, cwd=cwd)


def ask_json(schema: str, *words: str | Path, **variables: str) -> tuple[int, dict[str, Any]]:
    done = ask(*words, "--json", **variables)
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads((ROOT / "harness" / "schemas" / schema).read_text()))
    return done.returncode, document


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> two_runtimes.Environment:
    try:
        return two_runtimes.make_environment(tmp_path_factory.mktemp("two") / "venv")
    except two_runtimes.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def copy(environment: two_runtimes.Environment, tmp_path: Path) -> Path:
    """An environment of its own for a test that changes it."""
    shutil.copytree(environment.prefix, tmp_path / "venv", symlinks=True, copy_function=os.link)
    return tmp_path / "venv/bin/python"


def test_an_environment_with_two_copies_is_a_conflict(environment: two_runtimes.Environment) -> None:
    status, document = ask_json("openmp-1.json", "--python", environment.python)
    assert (status, document["ruling"]["kind"]) == (10, "conflict")
    (look,) = document["looks"]
    families = {runtime["place"]["image"]: runtime["family"] for runtime in look["census"]["runtimes"]}
    assert {families[str(path)] for path in environment.copies.values()} == {"llvm"}
    assert FLAG in document["ruling"]["remedies"][-1]["do"] and not document["ruling"]["remedies"][-1]["safe"]


def test_each_order_of_imports_gets_its_own_ruling(environment: two_runtimes.Environment) -> None:
    status, document = ask_json("openmp-1.json", "--python", environment.python, "--import", "faiss,torch")
    rulings = {tuple(look["census"]["order"]): look["ruling"]["kind"] for look in document["looks"]}
    assert rulings == {("faiss", "torch"): "conflict", ("torch", "faiss"): "no-conflict"}
    assert (status, document["ruling"]["status"]) == (10, "established")
    assert any("torch, then faiss" in remedy["do"] for remedy in document["ruling"]["remedies"])


@pytest.fixture
def held(environment: two_runtimes.Environment, request: pytest.FixtureRequest) -> Iterator[int]:
    program, variables = request.param
    process = subprocess.Popen(
        [environment.python, "-c", program + HOLD],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "2", **variables},
    )
    try:
        assert process.stdout is not None
        assert any(line == "ready\n" for line in process.stdout)
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("held", [(two_runtimes.TORCH_FIRST, {})], indirect=True)
def test_a_living_process_with_one_copy_for_all_is_no_conflict(held: int) -> None:
    """Two are loaded; the bindings show that one of them serves both packages."""
    status, document = ask_json("openmp-1.json", str(held))
    assert (status, document["ruling"]["kind"], document["ruling"]["status"]) == (0, "no-conflict", "established")
    assert len(document["looks"][0]["census"]["runtimes"]) == 2


@pytest.mark.parametrize("held", [(two_runtimes.FAISS_FIRST, {FLAG: "TRUE"})], indirect=True)
def test_a_living_process_with_the_flag_is_a_conflict_and_the_flag_is_shown(held: int) -> None:
    status, document = ask_json("openmp-1.json", str(held))
    assert (status, document["ruling"]["kind"], document["ruling"]["status"]) == (10, "conflict", "established")
    assert "it is set here" in document["ruling"]["remedies"][-1]["do"]


def test_fix_shows_then_changes_then_restores(copy: Path) -> None:
    before = {path: path.read_bytes() for path in copy.parents[1].rglob("libgomp*")}
    status, shown = ask_json("openmp-fix-1.json", "fix", "--python", copy)
    assert (status, len(shown["plan"]["links"]), shown["outcome"]) == (0, 1, None)
    assert all(path.read_bytes() == data and not path.is_symlink() for path, data in before.items())

    _, applied = ask_json("openmp-fix-1.json", "fix", "--python", copy, "--apply")
    assert len(applied["outcome"]["changed"]) == 1
    status, document = ask_json("openmp-1.json", "--python", copy, "--import", "faiss,torch")
    assert (status, {look["ruling"]["kind"] for look in document["looks"]}) == (0, {"no-conflict"})
    _, again = ask_json("openmp-fix-1.json", "fix", "--python", copy, "--apply")
    assert again["outcome"]["changed"] == []

    status, undone = ask_json("openmp-fix-1.json", "fix", "--python", copy, "--undo")
    assert (status, len(undone["outcome"]["changed"])) == (0, 1)
    assert {path: path.read_bytes() for path in copy.parents[1].rglob("libgomp*")} == before


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["4194305"], 3, "There is no process 4194305."),
        (["train.py"], 2, "'train.py' is neither a process id nor fix."),
        (["--import", "torch,;x"], 2, "'torch,;x' is no list of modules."),
        (["--python", "/etc/passwd"], 3, "/etc/passwd"),
        (["--python", "/no/such/python"], 3, "/no/such/python"),
        (["--wheels", "/etc/passwd"], 3, "/etc/passwd"),
        (["--wheels", "/no/such.whl"], 3, "/no/such.whl"),
        (["1", "--import", "torch"], 2, "One place at a time"),
        (["--apply"], 2, "belong to fix"),
        (["fix", "--apply", "--undo"], 2, "exclude each other"),
        (["--platform", "macosx_14_0_arm64"], 2, "belong to --requirements"),
        (["--requirements", "/no/such.txt"], 3, "/no/such.txt"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_gets_one_sentence_and_the_next_command(words: list[str], status: int, sentence: str) -> None:
    done = ask(*words)
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    first, second = done.stderr.splitlines()
    assert sentence in first and second.startswith("  next: ")


def test_our_own_environment_is_judged_by_callers_not_by_names() -> None:
    """It holds an Intel runtime that nothing imports, and several libgomp."""
    status, document = ask_json("openmp-1.json", "--python", sys.executable)
    assert (status, document["ruling"]["kind"]) == (11, "risk")
    assert "libiomp5" not in document["ruling"]["headline"]
