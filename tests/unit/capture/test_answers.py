"""Answers of others that are forged, torn, or larger than anybody needs: each is refused with one sentence."""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from harness import native
from harness.capture.arrays.archive import read_array_file
from harness.capture.crash.crash_link import Link
from harness.capture.files.images import parse_maps, read_maps
from harness.capture.files.owners import split_line
from harness.capture.living.device import read_shares, read_users
from harness.capture.machine.cgroup import list_groups
from harness.capture.machine.macos_kernel_log import parse_jetsam, parse_memorystatus
from harness.capture.proc import parse_stat
from harness.capture.remote.fan_out import AT_A_TIME, ask_all
from harness.capture.remote.shell import ShellLook
from harness.capture.remote.target import Host
from harness.capture.stacks.frames import Places, read_engine, read_spy, read_walk
from harness.capture.stacks.gdb import read_gdb
from harness.errors import HarnessError, Unreadable
from harness.evidence.run import name_signal
from harness.evidence.text.answers import decode_json, read_bounded
from harness.evidence.text.numbers import find_number, read_number

NOWHERE = Places(())
DEEP, MANY = "[" * 200_000, "9" * 5000


@pytest.mark.parametrize("read", [read_engine, read_spy, read_walk])
@pytest.mark.parametrize("answer", [b'[{"frames":[],"thread_name":"\xff"}]', DEEP.encode(), MANY.encode(), b"", b"{"])
def test_what_is_no_answer_of_a_tool(read: object, answer: bytes) -> None:
    with pytest.raises(Unreadable):
        list(read(answer, NOWHERE, "tool"))  # type: ignore[operator]


def test_an_address_that_is_none() -> None:
    with pytest.raises(Unreadable):
        list(read_spy(b'[{"frames":[{"name":"0xzz","filename":"","line":1,"module":"x"}]}]', NOWHERE, "py-spy"))
    with pytest.raises(Unreadable):
        list(read_gdb(b'Thread 1 (LWP 1):\nframe={addr="0xzz",func="f"}', NOWHERE, "gdb"))


@pytest.mark.parametrize("answer", [b"", b"no debugging symbols", f"Thread 1 (LWP {MANY}):\n".encode()])
def test_a_debugger_that_shows_no_thread(answer: bytes) -> None:
    assert not list(read_gdb(answer, NOWHERE, "gdb"))


def test_numbers_are_those_of_64_bits() -> None:
    assert read_number("18446744073709551615") == (1 << 64) - 1 and read_number("0x7f", 16) == 127
    for word in ("²", "٣", "", " 1", "-1", "+1", "1_0", MANY, "x", "0x"):
        assert find_number(word) is None, word
    assert decode_json(b'{"a": 1}', dict[str, int]) == {"a": 1}
    for data in (f'{{"a": {"9" * 21}}}', f'{{"a": {MANY}}}', f'{{"a": {DEEP}'):
        with pytest.raises(Unreadable):
            decode_json(data.encode(), dict[str, msgspec.Raw] if "[" in data else dict[str, int])


def test_a_long_number_in_a_text_is_a_text() -> None:
    assert decode_json(f'"{MANY}"'.encode(), str) == MANY


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bounded(tmp_path / "file", 5) == b"12345"
    os.mkfifo(tmp_path / "fifo")
    for path, most in ((tmp_path / "file", 4), (tmp_path / "fifo", 4), (Path("/dev/zero"), 4)):
        with pytest.raises(Unreadable):
            read_bounded(path, most)
    with pytest.raises(OSError):
        read_bounded(tmp_path / "missing")


STAT = "7 (p) S 1 7 7 0 -1 4194560 900 0 5 0 150 50 0 0 20 0 3 0 1000 20000000 256 18446744073709551615"


