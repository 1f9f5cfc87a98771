"""Where a core goes, by pattern and facts; what is said when there is none; how one is kept; how a limit is chosen."""

from __future__ import annotations

import gzip
import os
import resource
import struct
from pathlib import Path

import pytest

from harness.capture.cores.file import BadCore, CoreFile
from harness.capture.cores.finding import Found, find_core, is_contained
from harness.capture.cores.keeping import Replaced, TooLarge, link_core, move_core
from harness.capture.cores.limits import CoreLimit
from harness.capture.cores.pattern import Death, Destination, expand, find_destination
from harness.capture.run.gathered.collected_cores import add_crashes
from harness.evidence.crash import CrashFrame, CrashThread, Mapping
from harness.evidence.gap import Gap
from tests.builders.crashes import crash

DEATH = Death(4711, 11, 1000, 100, "/opt/my app/bin/python3.11", ("/home/me/job", "/tmp"))
GLOBS = {
    "core": ("/home/me/job/core", "/tmp/core"),
    "core.%p": ("/home/me/job/core.4711", "/tmp/core.4711"),
    "/var/cores/%f.%p.%s.%u.%g.%h": ("/var/cores/python3.11.4711.11.1000.100.box",),
    "/c/%E": ("/c/!opt!my app!bin!python3.11",),
    "/c/%e.%t.%i.%I.%P.%c.%d.%C": ("/c/*.*.*.*.*.*.*.*",),
    "/c/100%%-%p%": ("/c/100%-4711",),
    "/c/%z%p": ("/c/4711",),
    "/c/[%p]*": ("/c/[[]4711][*]",),
    "sub/core": ("/home/me/job/sub/core", "/tmp/sub/core"),
}
PYTHON_FRAME = CrashFrame("python", "fall", "train.py", 3)
NATIVE_FRAME = CrashFrame("native", "descend", "descend.c", 8, "/job/descend.so", "0x10", "0x7010")


@pytest.mark.parametrize("pattern", GLOBS)
def test_every_specifier_of_the_pattern(pattern: str) -> None:
    assert find_destination(pattern, False, DEATH, "box") == Destination("file", GLOBS[pattern])


def test_core_uses_pid_adds_it_only_where_the_pattern_has_none() -> None:
    assert find_destination("/c/core", True, DEATH, "box").globs == ("/c/core.4711",)
    assert find_destination("/c/core.%p", True, DEATH, "box").globs == ("/c/core.4711",)
    assert find_destination("", True, DEATH, "box").globs == ("/home/me/job/.4711", "/tmp/.4711")


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [("|/usr/share/apport/apport -p%p", "pipe"), ("@/run/x", "socket"), ("", "none"), ("/dev/null", "none")],
)
def test_shapes_that_are_no_file(pattern: str, kind: str) -> None:
    assert find_destination(pattern, False, DEATH, "box").kind == kind


def test_an_executable_that_is_not_known_is_a_wildcard() -> None:
    assert expand("%f-%E-%p", DEATH._replace(executable=None), "box") == "*-*-4711"


def make_tree(root: Path, pattern: str, namespace: str = "pid:[4026531836]") -> Path:
    (root / "proc/sys/kernel").mkdir(parents=True)
    (root / "proc/sys/kernel/core_pattern").write_text(f"{pattern}\n")
    (root / "proc/sys/kernel/core_uses_pid").write_text("0\n")
    (root / "proc/self/ns").mkdir(parents=True)
    (root / "proc/self/ns/pid").symlink_to(namespace)
    return root


def look(root: Path, *, dumped: bool = True, **facts: object) -> Found | Gap:
    return find_core(DEATH._replace(**facts), dumped, 0.0, root)


