"""The rebuilt two-tower environment does what the incident did, by order of import, and leaves the originals alone."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

import pytest

from harness.capture.openmp.environment import take_environment_census
from tests.builders.two_runtimes import (
    EXPECT,
    FAISS_FIRST,
    TORCH_FIRST,
    Environment,
    Unavailable,
    find_runtime,
    make_environment,
    read_results,
    run,
)

PROGRAMS = {"faiss first": FAISS_FIRST, "torch first": TORCH_FIRST}
MADE_WITHIN_S = 10  # 0.4 s on two idle cores


@pytest.fixture(scope="module", params=["llvm", "intel"])
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    try:
        return make_environment(tmp_path_factory.mktemp("two") / "venv", request.param)
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("order", PROGRAMS)
def test_the_order_of_import_decides(environment: Environment, order: str) -> None:
    done = run(environment, PROGRAMS[order])

    assert done.returncode == EXPECT[order]["exit"], done.stderr
    assert ("OMP: Error #15" in done.stderr) == (done.returncode == 134)
    assert len(read_results(done)) == (1 if done.returncode else 2)


def test_the_flag_lets_both_run(environment: Environment) -> None:
    """Which is exactly what makes it dangerous."""
    done = run(environment, FAISS_FIRST, KMP_DUPLICATE_LIB_OK="TRUE", OMP_DISPLAY_ENV="true")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("OPENMP DISPLAY ENVIRONMENT BEGIN") == 2


def test_it_is_an_environment_of_its_own(environment: Environment) -> None:
    done = run(environment, "import sys, torch, faiss; print(sys.prefix, torch.__file__, faiss.__file__, sep='\\n')")
    assert all(line.startswith(str(environment.prefix)) for line in done.stdout.splitlines()), done.stdout


def test_the_originals_are_untouched(tmp_path: Path) -> None:
    def hash_originals() -> list[str]:
        site = Path(sys.prefix, "lib", f"python3.{sys.version_info[1]}", "site-packages")
        found = [site / "torch/lib/libgomp.so.1", *(site / "faiss_cpu.libs").glob("libgomp-*")]
        return [hashlib.sha256(path.read_bytes()).hexdigest() for path in found]

    before, start = hash_originals(), time.monotonic()
    try:
        made = make_environment(tmp_path / "venv")
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert time.monotonic() - start < MADE_WITHIN_S
    assert hash_originals() == before
    runtime = find_runtime("llvm").read_bytes()
    assert [path.read_bytes() == runtime and path.stat().st_nlink == 1 for path in made.copies.values()] == [True, True]


def test_the_census_of_the_environment_finds_both_with_their_callers(environment: Environment, tmp_path: Path) -> None:
    census = take_environment_census(str(environment.python), cache=tmp_path / "remembered")
    callers = {binding.runtime: set() for caller in census.callers for binding in caller.bindings}
    for caller in census.callers:
        for binding in caller.bindings:
            callers[binding.runtime].add(Path(caller.place.image).name.partition(".")[0].partition("-")[0])
    assert callers == {
        str(environment.copies["torch"]): {"libtorch_cpu"},
        str(environment.copies["faiss"]): {"_swigfaiss", "libfaiss", "libopenblaso"},
    }
    assert [runtime.place.modified for runtime in census.runtimes] == [True, True]
