"""What kind of address a crash stumbled over: null, wild, past an end, read-only, a guard page, a file without data.

Reads the record and the map of the process only. Which library is to blame is another question: see `blame`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from harness.diagnose.death.crash.instructions import explain_instruction
from harness.diagnose.death.crash.si_codes import REFUSED, SI_KERNEL, UNTOLD, explain_si_code, is_sent, name_si_code
from harness.evidence.crash import Crash, Mapping
from harness.evidence.run import name_signal

__all__ = ["Fault", "KindHint", "describe_fault", "fault_address", "name_si_code"]

# "execute" is every jump to where no code is, to null as well: the direction tells more than the place.
KindHint = Literal[
    "null",
    "null-offset",
    "non-canonical",
    "guard-page",
    "past-end",
    "read-only",
    "execute",
    "unmapped",
    "shm",
    "file",
    "none",
]
Access = Literal["read", "write", "jump"]

# Nothing can be mapped below vm.mmap_min_addr (65536 everywhere): an address there is a null pointer and an offset.
LOWEST_MAPPED = 0x10000
# A new frame touches memory at most this far below sp: what is called pushes 8 bytes, the red zone has 128, and
# memset-like loops start at sp. A frame larger than the guard has moved sp itself below the stack.
_NEAR_SP = 64 * 1024
_STACK_GAP = 16 * 1024 * 1024
_JUST = 64 * 1024
_ADDRESS_SPACE = 1 << 64
# What x86_64 gives no address for, without five-level page tables; and what no user address of a CPU can be: 56 bits
# with five levels on x86_64, 52 on aarch64, where si_addr comes without its tag byte.
_REGISTER_BITS, _X86_BITS, _ARM_BITS = 47, 56, 52

_VERBS: dict[Access | None, str] = {"read": "read of", "write": "write to", "jump": "jump to", None: "access to"}
# In the order in which calls use them. rip, eflags and the like never hold the pointer.
_POINTER_REGISTERS = (
    *("rdi", "rsi", "rax", "rdx", "rcx", "rbx", "rbp", "rsp"),
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"),
)


class Fault(NamedTuple):
    """`mapping` holds the address or is the neighbour that the sentence names."""

    sentence: str
    kind_hint: KindHint
    mapping: Mapping | None = None


def describe_fault(crash: Crash) -> Fault:
    if is_sent(crash.si_code):
        return Fault(_describe_sender(crash), "none")
    signame = name_signal(crash.signo)
    if signame not in ("SIGSEGV", "SIGBUS"):
        return Fault(_describe_instruction(crash, signame), "none")
    address = _address(crash)
    if address is None:
        return _describe_protection_fault(crash)
    # On macOS most of what is a SIGSEGV elsewhere is a SIGBUS: there the address tells, not the signal.
    is_bus_error = signame == "SIGBUS" and crash.si_code not in (REFUSED, UNTOLD)
    return _describe_bus_error(crash, address) if is_bus_error else _describe_segfault(crash, address)


def fault_address(crash: Crash) -> str | None:
    """The address the CPU named; null when it named none (si_addr is then 0, or is no address at all)."""
    address = _address(crash)
    return None if address is None else hex(address)


def _address(crash: Crash) -> int | None:
    if crash.fault_address is None or is_sent(crash.si_code) or crash.si_code == SI_KERNEL:
        return None
    return int(crash.fault_address, 16)


def _describe_sender(crash: Crash) -> str:
    code = name_si_code(crash.signo, crash.si_code)
    if crash.sender_pid is None:
        return f"no fault: {explain_si_code(crash.signo, crash.si_code) or 'sent by a process'} ({code})"
    if crash.sender_pid == crash.pid:
        return f"no fault: the process sent itself the signal ({code})"
    return f"no fault: process {crash.sender_pid} sent the signal ({code})"


def _describe_instruction(crash: Crash, signame: str) -> str:
    """SIGILL, SIGFPE, SIGTRAP, SIGSYS: the address is that of the instruction."""
    meaning = explain_si_code(crash.signo, crash.si_code) or signame
    if signame == "SIGILL" and (told := explain_instruction(crash)):
        meaning = told.words
    number = crash.registers.get("rax") or crash.registers.get("x8")
    if signame == "SIGSYS" and number is not None:
        meaning = f"system call {int(number, 16)}, {meaning}"
    return f"{meaning}, at {crash.pc} ({name_si_code(crash.signo, crash.si_code)})"


def _describe_protection_fault(crash: Crash) -> Fault:
    """x86_64 gives no address for a non-canonical one: what the registers hold is the only trace of it."""
    if crash.si_code != SI_KERNEL:
        return Fault("the address was not recorded", "none")
    wild: dict[int, str] = {}
    for name in _POINTER_REGISTERS:
        value = int(crash.registers.get(name, "0x0"), 16)
        if not _is_canonical(value, _REGISTER_BITS):
            wild.setdefault(value, name)
    if not wild:
        why = "a misaligned vector access, a return to a wild address or a privileged instruction"
        return Fault(f"the CPU named no address, and no register holds a wild pointer: {why}", "none")
    held = ", ".join(f"{hex(value)} ({name})" for value, name in list(wild.items())[:3])
    which = "" if len(wild) == 1 else "one of "
    words = "not a canonical address (a wild or freed pointer); inferred from the registers, the CPU names none"
    return Fault(f"access to {which}{held}: {words}", "non-canonical")


def _is_canonical(address: int, bits: int) -> bool:
    return address < 1 << bits or address >= _ADDRESS_SPACE - (1 << bits)


def _describe_bus_error(crash: Crash, address: int) -> Fault:
    name = name_si_code(crash.signo, crash.si_code)
    mapping = _holding(crash, address)
    what = f"{_VERBS[_access(crash, address)]} {hex(address)}"
    if name != "BUS_ADRERR":
        return Fault(f"{what}: {explain_si_code(crash.signo, crash.si_code) or name}", "none", mapping)
    if mapping is None or not _is_file(mapping):
        return Fault(f"{what}: no memory could be had for {_name(mapping)}", "none", mapping)
    if _path(mapping).startswith("/dev/shm/"):
        why = "shared memory is full, or the file was truncated"
        return Fault(f"{what}: inside {_path(mapping)}, which has no page there ({why})", "shm", mapping)
    why = "a truncated file, or one that cannot be read"
    return Fault(f"{what}: inside {_path(mapping)} beyond its end ({why})", "file", mapping)


def _describe_segfault(crash: Crash, address: int) -> Fault:
    access = _access(crash, address)
    what = f"{_VERBS[access]} {hex(address)}"
    if address < LOWEST_MAPPED:
        return _describe_null(what, address, access)
    if stack := _overflowed_stack(crash, address):
        return Fault(f"{what}: in the guard page of the stack: stack overflow", "guard-page", stack)
    bits = _X86_BITS if "rax" in crash.registers else _ARM_BITS
    if not _is_canonical(address, bits):
        return Fault(f"{what}: not a canonical address (a wild or freed pointer)", "non-canonical")
    if address >= 1 << bits:
        number = f"the number {address - _ADDRESS_SPACE} used as a pointer"
        words = number if address >= _ADDRESS_SPACE - LOWEST_MAPPED else "an address of the kernel (a wild pointer)"
        return Fault(f"{what}: {words}", "unmapped")
    mapping = _holding(crash, address)
    if mapping is None:
        fault = _describe_gap(crash, address, what)
        return fault._replace(kind_hint="execute") if access == "jump" else fault
    return _describe_refusal(crash, address, mapping, access)


def _describe_null(what: str, address: int, access: Access | None) -> Fault:
    offset = f" + {hex(address)}" if address else ""
    if access == "jump":
        return Fault(f"{what}: null function pointer{offset}", "execute")
    return Fault(f"{what}: null pointer{offset}", "null-offset" if offset else "null")


def _describe_gap(crash: Crash, address: int, what: str) -> Fault:
    """No mapping holds the address."""
    if not crash.mappings:
        return Fault(f"{what}: {explain_si_code(crash.signo, crash.si_code) or 'why is not known'}", "unmapped")
    below, above = _neighbours(crash, address)
    if below and address - _end(below) < _JUST and _is_accessible(below):
        return Fault(f"{what}: unmapped, just past the end of {_name(below)}", "past-end", below)
    if above and _start(above) - address <= _JUST and _is_accessible(above):
        return Fault(f"{what}: unmapped, just below the start of {_name(above)}", "unmapped", above)
    return Fault(f"{what}: unmapped, and no mapping is near (freed memory or a wild pointer)", "unmapped")


def _describe_refusal(crash: Crash, address: int, mapping: Mapping, access: Access | None) -> Fault:
    """A mapping holds the address, and did not allow the access."""
    what = f"{_VERBS[access]} {hex(address)}"
    if access == "jump" and "x" not in mapping.permissions:
        return Fault(f"{what}: a jump into data ({_name(mapping)}: no execute permission)", "execute", mapping)
    if not _is_accessible(mapping):
        below, _ = _neighbours(crash, _start(mapping))
        if below and _end(below) == _start(mapping) and address - _end(below) < _JUST and _is_accessible(below):
            return Fault(f"{what}: memory without access, just past the end of {_name(below)}", "past-end", below)
        words = "a guard page, or memory reserved or given back"
        return Fault(f"{what}: memory without access ({words})", "unmapped", mapping)
    refused = name_si_code(crash.signo, crash.si_code) in ("SEGV_ACCERR", "KERN_PROTECTION_FAILURE")
    if refused and access in ("write", None) and "w" not in mapping.permissions:
        # Reading is allowed: it can only have been a write.
        words = f"read-only mapping of {_name(mapping)}" if _is_file(mapping) else f"{_name(mapping)}, read-only"
        return Fault(f"write to {hex(address)}: {words}", "read-only", mapping)
    reason = explain_si_code(crash.signo, crash.si_code) or "refused"
    return Fault(f"{what}: {reason}; {_name(mapping)} is there now ({mapping.permissions})", "unmapped", mapping)


def _overflowed_stack(crash: Crash, address: int) -> Mapping | None:
    """The stack below whose lowest address the crashed thread went on growing.

    A guard page alone does not prove it: a wild pointer can hit another thread's. sp must be there as well.
    """
    sp = int(crash.sp, 16)
    held = _holding(crash, sp)
    stack = held if held and _is_accessible(held) else _next_accessible(crash, sp)
    if stack is None or "w" not in stack.permissions or not _is_anonymous(stack):
        return None
    if not max(sp - _NEAR_SP, _start(stack) - _STACK_GAP) <= address < _start(stack):
        return None
    return stack if _next_accessible(crash, address) is stack else None


def _access(crash: Crash, address: int) -> Access | None:
    """From the page fault's error code (x86: bit 1 write, bit 4 fetch) or, on aarch64, from ESR_EL1."""
    if address == int(crash.pc, 16):
        return "jump"
    if (syndrome := crash.registers.get("esr")) is not None:
        return _access_from_esr(int(syndrome, 16))
    error, trap = crash.registers.get("err"), crash.registers.get("trapno", "0xe")
    if error is None or int(trap, 16) != 14:
        return None
    bits = int(error, 16)
    return "jump" if bits & 1 << 4 else "write" if bits & 1 << 1 else "read"


