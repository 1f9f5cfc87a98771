"""Who is blamed for a crash: each rule with a positive, a negative and a near-miss. Stacks have real shapes."""

from __future__ import annotations

import pytest
from msgspec import structs

from harness.diagnose.death.crash.blame import blame, crosses_openmp, describe_thread
from harness.diagnose.plumbing import is_plumbing, plain_function, shorten_function
from harness.diagnose.signature import normalise_stack
from harness.documents.verdict import Component
from harness.evidence.crash import Crash, CrashFrame, CrashThread, Image
from harness.evidence.openmp import Census, Place, Runtime
from tests.builders.crashes import (
    ABRT,
    CTYPES,
    FAISS,
    FFI,
    GOMP,
    IMAGES,
    LIBC,
    OURS,
    PYTHON,
    TKILL,
    TORCH,
    crash,
    native,
    python,
    thread,
)

TRAIN = "/job/train.py"
CTYPES_INIT = "/usr/lib/python3.11/ctypes/__init__.py"
STDCXX = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30"
PYTHON_BELOW = (
    python("string_at", CTYPES_INIT, 519),
    native("_PyEval_Vector", PYTHON),
    python("read_name", TRAIN, 12),
    python("<module>", TRAIN, 30),
    native("Py_BytesMain", PYTHON),
    native("__libc_start_main_impl", LIBC),
)
STRING_AT = (
    native("__strlen_evex", LIBC, "0x7ffff796b219"),
    native("string_at", CTYPES, "0x7ffff7463608", "0xb608"),
    native("ffi_call_unix64", FFI, "0x7ffff744cf7a"),
    native("ffi_call", FFI, "0x7ffff744cb0d"),
    native("_ctypes_callproc", CTYPES, "0x7ffff746c17a"),
    native("PyCFuncPtr_call", CTYPES, "0x7ffff7466d9e"),
    native("_PyObject_MakeTpCall", PYTHON, "0x7ffff7b5861d"),
    *PYTHON_BELOW,
)
ABORT = (
    native("__pthread_kill_implementation", LIBC, "0x7ffff789feec"),
    native("__GI_raise", LIBC),
    native("__GI_abort", LIBC),
)
WORKER = (
    native("faiss::fvec_inner_product(float const*, float const*, unsigned long)", FAISS, "0x7fffee1a2b3c", "0x1a2b3c"),
    native("faiss::exhaustive_inner_product_seq [clone ._omp_fn.0]", FAISS, "0x7fffee1a3000"),
    native("gomp_thread_start", GOMP, "0x7fffeda1b4be"),
    native("thread_entry", OURS, "0x7ffff7301000"),
    native("start_thread", LIBC, "0x7ffff789e1f5"),
    native("clone3", LIBC, "0x7ffff791e8ec"),
)
MAIN_IN_SEARCH = thread(
    100,
    native("GOMP_parallel", GOMP, "0x7fffeda12000"),
    python("replacement_search", "/job/.venv/lib/python3.11/site-packages/faiss/class_wrappers.py", 329),
    python("mine_hard_negatives", TRAIN, 211),
    python("<module>", TRAIN, 300),
    crashed=False,
)


def aborted(*frames: CrashFrame, **facts: object) -> Crash:
    return crash(thread(100, *ABORT, *frames), **{"signo": ABRT, "si_code": TKILL, "pc": "0x7ffff789feec", **facts})


def component_of(found: Crash) -> Component | None:
    return blame(found).component


def images_of(found: Crash) -> tuple[str | None, str | None]:
    component = component_of(found)
    return (component.image, component.function) if component else (None, None)


def signature(*frames: CrashFrame, **facts: object) -> str | None:
    return blame(crash(thread(100, *frames), **facts)).signature


def test_a_read_of_null_through_ctypes_is_ctypes_not_libc() -> None:
    found = blame(crash(thread(100, *STRING_AT)))
    assert found.faulting_image == Component("libc6", "2.36", LIBC, "__strlen_evex")
    assert found.component == Component("python", "3.11.7", CTYPES, "string_at")
    assert found.component_frame is not None and found.component_frame.offset == "0xb608"
    assert [frame.function for frame in found.python_frames] == ["string_at", "read_name", "<module>"]
    assert found.user_frame is not None and found.user_frame.place == "read_name (train.py:12)"
    assert found.context_frame is None and found.thread_name == "MainThread"


