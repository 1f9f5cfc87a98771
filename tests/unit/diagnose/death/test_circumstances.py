"""Crashes whose place is not their cause: each rule with a positive, a negative and a near-miss."""

from __future__ import annotations

import pytest
from msgspec import structs

from harness.diagnose.death.crash.blame import Blame, blame
from harness.diagnose.death.crash.circumstances import advise, doubt_component, ground_damage
from harness.diagnose.death.crash.jit import JIT, tell_compilers
from harness.diagnose.death.crash.phase import tell_phase
from harness.diagnose.frames import innermost_user_frame
from harness.documents.verdict import Frame
from harness.evidence.crash import Crash, CrashFrame, CrashThread, Image
from tests.builders.crashes import (
    ABRT,
    BUS,
    CTYPES,
    FFI,
    IMAGES,
    KERNEL,
    LIBC,
    PYTHON,
    TKILL,
    TORCH,
    crash,
    mapping,
    native,
    python,
    thread,
)

TRAIN = "/job/train.py"
EXTENSION = "/job/fast.so"
LOADER = "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
PC = "0x7ffff7b00000"
EVALUATION = native("_PyEval_EvalFrameDefault", PYTHON)
FORGET = python("forget", TRAIN, 12)


def died_in(*functions: str, outside: tuple[CrashFrame, ...] = (EVALUATION, FORGET), **facts: object) -> Blame:
    frames = tuple(native(function, PYTHON, hex(int(PC, 16) + at)) for at, function in enumerate(functions))
    return blame(crash(thread(100, *frames, *outside), **{"pc": PC, "fault_address": "0x123456789000", **facts}))


@pytest.mark.parametrize(
    "functions",
    [
        ("_PyObject_IS_GC", "visit_decref", "dict_traverse", "subtract_refs", "gc_collect_main"),
        ("pymalloc_alloc", "_PyObject_Malloc", "PyUnicode_New"),
        ("_Py_Dealloc", "list_dealloc"),
        ("unicodekeys_lookup_unicode", "_Py_dict_lookup", "PyDict_GetItem"),
    ],
)
def test_what_the_interpreter_stumbles_over_by_itself_was_damaged_earlier(functions: tuple[str, ...]) -> None:
    found = died_in(*functions)
    assert found.noticed is not None and found.component is None
    assert found.faulting_image is not None and found.faulting_image.image == PYTHON
    assert found.user_frame is not None and found.user_frame.function == "forget"


def test_an_extension_that_allocates_is_innocent_and_one_that_releases_is_not() -> None:
    outside = (native("fast_join", EXTENSION), EVALUATION, FORGET)
    assert died_in("pymalloc_alloc", "PyObject_Malloc", outside=outside).component is None
    released = died_in("subtype_dealloc", "_Py_Dealloc", outside=outside)
    assert released.noticed is None
    assert released.component is not None and released.component.image == EXTENSION


@pytest.mark.parametrize(
    ("functions", "facts"),
    [
        (("PyObject_Repr",), {}),  # any other function of the interpreter
        (("Py_DECREF",), {}),  # inlined into the evaluation loop
        (("pymalloc_alloc",), {"signo": BUS, "si_code": 2}),  # memory that could not be delivered
    ],
)
def test_other_faults_of_the_interpreter_are_its_own(functions: tuple[str, ...], facts: dict[str, object]) -> None:
    found = died_in(*functions, **facts)
    assert found.noticed is None
    assert found.component is not None and found.component.image == PYTHON


def test_a_stack_that_runs_over_inside_the_allocator_is_no_damage() -> None:
    stack = mapping(0x7FFFFFF00000, 0x7FFFFFFFF000, path="[stack]")
    found = died_in("pymalloc_alloc", fault_address="0x7fffffeffff8", sp="0x7fffffeffff0", mappings=(stack,))
    assert found.noticed is None


