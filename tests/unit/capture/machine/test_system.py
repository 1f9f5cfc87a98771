"""The kernel's lines about our processes, and the control groups of a made-up tree."""

from __future__ import annotations

import time
from pathlib import Path

from harness.capture.machine import cgroup
from harness.capture.machine.kernel_log import read_kernel_lines


def record(time_s: float, text: str) -> str:
    return f"6,1,{int(time_s * 1e6)},-;{text}\n"


def test_lines_of_our_processes_since_the_start_are_kept_and_no_others(tmp_path: Path) -> None:
    """One record per read, as the device gives them; a regular file gives them all at once, so one file each."""
    now = time.monotonic()
    for name, text, pids, kept in (
        ("ours", record(now, "python[41]: segfault at 0"), {41}, True),
        ("another", record(now, "python[4100]: segfault at 0"), {41}, False),
        ("before", record(now - 5000, "python[41]: segfault at 0"), {41}, False),
    ):
        (tmp_path / name).write_text(text)
        lines, gap = read_kernel_lines(pids, int(now * 1e9), tmp_path / name)
        assert gap is None
        assert [line.text for line in lines] == (["python[41]: segfault at 0"] if kept else [])


def test_a_log_that_cannot_be_read_is_a_gap_with_its_reason(tmp_path: Path) -> None:
    lines, gap = read_kernel_lines({1}, 0, tmp_path / "absent")
    assert lines == () and gap is not None and "No such file" in gap.why


def make_tree(root: Path, line: str, files: dict[str, str]) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(line)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_version_2_counts_along_the_whole_chain(tmp_path: Path) -> None:
    files = {
        "memory.events": "low 0\noom_kill 7\n",
        "job/memory.events": "oom 1\noom_kill 2\n",
        "job/memory.max": "209715200\n",
        "memory.max": "max\n",
    }
    make_tree(tmp_path, "0::/job\n", files)
    assert sorted(cgroup.read_oom_counts(tmp_path).values()) == [2, 7]
    assert [limit for limit, _ in cgroup.read_limits(tmp_path)] == [209715200]


def test_version_1_has_its_own_files(tmp_path: Path) -> None:
    files = {
        "memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        "memory/job/memory.limit_in_bytes": "1000\n",
    }
    make_tree(tmp_path, "5:cpu:/x\n4:memory:/job\n0::/\n", files)
    assert list(cgroup.read_oom_counts(tmp_path).values()) == [3]
    assert [limit for limit, _ in cgroup.read_limits(tmp_path)] == [1000]


def test_no_group_is_not_a_count_of_zero(tmp_path: Path) -> None:
    make_tree(tmp_path, "0::/hidden\n", {"other/file": ""})
    assert cgroup.read_oom_counts(tmp_path) == {}