def test_libffi_between_two_components_is_passed_over() -> None:
    frames = (native(None, None, "0x0"), *STRING_AT[2:])
    found = blame(crash(thread(100, *frames), pc="0x0"))
    assert found.faulting_image is None  # the program counter is in no image
    assert found.component is not None and found.component.function == "_ctypes_callproc"


def test_os_abort_is_the_interpreter() -> None:
    below = (native("os_abort", PYTHON), native("cfunction_vectorcall_NOARGS", PYTHON), *PYTHON_BELOW[2:])
    assert images_of(aborted(*below)) == (PYTHON, "os_abort")


def test_whoever_called_the_python_code_that_aborts_did_not_abort() -> None:
    """A backward hook that calls os.abort(): libtorch_python stands below the innermost Python frame."""
    hook = (
        native("os_abort", PYTHON),
        python("hook", TRAIN, 40),
        native("torch::autograd::PyNode::apply(std::vector<at::Tensor>&&)", TORCH),
        python("main", TRAIN, 50),
    )
    assert images_of(aborted(*hook)) == (PYTHON, "os_abort")
    unmerged = (hook[0], native("_PyEval_EvalFrameDefault", PYTHON), hook[2])
    assert images_of(aborted(*unmerged)) == (PYTHON, "os_abort")


def test_an_extension_that_hands_the_interpreter_a_bad_object_is_the_component() -> None:
    frames = (
        native("PyObject_Hash", PYTHON, "0x7ffff7b00000"),
        native("THPVariable_New", TORCH, "0x7ffff0100000"),
        *PYTHON_BELOW,
    )
    found = blame(crash(thread(100, *frames), pc="0x7ffff7b00000"))
    assert found.faulting_image is not None and found.faulting_image.image == PYTHON
    assert found.component is not None and found.component.distribution == "torch"


@pytest.mark.parametrize(
    "machinery",
    [
        [("__assert_fail_base", LIBC), ("__assert_fail", LIBC)],
        [("__libc_message", LIBC), ("__fortify_fail", LIBC), ("__stack_chk_fail", LIBC)],
        [("__gnu_cxx::__verbose_terminate_handler()", STDCXX), ("std::terminate()", STDCXX), ("__cxa_throw", STDCXX)],
        # Linked into the library itself.
        [
            ("__cxxabiv1::__terminate(void (*)())", FAISS),
            ("std::terminate()", FAISS),
            ("__clang_call_terminate", FAISS),
        ],
        [("__libc_message", LIBC), ("malloc_printerr", LIBC), ("_int_free", LIBC), ("__GI___libc_free", LIBC)],
    ],
)
def test_the_machinery_of_an_abort_is_passed_over(machinery: list[tuple[str, str]]) -> None:
    frames = [native(function, image) for function, image in machinery]
    below = (native("faiss::Index::~Index()", FAISS), *PYTHON_BELOW)
    assert images_of(aborted(*frames, *below)) == (FAISS, "faiss::Index::~Index()")


def test_an_openmp_runtime_is_not_plumbing() -> None:
    frames = (native("__kmp_abort_process", GOMP), native("__kmp_fatal", GOMP), native("f", FAISS), *PYTHON_BELOW)
    assert images_of(aborted(*frames)) == (GOMP, "__kmp_abort_process")


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("/lib/x86_64-linux-gnu/libc.so.6", True),
        ("/lib/x86_64-linux-gnu/libc-2.31.so", True),
        ("/lib/ld-musl-x86_64.so.1", True),
        ("/lib64/ld-linux-x86-64.so.2", True),
        ("/x/numpy.libs/libstdc++-1a2b3c4d.so.6.0.33", True),
        ("/x/libunwind-x86_64.so.8", True),
        ("/usr/lib/system/libsystem_kernel.dylib", True),
        (OURS, True),
        ("/x/torch/lib/libc10.so", False),
        ("/x/nvidia/lib/libcublas.so.12", False),
        ("/x/libmkl_rt.so.2", False),
        ("/x/libomp.so.5", False),
        ("/x/libiomp5.so", False),
        (GOMP, False),
        (CTYPES, False),
        (PYTHON, False),
    ],
)
def test_plumbing_is_known_by_its_file(image: str, expected: bool) -> None:
    assert is_plumbing(native("f", image)) is expected


