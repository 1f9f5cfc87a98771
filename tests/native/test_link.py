"""The crash link by itself: what its handler may call and how deep it goes, and its record on both processors."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lief
import pytest

from harness import native
from harness.capture.crash import crash_link

ROOT = Path(__file__).parents[2]
# Async-signal-safe (man 7 signal-safety), or a plain system call, or without any state (strstr, memcpy, memset).
ALLOWED = {"syscall", "__errno_location", "clock_gettime", "prctl", "sigaltstack", "strstr", "memcpy", "memset"}
OURS = {"harness_link", "_GLOBAL_OFFSET_TABLE_"}
# They call each other; what each calls besides is checked of all.
HANDLERS = ("crash", "leave", "filtered")
SHARED = {
    *("harness_stop_telling", "harness_tell", "harness_send_self"),
    *("harness_is_filtered", "harness_step_aside", "harness_set_mask", "harness_set_blocked"),
}
# The same of macOS (man 2 sigaction), and Mach calls: messages to the kernel, without a lock of the process.
ALLOWED_MACOS = {
    *("___error", "_bzero", "___bzero", "_memset", "_memcpy", "_strncmp", "_strlen"),
    *("_clock_gettime", "_close", "_connect", "_fcntl", "_getpid", "_nanosleep", "_poll", "_send", "_setsockopt"),
    *("_socket", "_sysctl", "_pthread_kill", "_pthread_self", "_pthread_threadid_np"),
    *("_mach_port_deallocate", "_mach_task_self_", "_mach_thread_self", "_task_threads", "_thread_resume"),
    *("_thread_suspend", "_vm_deallocate", "_vm_read_overwrite"),
}
STACK_BYTES = 2048
DEADLINE_S = 2.5  # a crash waits for 3 s (native/link.h)
# macOS has no alternate stack below 32 kB (MINSIGSTKSZ); what matters is that no function grows unseen.
FRAME_BYTES = 1024
N_UNDEFINED_EXTERNAL = 1  # <mach-o/nlist.h>: N_UNDF | N_EXT
ARM_ROOT = Path("/usr/aarch64-linux-gnu")


@pytest.fixture(scope="module")
def handler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    build = tmp_path_factory.mktemp("handler")
    for name in HANDLERS:
        flags = ["-std=gnu11", "-O2", "-fPIC", "-fcallgraph-info=su", "-c", ROOT / "native" / f"{name}.c"]
        subprocess.run(["gcc", *flags, "-o", build / f"{name}.o"], cwd=build, check=True)
    return build


@pytest.mark.parametrize("name", HANDLERS)
def test_the_handler_calls_only_what_a_handler_may_call(handler: Path, name: str) -> None:
    listing = subprocess.run(["nm", "-u", handler / f"{name}.o"], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in listing.splitlines()} <= ALLOWED | OURS | SHARED


@pytest.mark.parametrize("target", ["aarch64-macos", "x86_64-macos"])
def test_the_handler_of_macos_calls_only_what_a_handler_may_call(target: str, tmp_path: Path) -> None:
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", target]
    strict = ["-std=gnu11", "-O2", "-fPIC", "-Werror", f"-Wframe-larger-than={FRAME_BYTES}"]
    built = tmp_path / "crash.o"
    subprocess.run([*zig, *strict, "-c", "-o", built, ROOT / "native" / "crash.c"], check=True)
    binary = lief.MachO.parse(str(built))
    assert binary is not None
    symbols = binary.at(0).symbols
    undefined = {str(symbol.name) for symbol in symbols if symbol.raw_type == N_UNDEFINED_EXTERNAL}
    assert "_thread_suspend" in undefined
    assert undefined <= ALLOWED_MACOS | {"_harness_link"}


def read_call_graph(where: Path) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Bytes of stack and callees of each function, as gcc itself wrote them down."""
    text = "".join(path.read_text() for path in sorted(where.glob("*.ci")))
    sizes = {name: int(size) for name, size in re.findall(r'title: "([^"]+)" label: "[^"]*?(\d+) bytes', text)}
    calls: dict[str, set[str]] = {}
    for source, target in re.findall(r'sourcename: "([^"]+)" targetname: "([^"]+)"', text):
        calls.setdefault(source, set()).add(target)
    return sizes, calls


def deepest(function: str, sizes: dict[str, int], calls: dict[str, set[str]], above: tuple[str, ...] = ()) -> int:
    assert function not in above, f"recursion: {above}"
    inner = (deepest(callee, sizes, calls, (*above, function)) for callee in calls.get(function, ()))
    return sizes.get(function, 0) + max(inner, default=0)


@pytest.mark.parametrize("entry", ["harness_on_fatal", "on_park", "harness_on_leaving"])
def test_the_handler_needs_less_stack_than_the_smallest_alternate_stack_leaves(handler: Path, entry: str) -> None:
    sizes, calls = read_call_graph(handler)
    names = [name for name in sizes if name == entry or name.endswith(f":{entry}")]
    assert len(names) == 1
    assert 0 < deepest(names[0], sizes, calls) < STACK_BYTES


