"""One copy serves all: the two-tower program passes in both orders, and everything can be undone, killed or not."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from harness.capture.openmp.environment import take_environment_census
from harness.errors import HarnessError, UsageError
from harness.evidence.openmp import Census, Family
from harness.remedy.links import JOURNAL
from harness.remedy.openmp import apply, plan_fix, undo
from tests.builders.two_runtimes import (
    FAISS_FIRST,
    TORCH_FIRST,
    Environment,
    Unavailable,
    find_runtime,
    make_environment,
    read_results,
    run,
)

STEPS = 4  # journal, keep, link, replace: one duplicate


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return make(tmp_path / "venv")


def make(directory: Path, *, replace: bool = True) -> Environment:
    try:
        return make_environment(directory, replace=replace)
    except Unavailable as reason:
        pytest.skip(str(reason))


def take_census(environment: Environment, *families: Family) -> Census:
    """With the families changed to these, torch's copy first."""
    census = take_environment_census(str(environment.python), cache=environment.prefix.parent / "remembered")
    if not families:
        return census
    changed = dict(zip((str(environment.copies[name]) for name in ("torch", "faiss")), families, strict=True))
    return replace(census, runtimes=tuple(replace(r, family=changed[r.place.image]) for r in census.runtimes))


def describe(environment: Environment) -> dict[str, tuple[object, ...]]:
    """Everything that a fix could change."""
    found = {}
    for path in (*environment.prefix.iterdir(), *(p for c in environment.copies.values() for p in c.parent.iterdir())):
        status = os.lstat(path)
        if not path.is_dir():
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if status.st_size < 1 << 23 else ""
            found[str(path)] = (path.is_symlink(), digest, status.st_mode, status.st_size, status.st_mtime_ns)
    return found


def test_both_orders_pass_with_one_runtime_and_the_results_of_a_clean_environment(
    environment: Environment, tmp_path: Path
) -> None:
    clean = read_results(run(make(tmp_path / "clean", replace=False), TORCH_FIRST))
    assert len(clean) == 2
    assert run(environment, FAISS_FIRST).returncode == 134

    plan = plan_fix(take_census(environment), environment.prefix)
    assert apply(plan).changed == (plan.links[0].path,)

    for program in (FAISS_FIRST, TORCH_FIRST):
        done = run(environment, program, OMP_DISPLAY_ENV="true")
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("OPENMP DISPLAY ENVIRONMENT BEGIN") == 1
        assert read_results(done) == clean
    census = take_census(environment)
    assert [Path(runtime.place.image) for runtime in census.runtimes] == [environment.prefix / plan.kept[0]]
    assert {b.runtime for c in census.callers for b in c.bindings} == {census.runtimes[0].place.image}


def test_undo_restores_every_byte_and_the_fault(environment: Environment) -> None:
    before = describe(environment)
    plan = plan_fix(take_census(environment), environment.prefix)
    apply(plan)
    assert describe(environment) != before

    assert undo(environment.prefix).changed == (plan.links[0].path,)

    assert describe(environment) == before
    assert run(environment, FAISS_FIRST).returncode == 134


def test_a_plan_changes_nothing_and_a_second_apply_neither(environment: Environment) -> None:
    before = describe(environment)
    plan = plan_fix(take_census(environment), environment.prefix)
    assert describe(environment) == before
    assert len(plan.links) == 1
    assert not plan.refused

    apply(plan)
    after = describe(environment)
    again = plan_fix(take_census(environment), environment.prefix)

    assert again.links == ()
    assert again.made == (plan.links[0].path,)
    assert apply(again).changed == ()
    assert describe(environment) == after


KILLED = """
import os, signal, sys
from pathlib import Path
import msgspec
from harness.remedy.openmp import Plan, apply, undo
steps = []
def hook(step):
    steps.append(step)
    if len(steps) > int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
apply(plan, hook) if sys.argv[2] == "apply" else undo(Path(plan.prefix), hook)
"""