def test_a_function_that_only_resembles_the_abort_machinery_is_not_plumbing() -> None:
    assert is_plumbing(native("abort", FAISS))
    assert not is_plumbing(native("Job::abort()", FAISS))
    assert not is_plumbing(native("raise_error", FAISS))


def test_rusts_own_crates_are_known_by_their_mangled_names_too() -> None:
    ending = native("_RNvNtNtNtCsjrHSEGnQ3l9_3std3sys3pal4unix14abort_internal", "/job/serve")
    assert is_plumbing(ending)
    assert not is_plumbing(native("_RNvCs1a2b3c_5serve4pick", "/job/serve"))
    assert not is_plumbing(native("_RNvNtCs1a2b3c_5serve3std4pick", "/job/serve"))


def test_nothing_but_plumbing_blames_nobody() -> None:
    found = blame(crash(thread(7, native("__strlen_evex", LIBC, "0x7ffff796b219"), native("start_thread", LIBC))))
    assert found.component is None and found.component_frame is None
    assert found.faulting_image is not None and found.faulting_image.image == LIBC


def test_a_handler_of_its_own_abort_that_faults_is_not_what_happened() -> None:
    handler = (native("print_stack(int)", FAISS, "0x7fffee100000"), native("__restore_rt", LIBC))
    cause = (*ABORT, native("__libc_message", LIBC), native("free", LIBC), native("THPVariable_New", TORCH))
    assert images_of(crash(thread(100, *handler, *cause), pc="0x7fffee100000"))[0] == TORCH
    interrupted = (native("pause", LIBC), native("THPVariable_New", TORCH))  # any other handler did it itself
    assert images_of(crash(thread(100, *handler, *interrupted), pc="0x7fffee100000"))[0] == FAISS


def test_frames_above_the_fault_are_not_looked_at() -> None:
    handler = (native("fatal_signal_handler(int)", TORCH, "0x7ffff0200000"), native("__restore_rt", LIBC))
    found = blame(crash(thread(100, *handler, *STRING_AT)))
    assert found.component is not None and found.component.image == CTYPES
    assert found.frames_below == STRING_AT


def test_a_tool_that_replaced_the_innermost_frame_by_its_python_frame_hides_no_image() -> None:
    found = blame(
        crash(thread(100, python("loop", TRAIN, 3), native("main", "/usr/bin/python3.11")), pc="0x7ffff7afd9c3")
    )
    assert found.component == Component("python", "3.11.7", PYTHON, "+0xfd9c3")
    assert found.faulting_image == found.component


def test_raw_addresses_show_a_way_and_establish_no_component() -> None:
    raw = ("0x7ffff796b219", "0x7ffff7301000", "0x7ffff7463608", "0x123", "0x7ffff7b5861d")
    found = blame(crash(raw_frames=raw, step="raw"))
    assert found.component is None
    assert found.faulting_image is not None and found.faulting_image.image == LIBC
    assert [(frame.image, frame.guessed) for frame in found.frames_below] == [
        (LIBC, False),
        (CTYPES, True),
        (PYTHON, True),
    ]
    assert found.python_frames == () and found.signature is not None


def test_the_program_counter_alone_establishes_what_is_not_plumbing() -> None:
    found = blame(crash(raw_frames=("0x7ffff7b5861d",), pc="0x7ffff0100000", step="raw"))
    assert found.component == Component("torch", "2.13.0", TORCH, "+0x100000")


def test_without_symbols_the_search_ends_at_the_interpreter() -> None:
    unnamed = (native(None, PYTHON, "0x7ffff7b5861d", "0x15861d"), native("THPVariable_New", TORCH, "0x7ffff0100000"))
    assert images_of(crash(thread(100, *unnamed), pc="0x7ffff7b5861d"))[0] == PYTHON


