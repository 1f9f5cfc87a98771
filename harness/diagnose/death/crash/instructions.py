"""Which extension of the processor an instruction belongs to, and whether that processor has it. From its bytes alone.

Knows the encodings, not every instruction: what it cannot place it does not name. x86_64 (Intel SDM volume 2, AMD APM
volume 3) and aarch64 (Arm ARM, C4.1). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from harness.evidence.crash import Cpu, Crash

_BYTES_SHOWN = 6


class Instruction(NamedTuple):
    """`flag`: the word of /proc/cpuinfo that stands for its extension; null: it is made to trap on every processor."""

    name: str
    flag: str | None


class Told(NamedTuple):
    """`missing`: the flag that the processor does not show; null: it has it, or nobody knows."""

    words: str
    instruction: Instruction
    missing: str | None = None
    is_virtual: bool = False


class _Row(NamedTuple):
    """Opcodes of one map (1: 0F, 2: 0F38, 3: 0F3A), with one of the prefixes `pp` (0 none, 1: 66, 2: F3, 3: F2)."""

    map: int
    opcodes: Iterable[int]
    extension: Instruction
    pp: Iterable[int] = range(4)
    wide: bool | None = None  # 256 bits


def _span(*bounds: int) -> frozenset[int]:
    """From each first to each last."""
    return frozenset(
        code for first, last in zip(bounds[::2], bounds[1::2], strict=True) for code in range(first, last + 1)
    )


_TRAPS = {0x0B: Instruction("ud2", None), 0xB9: Instruction("ud1", None), 0xFF: Instruction("ud0", None)}
_SSE3, _SSSE3 = Instruction("SSE3", "pni"), Instruction("SSSE3", "ssse3")
_SSE41, _SSE42, _SSE4A = Instruction("SSE4.1", "sse4_1"), Instruction("SSE4.2", "sse4_2"), Instruction("SSE4a", "sse4a")
_AES, _SHA, _CLMUL = Instruction("AES", "aes"), Instruction("SHA", "sha_ni"), Instruction("PCLMULQDQ", "pclmulqdq")
_GFNI, _ADX, _MOVBE = Instruction("GFNI", "gfni"), Instruction("ADX", "adx"), Instruction("MOVBE", "movbe")
_LEGACY = (
    _Row(1, {0x0F}, Instruction("3DNow!", "3dnow")),
    _Row(1, _span(0x78, 0x79), _SSE4A, (1, 3)),
    _Row(1, {0x2B}, _SSE4A, (2, 3)),
    _Row(1, {0x7C, 0x7D, 0xD0}, _SSE3, (1, 3)),
    _Row(1, {0x12, 0x16}, _SSE3, (2,)),
    _Row(1, {0x12, 0xF0}, _SSE3, (3,)),
    _Row(1, {0xB8}, Instruction("POPCNT", "popcnt"), (2,)),
    _Row(2, _span(0x00, 0x0B, 0x1C, 0x1E), _SSSE3),
    _Row(2, _span(0xC8, 0xCD), _SHA, (0,)),
    _Row(2, {0xCF}, _GFNI, (1,)),
    _Row(2, _span(0xDB, 0xDF), _AES, (1,)),
    _Row(2, {0x37}, _SSE42, (1,)),
    _Row(2, {0xF0, 0xF1}, _SSE42, (3,)),
    _Row(2, {0xF0, 0xF1}, _MOVBE, (0, 1)),
    _Row(2, {0xF6}, _ADX, (1, 2)),
    _Row(2, _span(0x10, 0x41), _SSE41, (1,)),
    _Row(3, {0x0F}, _SSSE3),
    _Row(3, {0x44}, _CLMUL, (1,)),
    _Row(3, {0xCC}, _SHA, (0,)),
    _Row(3, {0xCE, 0xCF}, _GFNI, (1,)),
    _Row(3, {0xDF}, _AES, (1,)),
    _Row(3, _span(0x60, 0x63), _SSE42, (1,)),
    _Row(3, _span(0x08, 0x42), _SSE41, (1,)),
)
_AVX, _AVX2, _AVX512 = Instruction("AVX", "avx"), Instruction("AVX2", "avx2"), Instruction("AVX-512", "avx512f")
_BMI1, _BMI2, _FMA = Instruction("BMI1", "bmi1"), Instruction("BMI2", "bmi2"), Instruction("FMA", "fma")
_VEX = (
    _Row(1, _span(0x41, 0x42, 0x44, 0x47, 0x4A, 0x4B, 0x90, 0x93, 0x98, 0x99), _AVX512),  # masks
    _Row(3, _span(0x30, 0x33), _AVX512),
    _Row(2, {0x49, 0x4B}, Instruction("AMX", "amx_tile")),
    _Row(2, {0x5C}, Instruction("AMX (bfloat16)", "amx_bf16"), (2,)),
    _Row(2, {0x5C}, Instruction("AMX (float16)", "amx_fp16"), (3,)),
    _Row(2, {0x5E}, Instruction("AMX (int8)", "amx_int8")),
    _Row(2, _span(0x50, 0x53), Instruction("AVX-VNNI", "avx_vnni"), (1,)),
    _Row(2, {0xF2, 0xF3}, _BMI1, (0,)),
    _Row(2, {0xF7}, _BMI1, (0,)),
    _Row(2, {0xF5, 0xF6, 0xF7}, _BMI2),
    _Row(3, {0xF0}, _BMI2, (3,)),
    _Row(2, _span(0x96, 0x9F, 0xA6, 0xAF, 0xB6, 0xBF), _FMA, (1,)),
    _Row(3, _span(0x5C, 0x5F, 0x68, 0x6F, 0x78, 0x7F), Instruction("FMA4", "fma4"), (1,)),
    _Row(2, {0x13}, Instruction("F16C", "f16c"), (1,)),
    _Row(3, {0x1D}, Instruction("F16C", "f16c"), (1,)),
    _Row(2, _span(0xDC, 0xDF), Instruction("VAES", "vaes"), (1,), wide=True),
    _Row(3, {0x44}, Instruction("VPCLMULQDQ", "vpclmulqdq"), (1,), wide=True),
    _Row(2, {0xCF}, _GFNI, (1,)),
    _Row(3, {0xCE, 0xCF}, _GFNI, (1,)),
    _Row(
        2, _span(0x16, 0x16, 0x36, 0x36, 0x45, 0x47, 0x58, 0x5A, 0x78, 0x79, 0x8C, 0x8C, 0x8E, 0x8E, 0x90, 0x93), _AVX2
    ),
    _Row(3, _span(0x00, 0x02, 0x38, 0x39, 0x46, 0x46), _AVX2),
    _Row(
        1, _span(0x60, 0x6D, 0x70, 0x76, 0xD1, 0xD5, 0xD7, 0xE5, 0xE8, 0xEF, 0xF1, 0xF6, 0xF8, 0xFE), _AVX2, wide=True
    ),
    _Row(2, _span(0x00, 0x0B, 0x1C, 0x1E, 0x20, 0x25, 0x28, 0x2B, 0x30, 0x40), _AVX2, wide=True),
    _Row(3, _span(0x0E, 0x0F, 0x42, 0x42, 0x4C, 0x4C), _AVX2, wide=True),
)
_VBMI2 = Instruction("AVX-512 VBMI2", "avx512_vbmi2")
_EVEX = (
    _Row(2, {0x52, 0x72}, Instruction("AVX-512 bfloat16", "avx512_bf16"), (2, 3)),
    _Row(2, _span(0x50, 0x53), Instruction("AVX-512 VNNI", "avx512_vnni"), (1,)),
    _Row(2, {0xB4, 0xB5}, Instruction("AVX-512 IFMA", "avx512ifma")),
    _Row(2, {0x54, 0x8F}, Instruction("AVX-512 BITALG", "avx512_bitalg")),
    _Row(2, {0x55}, Instruction("AVX-512 VPOPCNTDQ", "avx512_vpopcntdq")),
    _Row(2, _span(0x62, 0x63, 0x70, 0x73), _VBMI2, (1,)),
    _Row(3, _span(0x70, 0x73), _VBMI2, (1,)),
    _Row(4, range(256), Instruction("APX", "apx")),
    *(_Row(map, range(256), Instruction("AVX-512 float16", "avx512_fp16")) for map in (5, 6)),
    _Row(2, {0xDC, 0xDD, 0xDE, 0xDF}, Instruction("VAES", "vaes"), (1,)),
    _Row(3, {0x44}, Instruction("VPCLMULQDQ", "vpclmulqdq"), (1,)),
    _Row(2, {0xCF}, _GFNI),
    _Row(3, {0xCE, 0xCF}, _GFNI),
)
_OPERAND, _REPEATS = 0x66, {0xF3: 2, 0xF2: 3}
_PREFIXES = {0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x67, 0xF0}


def decode(code: bytes, machine: str) -> Instruction | None:
    """Null: an instruction that every processor has, one that is not known here, or too few bytes to tell."""
    try:
        return _decode_x86(code) if machine == "x86_64" else _decode_arm(code)
    except IndexError:
        return None


def _decode_x86(code: bytes) -> Instruction | None:
    at, pp = 0, 0
    while code[at] in _PREFIXES or code[at] in _REPEATS or code[at] == _OPERAND:
        pp = _REPEATS.get(code[at], pp or int(code[at] == _OPERAND))
        at += 1
    if code[at] == 0x62:
        return _find(_EVEX, code[at + 1] & 7, code[at + 4], code[at + 2] & 3, wide=None) or _AVX512
    if code[at] == 0xC5:
        return _find(_VEX, 1, code[at + 2], code[at + 1] & 3, wide=bool(code[at + 1] & 4)) or _AVX
    if code[at] == 0xC4:
        vector = code[at + 2]
        return _find(_VEX, code[at + 1] & 31, code[at + 3], vector & 3, wide=bool(vector & 4)) or _AVX
    if code[at] == 0x8F and code[at + 1] & 31 >= 8:
        return Instruction("XOP", "xop")
    if code[at] == 0xD5:
        return Instruction("APX", "apx")
    at += 0x40 <= code[at] <= 0x4F
    return _decode_legacy(code[at:], pp)


def _decode_legacy(code: bytes, pp: int) -> Instruction | None:
    if code[0] != 0x0F:
        return None
    if code[1] in (0x38, 0x3A):
        return _find(_LEGACY, 2 if code[1] == 0x38 else 3, code[2], pp, wide=None)
    if code[1] == 0xC7 and code[2] >> 6 == 3:
        return {6: Instruction("RDRAND", "rdrand"), 7: Instruction("RDSEED", "rdseed")}.get(code[2] >> 3 & 7)
    return _TRAPS.get(code[1]) or _find(_LEGACY, 1, code[1], pp, wide=None)


def _find(rows: tuple[_Row, ...], map: int, opcode: int, pp: int, *, wide: bool | None) -> Instruction | None:
    return next(
        (
            row.extension
            for row in rows
            if row.map == map and opcode in row.opcodes and pp in row.pp and row.wide in (None, wide)
        ),
        None,
    )


# (mask, value) of the 32-bit word.
_ARM = (
    (0xFFFF0000, 0x00000000, Instruction("udf", None)),
    (0x9E000000, 0x80000000, Instruction("SME", "sme")),
    (0xFFFFF0FF, 0xD503407F, Instruction("SME", "sme")),
    (0x1E000000, 0x04000000, Instruction("SVE", "sve")),
    (0x3F200C00, 0x38200000, Instruction("LSE (atomic memory)", "atomics")),
    (0x3FA07C00, 0x08A07C00, Instruction("LSE (atomic memory)", "atomics")),
    (0xBF20EC00, 0x2E00EC00, Instruction("BF16", "bf16")),
    (0x9F20FC00, 0x0E009400, Instruction("dot product", "asimddp")),
    (0xBF20F400, 0x0E00A400, Instruction("I8MM", "i8mm")),
    (0xFFFE0C00, 0x4E280800, Instruction("AES", "aes")),
)


def _decode_arm(code: bytes) -> Instruction | None:
    if len(code) < 4:
        return None
    word = int.from_bytes(code[:4], "little")
    return next((extension for mask, value, extension in _ARM if word & mask == value), None)


def explain_instruction(crash: Crash) -> Told | None:
    """What a processor refused to run; null where the bytes were not kept or are not known here."""
    code = bytes.fromhex(crash.code or "")
    found = decode(code, "x86_64" if "rax" in crash.registers else "aarch64") if code else None
    if found is None:
        return None
    shown = f"{code[:_BYTES_SHOWN].hex(' ')} …"
    if found.flag is None:
        why = "made to trap on every processor (unreachable code, __builtin_trap, a failed check)"
        return Told(f"{found.name}, {why}", found)
    name = f"{_article(found.name)} {found.name} instruction ({shown})"
    return _compare(name, found, found.flag, crash.cpu)


def _compare(name: str, found: Instruction, flag: str, cpu: Cpu | None) -> Told:
    if cpu is None or not cpu.flags:
        return Told(f"{name}; which extensions that CPU has is not known", found)
    model = f" ({cpu.model})" if cpu.model else ""
    if flag not in cpu.flags:
        hides = ", or the hypervisor hides it" if cpu.is_virtual else ""
        return Told(f"{name}; this CPU{model} has no {flag}{hides}", found, flag, bool(cpu.is_virtual))
    if flag.startswith("amx"):
        permission = "its tiles need a permission that nobody asked for (arch_prctl ARCH_REQ_XCOMP_PERM)"
        return Told(f"{name}; this CPU has {flag}, but {permission} or another extension of it is missing", found)
    more = ", so it belongs to an extension that this CPU does not have, or its operands are not valid"
    return Told(f"{name}; this CPU has {flag}{more}", found)


def _article(name: str) -> str:
    return "an" if name[0] in "AEFILMRSX" and not name.startswith(("BMI", "SHA")) else "a"
