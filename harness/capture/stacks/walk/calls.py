"""Whether a call can return to an address: the instruction before it must be a call.

What an unwinder took from the stack by mistake is mostly no such address. Reads code, follows nothing.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

_LONGEST_CALL = 7


def follows_call(read: Callable[[int, int], bytes], address: int, machine: str = os.uname().machine) -> bool | None:
    """Null: the code cannot be read, or is that of another machine."""
    if machine == "aarch64":
        code = read(address - 4, 4)
        return _is_arm_call(struct.unpack("<I", code)[0]) if len(code) == 4 else None
    if machine != "x86_64":
        return None
    code = read(address - _LONGEST_CALL, _LONGEST_CALL)
    return _ends_in_x86_call(code) if len(code) == _LONGEST_CALL else None


def _is_arm_call(instruction: int) -> bool:
    """BL, and BLR with or without an authenticated pointer."""
    return instruction >> 26 == 0x25 or instruction & 0xFEFFF000 == 0xD63F0000


def _ends_in_x86_call(code: bytes) -> bool:
    """E8 with its distance, or FF /2 with an operand that is as long; Intel SDM volume 2, "CALL" and table 2-2."""
    return code[-5] == 0xE8 or any(
        code[-length] == 0xFF and _indirect_length(code[-length + 1 :]) == length
        for length in range(2, _LONGEST_CALL + 1)
    )


def _indirect_length(operand: bytes) -> int | None:
    mode, operation, base = operand[0] >> 6, operand[0] >> 3 & 7, operand[0] & 7
    if operation != 2:
        return None
    if mode == 3:
        return 2
    scaled = base == 4
    if scaled:
        base = operand[1] & 7 if len(operand) > 1 else base
    return 2 + scaled + {0: 4 if base == 5 else 0, 1: 1, 2: 4}[mode]