def test_the_search_ends_where_the_unwinder_began_to_guess() -> None:
    fault = native("PyObject_Hash", PYTHON, "0x7ffff7b00000")
    caller = native("THPVariable_New", TORCH, "0x7ffff0100000")
    guessed = structs.replace(caller, guessed=True)
    assert images_of(crash(thread(100, fault, guessed, *PYTHON_BELOW), pc="0x7ffff7b00000"))[0] == PYTHON
    assert images_of(crash(thread(100, fault, caller, *PYTHON_BELOW), pc="0x7ffff7b00000"))[0] == TORCH


def test_a_python_only_stack_keeps_its_frames_and_takes_the_place_from_the_record() -> None:
    stack = thread(100, python("read_name", TRAIN, 12))
    found = blame(crash(stack, raw_frames=("0x7ffff7b5861d",), pc="0x7ffff7463608", step="python"))
    assert found.component is not None and found.component.image == CTYPES
    assert found.user_frame is not None and found.user_frame.function == "read_name"


def test_nothing_known_blames_nobody() -> None:
    found = blame(crash(images=(), step="none"))
    assert found[:6] == (None, None, None, (), None, None) and found.signature is None


def test_an_openmp_worker_has_a_context_never_a_caller() -> None:
    found = blame(crash(thread(7, *WORKER, name="python"), MAIN_IN_SEARCH, pc="0x7fffee1a2b3c"))
    assert found.python_frames == () and found.user_frame is None
    assert found.context_frame is not None and found.context_frame.place == "mine_hard_negatives (train.py:211)"
    assert found.component is not None and found.component == found.faulting_image
    assert (found.component.distribution, found.component.version) == ("faiss-cpu", "1.15.1")
    assert OURS not in [frame.image for frame in found.frames_below]


def test_a_thread_with_python_frames_of_a_library_only_has_neither_user_frame_nor_context() -> None:
    own = python("run", "/usr/lib/python3.11/threading.py", 982)
    found = blame(crash(thread(7, *WORKER[:1], own), MAIN_IN_SEARCH))
    assert found.python_frames and found.user_frame is None and found.context_frame is None


def test_the_main_thread_is_not_its_own_context() -> None:
    assert blame(crash(thread(100, *WORKER[:1]))).context_frame is None


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        (thread(100, *WORKER), "the main thread"),
        (thread(7, *WORKER, name="python"), "an OpenMP worker"),
        (
            thread(7, native("__kmp_launch_thread", GOMP), native("__kmp_launch_worker(void*)", GOMP)),
            "an OpenMP worker",
        ),
        # As pystack shows it: the entry function of libgomp is not exported.
        (thread(7, *WORKER[:2], native(None, GOMP, "0x7fffeda1b4be"), *WORKER[3:]), "an OpenMP worker"),
        (thread(7, native("GOMP_parallel", GOMP), native("serve", FAISS), name="loader-1"), "thread loader-1"),
        (thread(7, native("GOMP_parallel", GOMP), python("f", TRAIN, 1), name="Thread-1"), "thread Thread-1"),
        (thread(7, native("f", "/x/libompi.so"), name="mpi"), "thread mpi"),
        (thread(7, name="pt_data_pin"), "a DataLoader pin-memory thread"),
        (thread(7, name="Thread-1 (_pin_memory_loop)"), "a DataLoader pin-memory thread"),
        (thread(7, python("f", "/x/torch/utils/data/_utils/pin_memory.py", 9), name="mine"), "thread mine"),
        (thread(7, name="python3.11"), "thread 7"),
        (thread(7, name=None), "thread 7"),
    ],
)
def test_a_thread_is_described_by_what_it_is(stack: CrashThread, words: str) -> None:
    gomp = next(image for image in crash(stack).images if image.path == GOMP)
    assert describe_thread(known(crash(stack), gomp)) == words


# The addresses of a real FAISS search on macOS with two copies of libomp.dylib that have the same UUID.
OMP_A = Image("/x/torch/lib/libomp.dylib", "0x108740000", "0x1087f0000", "torch", "2.7.1", "wheel")
OMP_B = Image("/x/faiss/.dylibs/libomp.dylib", "0x12a440000", "0x12a4f0000", "faiss-cpu", "1.11.0", "wheel")
FAISS_DYLIB = Image("/x/faiss/_swigfaiss.so", "0x129000000", "0x12a000000", "faiss-cpu", "1.11.0", "wheel")
SUSPEND = native("void __kmp_suspend_64<false, true>(int, kmp_flag_64<false, true>*)", "libomp.dylib", "0x1087a4d14")
WAIT = native("kmp_flag_64<false, true>::wait(kmp_info*, int, void*)", "libomp.dylib", "0x12a4928c8")
FORK = native("__kmpc_fork_call", "libomp.dylib", "0x12a4675b4")
SEARCH = native("faiss::search()", "_swigfaiss.so", "0x129100000")


