"""The classes of addresses, each with a positive, a negative and a near-miss. Maps and codes are from real crashes."""

from __future__ import annotations

import pytest

from harness.diagnose.death.crash.address import Fault, describe_fault, fault_address, name_si_code
from harness.diagnose.death.crash.si_codes import REFUSED, UNTOLD
from tests.builders.crashes import (
    ABRT,
    ACCERR,
    BUS,
    FPE,
    ILL,
    KERNEL,
    LIBC,
    MAPERR,
    SEGV,
    SYS,
    TKILL,
    TRAP,
    crash,
    mapping,
)

READ, WRITE, FETCH = ({"err": error, "trapno": "0xe", "rax": "0x0"} for error in ("0x4", "0x6", "0x14"))
BANK = mapping(0x7F313A000000, 0x7F31C8000000)  # 2.38 GB
STACK = mapping(0x7FFFFF7FF000, 0x7FFFFFFFF000, "rw-p", "[stack]")
TEXT = mapping(0x7FFFF7836000, 0x7FFFF798C000, "r-xp", LIBC)
RODATA = mapping(0x7FFFF798C000, 0x7FFFF79DF000, "r--p", LIBC)
HEAP = mapping(0x555555559000, 0x555555FE6000, "rw-p", "[heap]")
MAPS = (HEAP, BANK, TEXT, RODATA, STACK)
# A thread with a stack of 64 kB: its guard page, the stack, libc's own anonymous memory above it.
GUARD = mapping(0x7FFFF7DC1000, 0x7FFFF7DC2000, "---p")
SMALL_STACK = mapping(0x7FFFF7DC2000, 0x7FFFF7DD2000)
THREAD_MAPS = (HEAP, GUARD, SMALL_STACK, STACK)


def fault(address: int, code: int = MAPERR, **facts: object) -> Fault:
    return describe_fault(crash(**{"fault_address": hex(address), "si_code": code, "mappings": MAPS, **facts}))


def test_null_and_null_with_an_offset() -> None:
    assert fault(0, registers=READ)[:2] == ("read of 0x0: null pointer", "null")
    assert fault(0x18, registers=READ)[:2] == ("read of 0x18: null pointer + 0x18", "null-offset")
    assert fault(0x18, registers=WRITE).sentence == "write to 0x18: null pointer + 0x18"
    assert fault(0x18).sentence.startswith("access to")


def test_an_address_where_something_could_be_mapped_is_not_null() -> None:
    assert fault(0xFFFF).kind_hint == "null-offset"
    assert fault(0x10000).kind_hint == "unmapped"


def test_an_error_code_of_another_trap_says_nothing_about_the_direction() -> None:
    assert fault(0x18, registers={"err": "0x6", "trapno": "0xd"}).sentence.startswith("access to")


def test_the_syndrome_of_aarch64_tells_the_direction() -> None:
    assert fault(0x18, registers={"esr": "0x92000046"}).sentence.startswith("write to")
    assert fault(0x18, registers={"esr": "0x92000006"}).sentence.startswith("read of")
    assert fault(0x18, registers={"esr": "0x82000006"}).sentence.startswith("jump to")
    assert fault(0x18, registers={"esr": "0x56000000"}).sentence.startswith("access to")


def test_a_non_canonical_pointer_is_inferred_from_the_registers() -> None:
    wild = {"rdi": "0x4141414141414141", "rax": "0x41414141", "rsp": "0x7fffffffde68", "eflags": "0x8000000000000246"}
    found = fault(0, KERNEL, registers=wild)
    assert found.kind_hint == "non-canonical"
    assert "0x4141414141414141 (rdi)" in found.sentence and "inferred" in found.sentence
    assert "null" not in found.sentence and "one of" not in found.sentence
    assert "one of" in fault(0, KERNEL, registers={**wild, "rbx": "0xdeadbeefdeadbeef"}).sentence


