"""Conflict, risk or none: decided by who is bound to what, never by names or mere presence."""

from __future__ import annotations

import pytest

from harness.diagnose.environment.openmp import FLAG, judge_openmp, rule
from harness.evidence.openmp import Binding, Caller, Census, Place, Runtime, Setting, Subject
from harness.report.openmp import render

TORCH = "/env/lib/python3.13/site-packages/torch/lib/libomp.dylib"
FAISS = "/env/lib/python3.13/site-packages/faiss/.dylibs/libomp.dylib"


def place(image: str, base: str | None = None) -> Place:
    owner = ("torch", "2.7.1") if "/torch/" in image else ("faiss-cpu", "1.11.0.post1")
    return Place(image, base, *owner, owner="wheel")


def runtime(image: str, family: str = "llvm", **more: object) -> Runtime:
    return Runtime(place(image, more.pop("base", None)), family, "5.0", **more)  # type: ignore[arg-type]


def caller(image: str, *bindings: Binding) -> Caller:
    return Caller(place(image), bindings)


def linked(image: str) -> Binding:
    return Binding("linked", ("__kmpc_fork_call",), image)


def bound(image: str, base: str | None = None) -> Binding:
    return Binding("bound", ("__kmpc_fork_call",), image, base)


LAZY = Binding("lazy", ("omp_get_max_threads",))
TORCH_CPU = "/env/lib/python3.13/site-packages/torch/lib/libtorch_cpu.dylib"
SWIG = "/env/lib/python3.13/site-packages/faiss/_swigfaiss.so"


def census(
    runtimes: list[Runtime],
    callers: list[Caller],
    subject: Subject = "wheels",
    platform: str = "macosx_14_0_arm64",
    **more: object,
) -> Census:
    return Census(subject, "x", "3.13", platform, 9, tuple(runtimes), (), tuple(callers), **more)  # type: ignore[arg-type]


INCIDENT = census([runtime(TORCH), runtime(FAISS)], [caller(TORCH_CPU, linked(TORCH)), caller(SWIG, linked(FAISS))])


def test_the_incident_is_predicted() -> None:
    ruling = rule(INCIDENT)
    assert (ruling.kind, ruling.status) == ("conflict", "established")
    assert "torch/lib/libomp.dylib and faiss/.dylibs/libomp.dylib" in ruling.headline
    assert "Error #15 or worse at the first FAISS search after torch has used threads" in ruling.headline
    assert [remedy.safe for remedy in ruling.remedies][-1] is False
    assert all(remedy.safe for remedy in ruling.remedies[:-1])
    assert FLAG in ruling.remedies[-1].do


def test_a_second_copy_that_nobody_calls_is_no_conflict() -> None:
    seen = census([runtime(TORCH), runtime(FAISS)], [caller(TORCH_CPU, linked(TORCH)), caller(SWIG, linked(TORCH))])
    ruling = rule(seen)
    assert ruling.kind == "no-conflict"
    assert "called by nobody: faiss/.dylibs/libomp.dylib" in ruling.explanation


def test_two_loads_of_one_file_are_told_apart_by_their_bases() -> None:
    twice = [runtime(TORCH, base="0x1000"), runtime(TORCH, base="0x9000")]
    both = [caller(TORCH_CPU, bound(TORCH, "0x1000")), caller(SWIG, bound(TORCH, "0x9000"))]
    one = [caller(TORCH_CPU, bound(TORCH, "0x1000")), caller(SWIG, bound(TORCH, "0x1000"))]
    assert rule(census(twice, both, "process")).kind == "conflict"
    assert rule(census(twice, one, "process")).kind == "no-conflict"


@pytest.mark.parametrize(
    ("families", "kind", "word"),
    [
        (("llvm", "intel"), "conflict", "LLVM-family"),
        (("gnu", "gnu"), "risk", "GNU"),
        (("llvm", "gnu"), "risk", "two families"),
    ],
)
def test_families_decide(families: tuple[str, str], kind: str, word: str) -> None:
    runtimes = [runtime(TORCH, families[0]), runtime(FAISS, families[1])]
    ruling = rule(census(runtimes, list(INCIDENT.callers)))
    assert ruling.kind == kind
    assert word in ruling.headline


def test_on_linux_files_alone_are_no_proof() -> None:
    seen = census(list(INCIDENT.runtimes), list(INCIDENT.callers), "environment", "linux-x86_64")
    ruling = rule(seen)
    assert (ruling.kind, ruling.status) == ("conflict", "supported")
    assert ruling.next == "harness openmp --python x --import torch,faiss"


def test_a_static_copy_counts_as_used() -> None:
    seen = census([runtime(TORCH), runtime(SWIG, static=True)], [caller(TORCH_CPU, linked(TORCH))])
    assert rule(seen).kind == "conflict"


def test_a_slot_that_is_not_resolved_yet_leaves_the_question_open() -> None:
    seen = census([runtime(TORCH), runtime(FAISS)], [caller(TORCH_CPU, bound(TORCH)), caller(SWIG, LAZY)], "process")
    assert rule(seen).kind == "risk"


def test_a_registered_copy_counts_without_a_caller() -> None:
    seen = census([runtime(TORCH), runtime(FAISS, registered=True)], [caller(TORCH_CPU, bound(TORCH))], "process")
    assert rule(seen).kind == "conflict"


def test_an_order_is_recommended_only_where_the_table_proves_it() -> None:
    bad = census(list(INCIDENT.runtimes), list(INCIDENT.callers), "imports", order=("faiss", "torch"))
    good = census(
        list(INCIDENT.runtimes),
        [caller(TORCH_CPU, bound(TORCH)), caller(SWIG, bound(TORCH))],
        "imports",
        order=("torch", "faiss"),
    )
    document = judge_openmp("0", [bad, good])
    assert (document.ruling.kind, document.exit_code) == ("conflict", 10)
    assert any("torch, then faiss" in remedy.do for remedy in document.ruling.remedies)
    assert not any("order" in remedy.do for remedy in judge_openmp("0", [bad, bad]).ruling.remedies)


def test_the_flag_is_shown_as_unsafe_where_it_is_set() -> None:
    seen = census(
        [runtime(TORCH)], [caller(TORCH_CPU, linked(TORCH))], settings=(Setting(FLAG, "TRUE", "/env/.bashrc:3"),)
    )
    ruling = rule(seen)
    assert ruling.kind == "no-conflict"
    (remedy,) = ruling.remedies
    assert not remedy.safe and "/env/.bashrc:3" in remedy.do


def test_the_report_names_both_copies_and_their_callers() -> None:
    text = render(judge_openmp("0", [INCIDENT]), width=110, color=False)
    assert "[conflict, established]" in text
    for word in ("libtorch_cpu.dylib", "_swigfaiss.so", "torch 2.7.1", "faiss-cpu 1.11.0.post1", "do not"):
        assert word in text