def test_glibc_that_gives_up_in_malloc_blames_no_caller_and_in_free_its_caller() -> None:
    gives_up = (native("__GI_raise", LIBC), native("__GI_abort", LIBC), native("malloc_printerr", LIBC))
    facts = {"signo": ABRT, "si_code": TKILL}
    by_malloc = blame(crash(thread(100, *gives_up, native("_int_malloc", LIBC), native("grow", EXTENSION)), **facts))
    by_free = blame(crash(thread(100, *gives_up, native("_int_free", LIBC), native("shrink", EXTENSION)), **facts))
    assert by_malloc.noticed is not None and by_malloc.component is None
    assert by_free.component is not None and by_free.component.image == EXTENSION


def test_who_could_have_done_it_is_listed_and_how_to_find_out() -> None:
    images = (*IMAGES, Image(EXTENSION, "0x7fff00000000", "0x7fff00001000"))
    found = crash(thread(100, native("visit_decref", PYTHON, PC), EVALUATION, FORGET), pc=PC, images=images)
    (ground,) = ground_damage(found, blame(found))
    assert ground.fact.endswith("faiss-cpu 1.15.1, torch 2.13.0, fast.so")
    remedy = advise(found, blame(found), "forget (train.py:12)")
    assert remedy is not None and "PYTHONMALLOC=debug" in remedy.do and "Do not look at forget" in remedy.do


CALLS_C = native("cfunction_vectorcall_O", PYTHON)


def test_an_extension_that_ends_with_a_call_into_python_has_left_no_frame() -> None:
    """`return PyObject_GetAttrString(…)` is compiled to a jump."""
    by_jump = (native("PyObject_GetAttrString", PYTHON, PC), CALLS_C, EVALUATION, FORGET)
    found = crash(thread(100, *by_jump), pc=PC)
    (doubt,) = doubt_component(blame(found))
    assert "PyObject_GetAttrString" in doubt and "extension" in doubt
    assert [ground.source for ground in ground_damage(found, blame(found))] == ["loaded images"]
    remedy = advise(found, blame(found), "forget (train.py:12)")
    assert remedy is not None and "the C function that forget (train.py:12) calls" in remedy.do


@pytest.mark.parametrize(
    "frames",
    [
        (native("list_append", PYTHON, PC), CALLS_C, EVALUATION),  # Python's own function
        (native("PyObject_Repr", PYTHON, PC), native("builtin_repr", PYTHON), CALLS_C, EVALUATION),
        (
            native("PyObject_Repr", PYTHON, PC),
            native("work", EXTENSION),
            CALLS_C,
            EVALUATION,
        ),  # it called, and stands there
        (native("PyDict_Copy", PYTHON, PC), native("method_vectorcall_NOARGS", PYTHON), EVALUATION),  # dict.copy itself
    ],
)
def test_who_stands_on_the_stack_has_not_left_it(frames: tuple[CrashFrame, ...]) -> None:
    assert doubt_component(blame(crash(thread(100, *frames, FORGET), pc=PC))) == ()


def test_compiled_code_that_checks_no_index_is_suspected_where_damage_is_noticed() -> None:
    found = crash(
        thread(100, native("visit_decref", PYTHON, PC), EVALUATION, FORGET), pc=PC, packages={"numba": "0.68.1"}
    )
    remedy = advise(found, blame(found), None)
    assert remedy is not None and "PYTHONMALLOC=debug NUMBA_BOUNDSCHECK=1 " in remedy.do


CALLED = (native("_PyErr_Restore", PYTHON, PC), native("work", EXTENSION), native("start_thread", LIBC))


def with_state(state: bool | None, gil: bool | None, *frames: CrashFrame) -> CrashThread:
    return structs.replace(thread(7, *frames), python_state=state, holds_gil=gil)


