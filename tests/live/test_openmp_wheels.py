"""The incident, predicted on this machine from the wheels of the other one, fetched by the real pip."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path

import msgspec
import pytest

from harness.capture.openmp.platform_tags import check_target
from harness.capture.openmp.wheel_download import Fetched, fetch_wheels
from harness.capture.openmp.wheels import read_wheels
from harness.diagnose.environment.openmp import rule
from harness.errors import HarnessError
from harness.evidence.openmp import Census
from harness.remedy.openmp import apply, plan_fix, undo

TARGET = check_target("macosx_14_0_arm64", "3.13")
INCIDENT = "torch==2.7.1\nfaiss-cpu==1.11.0.post1\nnumpy==2.0.2\n"
OFFLINE_WITHIN_S = 2  # 0.01 s; nothing is asked
READ_WITHIN_S = 30  # 1.7 s on two idle cores


@pytest.fixture(scope="module")
def requirements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("incident") / "requirements.txt"
    path.write_text(INCIDENT)
    return path


@pytest.fixture(scope="module")
def fetched(requirements: Path) -> Fetched:
    """Once for all tests: 72 MB, unless pip has them already."""
    try:
        return fetch_wheels(requirements, TARGET, cache=requirements.parent / "cache")
    except HarnessError as error:
        if "not reachable" in str(error):
            pytest.skip(f"needs a package index: {error}")
        raise


@pytest.fixture(scope="module")
def census(fetched: Fetched) -> Census:
    return read_wheels(fetched.wheels, platform=TARGET.platform, python=TARGET.python, absent=fetched.absent)


def test_two_copies_each_with_its_own_callers(census: Census) -> None:
    copies = {runtime.place.image: runtime for runtime in census.runtimes}
    assert copies.keys() == {"torch/lib/libomp.dylib", "faiss/.dylibs/libomp.dylib"}
    assert {(copy.family, copy.static) for copy in copies.values()} == {("llvm", False)}
    callers = {caller.place.image: {binding.runtime for binding in caller.bindings} for caller in census.callers}
    assert callers == {
        "torch/lib/libtorch_cpu.dylib": {"torch/lib/libomp.dylib"},
        "faiss/_swigfaiss.cpython-313-darwin.so": {"faiss/.dylibs/libomp.dylib"},
    }


def test_whose_they_are(census: Census) -> None:
    owners = {(runtime.place.distribution, runtime.place.version) for runtime in census.runtimes}
    assert owners == {("torch", "2.7.1"), ("faiss-cpu", "1.11.0.post1")}
    assert (census.subject, census.platform, census.python) == ("wheels", "macosx_14_0_arm64", "3.13")


def test_what_has_no_wheel_is_said(census: Census) -> None:
    (absent,) = census.absent
    assert absent.startswith("numpy==2.0.2: no wheel for Python 3.13 (cp313) on macosx_14_0_arm64")
    assert "2.1.0" in absent  # https://pypi.org/project/numpy/2.1.0: the first for 3.13


def test_it_is_a_conflict(census: Census) -> None:
    ruling = rule(census)
    assert (ruling.kind, ruling.status) == ("conflict", "established")


def test_the_fix_of_a_mac_can_be_planned_made_and_undone_here(fetched: Fetched, census: Census, tmp_path: Path) -> None:
    """As far as files go: that dyld loads the link once has not been run."""
    named = [*census.runtimes, *census.callers]
    for path in fetched.wheels:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(tmp_path, [one.place.image for one in named if one.place.image in archive.namelist()])
    installed = msgspec.json.decode(
        msgspec.json.encode(census)
        .replace(b'"torch/', f'"{tmp_path}/torch/'.encode())
        .replace(b'"faiss/', f'"{tmp_path}/faiss/'.encode()),
        type=Census,
    )
    plan = plan_fix(installed, tmp_path)
    assert plan.kept == ("torch/lib/libomp.dylib",)
    assert [link.path for link in plan.links] == ["faiss/.dylibs/libomp.dylib"]
    before = (tmp_path / "faiss/.dylibs/libomp.dylib").read_bytes()

    apply(plan)

    assert (tmp_path / "faiss/.dylibs/libomp.dylib").samefile(tmp_path / "torch/lib/libomp.dylib")
    undo(tmp_path)
    assert (tmp_path / "faiss/.dylibs/libomp.dylib").read_bytes() == before


def test_a_second_call_needs_no_index(fetched: Fetched, requirements: Path, tmp_path: Path) -> None:
    start = time.monotonic()
    again = fetch_wheels(requirements, TARGET, cache=requirements.parent / "cache", python=str(tmp_path / "no-python"))
    assert again == fetched
    assert time.monotonic() - start < OFFLINE_WITHIN_S


def test_reading_takes_seconds(fetched: Fetched) -> None:
    start = time.monotonic()
    read_wheels(fetched.wheels)
    assert time.monotonic() - start < READ_WITHIN_S


def test_a_requirement_that_does_not_resolve(fetched: Fetched, tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("native-harness-no-such-package==1\n")
    with pytest.raises(HarnessError, match="No matching distribution found for native-harness-no-such-package==1"):
        fetch_wheels(path, TARGET, cache=tmp_path / "cache")


def test_an_index_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "requirements.txt"
    path.write_text("numpy==2.0.2\n")
    with pytest.raises(HarnessError, match="an index was not reachable"):
        fetch_wheels(path, TARGET, cache=tmp_path / "cache")