@pytest.mark.parametrize(
    ("pattern", "file"),
    [
        ("|/lib/systemd/systemd-coredump %P %u", "var/lib/systemd/coredump/core.python.1000.0abc.4711.17000.zst"),
        ("|/usr/share/apport/apport -p%p", "var/crash/_usr_bin_python3.1000.crash"),
        ("|/usr/libexec/abrt-hook-ccpp %s", "var/spool/abrt/ccpp-2026-11-17-4711/coredump"),
    ],
)
def test_what_a_known_helper_keeps_is_found(tmp_path: Path, pattern: str, file: str) -> None:
    root = make_tree(tmp_path, pattern)
    (root / file).parent.mkdir(parents=True)
    (root / file).write_bytes(b"x")
    found = look(root)
    assert isinstance(found, Found) and found.path == root / file


def test_a_helper_that_kept_none_and_one_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.capture.cores.finding._HELPER_S", 0.0)
    gone = look(make_tree(tmp_path / "a", "|/lib/systemd/systemd-coredump %P"))
    assert isinstance(gone, Gap) and "has none of it" in gone.why and gone.fix == "coredumpctl info 4711"
    unknown = look(make_tree(tmp_path / "b", "|/opt/collector %p"))
    assert isinstance(unknown, Gap) and "only that program knows" in unknown.why


def test_in_a_container_the_helper_is_the_hosts(tmp_path: Path) -> None:
    root = make_tree(tmp_path, "|/lib/systemd/systemd-coredump %P", "pid:[4026532999]")
    found = look(root)
    assert is_contained(root) and isinstance(found, Gap)
    assert "of the host" in found.why and "on the host" in (found.fix or "")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", "thrown away"),
        ("/dev/null", "thrown away"),
        ("|/lib/systemd/systemd-coredump", "did not take it"),
        ("/nowhere/at/all/core", "cannot be written"),
        ("/tmp/core.%p", "size limit was 0"),
    ],
)
def test_why_there_is_none(tmp_path: Path, pattern: str, words: str) -> None:
    gap = look(make_tree(tmp_path, pattern), dumped=False)
    assert isinstance(gap, Gap) and words in gap.why and gap.fix


def test_one_that_was_written_and_is_not_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    gap = look(make_tree(tmp_path, "core"), cwds=(str(tmp_path),))
    assert isinstance(gap, Gap) and f"not in {tmp_path}/core" in gap.why


def test_a_file_of_that_name_that_is_no_core_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "core").write_text("the core module of my project")
    assert isinstance(look(make_tree(tmp_path / "root", "core"), cwds=(str(tmp_path),)), Gap)


NOTES = struct.pack("<IIQQQQQQ", 4, 0, 120, 0, 0, 12, 0, 4)  # a segment of notes, right behind itself


def elf_header(kind: int = 4, machine: int = 62, count: int = 0) -> bytes:
    fields = struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, count, 0, 0, 0)
    return b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + fields


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"hello" * 20, "not a 64-bit ELF"),
        (b"\x7fELF\x02\x01", "cut off"),
        (elf_header(kind=3), "not a core"),
        (elf_header(machine=243), "core of riscv64, which harness does not read"),
        (elf_header(count=0xFFFF), "more than 65,534 mappings"),
        (elf_header(count=5), "cut off"),
        (elf_header(), "names no thread"),
        (elf_header(count=1) + struct.pack("<IIQQQQQQ", 4, 0, 120, 0, 0, 1 << 40, 0, 4), "claim to be"),
        (
            elf_header(count=1) + NOTES + struct.pack("<III", 5, 9**9, 1),
            "longer than",
        ),
    ],
)
def test_a_file_that_is_no_usable_core_gets_a_sentence(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "core").write_bytes(data)
    with pytest.raises(BadCore, match=words):
        CoreFile(tmp_path / "core")


def found(path: Path) -> Found:
    return Found(path, True, path.stat())


def test_a_moved_core_unpacks_to_the_same_bytes_and_is_small(tmp_path: Path) -> None:
    source, case = tmp_path / "core", tmp_path / "case"
    case.mkdir()
    with source.open("wb") as file:
        file.write(os.urandom(5_000_000))
        file.seek(200_000_000, os.SEEK_CUR)
        file.write(b"end" * 1000)
    digest = source.read_bytes()
    kept = move_core(found(source), case, 7, 10**9)
    assert kept.name == "core.7.gz" and not source.exists() and kept.stat().st_mode & 0o777 == 0o600
    assert kept.stat().st_size < 7_000_000
    assert gzip.decompress(kept.read_bytes()) == digest


