"""The stack as the report tells it: which calls, in which order, and what is left out."""

from __future__ import annotations

import signal

from harness.diagnose.death.judge import judge
from harness.documents.verdict import Document
from harness.evidence.crash import CrashFrame
from harness.evidence.run import Ending
from harness.report.text import render
from tests.builders.crashes import CTYPES, FAISS, FFI, LIBC, PYTHON, crash, native, python, thread
from tests.builders.evidence import run_evidence

SEGFAULT = Ending(signo=int(signal.SIGSEGV))
PC = "0x7fffee001000"
FAULT = CrashFrame("native", "faiss::search(long)", "/src/faiss/Index.cpp", 41, FAISS, "0x1000", PC)
CALL = (native("ffi_call", FFI), native("_ctypes_callproc", CTYPES), native("_PyEval_Vector", PYTHON))


def judge_stack(*frames: CrashFrame, **facts: object) -> Document:
    told = {"pc": PC, **facts}
    return judge(run_evidence("", SEGFAULT, crashes=(crash(thread(100, *frames), **told),)))


def rows(document: Document) -> list[str]:
    lines = render(document, width=110, color=False).splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("  stack"))
    return [lines[first][13:], *(line[13:] for line in lines[first + 1 :] if line.startswith(" " * 13))][:12]


def test_native_and_python_calls_with_file_and_line_and_no_carriers() -> None:
    document = judge_stack(FAULT, *CALL, python("mine", "/job/train.py", 211), native("main", PYTHON))
    assert rows(document)[:3] == [
        "faiss::search(long) (Index.cpp:41) in libfaiss.so",
        "mine (train.py:211)",
        "… and 4 more frames",
    ]


def test_a_recursion_is_one_row_and_a_deep_stack_is_not_read_to_its_end() -> None:
    down = CrashFrame("native", "faiss::search(long)", "/src/faiss/Index.cpp", 44, FAISS, "0x1010", "0x7fffee001010")
    stack = judge_stack(FAULT, *([down] * 60_000), python("mine", "/job/train.py", 211)).verdict.stack
    assert stack is not None
    assert [(call.line, call.times) for call in stack.calls] == [(41, 1), (44, 60_000), (211, 1)] and stack.more == 0


def test_at_most_five_of_each() -> None:
    frames = [python(f"step{number}", "/job/train.py", number) for number in range(9)]
    stack = judge_stack(FAULT, *frames).verdict.stack
    assert stack is not None and stack.more == 4
    assert [call.kind for call in stack.calls] == ["native", *["python"] * 5]


def test_the_interpreter_is_told_where_nothing_else_is_native() -> None:
    stack = judge_stack(native("gc_collect_main", PYTHON, "0x7ffff7a10000"), pc="0x7ffff7a10000").verdict.stack
    assert stack is not None and [call.function for call in stack.calls] == ["gc_collect_main"]


def test_calls_without_a_name_are_told_once_and_the_machinery_of_an_import_not_at_all() -> None:
    nameless = [native(None, FAISS, hex(int(PC, 16) + 16 * step), hex(0x1000 + 16 * step)) for step in range(4)]
    importing = [python("_load_unlocked", "<frozen importlib._bootstrap>", 676)] * 3
    document = judge_stack(*nameless, FAULT, *importing, python("<module>", "/job/train.py", 1))
    assert rows(document)[:4] == [
        "+0x1000 in libfaiss.so",
        "faiss::search(long) (Index.cpp:41) in libfaiss.so",
        "<module> (train.py:1)",
        "… and 6 more frames",
    ]


def test_raw_addresses_are_no_stack() -> None:
    raw = crash(pc=PC, raw_frames=("0x7fffee002000",), step="raw")
    assert judge(run_evidence("", SEGFAULT, crashes=(raw,))).verdict.stack is None


def test_what_was_compiled_in_from_a_standard_library_is_not_whose_fault_it_is() -> None:
    """The shapes gdb gives for an inlined header, Rust's and Go's runtime."""
    for file in (
        "/usr/include/c++/12/bits/stl_vector.h",
        "/usr/include/x86_64-linux-gnu/c++/12/bits/x.h",
        "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/core/src/slice/index.rs",
        "/usr/src/rustc-1.63.0/library/core/src/slice/index.rs",
        "/usr/lib/go-1.19/src/runtime/panic.go",
    ):
        inlined = CrashFrame("native", "std::begin", file, 999, FAISS, "0x1000", PC)
        own = CrashFrame("native", "longest", "/src/list.cpp", 8, FAISS, "0x1000", PC)
        verdict = judge_stack(inlined, own).verdict
        assert verdict.component is not None and verdict.component.function == "longest", file
    near_miss = CrashFrame("native", "mine", "/home/me/runtime/src/core/panic.go", 9, FAISS, "0x1000", PC)
    verdict = judge_stack(near_miss, native("outer", FAISS)).verdict
    assert verdict.component is not None and verdict.component.function == "mine"


def test_component_and_faulting_image_are_said_once_when_they_are_the_same() -> None:
    assert "faulting image" not in render(judge_stack(FAULT), width=110, color=False)
    in_libc = native("__memmove_avx_unaligned_erms", LIBC, "0x7ffff796b219")
    other = judge_stack(in_libc, FAULT, pc="0x7ffff796b219")
    assert "faulting image" in render(other, width=110, color=False)