@pytest.mark.parametrize("last", range(STEPS))
def test_killed_at_any_step_it_can_be_undone_and_finished(environment: Environment, last: int) -> None:
    before = describe(environment)
    plan = plan_fix(take_census(environment), environment.prefix)
    for way in ("undo", "apply"):
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(last), "apply"], input=msgspec.json.encode(plan), check=False
        )
        assert killed.returncode == -signal.SIGKILL
        assert all(path.exists() for path in environment.copies.values())
        if way == "apply":
            apply(plan_fix(take_census(environment), environment.prefix))
            assert len({path.resolve() for path in environment.copies.values()}) == 1
        undo(environment.prefix)
        assert describe(environment) == before


def test_a_link_whose_copy_was_removed_is_said_and_undone(environment: Environment) -> None:
    plan = plan_fix(take_census(environment), environment.prefix)
    assert plan.kept[0].endswith("torch/lib/libgomp.so.1")  # of equals: the name without a hash in it
    apply(plan)
    environment.copies["torch"].unlink()

    assert plan_fix(take_census(environment), environment.prefix).broken == (plan.links[0].path,)
    undo(environment.prefix)
    assert environment.copies["faiss"].read_bytes() == find_runtime("llvm").read_bytes()


def test_the_kept_copy_can_be_named(environment: Environment) -> None:
    census = take_census(environment)
    for keep in ("faiss-cpu", environment.copies["faiss"].name, str(environment.copies["faiss"])):
        plan = plan_fix(census, environment.prefix, keep)
        assert plan.kept == (str(environment.copies["faiss"].relative_to(environment.prefix)),)
        assert Path(plan.links[0].path).name == "libgomp.so.1"
    with pytest.raises(UsageError, match="fits none"):
        plan_fix(census, environment.prefix, "libomp.so")


def test_other_families_are_refused(environment: Environment) -> None:
    plan = plan_fix(take_census(environment, "llvm", "intel"), environment.prefix)
    assert plan.links == ()
    (refusal,) = plan.refused
    assert Path(refusal.path) in environment.copies.values() and "another family" in refusal.why
    with_keep = plan_fix(take_census(environment, "llvm", "intel"), environment.prefix, "faiss-cpu")
    assert (with_keep.links, len(with_keep.refused)) == ((), 1)


def test_a_copy_that_lacks_what_callers_need_does_not_serve(environment: Environment) -> None:
    """libiompstubs5 has omp_* and no GOMP_*: it can replace nothing, whatever it says of its version."""
    try:
        stubs = find_runtime("intel").with_name("libiompstubs5.so")
    except Unavailable as reason:
        pytest.skip(str(reason))
    census = take_census(environment)
    environment.copies["faiss"].unlink()
    environment.copies["faiss"].write_bytes(stubs.read_bytes())

    plan = plan_fix(census, environment.prefix, "faiss-cpu")

    assert plan.links == ()
    assert "does not define GOMP_" in plan.refused[0].why
    assert plan_fix(census, environment.prefix).kept[0].endswith("torch/lib/libgomp.so.1")


def test_files_changed_since_the_plan_are_refused(environment: Environment) -> None:
    plan = plan_fix(take_census(environment), environment.prefix)
    duplicate = environment.prefix / plan.links[0].path
    duplicate.write_bytes(duplicate.read_bytes() + b"\0")

    with pytest.raises(HarnessError, match="has changed since"):
        apply(plan)

    assert not duplicate.is_symlink()
    assert not (environment.prefix / JOURNAL).exists()


def test_a_running_process_keeps_its_copy(environment: Environment) -> None:
    wait = "import faiss; print(flush=True); input(); " + "exec(__import__('os').environ['PROGRAM'])"
    process = subprocess.Popen(
        [environment.python, "-c", wait],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PROGRAM": FAISS_FIRST.partition("import torch")[0]},
    )
    with process:
        process.stdout.readline()
        apply(plan_fix(take_census(environment), environment.prefix, "torch"))
        output, _ = process.communicate(b"\n", timeout=30)
    assert process.returncode == 0
    assert b"result: faiss" in output
