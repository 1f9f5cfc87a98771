"""Which frames can be believed: what a call returns to, what a deep stack keeps, where an unwinder began to guess."""

from __future__ import annotations

import pytest

from harness.capture.stacks.frames import EngineThread, NativeFrame, Places, fold, merge_frames
from harness.capture.stacks.walk.calls import follows_call
from harness.capture.stacks.walk.chain import mark_guessed
from harness.capture.stacks.walk.unwind import Memory, Walk, walk_stack
from harness.evidence.crash import CrashFrame, Image
from tests.builders.crashes import native, python

NOP = "90" * 7


def returns(code: str, machine: str = "x86_64") -> bool | None:
    data = bytes.fromhex(code)
    return follows_call(lambda address, size: data[-size:] if address > 0 else b"", 0x1000, machine)


@pytest.mark.parametrize(
    "call",
    [
        "e800000000",  # call near
        "ffd0",  # call *%rax
        "41ffd2",  # call *%r10
        "ff10",  # call *(%rax)
        "ff5018",  # call *0x18(%rax)
        "ff90a8000000",  # call *0xa8(%rax)
        "ff1512345678",  # call *0x78563412(%rip)
        "ff14c8",  # call *(%rax,%rcx,8)
        "ff542408",  # call *8(%rsp)
        "ff942488000000",  # call *0x88(%rsp)
        "ff14c500000000",  # call *0(,%rax,8)
    ],
)
def test_every_call_of_x86_64_is_known(call: str) -> None:
    assert returns(NOP + call) is True


@pytest.mark.parametrize("other", ["c3", "ffe0", "ff20", "e9000000", "ff742408", "48c7c00f0000000f05"[-14:]])
def test_jumps_pushes_and_returns_are_no_calls(other: str) -> None:
    assert returns(NOP + other) is False


def test_calls_of_aarch64_and_code_that_cannot_be_read() -> None:
    assert returns("00000094", "aarch64") is True  # bl
    assert returns("00003fd6", "aarch64") is True  # blr x0
    assert returns("1f083fd7", "aarch64") is True  # blraa x0, sp
    assert returns("00001fd6", "aarch64") is False  # br x0
    assert returns("c0035fd6", "aarch64") is False  # ret
    assert follows_call(lambda address, size: b"", 0x1000, "x86_64") is None
    assert returns(NOP + "ffd0", "riscv64") is None


CODE = {0x1000: True, 0x1100: True, 0x1200: False, 0x1300: True}


def read_code(address: int, size: int) -> bytes:
    return (b"\x90" * 5 + (b"\xff\xd0" if CODE.get(address + size) else b"\x90\x90"))[-size:]


MEMORY = Memory(read_code, Places([]), ((0x1000, 0x2000),))
NO_WALK = Walk(())


def marks(*addresses: int, walk: Walk = NO_WALK) -> list[bool]:
    frames = tuple(native("f", "/x.so", hex(address)) for address in addresses)
    return [frame.guessed for frame in mark_guessed(frames, walk, MEMORY)]


def test_from_the_first_frame_on_that_no_call_returns_to_all_are_guessed() -> None:
    assert marks(0x1050, 0x1000, 0x1100) == [False] * 3  # the program counter follows no call
    assert marks(0x1050, 0x1000, 0x1200, 0x1300) == [False, False, True, True]
    assert marks(0x1050, 0x7000, 0x1100) == [False, True, True]  # data


def test_inlined_frames_and_what_a_signal_interrupted_are_no_return_addresses() -> None:
    assert marks(0x1050, 0x1050, 0x1100) == [False] * 3
    frames = (
        native("h", "/x.so", "0x1050"),
        native("__restore_rt", "/libc.so.6", "0x1080"),
        native("f", "/x.so", "0x1090"),
    )
    assert not any(frame.guessed for frame in mark_guessed(frames, NO_WALK, MEMORY))


def test_what_the_frame_tables_lead_to_is_believed_and_where_they_break_off_nothing_is() -> None:
    assert marks(0x1050, 0x1200, 0x1300, walk=Walk((0x1050, 0x1300))) == [False] * 3  # gdb shows a tail call
    assert marks(0x1050, 0x1000, 0x1100, walk=Walk((0x1050, 0x1000), broken=True)) == [False, False, True]


def test_python_frames_are_read_from_the_interpreter_and_never_guessed() -> None:
    frames = (native("f", "/x.so", "0x1050"), native("g", "/x.so", "0x1200"), python("step", "train.py", 3))
    assert [frame.guessed for frame in mark_guessed(frames, NO_WALK, MEMORY)] == [False, True, False]


def test_a_walk_needs_registers_and_a_machine_that_is_known() -> None:
    assert walk_stack({}, MEMORY, "x86_64", 100) == Walk(())
    assert walk_stack({"rip": 0x1050}, MEMORY, "riscv64", 100) == Walk(())
    assert walk_stack({"rip": 0x1050, "rsp": 0x5000}, MEMORY, "x86_64", 100) == Walk((0x1050,))  # code without a table


def test_a_jump_to_nowhere_was_a_call_and_its_caller_is_on_top_of_the_stack() -> None:
    def read(address: int, size: int) -> bytes:
        page = bytearray(4096)
        if address == 0x5000:
            page[:8] = (0x1100).to_bytes(8, "little")
        if address == 0x1000:
            page[0xFE:0x100] = b"\xff\xd0"
        return bytes(page[:size])

    memory = Memory(read, Places([]), ((0x1000, 0x2000),))
    assert walk_stack({"rip": 0x10, "rsp": 0x5000}, memory, "x86_64", 100).addresses == (0x10, 0x1100)
    assert walk_stack({"rip": 0x10, "rsp": 0x6000}, memory, "x86_64", 100).addresses == (0x10,)


def deep(count: int, *at: int) -> tuple[CrashFrame, ...]:
    return tuple(python("f", "t.py", n) if n in at else native(f"f{n}", "/x.so") for n in range(count))


def test_a_deep_stack_keeps_both_ends_and_where_python_comes_in() -> None:
    kept = fold(deep(60000, 30000, 59990))
    assert len(kept) < 300
    assert len(kept) + sum(frame.omitted for frame in kept) == 60000
    assert [frame.function for frame in kept if frame.kind == "python"] == ["f", "f"]
    assert (kept[0].function, kept[-1].function) == ("f0", "f59999")


def test_an_ordinary_stack_is_kept_as_it_is() -> None:
    assert fold(deep(270)) == deep(270)


def test_a_tools_name_for_an_address_in_no_image_is_its_neighbours() -> None:
    """elfutils tells the module below: for code that was compiled at run time that is any library."""
    images = [Image("/lib/libdl.so.2", "0x1000", "0x2000")]
    told = (NativeFrame(0x2800, "dlopen", "???", 0, "libdl.so.2"), NativeFrame(0x1800, "dlsym", "???", 0, "libdl.so.2"))
    (inner, outer), _ = merge_frames(EngineThread(1, None, told, ()), Places(images))
    assert (outer.image, outer.function) == (None, None)
    assert (inner.image, inner.function) == ("/lib/libdl.so.2", "dlsym")
    kernel = NativeFrame(0x9000, "__vdso_clock_gettime", "???", 0, "[vdso]")
    assert merge_frames(EngineThread(1, None, (kernel,), ()), Places(images))[0][0].image == "[vdso]"