def test_a_shell_that_tells_impossible_numbers() -> None:
    """Time and memory are those of the lines, whatever the numbers in them."""
    lines = ["b 0 9.5 9", "p ² /proc/7/stat", f"p {MANY} /proc/7/stat", "p 900000000 /proc/7/stat", f"l {STAT}"]
    lines += ["p 0 /proc/7/stat", f"l {STAT}", "p 0 /proc/7/task/7/stat", f"l {STAT}", "p 6 /proc/7/io", "l x"]
    lines += ["p 6 /proc/7/task/7/syscall", f"l {MANY} 0x1"]
    told = ShellLook(lines, 6)
    assert told.samples == 6 and len(told.stats(7)) == 1
    (process,) = told.describe([7, 8], "x86_64")
    assert process.pid == 7 and [thread.tid for thread in process.threads] == [7]
    assert ShellLook(["b 0 ²", "b 0"], 6).uptime_s == 0.0


@pytest.mark.parametrize("words", [STAT.replace("256", "9" * 15), STAT.replace("150", MANY), STAT[:40], "", "()"])
def test_what_is_no_line_of_proc(words: str) -> None:
    with pytest.raises(Unreadable):
        parse_stat(words)


@pytest.mark.parametrize("body", [DEEP, MANY, '{"processes": 5}', '{"processes": [5]}', '{"processes": {}}', ""])
def test_what_is_no_report_of_jetsam(body: str) -> None:
    assert not list(parse_jetsam(f'{{"bug_type": "298"}}\n{body}', "x.ips"))
    assert not list(parse_jetsam(body, "x.ips")) and not list(parse_memorystatus(body))


@pytest.mark.parametrize("bit", [0, 5, 6])
def test_a_member_of_a_kind_that_zipfile_does_not_know_is_named(tmp_path: Path, bit: int) -> None:
    import numpy as np

    path = tmp_path / "x.npz"
    np.savez(path, a=np.zeros(3))
    data = bytearray(path.read_bytes())
    data[data.find(b"PK\1\2") + 8] |= 1 << bit
    data[data.find(b"PK\3\4") + 6] |= 1 << bit
    path.write_bytes(data)
    (array,) = read_array_file(path).arrays
    assert array.name == "a" and array.shape is None and array.trouble


def test_a_member_without_a_name_is_damage(tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(""), b"x")
    with pytest.raises(HarnessError, match="without a name"):
        read_array_file(path)


def test_one_host_that_is_late_or_talks_nonsense_is_one_answer() -> None:
    over = threading.Event()

    def ask(host: Host) -> str:
        if host.name == "late":
            over.wait()
        if host.name == "hostile":
            raise Unreadable("brackets")
        return f"{host.name} is well"

    told: list[str | None] = []
    begun = time.monotonic()
    hosts = [Host(name) for name in ("late", "one", "hostile", "two")]
    try:
        found = ask_all(hosts, ask, lambda host, answer: told.append(host.name), deadline_s=0.5)
    finally:
        over.set()
    assert time.monotonic() - begun >= 0.5 and told[-1] == "late"
    assert [found[host] for host in hosts if host.name in ("one", "two")] == ["one is well", "two is well"]
    assert "in time" in str(found[hosts[0]]) and "no answer: brackets" in str(found[hosts[2]])
    assert all(isinstance(found[host], HarnessError) for host in _named(hosts, "late", "hostile"))


ASK_LATE = """
import subprocess, sys, threading, time
from harness.capture.remote.fan_out import AT_A_TIME, ask_all
from harness.capture.remote.connection import Link
from harness.capture.remote.target import Host

def ask(host):
    if host.name == "late":
        link = Link("late", ["sleep", "1000"], "")
        print(link.pid, flush=True)
        try:
            threading.Event().wait()
        finally:
            link.close()
    return "well"

found = ask_all([Host(name) for name in sys.argv[1:]], ask, deadline_s=0.3)
print([str(answer) for answer in found.values()], flush=True)
"""