def test_a_protection_fault_without_a_wild_register_is_not_called_one() -> None:
    found = fault(0, KERNEL, registers={"rdi": "0x7fffffffde61", "rsi": "0xffffffffffffffff"})
    assert found.kind_hint == "none" and "misaligned" in found.sentence
    assert fault(0, MAPERR, registers={"rdi": "0x4141414141414141"}).kind_hint == "null"


def test_registers_are_not_asked_where_the_cpu_named_an_address_that_was_lost() -> None:
    found = describe_fault(crash(fault_address=None, si_code=MAPERR, registers={"rdi": "0x4141414141414141"}))
    assert found == Fault("the address was not recorded", "none")


def test_a_non_canonical_address_that_was_named() -> None:
    assert fault(0x4141414141414141).kind_hint == "non-canonical"
    # User addresses of aarch64 have 48 bits.
    assert fault(0xFFFF8A2B1000).kind_hint == "unmapped"


def test_a_negative_number_used_as_a_pointer() -> None:
    assert "the number -1 used as a pointer" in fault(0xFFFFFFFFFFFFFFFF).sentence
    assert "kernel" in fault(0xFFFF800000001000).sentence


def test_the_address_is_null_where_the_cpu_named_none() -> None:
    assert fault_address(crash(fault_address="0x0", si_code=MAPERR)) == "0x0"
    assert fault_address(crash(fault_address="0x0", si_code=KERNEL)) is None
    assert fault_address(crash(fault_address="0x605a", signo=ABRT, si_code=TKILL)) is None


def test_just_past_the_end_of_a_mapping_names_it_and_its_size() -> None:
    found = fault(0x7F31C8000000, registers=READ)
    assert found == Fault(
        "read of 0x7f31c8000000: unmapped, just past the end of a 2.4 GB anonymous mapping", "past-end", BANK
    )
    assert fault(0x555555FE62A4).sentence.endswith("just past the end of the heap")


def test_a_page_further_away_is_not_just_past_the_end() -> None:
    assert fault(0x7F31C800FFFF).kind_hint == "past-end"
    found = fault(0x7F31C8010000)
    assert found.kind_hint == "unmapped" and "no mapping is near" in found.sentence and found.mapping is None


def test_just_below_a_mapping_is_not_past_an_end() -> None:
    found = fault(0x7F3139FFFFF8)
    assert found.kind_hint == "unmapped" and "just below the start" in found.sentence and found.mapping == BANK


def test_without_a_map_nothing_is_said_about_neighbours() -> None:
    found = fault(0x7F31C8000000, mappings=())
    assert found == Fault("access to 0x7f31c8000000: nothing is mapped there", "unmapped")


def test_reserved_memory_behind_an_arena_is_past_its_end() -> None:
    arena, tail = mapping(0x7FFFE0000000, 0x7FFFE0021000), mapping(0x7FFFE0021000, 0x7FFFE4000000, "---p")
    assert fault(0x7FFFE0021008, ACCERR, mappings=(arena, tail))[1:] == ("past-end", arena)
    assert fault(0x7FFFE2000000, ACCERR, mappings=(arena, tail))[1:] == ("unmapped", tail)


def test_a_write_to_a_read_only_mapping_names_the_file() -> None:
    found = fault(0x7FFFF798D000, ACCERR, registers=WRITE)
    assert found == Fault(f"write to 0x7ffff798d000: read-only mapping of {LIBC}", "read-only", RODATA)
    # What may be read and was refused can only have been written, even where no error code says so.
    assert fault(0x7FFFF798D000, ACCERR).sentence.startswith("write to")
    assert fault(0x7FFFF798D000, MAPERR).kind_hint == "unmapped"
    assert fault(BANK_MIDDLE, ACCERR).kind_hint == "unmapped"


BANK_MIDDLE = 0x7F3140000000


def test_a_jump_to_null() -> None:
    assert fault(0, pc="0x0")[:2] == ("jump to 0x0: null function pointer", "execute")
    assert fault(0x18, pc="0x18").sentence == "jump to 0x18: null function pointer + 0x18"


