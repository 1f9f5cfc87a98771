"""Instructions as assemblers encode them (GNU as, LLVM), the extension of each, and what a CPU shows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.capture.machine.processor import read_cpu
from harness.diagnose.death.crash.address import describe_fault
from harness.diagnose.death.crash.instructions import decode
from harness.diagnose.death.judge import judge
from harness.evidence.crash import Cpu
from harness.evidence.run import Ending
from tests.builders.crashes import ILL, crash, native, thread
from tests.builders.evidence import run_evidence

X86 = {
    "ud2": ("0f0b", None),
    "ud1 eax": ("0fb9c0", None),
    "vaddps zmm": ("62f16c4858d9", "avx512f"),
    "vpaddd xmm17": ("62b16d08fed9", "avx512f"),
    "vmovdqu8 zmm": ("62f17f486fd1", "avx512f"),
    "vpdpbusd zmm": ("62f26d4850d9", "avx512_vnni"),
    "vdpbf16ps zmm": ("62f26e4852d9", "avx512_bf16"),
    "vaddph zmm": ("62f56c4858d9", "avx512_fp16"),
    "vpopcntd zmm": ("62f27d4855d1", "avx512_vpopcntdq"),
    "kmovq": ("c4e1fb93c1", "avx512f"),
    "kandw": ("c5ec41d9", "avx512f"),
    "vaddps ymm": ("c5ec58d9", "avx"),
    "vaddss xmm": ("c5ea58d9", "avx"),
    "vpaddd xmm": ("c5e9fed9", "avx"),
    "vpaddd ymm": ("c5edfed9", "avx2"),
    "vmovdqa ymm": ("c5fd6fd1", "avx"),
    "vmovntdq ymm": ("c5fde700", "avx"),
    "vpgatherdd xmm": ("c4e271901c10", "avx2"),
    "vpermq ymm": ("c4e3fd00d101", "avx2"),
    "vbroadcastss ymm": ("c4e27d1808", "avx"),
    "vpbroadcastd ymm": ("c4e27d58c8", "avx2"),
    "vfmadd231ps ymm": ("c4e26db8d9", "fma"),
    "vcvtph2ps": ("c4e27d13d1", "f16c"),
    "{vex} vpdpbusd ymm": ("c4e26d50d9", "avx_vnni"),
    "ldtilecfg": ("c4e2784900", "amx_tile"),
    "tdpbssd": ("c4e2735eda", "amx_int8"),
    "tdpbf16ps": ("c4e2725cda", "amx_bf16"),
    "andn": ("c4e260f2c8", "bmi1"),
    "pext": ("c4e262f5c8", "bmi2"),
    "rorx": ("c4e37bf0d803", "bmi2"),
    "vaesenc ymm": ("c4e26ddcd9", "vaes"),
    "vaesenc xmm": ("c4e269dcd9", "avx"),
    "vfmaddps (fma4)": ("c4e3e168e120", "fma4"),
    "vpcmov (xop)": ("8fe860a2e210", "xop"),
    "popcnt": ("f3480fb8d8", "popcnt"),
    "crc32": ("f20f38f0d8", "sse4_2"),
    "movbe": ("0f38f018", "movbe"),
    "pshufb": ("660f3800d1", "ssse3"),
    "ptest": ("660f3817d1", "sse4_1"),
    "pcmpestri": ("660f3a61d101", "sse4_2"),
    "extrq": ("660f78c10201", "sse4a"),
    "haddps": ("f20f7cd1", "pni"),
    "aesenc": ("660f38dcd1", "aes"),
    "sha256rnds2": ("0f38cbd1", "sha_ni"),
    "adcx": ("66480f38f6d8", "adx"),
    "rdseed": ("480fc7f8", "rdseed"),
}
ARM = {
    "udf #0": ("00000000", None),
    "add z0.s": ("2000a204", "sve"),
    "ld1w z0.s": ("00a040a5", "sve"),
    "fmopa za0.s": ("00208180", "sme"),
    "smstart": ("7f4703d5", "sme"),
    "ldadd": ("410020b8", "atomics"),
    "casal": ("41fce0c8", "atomics"),
    "sdot v0.4s": ("2094824e", "asimddp"),
    "bfdot v0.4s": ("20fc426e", "bf16"),
    "bfmmla v0.4s": ("20ec426e", "bf16"),
    "smmla v0.4s": ("20a4824e", "i8mm"),
    "aese": ("2048284e", "aes"),
}
# On every processor of the family, or too few bytes to tell.
PLAIN_X86 = ("4801c3", "0f28d1", "c604250000000000", "f30f1efa", "f390", "", "62f1", "c4e2", "0f", "66")
PLAIN_ARM = ("2000028b", "206862f8", "204822b8", "2068e23c", "207c5f88", "20fcdf88", "5f2403d5", "20d4224e", "20d0")
OLD = Cpu("AMD EPYC", ("sse2", "avx", "avx2"), is_virtual=False)
VIRTUAL = Cpu("AMD EPYC", ("sse2", "avx", "avx2", "hypervisor"), is_virtual=True)
NEW = Cpu("Intel", ("avx512f", "amx_tile"), is_virtual=False)


@pytest.mark.parametrize("name", X86)
def test_each_x86_instruction_is_placed_by_its_encoding(name: str) -> None:
    code, flag = X86[name]
    found = decode(bytes.fromhex(code) + bytes(6), "x86_64")
    assert found is not None and found.flag == flag


@pytest.mark.parametrize("name", ARM)
def test_each_arm_instruction_is_placed_by_its_encoding(name: str) -> None:
    code, flag = ARM[name]
    found = decode(bytes.fromhex(code), "aarch64")
    assert found is not None and found.flag == flag


@pytest.mark.parametrize(
    ("code", "machine"), [*((code, "x86_64") for code in PLAIN_X86), *((code, "aarch64") for code in PLAIN_ARM)]
)
def test_what_every_processor_has_is_not_placed(code: str, machine: str) -> None:
    assert decode(bytes.fromhex(code), machine) is None


def illegal(code: str | None, cpu: Cpu | None):
    seen = thread(100, native("kernel", "/job/.venv/lib/x.so", "0x7f00", "0x10"))
    return crash(seen, signo=ILL, si_code=2, registers={"rax": "0x0"}, code=code, cpu=cpu)


@pytest.mark.parametrize(
    ("code", "cpu", "words", "not_words"),
    [
        (
            "62f16c4858d9",
            OLD,
            "AVX-512 instruction (62 f1 6c 48 58 d9 …); this CPU (AMD EPYC) has no avx512f",
            "hypervisor",
        ),
        ("62f16c4858d9", VIRTUAL, "has no avx512f, or the hypervisor hides it", "so it belongs"),
        (
            "62f16c4858d9",
            NEW,
            "this CPU has avx512f, so it belongs to an extension that this CPU does not have",
            "has no",
        ),
        ("c4e27849c0", NEW, "ARCH_REQ_XCOMP_PERM", "has no"),
        ("62f16c4858d9", None, "which extensions that CPU has is not known", "has no"),
        ("0f0b", OLD, "ud2, made to trap on every processor", "has no"),
        ("4801c3", OLD, "or a trap the compiler put there", "has no"),
        (None, OLD, "or a trap the compiler put there", "has no"),
    ],
)
def test_what_the_cpu_shows_decides_what_is_said(code: str | None, cpu: Cpu | None, words: str, not_words: str) -> None:
    sentence = describe_fault(illegal(code, cpu)).sentence
    assert words in sentence and not_words not in sentence


def test_the_verdict_names_the_extension_and_the_way_out() -> None:
    died = illegal("62f16c4858d9", VIRTUAL)
    verdict = judge(run_evidence("", Ending(signo=ILL), crashes=(died,))).verdict
    assert verdict.kind == "illegal-instruction" and "has no avx512f" in verdict.headline
    assert "avx512f" in verdict.remedies[0].do and "-cpu host" in verdict.remedies[0].do
    trap = judge(run_evidence("", Ending(signo=ILL), crashes=(illegal("0f0b", VIRTUAL),))).verdict
    assert "ud2" in trap.headline and "cpuinfo" not in trap.remedies[0].do


def test_a_sent_signal_has_no_instruction() -> None:
    sent = crash(thread(100), signo=ILL, si_code=0, registers={"rax": "0x0"}, code="62f16c4858d9", cpu=OLD)
    verdict = judge(run_evidence("", Ending(signo=ILL), crashes=(sent,))).verdict
    assert verdict.kind == "illegal-instruction" and "AVX" not in verdict.headline


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nmodel name\t: X 9\nflags\t\t: fpu hypervisor avx\n\nprocessor: 1\n", ("X 9", "avx", True)),
        ("processor\t: 0\nFeatures\t: fp asimd sve\n\n", (None, "sve", None)),
    ],
)
def test_the_processor_is_read_from_cpuinfo(
    text: str, expected: tuple[str | None, str, bool | None], tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    cpu = read_cpu(tmp_path)
    assert cpu is not None and (cpu.model, cpu.flags[-1], cpu.is_virtual) == expected
    assert read_cpu(tmp_path / "absent") is None