def test_where_there_is_no_gil_nobody_lacks_it() -> None:
    images = (*IMAGES, Image("/opt/bin/python3.14t", "0x400000", "0x500000"))
    assert not blame(crash(with_state(True, False, *CALLED), pc=PC, images=images)).without_gil
    assert blame(crash(with_state(False, False, *CALLED), pc=PC, images=images)).without_gil


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (with_state(False, False, *CALLED), True),
        (with_state(True, False, *CALLED), True),
        (with_state(True, True, *CALLED), False),
        (with_state(None, None, *CALLED), False),  # nobody has looked
        (
            with_state(
                True, False, native("take_gil", PYTHON, PC), native("PyEval_RestoreThread", PYTHON), *CALLED[1:]
            ),
            False,
        ),
        (with_state(True, False, native("PyMem_RawMalloc", PYTHON, PC), *CALLED[1:]), False),
        (with_state(False, False, native("work", EXTENSION, PC), *CALLED[2:]), False),  # it never called Python
        (with_state(True, False, native("f", PYTHON, PC), EVALUATION, FORGET), False),  # Python's own business
    ],
)
def test_a_call_into_python_without_the_gil(stack: CrashThread, expected: bool) -> None:
    assert blame(crash(stack, pc=PC)).without_gil is expected


def test_without_the_gil_an_allocation_is_no_sign_of_damage() -> None:
    """From 3.12 on the allocator looks for the thread's interpreter first."""
    frames = (native("get_state", PYTHON, PC), native("_PyObject_Malloc", PYTHON), *CALLED[1:])
    found = blame(crash(with_state(False, False, *frames), pc=PC))
    assert found.without_gil and found.noticed is None
    assert found.component is not None and found.component.image == EXTENSION


COMPILED = "0x7fff20000100"
CODE = mapping(0x7FFF20000000, 0x7FFF20001000, "r-xp")


def compiled(*frames: CrashFrame, **facts: object) -> Crash:
    facts = {"pc": COMPILED, "mappings": (CODE,), "si_code": KERNEL, **facts}
    return crash(thread(100, *frames, python("step", TRAIN, 16)), **facts)


@pytest.mark.parametrize(
    "frames",
    [
        (native(None, None, COMPILED), native("Dispatcher_call", EXTENSION)),
        (native("Dispatcher_call", EXTENSION),),  # the tool could not show where it was
        (),
    ],
)
def test_memory_that_is_executed_and_has_no_file_is_compiled_code(frames: tuple[CrashFrame, ...]) -> None:
    found = blame(compiled(*frames))
    assert found.component is not None and found.component.image == JIT
    assert found.faulting_image == found.component


@pytest.mark.parametrize(
    "elsewhere",
    [mapping(0x7FFF20000000, 0x7FFF20001000, "rw-p"), mapping(0x7FFF20000000, 0x7FFF20001000, "r-xp", "/job/fast.so")],
)
def test_data_and_files_are_no_compiled_code(elsewhere: object) -> None:
    found = blame(compiled(native(None, None, COMPILED), native("call", CTYPES), mappings=(elsewhere,)))
    assert found.component is not None and found.component.image == CTYPES
    assert found.faulting_image is None


def test_the_compilers_that_are_loaded_are_told() -> None:
    assert tell_compilers(compiled(packages={"numba": "0.68.1", "llvmlite": "0.50.0"})) == "numba 0.68.1 is loaded"
    assert tell_compilers(compiled(packages={"torch": "2.13.0", "numba": "0.68.1"})) == (
        "numba 0.68.1 and torch 2.13.0 are loaded"
    )
    assert tell_compilers(compiled(packages={"numpy": "2.4.6"})) == ""
    remedy = advise(compiled(packages={"numba": "0.68.1"}), blame(compiled()), None)
    assert remedy is not None and "NUMBA_BOUNDSCHECK=1" in remedy.do


STACK = mapping(0x7FFFFFF00000, 0x7FFFFFFFF000, path="[stack]")


def overflowed(*frames: CrashFrame) -> Blame:
    facts = {"fault_address": "0x7fffffeffff8", "sp": "0x7fffffeffff0", "mappings": (STACK,), "pc": PC}
    return blame(crash(thread(100, *frames), **facts))


TOUCHED = (native("_Py_dict_lookup", PYTHON, PC), native("PyDict_GetItemWithError", PYTHON), EVALUATION)
ENCODE = (native("encode_list", EXTENSION), native("PyObject_Call", PYTHON), native("encode_any", EXTENSION))