def test_a_jump_into_data() -> None:
    found = fault(BANK_MIDDLE, ACCERR, pc=hex(BANK_MIDDLE), registers=FETCH)
    assert found.kind_hint == "execute" and "jump into data" in found.sentence and found.mapping == BANK
    assert "no execute permission" in found.sentence
    assert fault(BANK_MIDDLE, ACCERR, registers=WRITE).kind_hint != "execute"
    code = 0x7FFFF7840000  # may be executed: refused for another reason, such as a protection key
    assert fault(code, ACCERR, pc=hex(code), registers=FETCH).kind_hint == "unmapped"


def test_a_jump_to_nowhere() -> None:
    found = fault(0x7F3000000000, pc="0x7f3000000000")
    assert found.kind_hint == "execute" and found.sentence.startswith("jump to 0x7f3000000000: unmapped")


@pytest.mark.parametrize(
    ("address", "sp"),
    [
        (0x7FFFFF7FEFA8, 0x7FFFFF7FEFA0),  # C recursion: sp itself is below
        (0x7FFFFF7FEFF8, 0x7FFFFF7FF000),  # Python recursion: a call pushed the return address
        (0x7FFFFF7FE000, 0x7FFFFF6FE000),  # one frame of 1 MB, touched at its far end
    ],
)
def test_the_main_stack_overflows_into_nothing(address: int, sp: int) -> None:
    found = fault(address, sp=hex(sp), registers=WRITE)
    assert found == Fault(
        f"write to {hex(address)}: in the guard page of the stack: stack overflow", "guard-page", STACK
    )


def test_a_threads_stack_overflows_into_its_guard_page() -> None:
    found = fault(0x7FFFF7DC1EA8, ACCERR, sp="0x7ffff7dc1ea0", mappings=THREAD_MAPS)
    assert (found.kind_hint, found.mapping) == ("guard-page", SMALL_STACK)


def test_a_wild_pointer_into_another_threads_guard_page_is_no_stack_overflow() -> None:
    found = fault(0x7FFFF7DC1EA8, ACCERR, sp="0x7fffffffde78", mappings=THREAD_MAPS)
    assert (found.kind_hint, found.mapping) == ("unmapped", GUARD)


def test_far_below_sp_is_no_stack_overflow() -> None:
    assert fault(0x7FFFFF7E0000, sp="0x7fffffffde78").kind_hint == "unmapped"
    assert fault(0x7FFFFF7FE000, sp="0x7fffff810000").kind_hint == "unmapped"


def test_beside_sp_but_inside_the_stack_is_no_stack_overflow() -> None:
    assert fault(0x7FFFFF900000, ACCERR, sp="0x7fffff900100").kind_hint == "unmapped"


def test_a_wild_stack_pointer_under_a_library_is_no_stack_overflow() -> None:
    assert fault(0x7FFFF7835FF8, sp="0x7ffff7835ff0").kind_hint == "unmapped"
    assert fault(0x555555558FF8, sp="0x555555558ff0").kind_hint == "unmapped"
    assert fault(0x7F3000000000, sp="0x7f3000000100").kind_hint == "unmapped"


def test_a_write_to_what_lies_right_below_the_stack_is_no_stack_overflow() -> None:
    constants = mapping(0x7FFFF7DB0000, 0x7FFFF7DC2000, "r--p", LIBC)
    found = fault(0x7FFFF7DC1EA8, ACCERR, sp="0x7ffff7dc2100", mappings=(constants, SMALL_STACK))
    assert (found.kind_hint, found.mapping) == ("read-only", constants)


def test_a_bus_error_in_shared_memory() -> None:
    shm = mapping(0x7FFFF0000000, 0x7FFFF4000000, "rw-s", "/dev/shm/torch_4711_123_0 (deleted)")
    found = fault(0x7FFFF1000000, 2, signo=BUS, mappings=(shm,), registers=WRITE)
    assert (found.kind_hint, found.mapping) == ("shm", shm)
    assert "inside /dev/shm/torch_4711_123_0, which" in found.sentence and "full" in found.sentence