def test_one_that_is_too_large_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(os.urandom(100_000))
    with pytest.raises(TooLarge):
        move_core(found(tmp_path / "core"), tmp_path, 7, 50_000)
    assert [entry.name for entry in tmp_path.iterdir()] == ["core"]


def test_one_that_another_process_has_replaced_is_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(b"ours")
    ours = found(tmp_path / "core")
    (tmp_path / "next").write_bytes(b"theirs")
    (tmp_path / "next").rename(tmp_path / "core")
    with pytest.raises(Replaced):
        move_core(ours, tmp_path, 7, 10**9)
    assert [entry.name for entry in tmp_path.iterdir()] == ["core"]
    assert (tmp_path / "core").read_bytes() == b"theirs"


def test_the_users_own_core_gets_a_second_name(tmp_path: Path) -> None:
    (tmp_path / "case").mkdir()
    (tmp_path / "core").write_bytes(b"x")
    assert link_core(tmp_path / "core", tmp_path / "case", 7).samefile(tmp_path / "core")


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    values = {"own": (0, resource.RLIM_INFINITY)}
    monkeypatch.setattr("resource.getrlimit", lambda which: values["own"])
    return values


def test_auto_raises_a_limit_of_zero_within_bounds(limits: dict[str, tuple[int, int]]) -> None:
    limit = CoreLimit("auto")
    assert 0 < limit.wanted <= 1024**3 and limit.is_ours and limit.why_none is None


def test_auto_leaves_alone_who_asked_for_cores(limits: dict[str, tuple[int, int]]) -> None:
    limits["own"] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    limit = CoreLimit("auto")
    assert limit.wanted == resource.RLIM_INFINITY and not limit.is_ours


def test_a_hard_limit_and_never_are_reasons(limits: dict[str, tuple[int, int]]) -> None:
    assert "never was asked for" in CoreLimit("never").why_none[0]
    limits["own"] = (0, 0)
    assert "hard limit" in CoreLimit("auto").why_none[0]
    limits["own"] = (0, 4096)
    assert CoreLimit("auto").wanted == 4096 and CoreLimit("always").wanted == 4096


def test_cores_add_only_what_the_link_has_not_seen() -> None:
    thread = CrashThread(1, None, True, (), "pystack native-all")
    told = crash(pid=1, step="none")
    read = crash(thread, pid=1, step="native-all", origin="core", si_code=-6)
    (merged,) = add_crashes((told,), (read,))
    assert (merged.origin, merged.si_code, merged.threads) == ("crash link", told.si_code, (thread,))
    raw = crash(pid=1, step="raw", origin="core")
    assert add_crashes((told,), (raw,)) == (told,)
    seen = crash(CrashThread(1, None, True, (PYTHON_FRAME,), "py-spy"), pid=1, step="python")
    by_gdb = crash(CrashThread(1, None, True, (NATIVE_FRAME,), "gdb core"), pid=1, step="native", origin="core")
    (both,) = add_crashes((seen,), (by_gdb,))
    assert both.threads[0].frames == (NATIVE_FRAME, PYTHON_FRAME)
    other = crash(pid=2, step="raw", origin="core")
    assert add_crashes((told,), (other,)) == (told, other)


def test_a_core_knows_what_was_where_in_a_process_that_had_left_before_the_look() -> None:
    batch, other = (Mapping("0x1000", "0x2000", "rw-p", path) for path in ("/dev/shm/batch", "/dev/shm/other"))
    left, held = crash(pid=1, step="none", mappings=()), crash(pid=1, step="none", mappings=(other,))
    read = crash(pid=1, step="raw", origin="core", mappings=(batch,))
    assert add_crashes((left,), (read,))[0].mappings == (batch,)
    assert add_crashes((held,), (read,))[0].mappings == (other,)
