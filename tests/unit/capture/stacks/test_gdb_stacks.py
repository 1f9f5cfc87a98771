"""What gdb says in its machine interface, read: names with blanks and braces, inlined frames, a signal's frame.

The text is gdb 13.1's own, for a small program; addresses and paths were made short.
"""

from __future__ import annotations

from harness.capture.stacks.frames import Places
from harness.capture.stacks.gdb import NOT_INSTALLED, lacks_gdb, read_gdb
from harness.evidence.crash import Image, ToolRun

PLACES = Places((Image("/job/serve", "0x5000", "0x6000"), Image("/lib/libc.so.6", "0x7000", "0x8000")))
FRAMES = (
    rb'frame={level="0",addr="0x0000000000007010",func="__GI_raise",file="../raise.c",fullname="./raise.c",line="26"}',
    rb'frame={level="1",addr="0x0000000000007020",func="<signal handler called>"}',
    rb'frame={level="2",addr="0x5010",func="p::{closure#0}<a, {b}>",fullname="/job/caf\303\251 s.rs",line="3"}',
    rb'frame={level="3",addr="0x5010",func="operator()",file="serve.cpp",fullname="/job/serve.cpp",line="8"}',
    rb'frame={level="4",addr="0x0000000000005020",func="??",from="/job/serve"}',
)
SAID = b"""[New LWP 20]
Using host libthread_db library "/lib/x86_64-linux-gnu/libthread_db.so.1".

Thread 2 (Thread 0x7f51 (LWP 20) "pool"):
^done,stack=[%b]

Thread 1 (LWP 10):
^done,stack=[frame={level="0",addr="0x0000000000009000",func="main"}]
""" % b",".join(FRAMES)


def test_threads_and_frames() -> None:
    (pool, _), (main, _) = read_gdb(SAID, PLACES, "gdb")
    assert (pool.tid, main.tid, main.name) == (20, 10, None)
    names = [frame.function for frame in pool.frames]
    assert names == ["__GI_raise", "__restore_rt", "p::{closure#0}<a, {b}>", "operator()", None]
    assert [frame.line for frame in pool.frames] == [26, None, 3, 8, None]
    assert [frame.file for frame in pool.frames[2:4]] == ["/job/caf\u00e9 s.rs", "/job/serve.cpp"]
    assert [frame.image for frame in pool.frames] == ["/lib/libc.so.6"] * 2 + ["/job/serve"] * 3
    assert pool.frames[0].file == "../raise.c" and pool.frames[3].offset == "0x10"
    assert (main.frames[0].image, main.frames[0].address) == (None, "0x9000")


def test_an_answer_without_threads_is_none() -> None:
    assert list(read_gdb(b"ptrace: Operation not permitted.\n", PLACES, "gdb")) == []


def test_that_it_is_not_there_is_told_from_that_it_failed() -> None:
    assert lacks_gdb((ToolRun("gdb", 0.0, NOT_INSTALLED),))
    assert not lacks_gdb((ToolRun("gdb", 0.1, "no frames"),))
