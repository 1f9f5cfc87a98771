"""Which registration record is a process's own: by pid in its namespace, by user, and by the flag in its memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.capture.openmp.registration import Record, read_records

MEMORY = {0x7F0010: 0xCAFE1234, 0x7F0020: 0xCAFE5678}


def read(address: int, size: int) -> bytes:
    if address not in MEMORY:
        raise OSError(5, "Input/output error")
    return MEMORY[address].to_bytes(size, "little")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Process 500, which is 12 in its own namespace."""
    for folder in ("dev/shm", "tmp"):
        (tmp_path / "500/root" / folder).mkdir(parents=True)
    uid = tmp_path.stat().st_uid
    (tmp_path / "500/status").write_text(f"Name:\tpython\nNSpid:\t500\t12\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    return tmp_path


def write(proc: Path, name: str, content: bytes, folder: str = "dev/shm") -> None:
    (proc / "500/root" / folder / name).write_bytes(content + b"\0" * 8)


def test_nothing_is_registered(proc: Path) -> None:
    assert read_records(500, read, [b"PATH=/bin"], proc) == ()


def test_the_record_of_the_pid_in_its_own_namespace(proc: Path) -> None:
    write(proc, "__KMP_REGISTERED_LIB_500_0", b"0x7f0010-cafe1234-libother.so")
    write(proc, "__KMP_REGISTERED_LIB_123_0", b"0x7f0010-cafe1234-libother.so")
    write(proc, "__KMP_REGISTERED_LIB_12_0", b"0x7f0010-cafe1234-libomp.so.5")
    expected = Record("/dev/shm/__KMP_REGISTERED_LIB_12_0", 0x7F0010, "libomp.so.5", stale=False)
    assert read_records(500, read, [], proc) == (expected,)


def test_in_tmp_where_there_is_no_shared_memory(proc: Path) -> None:
    write(proc, "__KMP_REGISTERED_LIB_12", b"0x7f0010-cafe1234-libomp.so.5", "tmp")
    assert read_records(500, read, [], proc)[0].file == "/tmp/__KMP_REGISTERED_LIB_12"


def test_a_static_copy_registers_in_the_environment(proc: Path) -> None:
    variables = [b"__KMP_REGISTERED_LIB_12=0x7f0020-cafe5678-libiomp5.a", b"__KMP_REGISTERED_LIB_9=0x7f0020-cafe5678-x"]
    assert read_records(500, read, variables, proc) == (Record(None, 0x7F0020, "libiomp5.a", stale=False),)


@pytest.mark.parametrize("content", [b"0x7f0010-cafe9999-libomp.so.5", b"0xdead00-cafe1234-libomp.so.5"])
def test_without_the_flag_in_memory_it_is_somebody_elses(proc: Path, content: bytes) -> None:
    write(proc, "__KMP_REGISTERED_LIB_12_0", content)
    assert [record.stale for record in read_records(500, read, [], proc)] == [True]


@pytest.mark.parametrize("content", [b"", b"garbage", b"0x7f0010-beef1234-libomp.so.5"])
def test_what_is_no_record_is_none(proc: Path, content: bytes) -> None:
    write(proc, "__KMP_REGISTERED_LIB_12_0", content)
    assert read_records(500, read, [], proc) == ()


def test_another_users_file_does_not_count(proc: Path) -> None:
    write(proc, "__KMP_REGISTERED_LIB_12_0", b"0x7f0010-cafe1234-libomp.so.5")
    status = proc / "500/status"
    status.write_text("NSpid:\t500\t12\nUid:\t98765\t98765\t98765\t98765\n")
    assert read_records(500, read, [], proc) == ()
