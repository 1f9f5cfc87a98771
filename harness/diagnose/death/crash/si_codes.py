"""What the kernel's si_code says about a signal: its name, and in words what happened.

Numbers are Linux's (asm-generic/siginfo.h), which x86_64 and aarch64 share, and two of our own for what macOS says
otherwise (native/harness.h). Does not look at addresses.
"""

from __future__ import annotations

from typing import NamedTuple

from harness.evidence.run import name_signal

SI_USER, SI_QUEUE, SI_TKILL, SI_KERNEL = 0, -1, -6, 0x80
UNTOLD, REFUSED = 256, 257


class Code(NamedTuple):
    name: str
    meaning: str


# Codes that any signal may carry. A negative one, and SI_USER, means that a process sent it: no fault, no address.
_ANY = {
    SI_USER: Code("SI_USER", "sent with kill()"),
    SI_QUEUE: Code("SI_QUEUE", "sent with sigqueue()"),
    -2: Code("SI_TIMER", "sent by a timer"),
    -3: Code("SI_MESGQ", "sent by a message queue"),
    -4: Code("SI_ASYNCIO", "sent by asynchronous I/O"),
    -5: Code("SI_SIGIO", "sent by queued SIGIO"),
    SI_TKILL: Code("SI_TKILL", "sent with tgkill() (abort, raise)"),
    SI_KERNEL: Code("SI_KERNEL", "raised by the kernel without a reason code"),
    UNTOLD: Code("no si_code", "macOS does not say why"),
}
_BY_SIGNAL: dict[str, dict[int, Code]] = {
    "SIGSEGV": {
        1: Code("SEGV_MAPERR", "nothing is mapped there"),
        2: Code("SEGV_ACCERR", "the mapping does not allow it"),
        3: Code("SEGV_BNDERR", "a bounds check failed"),
        4: Code("SEGV_PKUERR", "a memory protection key does not allow it"),
        8: Code("SEGV_MTEAERR", "a memory tag did not match (noticed later)"),
        9: Code("SEGV_MTESERR", "a memory tag did not match"),
        10: Code("SEGV_CPERR", "the shadow stack did not match"),
    },
    "SIGBUS": {
        1: Code("BUS_ADRALN", "the address is not aligned"),
        2: Code("BUS_ADRERR", "no memory behind the mapping"),
        3: Code("BUS_OBJERR", "hardware error"),
        4: Code("BUS_MCEERR_AR", "the hardware reports damaged memory"),
        5: Code("BUS_MCEERR_AO", "the hardware reports damaged memory"),
        REFUSED: Code("KERN_PROTECTION_FAILURE", "the mapping does not allow it"),
    },
    "SIGFPE": {
        1: Code("FPE_INTDIV", "integer division by zero (or the lowest number by -1)"),
        2: Code("FPE_INTOVF", "integer overflow"),
        3: Code("FPE_FLTDIV", "floating-point division by zero"),
        4: Code("FPE_FLTOVF", "floating-point overflow"),
        5: Code("FPE_FLTUND", "floating-point underflow"),
        6: Code("FPE_FLTRES", "inexact floating-point result"),
        7: Code("FPE_FLTINV", "invalid floating-point operation"),
        8: Code("FPE_FLTSUB", "subscript out of range"),
        14: Code("FPE_FLTUNK", "floating-point fault"),
    },
    "SIGILL": {
        1: Code("ILL_ILLOPC", "an instruction this CPU does not have"),
        2: Code("ILL_ILLOPN", "an instruction this CPU does not have, or a trap the compiler put there"),
        3: Code("ILL_ILLADR", "illegal addressing mode"),
        4: Code("ILL_ILLTRP", "illegal trap"),
        5: Code("ILL_PRVOPC", "a privileged instruction"),
        6: Code("ILL_PRVREG", "a privileged register"),
        7: Code("ILL_COPROC", "coprocessor error"),
        8: Code("ILL_BADSTK", "internal stack error"),
        9: Code("ILL_BADIADDR", "unimplemented instruction address"),
    },
    "SIGTRAP": {
        1: Code("TRAP_BRKPT", "a breakpoint instruction"),
        2: Code("TRAP_TRACE", "a single-step trap"),
        3: Code("TRAP_BRANCH", "a branch trap"),
        4: Code("TRAP_HWBKPT", "a hardware breakpoint or watchpoint"),
        5: Code("TRAP_UNK", "a trap"),
        6: Code("TRAP_PERF", "a perf event"),
        # int3 on x86: the kernel gives it no code of its own.
        SI_KERNEL: Code("SI_KERNEL", "a breakpoint instruction"),
    },
    "SIGSYS": {
        1: Code("SYS_SECCOMP", "refused by a seccomp filter"),
        2: Code("SYS_USER_DISPATCH", "caught by syscall user dispatch"),
    },
}


def name_si_code(signo: int, code: int) -> str:
    """`SEGV_MAPERR`, `SI_TKILL`, …; the number where it has no name."""
    found = _find(signo, code)
    return found.name if found else f"si_code {code}"


def explain_si_code(signo: int, code: int) -> str | None:
    found = _find(signo, code)
    return found.meaning if found else None


def is_sent(code: int) -> bool:
    """A process sent it: there was no fault, and si_addr is not an address."""
    return code <= 0


def _find(signo: int, code: int) -> Code | None:
    return _BY_SIGNAL.get(name_signal(signo), {}).get(code) or _ANY.get(code)