@pytest.mark.parametrize("names", [["late"], ["late", "one"], ["late", *map(str, range(40)), "late"]])
def test_nobody_waits_for_a_host_that_is_late_not_even_to_leave(names: list[str]) -> None:
    command = [sys.executable, "-c", ASK_LATE, *dict.fromkeys(names)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    pid, told = done.stdout.splitlines()
    assert "late has not answered in time." in told and told.count("well") == len(set(names)) - 1
    assert not Path("/proc", pid).exists()


def test_hosts_that_are_late_do_not_keep_the_others_waiting() -> None:
    def ask(host: Host) -> str:
        if host.name and host.name.startswith("late"):
            over.wait()
        return "well"

    over = threading.Event()
    hosts = [Host(f"late{number}") for number in range(AT_A_TIME)] + [Host("one")]
    try:
        assert ask_all(hosts, ask, deadline_s=0.2)[hosts[-1]] == "well"
    finally:
        over.set()


def test_a_bug_of_ours_is_no_answer_of_a_host() -> None:
    def ask(host: Host) -> str:
        raise ZeroDivisionError

    for hosts in ([Host("one")], [Host("one"), Host("two")]):
        with pytest.raises(ZeroDivisionError):
            ask_all(hosts, ask, deadline_s=5.0)


def _named(hosts: Iterable[Host], *names: str) -> list[Host]:
    return [host for host in hosts if host.name in names]


NVIDIA = [
    "GPU-1, 50", "GPU-1, [N/A]", "GPU-1", "GPU-1, ²", f"GPU-1, {MANY}", "GPU-1, 101", "GPU-1, -1", "GPU-1, 5, 6", ",",
]  # fmt: skip


def test_a_row_of_nvidia_smi_that_is_none_is_left_out() -> None:
    assert list(read_shares("\n".join(NVIDIA).encode())) == [("GPU-1", 50)]
    rows = [
        "7, GPU-1, 300",
        "[N/A], GPU-1, 300",
        f"{MANY}, GPU-1, 3",
        "²,GPU-1,3",
        "7, GPU-1",
        "7, 8, 9, 10",
        "7, GPU-1, ",
    ]
    assert list(read_users("\n".join(rows).encode())) == [(7, "GPU-1", 300)]


# What only a fuzzer thinks of


def test_a_mapped_file_may_be_called_anything(tmp_path: Path) -> None:
    """What ends a line for Python need not end one for the kernel."""
    path = tmp_path / "a\x0c\x1c\u2028 b.so"
    path.write_bytes(bytes(4096))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ):
        assert str(path) in {row.path for row in read_maps(os.getpid())}
    with pytest.raises(Unreadable):
        parse_maps("7f00-7f01 r--p\n")


def test_a_control_group_may_be_called_anything(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_bytes(b"4:memory,cpu:/a:\xff\n\nno line\n0::/b\n")
    assert list(list_groups(tmp_path, 7)) == [("memory,cpu", "/a:\udcff"), ("", "/b")]


def test_a_line_of_record_that_no_installer_writes() -> None:
    for line in (b"x.so", b'"', b'"x.so', b"", b'"a\0b",c', b'"' + b"x" * 200_000 + b'"'):
        assert len(split_line(line)) == 2


@pytest.mark.parametrize("field, value", [("machine", 7), ("frame_count", 1 << 31), ("signo", 0), ("time_ns", 1 << 63)])
def test_a_forged_record_of_a_crash_is_none(field: str, value: int) -> None:
    """Else it could have us read past its end, or look at a process for three hundred years."""
    ffi, lib = native.load()
    record = ffi.new("struct harness_crash *")
    record.abi, record.size = lib.HARNESS_ABI, ffi.sizeof("struct harness_crash")
    record.machine, record.pid, record.signo, record.time_ns = 1, 4711, 11, time.monotonic_ns()
    link = Link()
    try:
        assert receive(link, bytes(ffi.buffer(record))) is not None
        setattr(record, field, value)
        assert receive(link, bytes(ffi.buffer(record))) is None
    finally:
        link.close()


def receive(link: Link, data: bytes) -> object:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        return link.receive(ours, 4711)


def test_who_links_and_ends_strangely_is_told_all_the_same() -> None:
    assert name_signal(35) == "signal 35"
    assert find_number("²") is None, "as RANK may be"