def two_runtimes(*frames: CrashFrame) -> Crash:
    return crash(thread(100, *frames), images=(OMP_A, OMP_B, FAISS_DYLIB), pc="0x1087a4d14")


def test_one_copy_of_openmp_calling_into_another_is_a_crossing() -> None:
    assert crosses_openmp(two_runtimes(SUSPEND, WAIT, FORK, SEARCH)) == (OMP_B, OMP_A)


def test_one_copy_alone_or_nested_regions_of_two_are_no_crossing() -> None:
    assert crosses_openmp(two_runtimes(WAIT, FORK, SEARCH)) is None
    assert crosses_openmp(two_runtimes(SUSPEND, SEARCH, WAIT, FORK)) is None
    assert (
        crosses_openmp(two_runtimes(native("memcpy", LIBC), SUSPEND, native("cblas_sgemm", "b", "0x129200000"), WAIT))
        is None
    )


def known(seen: Crash, *images: Image) -> Crash:
    runtimes = tuple(Runtime(Place(image.path, image.base), "llvm", None) for image in images)
    return structs.replace(seen, openmp=Census("process", "100", None, "", 3, runtimes, (), ()))


def test_frames_without_symbols_cross_only_between_known_runtimes() -> None:
    stripped = two_runtimes(native(None, None, "0x1087a4d14"), native(None, None, "0x12a4928c8"))
    assert crosses_openmp(stripped) is None
    assert crosses_openmp(known(stripped, OMP_A, OMP_B)) == (OMP_B, OMP_A)
    assert crosses_openmp(known(stripped, OMP_A)) is None


def test_the_crossing_of_another_thread_is_not_this_crash() -> None:
    other = thread(8, SUSPEND, WAIT, crashed=False)
    assert crosses_openmp(crash(thread(7, WAIT, FORK), other, images=(OMP_A, OMP_B))) is None


def test_a_signature_does_not_depend_on_addresses_lines_pids_directories_and_cpus() -> None:
    moved = tuple(
        CrashFrame(
            frame.kind,
            frame.function and frame.function.replace("__strlen_evex", "__strlen_avx2"),
            file=frame.file and frame.file.replace("/job/", "/home/other/"),
            line=frame.line and frame.line + 5,
            image=frame.image and frame.image.replace("/usr/lib/", "/opt/lib/"),
        )
        for frame in STRING_AT
    )
    there = crash(thread(4711, *moved), pid=4711, pc="0x7fffaaaaaaaa", images=())
    assert signature(*STRING_AT) == blame(there).signature is not None


def test_a_signature_depends_on_the_functions_and_the_signal() -> None:
    other = (STRING_AT[0], native("wstring_at", CTYPES), *STRING_AT[2:])
    assert signature(*STRING_AT) != signature(*other)
    assert signature(*STRING_AT) != signature(*STRING_AT, signo=ABRT)
    assert len(signature(*STRING_AT) or "") == 12


def test_what_is_above_the_exit_frame_is_dropped() -> None:
    tail = (native("f", FAISS),)
    older = (native("raise", "/lib/libc-2.31.so"), native("abort", "/lib/libc-2.31.so"), *tail)
    assert normalise_stack((*ABORT, *tail)) == normalise_stack(older) == ("abort", "f")
    # Only a leading run: an abort() further down is the place where a handler was called, not the exit.
    assert normalise_stack((*tail, native("abort", LIBC))) == ("f", "abort")


def test_malloc_internals_are_dropped_with_what_is_above_them() -> None:
    checked = (*ABORT, native("__libc_message", LIBC), native("malloc_printerr", LIBC), native("_int_free", LIBC))
    below = (native("__GI___libc_free", LIBC), native("f", FAISS))
    assert normalise_stack((*checked, *below)) == normalise_stack((native("unlink_chunk.isra.0", LIBC), *below))
    assert normalise_stack((*checked, *below)) == ("free", "f")
    assert normalise_stack((native("tcache_of_rows", FAISS), native("g", FAISS))) == ("tcache_of_rows", "g")


