"""`harness npz` as a user types it: measured against a real numpy, converted, refused; one JSON document each time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.report.schemas import build_schemas
from tests.builders.sparse_npz import build_sparse
from tests.live.processes import DEADLINE_S

np = pytest.importorskip("numpy")
X_SHAPE = (1000, 100, 76)  # 30 MB of float32


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("npz") / "train.npz"
    numbers = np.random.default_rng(3)
    np.savez(path, X=numbers.standard_normal(X_SHAPE, "f4"), y=numbers.integers(0, 9, 500))
    return path


def ask(*words: object) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "harness", "npz", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)
    document = json.loads(done.stdout)
    name = document["schema"].removeprefix("harness.").replace("/", "-")
    jsonschema.validate(document, json.loads(build_schemas()[f"{name}.json"]))
    return done.returncode, document, done.stderr.decode()


def test_measured_growth_is_the_array_and_mmap_mode_maps_nothing(archive: Path) -> None:
    status, document, _ = ask(archive, "--measure", "--python", sys.executable)
    assert status == 0 and document["ruling"]["kind"] == "no-conflict"
    x = document["files"][0]["arrays"][0]
    measured = document["measured"][0]
    assert x["ram_bytes"] == 4 * 1000 * 100 * 76
    assert measured["mapped"] is False  # although the child asked for mmap_mode="r"
    assert x["ram_bytes"] * 0.95 < measured["grown_bytes"] < x["ram_bytes"] * 1.2


def test_a_converted_array_is_mapped_and_costs_nothing_until_touched(archive: Path, tmp_path: Path) -> None:
    status, document, _ = ask(archive, "--to-npy", tmp_path / "out")
    assert status == 0
    written = {one["name"]: one["path"] for one in document["conversion"]["written"]}
    assert (np.load(written["X"]) == np.load(archive)["X"]).all()
    status, document, _ = ask(written["X"], "--measure", "--python", sys.executable)
    assert document["measured"][0]["mapped"] is True and document["measured"][0]["grown_bytes"] < 2**20


def test_more_than_can_be_had_is_a_conflict(archive: Path, tmp_path: Path) -> None:
    build_sparse(tmp_path / "huge.npz", (2**20, 2**20))
    status, document, _ = ask(tmp_path / "huge.npz", archive)
    assert status == 10 and document["ruling"]["kind"] == "conflict" and document["ruling"]["status"] == "established"
    status, document, _ = ask(tmp_path / "huge.npz", "--measure", "--python", sys.executable)
    assert status == 10 and document["measured"][0]["why_not"] == "not tried: it would not fit"


def test_failures_are_documents_too(archive: Path, tmp_path: Path) -> None:
    status, document, words = ask(tmp_path / "absent.npz")
    assert status == 3 and "No such file" in document["error"] and "next: ls -l" in words
    (tmp_path / "half.npz").write_bytes(archive.read_bytes()[:100_000])
    status, document, _ = ask(tmp_path / "half.npz")
    assert status == 3 and "not written to its end" in document["error"]
    status, document, _ = ask(tmp_path / "half.npz", archive)
    assert status == 11 and "not written to its end" in document["unread"][0]
    assert ask(archive, "--python", sys.executable)[0] == 2
    assert ask(archive, archive, "--to-npy", tmp_path / "x")[0] == 2


def test_an_interpreter_without_numpy_is_named(archive: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    status, document, _ = ask(archive, "--measure", "--python", tmp_path / "venv/bin/python")
    assert status == 3 and "numpy" in document["error"] and "pip install numpy" in document["next"]


def test_reading_imports_no_numpy(archive: Path) -> None:
    code = (
        "import sys; from harness.commands import main; status = main(['npz', sys.argv[1]]);"
        "assert not [m for m in sys.modules if m.partition('.')[0] == 'numpy']; sys.exit(status)"
    )
    subprocess.run([sys.executable, "-c", code, archive], check=True, capture_output=True, timeout=DEADLINE_S)