def test_who_recurses_is_named_not_who_touched_the_guard_page() -> None:
    found = overflowed(*TOUCHED, *ENCODE * 50, FORGET)
    assert found.component is not None and found.component.function == "encode_list"


def test_the_interpreter_is_named_where_only_it_recurses() -> None:
    found = overflowed(native("memcpy", LIBC, PC), *(native("chain_next", PYTHON),) * 50, native("once", EXTENSION))
    assert found.component is not None and found.component.image == PYTHON


def test_a_callback_is_named_after_the_extension_not_after_ctypes() -> None:
    cycle = (native("_ctypes_callproc", CTYPES), native("ffi_call", FFI), native("visit", EXTENSION), FORGET)
    found = overflowed(native("PyCFuncPtr_call", CTYPES, PC), *cycle * 50)
    assert found.component is not None and found.component.image == EXTENSION


def test_a_stack_of_which_only_the_end_was_read_names_nobody() -> None:
    found = overflowed(native("_Py_dict_lookup", PYTHON, PC), structs.replace(ENCODE[0], guessed=True))
    assert found.component is None
    assert found.faulting_image is not None and found.faulting_image.image == PYTHON


def test_a_recursion_is_no_bad_pointer() -> None:
    facts = {"fault_address": "0x7fffffeffff8", "sp": "0x7fffffeffff0", "mappings": (STACK,), "pc": PC}
    found = crash(thread(100, *(native("chain_next", PYTHON, PC),) * 50, FORGET), **facts)
    remedy = advise(found, blame(found), "forget (train.py:12)")
    assert remedy is not None and "nested" in remedy.do and "bad pointer" not in remedy.do


def test_one_huge_frame_without_recursion_is_found_as_ever() -> None:
    found = overflowed(native("fill", EXTENSION, PC), EVALUATION, FORGET)
    assert found.component is not None and found.component.function == "fill"


IMPORTLIB = (Frame("<frozen importlib._bootstrap>", 241, "_call_with_frames_removed"),)
USER = Frame(TRAIN, 3, "<module>")
LIBRARY = "/job/.venv/lib/python3.11/site-packages/torch/__init__.py"
OPENING = (native("_dl_catch_exception", LIBC), native("dl_open_worker", LOADER), native("dlopen", LIBC))
FINALISED = (native("finalize_modules", PYTHON), native("Py_FinalizeEx", PYTHON), native("Py_RunMain", PYTHON))


@pytest.mark.parametrize(
    ("stack", "frames", "words"),
    [
        ((native("f", EXTENSION), native("call_init", LOADER), *OPENING), (), "in a static constructor of fast.so"),
        ((native("f", EXTENSION), native(None, LOADER), *OPENING), (), "in a static constructor of fast.so"),
        (
            (native("f", EXTENSION), native("_dl_fini", LOADER), native("__run_exit_handlers", LIBC)),
            (),
            "in a static destructor of fast.so, while the process was exiting",
        ),
        ((native("f", TORCH), *FINALISED), (), "at interpreter exit, after the program's own code had ended"),
        # Without symbols of the C library and the interpreter, as in a distribution's.
        (
            (native("f", EXTENSION), native(None, LOADER), native(None, LIBC), native("_start", "/usr/bin/python3.14")),
            (),
            "in a static destructor of fast.so, while the process was exiting",
        ),
        (
            (native("f", EXTENSION), native(None, PYTHON), native("Py_RunMain", PYTHON)),
            (Frame(TRAIN, 36, "__del__"),),
            "at interpreter exit, after the program's own code had ended",
        ),
        ((native("PyInit_fast", EXTENSION),), (*IMPORTLIB, USER), "during import of fast"),
        ((native("f", TORCH),), (Frame(LIBRARY, 400, "<module>"), *IMPORTLIB, USER), "during import of torch"),
        (
            (native("f", TORCH),),
            (*IMPORTLIB, Frame(LIBRARY, 400, "<module>"), *IMPORTLIB, USER),
            "during import of torch",
        ),
        ((native("f", TORCH),), (*IMPORTLIB, USER), "during import of torch.lib.libtorch_python"),
        ((native("memcpy", LIBC),), (*IMPORTLIB, USER), "during an import"),
    ],
)
def test_the_phase_of_a_program(stack: tuple[CrashFrame, ...], frames: tuple[Frame, ...], words: str) -> None:
    assert tell_phase(stack, frames) == f", {words}"