def test_a_bus_error_in_a_file_is_a_truncated_file() -> None:
    memmap = mapping(0x7FFFF50C9000, 0x7FFFF50D1000, "r--s", "/data/X_train.npy")
    found = fault(0x7FFFF50CA388, 2, signo=BUS, mappings=(memmap,), registers=READ)
    assert (found.kind_hint, found.mapping) == ("file", memmap)
    assert found.sentence.startswith("read of 0x7ffff50ca388: inside /data/X_train.npy beyond its end")


def test_a_segfault_in_shared_memory_or_another_bus_error_is_neither() -> None:
    shm = mapping(0x7FFFF0000000, 0x7FFFF4000000, "r--s", "/dev/shm/torch_4711_123_0")
    assert fault(0x7FFFF1000000, ACCERR, mappings=(shm,)).kind_hint == "read-only"
    aligned = fault(0x7FFFF1000001, 1, signo=BUS, mappings=(shm,))
    assert aligned.kind_hint == "none" and "not aligned" in aligned.sentence
    assert fault(BANK_MIDDLE, 2, signo=BUS).kind_hint == "none"


def test_a_bus_error_of_macos_is_told_by_its_address() -> None:
    """There a write to read-only memory and a full thread stack are SIGBUS."""
    constants = mapping(0x7FFFF7DB0000, 0x7FFFF7DC2000, "r--p", LIBC)
    found = fault(0x7FFFF7DC1EA8, REFUSED, signo=BUS, mappings=(constants,))
    assert (found.kind_hint, found.mapping) == ("read-only", constants)
    assert fault(0x18, UNTOLD, signo=BUS).kind_hint == "null-offset"
    assert fault(0x7FFFF1000001, UNTOLD, signo=BUS, mappings=()).sentence.endswith(": macOS does not say why")


def test_a_signal_that_was_sent_has_no_address() -> None:
    raised = describe_fault(crash(signo=ABRT, si_code=TKILL, fault_address="0x64", sender_pid=100))
    assert raised == Fault("no fault: the process sent itself the signal (SI_TKILL)", "none")
    sent = describe_fault(crash(signo=SEGV, si_code=0, fault_address="0x4d", sender_pid=77))
    assert sent.sentence == "no fault: process 77 sent the signal (SI_USER)"
    assert "null" not in describe_fault(crash(si_code=0, fault_address="0x0")).sentence


def test_signals_of_an_instruction_name_it() -> None:
    divided = describe_fault(crash(signo=FPE, si_code=1, fault_address="0x7ffff796b219"))
    assert divided.sentence.startswith("integer division by zero") and "FPE_INTDIV" in divided.sentence
    assert "0x7ffff796b219" in divided.sentence and divided.kind_hint == "none"
    refused = describe_fault(crash(signo=SYS, si_code=1, registers={"rax": "0x29"}))
    assert refused.sentence.startswith("system call 41, refused by a seccomp filter")
    assert "breakpoint" in describe_fault(crash(signo=TRAP, si_code=KERNEL)).sentence


@pytest.mark.parametrize(
    ("signo", "code", "name"),
    [
        (SEGV, 1, "SEGV_MAPERR"),
        (SEGV, 2, "SEGV_ACCERR"),
        (SEGV, 0x80, "SI_KERNEL"),
        (BUS, 2, "BUS_ADRERR"),
        (FPE, 1, "FPE_INTDIV"),
        (ILL, 2, "ILL_ILLOPN"),
        (TRAP, 1, "TRAP_BRKPT"),
        (TRAP, 0x80, "SI_KERNEL"),
        (SYS, 1, "SYS_SECCOMP"),
        (ABRT, -6, "SI_TKILL"),
        (SEGV, 0, "SI_USER"),
        (SEGV, -1, "SI_QUEUE"),
        (ABRT, 1, "si_code 1"),
    ],
)
def test_codes_have_names(signo: int, code: int, name: str) -> None:
    assert name_si_code(signo, code) == name
