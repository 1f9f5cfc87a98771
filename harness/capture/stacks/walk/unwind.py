"""The innermost native frames of one thread, followed by the images' own frame tables; no tool, and no end of time.

For the stacks on which tools break down or never end: an endless recursion. Every step is checked (the stack only
grows towards its base, a call returns where we arrive); where that fails the walk ends, and nothing is guessed. At the
trampoline of a signal's handler it goes on where the signal came, by the registers that the kernel has put there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

from harness.capture.files.formats.cfi import FrameTable, Rules
from harness.capture.files.images import Row
from harness.capture.stacks.frames import Places
from harness.capture.stacks.walk.calls import follows_call

# As DWARF numbers them; System V psABI for each. Only what a callee has to keep for its caller, sp and the return.
_NUMBERS = {
    "x86_64": {"rbx": 3, "rbp": 6, "rsp": 7, **{f"r{number}": number for number in range(12, 16)}, "rip": 16},
    "aarch64": {**{f"x{number}": number for number in range(19, 31)}, "sp": 31, "pc": 32},
}
_STACK_POINTER = {"x86_64": 7, "aarch64": 31}
_PC = {"x86_64": "rip", "aarch64": "pc"}
_LINK = 30
_PAGE = 4096
_GENERAL = ("rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx")
# Where a handler's caller finds the registers of what was interrupted, from its stack pointer on: arch/x86 and
# arch/arm64, struct rt_sigframe and struct sigcontext. In this order, eight bytes each.
_INTERRUPTED = {
    "x86_64": (40, [*(f"r{number}" for number in range(8, 16)), *_GENERAL, "rsp", "rip"]),
    "aarch64": (128 + 176 + 8, [*(f"x{number}" for number in range(31)), "sp", "pc"]),
}


class Walk(NamedTuple):
    """Addresses of the frames, innermost first: the program counter, then return addresses.

    `deep`: there are more. `broken`: the last frame's own table leads to no caller: the stack is not that function's.
    `whole`: the last frame's own table says that nobody has called it: where a thread begins.
    """

    addresses: tuple[int, ...]
    deep: bool = False
    broken: bool = False
    whole: bool = False


class Memory(NamedTuple):
    """Of one process: its bytes, what is loaded where, and the mappings that can be executed."""

    read: Callable[[int, int], bytes]
    places: Places
    code: tuple[tuple[int, int], ...]

    def is_code(self, address: int) -> bool:
        return any(start <= address < end for start, end in self.code)


def list_code(rows: list[Row]) -> tuple[tuple[int, int], ...]:
    return tuple((row.start, row.end) for row in rows if "x" in row.permissions)


def walk_stack(registers: Mapping[str, int], memory: Memory, machine: str, most: int) -> Walk:
    return Walker(memory, machine).walk(registers, most)


def name_registers(machine: str, stack: int, pc: int) -> dict[str, int]:
    """The two that /proc tells of a thread that sleeps."""
    return {"rsp" if machine == "x86_64" else "sp": stack, _PC[machine]: pc}


def read_by_page(read: Callable[[int, int], bytes]) -> Callable[[int, int], bytes]:
    """The same memory is asked for again and again: a recursion has few functions and one stack."""
    pages: dict[int, bytes] = {}

    def page(number: int) -> bytes:
        if number not in pages:
            pages[number] = read(number * _PAGE, _PAGE)
        return pages[number]

    def read_some(address: int, size: int) -> bytes:
        if address < 0:
            return b""
        first, last = address // _PAGE, (address + size - 1) // _PAGE
        data = page(first) if first == last else b"".join(map(page, range(first, last + 1)))
        return data[address - first * _PAGE :][:size]

    return read_some


class Walker:
    """Of one process: what it has read of code and frame tables holds for all threads."""

    def __init__(self, memory: Memory, machine: str) -> None:
        self._memory, self._read, self._machine = memory, read_by_page(memory.read), machine
        self._tables: dict[int, FrameTable | None] = {}
        self._rules: dict[int, Rules | None] = {}
        self._stack: tuple[int, bytes] | None = None
        self._broken = self._whole = False

    def walk(self, registers: Mapping[str, int], most: int, stack: tuple[int, bytes] | None = None) -> Walk:
        """`stack`: its start and a copy of it, of a thread that has gone on since; what is not in it is not looked at.

        Of registers any may be missing: the walk ends where one of them would be needed.
        """
        if self._machine not in _NUMBERS or _PC[self._machine] not in registers:
            return Walk(())
        self._stack, self._broken, self._whole = stack, False, False
        known = {number: registers[name] for name, number in _NUMBERS[self._machine].items() if name in registers}
        addresses, innermost = [registers[_PC[self._machine]]], True
        while len(addresses) < most:
            step = self._step(addresses[-1], known, innermost)
            if step is None:
                return Walk(tuple(addresses), broken=self._broken, whole=self._whole)
            innermost = not innermost and self._memory.places.holds_trampoline(addresses[-1])
            address, known = step
            addresses.append(address)
        return Walk(tuple(addresses), deep=True)

    def _step(self, pc: int, known: dict[int, int], innermost: bool) -> tuple[int, dict[int, int]] | None:
        """The caller: where it goes on, and its registers. Null: it cannot be told for certain."""
        if not innermost and self._memory.places.holds_trampoline(pc):
            return self._step_out_of_handler(known)
        rules = self._find_rules(pc if innermost else pc - 1)
        if rules is None:
            return self._step_from_nowhere(pc, known) if innermost else None
        stack = _STACK_POINTER[self._machine]
        if rules.register not in known or stack not in known:
            return None
        frame = known[rules.register] + rules.offset
        caller = self._restore(known, rules, frame)
        address = caller.pop(rules.returns_by, None) if rules.returns_by in rules.saved or innermost else None
        # Only the innermost frame may share its stack pointer with its caller: it has not called anybody.
        if address is None or frame < known[stack] + (0 if innermost else 8) or not self._is_return(address):
            self._broken = bool(address)  # at the base of a thread nothing is saved, or a zero
            self._whole = address == 0 or rules.saved.get(rules.returns_by, 0) is None
            return None
        return address, {**caller, stack: frame}

    def _step_out_of_handler(self, known: dict[int, int]) -> tuple[int, dict[int, int]] | None:
        """What the signal has interrupted, whose stack may be another."""
        offset, names = _INTERRUPTED[self._machine]
        data = self._read_stack(known[_STACK_POINTER[self._machine]] + offset, 8 * len(names))
        if len(data) < 8 * len(names):
            return None
        saved = dict(zip(names, struct.unpack(f"<{len(names)}Q", data), strict=True))
        pc = saved[_PC[self._machine]]
        restored = {number: saved[name] for name, number in _NUMBERS[self._machine].items()}
        return (pc, restored) if self._memory.is_code(pc) else None

    def _restore(self, known: dict[int, int], rules: Rules, frame: int) -> dict[int, int]:
        caller = dict(known)
        for register, offset in rules.saved.items():
            value = self._word(frame + offset) if offset is not None else None
            if value is None:
                caller.pop(register, None)
            else:
                caller[register] = value
        return caller

    def _step_from_nowhere(self, pc: int, known: dict[int, int]) -> tuple[int, dict[int, int]] | None:
        """After a call to where no code is, nothing has happened since: the return address is where the call put it."""
        stack = _STACK_POINTER[self._machine]
        if self._memory.is_code(pc) or stack not in known:
            return None
        if self._machine == "aarch64":
            address, top = known.get(_LINK), known[stack]
        else:
            address, top = self._word(known[stack]), known[stack] + 8
        return (address, {**known, stack: top}) if address and self._is_return(address) else None

    def _is_return(self, address: int) -> bool:
        """A call leads back there, or it is where a signal's handler returns to."""
        if not self._memory.is_code(address):
            return False
        return follows_call(self._read, address, self._machine) is True or self._memory.places.holds_trampoline(address)

    def _word(self, address: int) -> int | None:
        data = self._read_stack(address, 8)
        return struct.unpack("<Q", data)[0] if len(data) == 8 else None

    def _read_stack(self, address: int, size: int) -> bytes:
        if self._stack is None:
            return self._read(address, size)
        start, copy = self._stack
        return copy[address - start : address - start + size] if address >= start else b""

    def _find_rules(self, address: int) -> Rules | None:
        if address not in self._rules:
            table = self._find_table(address)
            self._rules[address] = table.find(address) if table else None
        return self._rules[address]

    def _find_table(self, address: int) -> FrameTable | None:
        image = self._memory.places.find(address)
        if image is None:
            return None
        base = int(image.base, 16)
        if base not in self._tables:
            try:
                self._tables[base] = FrameTable(self._read, base, int(image.end, 16) - base)
            except (ValueError, struct.error):
                self._tables[base] = None
        return self._tables[base]
