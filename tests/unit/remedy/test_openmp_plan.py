"""What is never made a link, whatever else is there. What is made one: tests/live/test_openmp_fix.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.evidence.openmp import Binding, Caller, Census, Place, Runtime
from harness.remedy.openmp import plan_fix

PREFIX = Path("/environment")


def runtime(path: str, *, family: Any = "llvm", static: bool = False, owner: Any = "wheel") -> Runtime:
    return Runtime(Place(path, distribution=Path(path).parts[-2], owner=owner), family, "5.0", static)


def census(*runtimes: Runtime, called: bool = True) -> Census:
    callers = [
        Caller(Place(f"{r.place.image}.caller"), (Binding("linked", ("omp_x",), r.place.image),)) for r in runtimes
    ]
    return Census("environment", "python", "3.13", "linux-x86_64", 9, runtimes, (), tuple(callers if called else ()))


ONE = runtime("/environment/torch/libomp.so")


def test_one_copy_needs_no_fix() -> None:
    plan = plan_fix(census(ONE), PREFIX)
    assert (plan.links, plan.kept, plan.refused) == ((), (), ())


def test_copies_that_nobody_calls_are_left_alone() -> None:
    assert plan_fix(census(ONE, runtime("/environment/faiss/libomp.so"), called=False), PREFIX).links == ()


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (runtime("/environment/x/libx.so", static=True), "part of a larger library"),
        (runtime("/elsewhere/x/libomp.so"), "outside of the environment"),
        (runtime("/environment-2/x/libomp.so"), "outside of the environment"),
        (runtime("/environment/x/libomp.so", owner="system"), "belongs to the system"),
        (runtime("/environment/x/libiomp5.so", family="intel"), "another family"),
        (runtime("/environment/x/libgomp.so.1", family="gnu"), "another family"),
    ],
)
def test_what_is_refused_says_why(other: Runtime, why: str) -> None:
    plan = plan_fix(census(ONE, other), PREFIX)
    assert plan.links == ()
    assert [refusal.path for refusal in plan.refused] == [other.place.image]
    assert why in plan.refused[0].why


def test_two_names_of_one_file_are_one_copy(tmp_path: Path) -> None:
    (tmp_path / "libomp.so").write_text("")
    (tmp_path / "libomp.so.5").symlink_to("libomp.so")
    both = census(runtime(str(tmp_path / "libomp.so")), runtime(str(tmp_path / "libomp.so.5")))
    assert plan_fix(both, tmp_path).links == ()


@pytest.mark.parametrize("keep", ["nothing", "libomp.so"])
def test_keep_must_mean_one_copy(keep: str) -> None:
    both = census(ONE, runtime("/environment/faiss/libomp.so"))
    with pytest.raises(UsageError) as caught:
        plan_fix(both, PREFIX, keep)
    assert "/environment/torch/libomp.so" in caught.value.hint
