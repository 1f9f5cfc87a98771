"""Readers of what somebody answers: the kernel, tools, other hosts, a dying process, and what a command prints."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import types
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from harness import native
from harness.capture.crash.crash_link import Link, is_crash, read_registers
from harness.capture.experiment.steps import StepFile
from harness.capture.files.images import list_mappings, parse_maps
from harness.capture.living.activity import name_sleep
from harness.capture.living.identity import is_frozen, read_outputs
from harness.capture.living.processes import quiet_s
from harness.capture.living.sample_text import read_sample
from harness.capture.living.tasks.coroutines import Coroutines, Torn
from harness.capture.living.waits.descriptors import describe_all, name_process, name_state
from harness.capture.living.waits.rest import list_handled
from harness.capture.living.waits.thread_wait import read_call, read_place, read_wait
from harness.capture.machine import cgroup
from harness.capture.machine.kernel_log import read_kernel_lines
from harness.capture.machine.macos_kernel_log import parse_jetsam, parse_memorystatus
from harness.capture.machine.processor import read_cpu
from harness.capture.proc import parse_stat, read_meminfo, read_status
from harness.capture.remote.shell import ShellLook
from harness.capture.remote.table import read_proc, read_ps
from harness.capture.stacks.cpython.runtime_tables import read_tables
from harness.capture.stacks.frames import Places, read_engine, read_memory, read_spy, read_walk
from harness.capture.stacks.gdb import read_gdb
from harness.capture.stacks.py_spy import fill_tids
from harness.capture.stacks.walk.thread_calls import read_doing, survives_stop
from harness.diagnose.death.judge import judge
from harness.diagnose.living.document import judge_living
from harness.diagnose.living.group import judge_group
from harness.errors import Unreadable
from harness.evidence.living.look import Look, check_look
from harness.evidence.openmp import Census
from harness.evidence.run import Evidence
from harness.evidence.text.transcript import read_transcript
from harness.evidence.text.undecoded import decode_document, encode_document
from harness.report.group import render_group
from harness.report.text import render
from tests.builders.evidence import LOGS, kernel_evidence, log_evidence
from tests.fuzz.registry import decode, keep, load, scratch, target

NOWHERE = Places(())

# What the kernel says


@target("maps", *load("maps.txt"))
def read_mappings(data: bytes) -> None:
    list_mappings(parse_maps(data.decode(errors="surrogateescape")))


@target(
    "stat",
    b"4711 (python) S 1 7 7 0 -1 4194560 900 0 5 0 150 50 0 0 20 0 3 0 1000 20000000 256 18446744073709551615 1 1",
)
def read_stat(data: bytes) -> None:
    parse_stat(decode(data))


@target("status", *load("status.txt"))
def read_status_file(data: bytes) -> None:
    read_status(7, keep(data, "proc/7/status").parents[1])


@target(
    "control groups", b"0::/a/b\n", b"4:memory,cpu:/x\n", b"max\n", b"4096\n", b"inactive_file 10\noom_kill 3\nmax 2\n"
)
def read_groups(data: bytes) -> None:
    """The same in each of the files."""
    for name in ("proc/self/cgroup", *(f"group/{name}" for name in GROUP_FILES)):
        keep(data, name)
    cgroup.memory_groups(scratch())
    cgroup.pids_groups(scratch())
    for ask in (
        cgroup.read_oom_count,
        cgroup.read_limit,
        cgroup.read_bound,
        cgroup.read_members,
        cgroup.read_pids_limit,
        cgroup.read_pids_refused,
    ):
        ask(scratch() / "group")


_COUNTS = ("memory.stat", "memory.events", "memory.max", "memory.current")
GROUP_FILES = (*_COUNTS, "cgroup.procs", "pids.max", "pids.events")


PROC_FILES = (
    *("cgroup", "status", "stat", "net/tcp", "net/unix", "fdinfo/3"),
    *(f"task/7/{name}" for name in ("syscall", "status", "stat", "wchan", "comm")),
)
SYSCALL = b"202 0x7f00 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd1 0x7f01\n"
FDINFO = b"pos:\t0\nflags:\t02004002\nmnt_id:\t15\nino:\t1051\ntfd: 5 events: 19 data: 5 pos:0 ino:1 sdev:8\n"
TCP = b"  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 0:0 00:0 0 0 0 12345 1\n"


@target("files of a process", SYSCALL, b"running\n", b"-1 0x7ffd1 0x7f01\n", FDINFO, TCP, *load("status.txt"))
def read_files_of_a_process(data: bytes) -> None:
    """The same in each of the files, so that every reader has all of the mistakes."""
    for name in PROC_FILES:
        keep(data, f"tree/proc/7/{name}")
    proc = scratch() / "tree/proc"
    for ask in (
        lambda: name_sleep(7, proc),
        lambda: list(describe_all(7, {3: "in"}, proc)),
        lambda: name_process(7, proc),
        lambda: name_state(7, proc),
        lambda: read_wait(7, 7, proc),
        lambda: read_call(7, 7, proc),
        lambda: read_place(7, 7, proc),
        lambda: list_handled(7, proc),
        lambda: quiet_s(7, proc),
        lambda: read_outputs(7, proc),
        lambda: is_frozen(7, proc.parent),
        lambda: (doing := read_doing(7, 7, proc)) and (doing.place, survives_stop(7, 7, doing.call, proc)),
    ):
        with contextlib.suppress(Unreadable, OSError):
            ask()


@target(
    "files of the machine",
    b"MemTotal:  16 kB\nMemAvailable: 8 kB\n",
    b"processor : 0\nmodel name : x\nflags : sse avx\n\n",
)
def read_files_of_the_machine(data: bytes) -> None:
    for name in ("cpuinfo", "meminfo", "swaps"):
        keep(data, f"tree/proc/{name}")
    read_cpu(scratch() / "tree/proc")
    with contextlib.suppress(Unreadable):
        read_meminfo(scratch() / "tree")


class TornMemory:
    """Our own, as it would be if some words of it were others. `changes`: which read, which word, its value."""

    def __init__(self, changes: bytes) -> None:
        self._changes = {one[0]: one[1:] for one in (changes[at : at + 4] for at in range(0, len(changes) - 3, 4))}
        self._reads = 0

    def read(self, address: int, size: int) -> bytes:
        data = bytearray(read_memory(os.getpid())(address, min(size, 1 << 20)))
        self._reads += 1
        if data and (change := self._changes.get(self._reads & 0xFF)):
            at = (change[0] << 3) % len(data)
            data[at : at + 8] = (bytes([change[1] & 0xFE, 0, change[2] & 7, 0, 0, 0, 0, 0]) * 2)[
                : len(data[at : at + 8])
            ]
        return bytes(data)

    def word(self, address: int) -> int:
        return int.from_bytes(self.read(address, 8), "little")


async def wait_for(what: Any) -> None:
    await what


@types.coroutine
def stand() -> Any:
    yield


WAITING = wait_for(wait_for(stand()))
WAITING.send(None)


@target("coroutines", b"", bytes(range(64)), text=False)
def follow_coroutine(data: bytes) -> None:
    """That of this very process: CPython only, of a release whose layout is known."""
    coroutines = Coroutines(TornMemory(data), sys.version_info[1])  # type: ignore[arg-type]
    with contextlib.suppress(Torn):
        chain = coroutines.follow(id(WAITING))
        assert data or [frame.function for frame in chain.frames] == ["wait_for", "wait_for", "stand"]


@target("kernel log", b"6,1,1000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=4242,uid=0\n SUBSYSTEM=x\n")
def read_kernel_log(data: bytes) -> None:
    read_kernel_lines({4242}, 0, keep(data), Path("/nowhere"))


@target("tables of CPython", b"xdebugpy" + struct.pack("<QQ", 0x030E00F0, 0) + bytes(range(256)) * 4, text=False)
def read_offsets(data: bytes) -> None:
    read_tables(lambda at, size: data[at : at + size], 0)


# Tools


@target("gdb", *load("gdb.txt"))
def read_threads_of_gdb(data: bytes) -> None:
    list(read_gdb(data, NOWHERE, "gdb"))


@target("py-spy", *load("py_spy.json", "py_spy_locals.json"))
def read_threads_of_spy(data: bytes) -> None:
    list(read_spy(data, NOWHERE, "py-spy"))
    json.loads(decode(data))


@target("py-spy thread ids", *load("py_spy.json"))
def read_thread_ids(data: bytes) -> None:
    json.loads(fill_tids(os.getpid(), data).decode(errors="replace"))


@target("pystack", *load("pystack.json"))
def read_threads_of_pystack(data: bytes) -> None:
    list(read_engine(data, NOWHERE, "pystack"))
    json.loads(decode(data))


@target("own walk", *load("own_walk.json"))
def read_own_walk(data: bytes) -> None:
    list(read_walk(data, NOWHERE, "own walk"))
    json.loads(decode(data))


@target("sample", *load("sample.txt", "sample_busy.txt"))
def judge_sample(data: bytes) -> None:
    tell(read_sample(decode(data)))


@target("jetsam", *load("jetsam.ips"))
def read_jetsam(data: bytes) -> None:
    list(parse_jetsam(decode(data), "x.ips"))


@target("memorystatus", *load("memorystatus.txt"))
def read_memorystatus(data: bytes) -> None:
    list(parse_memorystatus(decode(data)))


# Other hosts


def tell(look: Look) -> None:
    """Whoever has it checked may rely on it."""
    check_look(look)
    document, group = judge_living(look), judge_group(look, unseen=[])
    for answer in (document, group, look):
        json.loads(encode_document(answer))
    render(document, width=100, color=False)
    render_group(group, width=100, color=False)


@target("look", *load("look.json"))
def judge_look(data: bytes) -> None:
    tell(decode_document(data, Look))


@target("census", *load("census.json"))
def read_census(data: bytes) -> None:
    decode_document(data, Census)


@target("shell", *load("shell.txt"))
def judge_shell(data: bytes) -> None:
    told = ShellLook(decode(data).split("\n"), 6)
    assert told.uptime_s >= 0
    for process in told.describe([4711, 7], "x86_64"):
        tell(Look("0", "linux-x86_64", "", 1.0, told.samples, (process.pid,), (process,)))


@target("shell, all of proc", *load("proc.txt"))
def list_proc(data: bytes) -> None:
    dict(read_proc(decode(data).split("\n")))


PS = b"s   PID  PPID USER ELAPSED TIME RSS STAT COMMAND\ns  4711    88 me  01:40   0:07.25 204800 Ss+  /bin/python\n"


@target("ps of a Mac", PS + b"m 4711        5\n")
def list_ps(data: bytes) -> None:
    dict(read_ps(decode(data).split("\n")))


# The crash link


@cache
def open_link() -> Link:
    return Link()


def load_record(name: str) -> bytes:
    """As the library of this day would send it: what has been added since is zeros."""
    ffi, lib = native.load()
    size = ffi.sizeof(f"struct harness_{name}")
    (data,) = load(f"record_{name}.bin")
    return struct.pack("<II", lib.HARNESS_ABI, size) + data[8:size].ljust(size - 8, b"\0")


@target("records", *map(load_record, ("crash", "ending", "leave")), text=False)
def receive(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data[:4096])
        theirs.shutdown(socket.SHUT_WR)
        at = 16 if data[4:8] == CRASH_SIZE else 8
        pid = struct.unpack_from("<i", data, at)[0] if len(data) >= at + 4 else 0
        record = open_link().receive(ours, pid)
        if record is not None and is_crash(record):
            read_registers(record)
            assert all(record.frames[index] >= 0 for index in range(record.frame_count))


CRASH_SIZE = load_record("crash")[4:8]

# What was printed, and what is kept

LOG_FILES = tuple(path.read_bytes() for path in sorted(LOGS.rglob("*.txt")))


def tell_end(evidence: Evidence) -> None:
    document = judge(evidence)
    json.loads(encode_document(document))
    render(document, width=100, color=False)


@target("logs", *LOG_FILES)
def judge_log(data: bytes) -> None:
    tell_end(log_evidence(decode(data), 134))


@target("kernel lines", *(text for text in LOG_FILES if b"Killed process" in text or b"traps:" in text))
def judge_kernel(data: bytes) -> None:
    tell_end(kernel_evidence(decode(data).split("\n")))


@target("output", b"0 5\n10 7\n", *LOG_FILES[:3])
def read_output(data: bytes) -> None:
    """The same as what was printed, and as its marks."""
    keep(data, "case/out.log")
    folder = keep(data, "case/out.log.times").parent
    assert len(read_transcript(folder, "out", 0).parts) == 1


@target("steps", b'{"ran":{"threads":4}}\n{"at":"backward","step":3}\n{"done":3,"checksum":"c0"}\n{"finished":true}\n')
def read_steps(data: bytes) -> None:
    steps = StepFile(keep(data))
    steps.read()
    msgspec.json.encode(steps.told)