def _access_from_esr(esr: int) -> Access | None:
    exception_class = esr >> 26 & 0x3F
    if exception_class in (0x20, 0x21):
        return "jump"
    if exception_class in (0x24, 0x25):
        return "write" if esr & 1 << 6 else "read"
    return None


def _holding(crash: Crash, address: int) -> Mapping | None:
    return next((mapping for mapping in crash.mappings if _start(mapping) <= address < _end(mapping)), None)


def _neighbours(crash: Crash, address: int) -> tuple[Mapping | None, Mapping | None]:
    below = [mapping for mapping in crash.mappings if _end(mapping) <= address]
    above = [mapping for mapping in crash.mappings if _start(mapping) > address]
    return max(below, key=_end, default=None), min(above, key=_start, default=None)


def _next_accessible(crash: Crash, address: int) -> Mapping | None:
    """The first mapping above that can be used; null when the address is inside one that can."""
    reachable = [mapping for mapping in crash.mappings if _end(mapping) > address and _is_accessible(mapping)]
    first = min(reachable, key=_start, default=None)
    return None if first is None or _start(first) <= address else first


def _start(mapping: Mapping) -> int:
    return int(mapping.start, 16)


def _end(mapping: Mapping) -> int:
    return int(mapping.end, 16)


def _path(mapping: Mapping) -> str:
    return (mapping.path or "").removesuffix(" (deleted)")


def _is_accessible(mapping: Mapping) -> bool:
    return mapping.permissions[:3] != "---"


def _is_file(mapping: Mapping) -> bool:
    return _path(mapping).startswith("/")


def _is_anonymous(mapping: Mapping) -> bool:
    """No file behind it, and not the heap: what a stack can live in ([stack], [anon:…] included)."""
    return not _is_file(mapping) and mapping.path != "[heap]"


def _name(mapping: Mapping | None) -> str:
    if mapping is None:
        return "an unknown mapping"
    if _is_file(mapping):
        return f"{_path(mapping)}{' (deleted)' * (mapping.path != _path(mapping))}"
    if mapping.path in ("[heap]", "[stack]"):
        return f"the {mapping.path.strip('[]')}"
    return f"a {_size(_end(mapping) - _start(mapping))} anonymous mapping"


def _size(size_bytes: int) -> str:
    for unit, step in (("GB", 10**9), ("MB", 10**6)):
        if size_bytes >= step:
            return f"{size_bytes / step:.1f} {unit}"
    return f"{size_bytes // 1024} KiB"
