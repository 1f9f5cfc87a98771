"""Every recorded log gives the kind that its source table names, and never more than `supported`."""

from __future__ import annotations

import pytest

from harness.diagnose.death.judge import judge
from harness.diagnose.death.kinds import KINDS
from tests.builders.evidence import LOGS, kernel_evidence, log_evidence, read_log

# From tests/data/logs/SOURCES.md, which was written before this program.
EXPECTED = {
    "omp15_linux_libomp_so.txt": "duplicate-openmp",
    "omp15_linux_libiomp5_so.txt": "duplicate-openmp",
    "omp15_linux_mixed_libomp_libiomp5.txt": "duplicate-openmp",
    "omp15_linux_dup_ok.txt": "clean",
    "glibc_double_free_or_corruption_prev.txt": "memory-corruption",
    "glibc_double_free_tcache2.txt": "memory-corruption",
    "glibc_free_invalid_next_size.txt": "memory-corruption",
    "glibc_free_invalid_pointer.txt": "memory-corruption",
    "glibc_munmap_chunk_invalid_pointer.txt": "memory-corruption",
    "glibc_stack_smashing.txt": "memory-corruption",
    "cxx_terminate_runtime_error.txt": "cpp-exception",
    "cxx_terminate_no_active_exception.txt": "abort",
    "faulthandler_abort_cxx.txt": "cpp-exception",
    "cxx_assert.txt": "abort",
    "rust_panic_abort.txt": "abort",
    "rust_panic_unwinding.txt": "exit-nonzero",
    "go_panic.txt": "exit-nonzero",
    "shell_segfault.txt": "segfault",
    "shell_illegal_instruction.txt": "illegal-instruction",
    "shell_fpe.txt": "arithmetic",
    "shell_killed.txt": "killed",
    "faulthandler_segv_torch_faiss.txt": "segfault",
    "faulthandler_sigill.txt": "illegal-instruction",
    "dataloader_worker_sigsegv.txt": "segfault",
    "dataloader_worker_sigabrt.txt": "abort",
    "dataloader_worker_sigkill.txt": "killed",
    "dataloader_shm_enospc_new_torch.txt": "shared-memory-full",
    "gloo_allreduce_timeout.txt": "collective-failure",
    "libgomp_thread_creation_failed.txt": "resource-limit",
    "numpy1_module_in_numpy2.txt": "abi-mismatch",
    "python_oom_malloc_memoryerror.txt": "allocation-failure",
    "torch_cpu_alloc_fail.txt": "allocation-failure",
    "resource_tracker_leaked_semaphores_after_segv.txt": "segfault",
    "synth/omp15_macos_libomp_dylib.txt": "duplicate-openmp",
    "synth/omp15_macos_libiomp5_dylib.txt": "duplicate-openmp",
    "synth/mps_ndarray_failed_assertion.txt": "device-assert",
    "synth/cuda_device_side_assert.txt": "device-assert",
    "synth/nccl_watchdog_timeout.txt": "collective-failure",
    "synth/objc_fork_crash.txt": "abort",
    "synth/omp179_macos_mutex_init.txt": "abort",
}
# The recorder's own status line there is that of a wrapper which carried on.
STATUS_OF_A_WRAPPER = {"shell_oom_killed_memcg.txt": "killed"}
WORKERS = {"dataloader_worker_sigsegv.txt", "dataloader_worker_sigabrt.txt", "dataloader_worker_sigkill.txt"}


@pytest.mark.parametrize("name", [*EXPECTED, *STATUS_OF_A_WRAPPER])
def test_log_gives_the_kind_its_source_names(name: str) -> None:
    text, status = read_log(name)
    document = judge(log_evidence(text, None if name in STATUS_OF_A_WRAPPER else status))
    assert document.verdict.kind == {**EXPECTED, **STATUS_OF_A_WRAPPER}[name], document.verdict.headline
    if document.verdict.kind != "clean":
        assert document.verdict.status == "supported"
    if name in WORKERS:
        assert document.verdict.process.role == "worker"


def test_every_recorded_death_is_expected_somewhere() -> None:
    recorded = {str(path.relative_to(LOGS)) for path in LOGS.rglob("*.txt")}
    elsewhere = {
        "dmesg_segfault_traps.txt",
        "synth/dmesg_global_oom_and_kernel_lines.txt",
        "synth/mkl_fatal_cannot_load.txt",
    }
    assert recorded == set(EXPECTED) | set(STATUS_OF_A_WRAPPER) | elsewhere


@pytest.mark.parametrize(("status", "kind"), [(134, "abort"), (1, "exit-nonzero")])
def test_mkl_text_is_as_its_status_says(status: int, kind: str) -> None:
    text, _ = read_log("synth/mkl_fatal_cannot_load.txt")
    assert judge(log_evidence(text, status)).verdict.kind == kind


def test_kernel_log_with_segfaults_names_the_image() -> None:
    lines = read_log("dmesg_segfault_traps.txt")[0].splitlines()
    verdict = judge(kernel_evidence(lines[:1])).verdict
    assert (verdict.kind, verdict.status) == ("segfault", "established")
    assert verdict.component is not None and verdict.component.image == "libext.so"


def test_kernel_oom_lines_establish_an_oom_kill() -> None:
    lines = read_log("synth/dmesg_global_oom_and_kernel_lines.txt")[0].splitlines()
    verdict = judge(kernel_evidence(lines)).verdict
    assert (verdict.kind, verdict.status) == ("oom-kill", "established")
    assert "4242" in verdict.headline


@pytest.mark.parametrize(
    "marker", [marker for kind in KINDS for marker in kind.markers], ids=lambda m: m.pattern.pattern[:40]
)
def test_every_marker_matches_its_recorded_sample(marker) -> None:
    sample = (LOGS / marker.sample).read_text() if marker.sample.endswith(".txt") else marker.sample
    assert marker.pattern.search(sample)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_marker_of_one_kind_matches_the_sample_of_another(kind) -> None:
    """Precedence may decide between two, but a sample that both claim is a marker that is too wide."""
    nested = {("device-assert", "device-assert"), ("collective-failure", "cpp-exception"), ("device-assert", "abort")}
    for other in KINDS:
        if other is kind or (other.name, kind.name) in nested:
            continue
        for theirs in other.markers:
            text = (LOGS / theirs.sample).read_text() if theirs.sample.endswith(".txt") else theirs.sample
            rivals = [marker for marker in kind.markers if marker.ends & theirs.ends]
            assert not any(marker.pattern.search(text) for marker in rivals), (other.name, theirs.sample)