@pytest.mark.parametrize(
    ("stack", "frames"),
    [
        ((native("f", EXTENSION), EVALUATION), (USER,)),
        ((native("strlen", LIBC), native(None, LOADER), *OPENING), (USER,)),  # the loader itself
        ((native("f", EXTENSION), native("_dl_fixup", LOADER), native("g", EXTENSION)), (USER,)),  # lazy binding
        ((native("call_init", EXTENSION), native("g", EXTENSION)), (USER,)),  # a function of that name
        ((native("f", EXTENSION), native("exit", EXTENSION)), (USER,)),
        ((native("f", EXTENSION), native("__call_tls_dtors", LIBC), native("start_thread", LIBC)), ()),  # a thread ends
        # A stripped interpreter that runs the program: by its file, by -m.
        ((native("f", EXTENSION), native("PyEval_EvalCode", PYTHON), native("Py_RunMain", PYTHON)), (USER,)),
        (
            (native("f", EXTENSION), native("PyObject_Call", PYTHON), native("Py_RunMain", PYTHON)),
            (Frame(TRAIN, 3, "main"), Frame("<frozen runpy>", 198, "_run_module_as_main")),
        ),
        (
            (native("f", EXTENSION),),
            (USER, *IMPORTLIB, Frame("/job/main.py", 1, "<module>")),
        ),  # the program is a module
    ],
)
def test_no_phase_where_it_simply_ran(stack: tuple[CrashFrame, ...], frames: tuple[Frame, ...]) -> None:
    assert tell_phase(stack, frames) == ""


def test_guessed_frames_tell_no_phase() -> None:
    guessed = tuple(structs.replace(frame, guessed=True) for frame in FINALISED)
    assert tell_phase((native("f", TORCH), *guessed), ()) == ""


INSTALLED = "/opt/conda/lib/python3.11"
MAIN = f"{INSTALLED}/site-packages/app/__main__.py"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        # (innermost first) a program that lies where the standard library does
        ([f"{INSTALLED}/ctypes/__init__.py", f"{INSTALLED}/train.py"], f"{INSTALLED}/train.py"),
        # python -m app
        ([f"{INSTALLED}/json/decoder.py", f"{INSTALLED}/site-packages/app/core.py", MAIN, "<frozen runpy>"], "core.py"),
        ([f"{INSTALLED}/site-packages/torch/nn.py", MAIN, f"{INSTALLED}/runpy.py"], "app/__main__.py"),
        # the user's own code comes first wherever it is
        ([f"{INSTALLED}/site-packages/pytest/x.py", "/job/test_it.py", MAIN, "<frozen runpy>"], "/job/test_it.py"),
        # 3.13t's standard library is one
        (["/opt/py/lib/python3.13t/threading.py", "/job/train.py"], "/job/train.py"),
    ],
)
def test_the_program_that_was_started_is_user_code(files: list[str], expected: str) -> None:
    *inner, outer = [file for file in files if not file.endswith(("runpy>", "runpy.py"))]
    frames = [Frame(file, 1, "work") for file in inner] + [Frame(outer, 1, "<module>")]
    frames += [Frame(file, 1, "_run_code") for file in files if file.endswith(("runpy>", "runpy.py"))]
    found = innermost_user_frame(tuple(frames))
    assert found is not None and found.file.endswith(expected)


def test_a_thread_that_runs_only_libraries_has_no_user_frame() -> None:
    frames = (Frame(f"{INSTALLED}/queue.py", 1, "get"), Frame(f"{INSTALLED}/threading.py", 1, "_bootstrap"))
    assert innermost_user_frame(frames) is None
