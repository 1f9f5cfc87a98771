"""Rows of `harness doctor` about the machine, on made-up trees and recorded answers: yes, no and a near-miss."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.capture.doctor import mac_facilities, provisions
from harness.capture.machine import killers

HOST, CONTAINER = "pid:[4026531836]", "pid:[4026532000]"


def make(root: Path, files: dict[str, str], namespace: str = HOST) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "proc/self/ns").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/ns/pid").symlink_to(namespace)
    return root


@pytest.mark.parametrize(
    ("files", "namespace", "words"),
    [
        ({}, HOST, "none: pids"),
        ({".dockerenv": ""}, HOST, "none: pids"),
        ({".dockerenv": ""}, CONTAINER, "inside docker"),
        ({"run/.containerenv": ""}, CONTAINER, "inside podman"),
        ({}, CONTAINER, "a pid namespace of its own"),
    ],
)
def test_container(tmp_path: Path, files: dict[str, str], namespace: str, words: str) -> None:
    assert words in provisions.container(make(tmp_path, files, namespace)).detail


def test_memory_limit_names_the_group_that_sets_less(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/job"
    files = {"proc/meminfo": "MemTotal: 8388608 kB\n", "proc/self/cgroup": "0::/job\n"}
    files |= {f"{group}/memory.events": "oom_kill 0\n", f"{group}/memory.max": str(2 * 2**30)}
    root = make(tmp_path, files)
    assert "2.0 of 8.0 GiB" in provisions.memory_limit(root).detail
    (root / group / "memory.max").write_text("max")
    assert "no control group sets less" in provisions.memory_limit(root).detail
    (root / "proc/meminfo").unlink()
    assert provisions.memory_limit(root).state == provisions.swap(root).state == "unknown"


@pytest.mark.parametrize(("total", "words"), [(0, "none: a job"), (4194304, "4.0 GiB, 1.0 used")])
def test_swap(tmp_path: Path, total: int, words: str) -> None:
    root = make(tmp_path, {"proc/meminfo": f"SwapTotal: {total} kB\nSwapFree: {total * 3 // 4} kB\n"})
    assert words in provisions.swap(root).detail


@pytest.mark.parametrize(("mode", "state"), [("0", "yes"), ("1", "yes"), ("2", "no")])
def test_overcommit(tmp_path: Path, mode: str, state: str) -> None:
    kernel = {"proc/sys/vm/overcommit_memory": mode, "proc/sys/vm/overcommit_ratio": "50"}
    seen = provisions.overcommit(make(tmp_path, kernel))
    assert seen.state == state and bool(seen.fix) == (state == "no")


def shm(monkeypatch: pytest.MonkeyPatch, size: int, free: int) -> None:
    room = SimpleNamespace(f_blocks=size, f_bavail=free, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda path: room)


def test_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make(tmp_path, {".dockerenv": ""}, CONTAINER)
    missing = provisions.shared_memory(root)
    assert (missing.state, missing.fix) == ("no", "sudo mount -t tmpfs -o size=8G tmpfs /dev/shm")
    shm(monkeypatch, 64 * 2**20, 64 * 2**20)
    assert provisions.shared_memory(root).fix == "docker run --shm-size=8g …"
    shm(monkeypatch, 8 * 2**30, 2**20)
    assert "who fills it" in (provisions.shared_memory(root).why or "")
    shm(monkeypatch, 8 * 2**30, 2**30)
    assert provisions.shared_memory(root).state == "yes"


@pytest.mark.parametrize(
    ("which", "value", "state"),
    [
        (None, 0, "yes"),
        (resource.RLIMIT_AS, 2**40, "no"),
        (resource.RLIMIT_CPU, 60, "no"),
        (resource.RLIMIT_NOFILE, 256, "no"),
        (resource.RLIMIT_NOFILE, 1024, "yes"),
    ],
)
def test_user_limits(monkeypatch: pytest.MonkeyPatch, which: int | None, value: int, state: str) -> None:
    usual = {resource.RLIMIT_NOFILE: 65536}
    limits = usual if which is None else {**usual, which: value}
    monkeypatch.setattr(resource, "getrlimit", lambda number: (limits.get(number, resource.RLIM_INFINITY), -1))
    seen = provisions.user_limits()
    assert seen.state == state and bool(seen.fix) == (state == "no")


@pytest.mark.parametrize(
    ("error", "contained", "state", "fix"),
    [
        (0, False, "yes", None),
        (errno.EPERM, False, "no", "sudo harness run …"),
        (errno.ENOENT, False, "no", "harness run, on the host itself"),
        (0, True, "no", "harness run, on the host itself"),
    ],
)
def test_who_kills(monkeypatch: pytest.MonkeyPatch, error: int, contained: bool, state: str, fix: str | None) -> None:
    closed: list[int] = []
    library = SimpleNamespace(harness_kills_open=lambda signos, count: -error or 7, harness_kills_close=closed.append)
    monkeypatch.setattr(killers.native, "load", lambda: (SimpleNamespace(new=lambda *words: None), library))
    monkeypatch.setattr(killers, "is_initial_namespace", lambda: not contained)
    seen = provisions.signal_tracing()
    assert closed == ([7] if state == "yes" else [])
    assert (seen.state, seen.fix) == (state, fix) and bool(seen.why) == (state == "no")


def test_rows_of_a_mac(tmp_path: Path) -> None:
    def say(words: str) -> mac_facilities.Ask:
        return lambda command: words

    sip = "System Integrity Protection status: {}.\n"
    assert "is on" in mac_facilities.system_protection(say(sip.format("enabled"))).detail
    assert "is off" in mac_facilities.system_protection(say(sip.format("disabled"))).detail
    assert mac_facilities.system_protection(say("unknown (Custom Configuration).")).state == "unknown"
    assert mac_facilities.developer_tools(say("/Library/Developer/CommandLineTools\n")).state == "yes"
    error = "xcode-select: error: unable to get active developer directory, use `sudo xcode-select --switch`"
    assert mac_facilities.developer_tools(say(error)).fix == "xcode-select --install"
    assert mac_facilities.debugging_allowed(say("Developer mode is currently enabled.\n")).state == "yes"
    assert mac_facilities.debugging_allowed(say("Developer mode is currently disabled.\n")).state == "no"
    assert mac_facilities.core_directory(tmp_path).fix == "sudo install -d -m 1777 /cores"
    (tmp_path / "cores").mkdir()
    assert mac_facilities.core_directory(tmp_path).state == "yes"
    assert mac_facilities.crash_reports(tmp_path).state == "no"
    (tmp_path / "Library/Logs/DiagnosticReports").mkdir(parents=True)
    assert mac_facilities.crash_reports(tmp_path).state == "yes"
