"""The fault itself, behind a handler that raised its signal once more: the frame the kernel built for that handler.

faulthandler, which harness turns on, does that: the core's own siginfo then says "sent by itself", with no address.
x86_64 only (arch/x86/include/asm/sigframe.h); elsewhere what the core says stays as it is.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from harness.capture.cores.file import CoreFile, SigInfo, read_siginfo
from harness.capture.files.formats.content import unpack
from harness.capture.stacks.frames import SIGRETURN

# struct rt_sigframe: address of the trampoline, ucontext (flags, link, stack, 23 registers, …), siginfo.
_GREGS, _SIGINFO, _FRAME = 8 + 40, 8 + 304, 8 + 304 + 128
_NAMES = [
    "r8",
    "r9",
    "r10",
    "r11",
    "r12",
    "r13",
    "r14",
    "r15",
    "rdi",
    "rsi",
    "rbp",
    "rbx",
    "rdx",
    "rax",
    "rcx",
    "rsp",
    "rip",
    "eflags",
    "csgsfs",
    "err",
    "trapno",
    "oldmask",
    "cr2",
]
# faulthandler's frames below it need 2 kB; a handler that prints and symbolises may need more.
_SEARCHED_BYTES = 256 * 1024
_USER_CODE_SEGMENT = 0x33
_SYSCALL = b"\x0f\x05"
_PAGE_FAULT, _PROTECTION = 14, 13
# asm-generic/siginfo.h; BUS_ADRERR and SEGV_ACCERR are the same number.
_SI_KERNEL, _MAPERR, _ADRERR_OR_ACCERR, _FPE_INTDIV, _ILL_ILLOPN, _SYS_SECCOMP = 0x80, 1, 2, 1, 2, 1


class Interrupted(NamedTuple):
    """What the crashed thread was doing when the signal arrived first."""

    siginfo: SigInfo
    registers: dict[str, int]


def find_interrupted(core: CoreFile) -> Interrupted | None:
    """The innermost frame of a handler of the very signal the process died of."""
    if core.machine != "x86_64":
        return None
    thread = core.crashed
    sp = core.sp_of(thread)
    memory = core.read(sp, _SEARCHED_BYTES)
    words = unpack(f"<{len(memory) // 8}Q", memory)
    trampolines: dict[int, bool] = {}
    for index, word in enumerate(words[: max(0, (len(memory) - _FRAME) // 8)]):
        if word < 4096:
            continue
        if word not in trampolines:
            trampolines[word] = core.read(word, 9) == SIGRETURN["x86_64"]
        if trampolines[word] and (found := _read_frame(core, memory, 8 * index, thread.signo)):
            return found
    return None


def _read_frame(core: CoreFile, memory: bytes, at: int, signo: int) -> Interrupted | None:
    registers = dict(zip(_NAMES, unpack("<23Q", memory, at + _GREGS), strict=True))
    if registers["csgsfs"] & 0xFFFF != _USER_CODE_SEGMENT:
        return None
    told = read_siginfo(memory[at + _SIGINFO : at + _FRAME])
    if told.signo == signo and -128 < told.code <= 0x80:
        return Interrupted(told, registers)
    deduced = _deduce(core, signo, registers)
    return Interrupted(deduced, registers) if deduced else None


def _deduce(core: CoreFile, signo: int, registers: dict[str, int]) -> SigInfo | None:
    """The kernel writes a siginfo only for a handler that asked for one (SA_SIGINFO); the trap it always writes.

    Right after a system call it was no trap: the signal was sent, and what the core says of it is true.
    """
    if signo == signal.SIGSYS:
        return SigInfo(signo, _SYS_SECCOMP, registers["rip"], 0)
    if core.read(registers["rip"] - 2, 2) == _SYSCALL:
        return core.siginfo
    trap = registers["trapno"]
    if trap == _PAGE_FAULT:
        refused = signo == signal.SIGBUS or registers["err"] & 1
        return SigInfo(signo, _ADRERR_OR_ACCERR if refused else _MAPERR, registers["cr2"], 0)
    if trap == _PROTECTION or signo == signal.SIGTRAP:
        return SigInfo(signo, _SI_KERNEL, 0, 0)
    code = {int(signal.SIGFPE): _FPE_INTDIV, int(signal.SIGILL): _ILL_ILLOPN}.get(signo)
    return SigInfo(signo, code, registers["rip"], 0) if code is not None else core.siginfo