@contextlib.contextmanager
def listening() -> Iterator[crash_link.Link]:
    end = crash_link.Link()
    try:
        yield end
    finally:
        end.close()


def receive(end: crash_link.Link) -> tuple[Any, int]:
    """The record of the next crash and the pid behind it; the process goes on when this returns."""
    assert select.select([end], [], [], 60)[0], "no crash was reported"
    accepted = end.accept()
    assert accepted is not None
    connection, pid = accepted
    with contextlib.closing(connection):
        return crash_link._receive(connection), pid


def build_victim(compiler: list[str], where: Path) -> Path:
    source = Path(__file__).with_name("victim.c")
    subprocess.run([*compiler, "-g", "-O1", "-pthread", "-o", where / "victim", source], check=True)
    return where / "victim"


def check(record: Any, function: int, machine: int) -> None:
    assert (record.signo, record.code, record.address) == (signal.SIGSEGV, 1, 0x18)
    assert record.machine == machine
    assert function <= record.pc < function + 64
    assert record.registers[16 if machine == 1 else 32] == record.pc  # REG_RIP; pc after x0-x30 and sp


@pytest.mark.parametrize("where", ["main", "thread"])
def test_a_record_tells_the_fault_as_it_was(where: str, tmp_path: Path) -> None:
    victim = build_victim(["gcc"], tmp_path)
    with listening() as end:
        variables = {**os.environ, "LD_PRELOAD": str(native.LIBRARY), "HARNESS_LINK": str(end.path)}
        process = subprocess.Popen([victim, where], env=variables, stdout=subprocess.PIPE, text=True)
        record, pid = receive(end)
        assert process.stdout is not None
        check(record, int(process.stdout.readline(), 16), machine=1)
        assert process.wait(60) == -signal.SIGSEGV
    assert record.pid == pid == process.pid
    assert (record.tid == record.pid) == (where == "main")
    assert (record.threads, record.parked) == ((0, 0) if where == "main" else (1, 1))


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU])
def test_one_that_is_asked_to_leave_tells_by_whom(signo: signal.Signals) -> None:
    with listening() as end:
        variables = {
            **os.environ,
            "LD_PRELOAD": str(native.LIBRARY),
            "HARNESS_LINK": str(end.path),
            "HARNESS_TELL": "1",
        }
        process = subprocess.Popen(["cat"], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"ready\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signo)
        record, pid = receive(end)
        assert process.wait(60) == -signo
    assert crash_link.is_leave(record) and record.pid == pid == process.pid
    assert (record.signo, record.code, record.sender, record.uid) == (signo, 0, os.getpid(), os.getuid())
    command = Path("/proc/self/cmdline").read_bytes()
    assert bytes(native.load()[0].buffer(record.command))[: record.length] == command[: len(record.command)]


@pytest.mark.parametrize("trouble", ["absent", "deaf"])
def test_a_supervisor_that_is_gone_or_deaf_costs_nothing(trouble: str, tmp_path: Path) -> None:
    """Deaf: its queue is full and it never accepts; a crash would wait for it, a SIGTERM does not."""
    deaf = socket.socket(socket.AF_UNIX)
    deaf.bind(str(tmp_path / "link"))
    deaf.listen(0)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    for one in waiting:
        one.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            one.connect(str(tmp_path / "link"))
    path = tmp_path / ("link" if trouble == "deaf" else "absent")
    variables = {**os.environ, "LD_PRELOAD": str(native.LIBRARY), "HARNESS_LINK": str(path), "HARNESS_TELL": "1"}
    begun = time.monotonic()
    done = subprocess.run(["sh", "-c", "kill -TERM $$; echo alive"], env=variables, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, b"")
    assert time.monotonic() - begun < DEADLINE_S
    for one in (deaf, *waiting):
        one.close()


def test_the_record_is_the_same_on_aarch64(tmp_path: Path) -> None:
    """Compiled by zig for the baseline, run by qemu's user mode with Debian's arm64 C library."""
    qemu = shutil.which("qemu-aarch64")
    if qemu is None or not ARM_ROOT.exists():
        pytest.skip("needs qemu-user and libc6-arm64-cross; next: apt-get install qemu-user libc6-arm64-cross")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.17"]
    victim = build_victim(zig, tmp_path)
    library = tmp_path / "libharness.so"
    flags = ["-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,now", "-ldl"]
    subprocess.run([*zig, *flags, "-o", library, *(ROOT / "native").glob("*.c")], check=True)
    with listening() as end:
        variables = {"LD_PRELOAD": str(library), "HARNESS_LINK": str(end.path)}
        settings = [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
        process = subprocess.Popen([qemu, "-L", ARM_ROOT, *settings, victim], stdout=subprocess.PIPE, text=True)
        record, _ = receive(end)
        assert process.stdout is not None
        check(record, int(process.stdout.readline(), 16), machine=2)
        process.wait(60)  # not its status: qemu 7.2 fails an assertion of its own on a queued SIGSEGV