def test_recursion_is_merged_whatever_its_depth() -> None:
    one, two, three = (native(name, PYTHON) for name in ("list_repr", "PyObject_Repr", "builtin_repr"))
    deep = (one, two) * 40 + (three,)
    assert normalise_stack(deep) == ("list_repr", "PyObject_Repr", "builtin_repr")
    assert normalise_stack((one, one, one, three)) == ("list_repr", "builtin_repr")
    assert normalise_stack((one, two, three, one)) == ("list_repr", "PyObject_Repr", "builtin_repr", "list_repr")


def test_a_frame_without_a_symbol_is_its_image_and_offset() -> None:
    assert normalise_stack((native("??", FAISS, "0x7fffee1a2b3c", "0x1a2b3c"),)) == ("libfaiss.so+0x1a2b3c",)


def test_debug_information_and_nameless_plumbing_change_no_signature() -> None:
    outer = native("_ctypes_callproc", CTYPES, "0x7ffff746c17a")
    inlined = native("_call_function_pointer", CTYPES, "0x7ffff746c17a")
    nameless = native(None, FFI, "0x7ffff744cf7a", "0xcf7a")
    assert normalise_stack((nameless, inlined, outer)) == normalise_stack((outer,)) == ("_ctypes_callproc",)


def test_our_own_frames_and_the_interpreters_below_python_leave_no_trace() -> None:
    frames = (native("f", FAISS), native("thread_entry", OURS), python("g", TRAIN, 1), native("cfunction_call", PYTHON))
    assert normalise_stack(frames) == ("f", "train.py:g")


@pytest.mark.parametrize(
    ("function", "image", "plain"),
    [
        ("__memmove_avx_unaligned_erms", LIBC, "memcpy"),
        ("__memcpy_ssse3", LIBC, "memcpy"),
        ("__strlen_evex", LIBC, "strlen"),
        ("__strlen_rows", FAISS, "__strlen_rows"),
        ("__GI_raise", LIBC, "raise"),
        ("malloc@@GLIBC_2.2.5", LIBC, "malloc"),
        ("f.part.0.constprop.1", FAISS, "f"),
        ("exec_blas._omp_fn.0", FAISS, "exec_blas"),
        ("void ns::f<int, std::vector<int>>(char*) const", FAISS, "ns::f"),
        ("ns::f<(ns::E)3>(char*) [clone ._omp_fn.2]", FAISS, "ns::f"),
        ("(anonymous namespace)::f(int)", FAISS, "(anonymous namespace)::f"),
        ("std::function<void (int)>::operator()(int) const", FAISS, "std::function::operator()"),
        ("ns::operator<< <char>(ns::S&, char)", FAISS, "ns::operator<< "),
        ("operator new(unsigned long)", FAISS, "operator new"),
    ],
)
def test_a_name_without_its_noise(function: str, image: str, plain: str) -> None:
    assert plain_function(native(function, image)) == plain


def test_a_long_name_loses_its_templates_first() -> None:
    short = "faiss::fvec_inner_product(float const*, float const*, unsigned long)"
    assert shorten_function(short) == short
    long = f"void at::native::f<{', '.join(['c10::BFloat16'] * 20)}>(at::Tensor&)"
    assert shorten_function(long) == "void at::native::f<…>(at::Tensor&)"
    longer = f"void f<int>({', '.join(['at::Tensor const&'] * 20)})"
    assert shorten_function(longer) == "void f<…>(…)"
    assert len(shorten_function("x" * 500)) == 120 and shorten_function("x" * 500).endswith("…")


def test_two_images_of_one_path_are_not_confused_without_an_address() -> None:
    twin = Image(GOMP, "0x10000000", "0x10050000", "other", "1", "wheel")
    found = blame(crash(thread(7, native("gomp_thread_start", GOMP)), images=(*IMAGES, twin), pc="0x1"))
    assert found.component == Component(None, None, GOMP, "gomp_thread_start")
