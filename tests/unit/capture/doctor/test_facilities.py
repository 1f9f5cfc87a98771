"""Facilities that are read from files, in made-up trees: a yes, a no and a near-miss of each."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from harness.capture.doctor import facilities
from harness.evidence.facility import Seen

NO_CAPABILITY = "Name:\tpython\nCapEff:\t0000000000000000\nSeccomp:\t0\n"
CAN_TRACE = "Name:\tpython\nCapEff:\t0000000000080000\nSeccomp:\t0\n"  # bit 19, linux/capability.h
FILTERED = "Name:\tpython\nCapEff:\t0000000000000000\nSeccomp:\t2\n"
DOCKER_PTRACE = "docker run --cap-add=SYS_PTRACE …"
SYSCTL_PTRACE = "sudo sysctl kernel.yama.ptrace_scope=0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "proc/self/status", NO_CAPABILITY)
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# The process list


def test_proc_is_mounted(root: Path) -> None:
    write(root, "proc/self/stat", "1 (python) R")
    assert facilities.process_list(root).state == "yes"


def test_an_empty_proc_directory_is_not_a_mounted_one(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    seen = facilities.process_list(tmp_path)
    assert (seen.state, seen.fix) == ("no", "mount -t proc proc /proc")


def mount(point: str, options: str, file_system: str = "proc") -> str:
    return f"22 27 0:21 / {point} rw,nosuid shared:5 - {file_system} {file_system} {options}\n"


@pytest.mark.parametrize(
    ("mounts", "state"),
    [
        (mount("/proc", "rw"), "yes"),
        (mount("/proc", "rw,hidepid=0"), "yes"),
        (mount("/proc", "rw,hidepid=off"), "yes"),
        (mount("/proc", "rw,hidepid=2"), "no"),
        (mount("/proc", "rw,hidepid=invisible"), "no"),
        (mount("/proc", "rw,gid=4294967294,hidepid=noaccess"), "no"),
        # Another proc mount, and one below /proc, say nothing about /proc; of two on it the upper one counts.
        (mount("/proc", "rw") + mount("/chroot/proc", "rw,hidepid=2"), "yes"),
        (mount("/proc", "rw") + mount("/proc/sys/fs/binfmt_misc", "rw,hidepid=2", "binfmt_misc"), "yes"),
        (mount("/proc", "rw") + mount("/proc", "rw,hidepid=2"), "no"),
        (mount("/proc", "rw,hidepid=2") + mount("/proc", "rw"), "yes"),
        # The group named by gid= is exempt, but not from hidepid=4; Documentation/filesystems/proc.rst.
        (mount("/proc", f"rw,gid={os.getegid()},hidepid=2"), "yes"),
        (mount("/proc", f"rw,gid={os.getegid()},hidepid=ptraceable"), "no"),
    ],
)
def test_hidepid(root: Path, mounts: str, state: str) -> None:
    write(root, "proc/self/mountinfo", mounts)
    seen = facilities.processes_of_others(root)
    assert (seen.state, seen.fix) == (state, "sudo mount -o remount,hidepid=0 /proc" if state == "no" else None)


def test_hidepid_does_not_apply_to_who_may_trace_anything(root: Path) -> None:
    write(root, "proc/self/mountinfo", mount("/proc", "rw,hidepid=2"))
    write(root, "proc/self/status", CAN_TRACE)
    assert facilities.processes_of_others(root).state == "yes"


# ptrace


@pytest.mark.parametrize("scope", [0, 1, 2, 3])
def test_yama_scope_is_read(root: Path, scope: int) -> None:
    write(root, "proc/sys/kernel/yama/ptrace_scope", f"{scope}\n")
    assert facilities.read_ptrace_scope(root) == scope


def test_no_yama_is_not_a_scope(root: Path) -> None:
    assert facilities.read_ptrace_scope(root) is None


def test_a_scope_that_is_no_number_is_not_guessed(root: Path) -> None:
    write(root, "proc/sys/kernel/yama/ptrace_scope", "restricted\n")
    with pytest.raises(ValueError, match="restricted"):
        facilities.read_ptrace_scope(root)


@pytest.mark.parametrize(
    ("scope", "status", "words", "fix"),
    [
        ("1", NO_CAPABILITY, "ptrace_scope=1", SYSCTL_PTRACE),
        ("2", NO_CAPABILITY, "ptrace_scope=2", SYSCTL_PTRACE),
        ("3", NO_CAPABILITY, "until the next boot", "reboot"),
        ("3", CAN_TRACE, "until the next boot", "reboot"),
        # Yama allows it, so somebody else refused: lowering the scope would not help.
        ("0", NO_CAPABILITY, "security module", DOCKER_PTRACE),
        ("1", CAN_TRACE, "security module", DOCKER_PTRACE),
        ("0", FILTERED, "seccomp", DOCKER_PTRACE),
        (None, FILTERED, "seccomp", DOCKER_PTRACE),
        (None, NO_CAPABILITY, "security module", DOCKER_PTRACE),
    ],
)
def test_a_refusal_is_blamed_on_who_refused(root: Path, scope: str | None, status: str, words: str, fix: str) -> None:
    write(root, "proc/self/status", status)
    if scope is not None:
        write(root, "proc/sys/kernel/yama/ptrace_scope", scope + "\n")
    why, remedy = facilities.explain_refusal(root)
    assert words in why
    assert remedy.endswith(fix)


# The kernel log


def test_kernel_log_is_readable(root: Path) -> None:
    write(root, "dev/kmsg", "6,1,0,-;Linux version 6.18\n")
    assert facilities.kernel_log(root).state == "yes"


def test_kernel_log_is_not_given_to_a_container(root: Path) -> None:
    write(root, "proc/sys/kernel/dmesg_restrict", "1\n")  # not the reason: there is nothing to open
    seen = facilities.kernel_log(root)
    assert (seen.state, seen.fix) == ("no", "docker run --device /dev/kmsg --cap-add=SYSLOG …")


@pytest.mark.parametrize(
    ("number", "restricted", "fix"),
    [
        (errno.EPERM, "1", "sudo sysctl kernel.dmesg_restrict=0"),
        (errno.EPERM, "0", "docker run --device /dev/kmsg --cap-add=SYSLOG …"),  # the container's device list
        (errno.EACCES, "1", "sudo chmod a+r /dev/kmsg"),  # the mode is looked at before dmesg_restrict
        (errno.EACCES, "0", "sudo chmod a+r /dev/kmsg"),
    ],
)
def test_a_refused_kernel_log_is_blamed_by_errno(root: Path, number: int, restricted: str, fix: str) -> None:
    write(root, "proc/sys/kernel/dmesg_restrict", restricted + "\n")
    assert facilities._why_no_kernel_log(OSError(number, os.strerror(number)), root)[1] == fix


def test_a_kernel_log_that_cannot_be_opened_for_another_reason_is_not_checked(root: Path) -> None:
    (root / "dev").mkdir()
    (root / "dev/kmsg").symlink_to("kmsg")
    row = facilities._look("kernel log", lambda: facilities.kernel_log(root))
    assert (row.state, row.fix) == ("unknown", None)
    assert "Too many levels of symbolic links" in (row.why or "")


# Control groups

V1 = "4:memory:/job\n0::/\n"
V2 = "0::/user.slice/job.scope\n"


def test_oom_counters_of_v2(root: Path) -> None:
    write(root, "proc/self/cgroup", V2)
    write(root, "sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    write(root, "sys/fs/cgroup/user.slice/job.scope/memory.events", "low 0\noom 0\noom_kill 0\n")
    seen = facilities.oom_counters(root)
    assert seen.state == "yes"
    assert "v2" in seen.detail and "user.slice/job.scope" in seen.detail


def test_oom_counters_of_v1_on_a_hybrid_system(root: Path) -> None:
    write(root, "proc/self/cgroup", V1)
    write(root, "sys/fs/cgroup/unified/cgroup.controllers", "\n")
    write(root, "sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    seen = facilities.oom_counters(root)
    assert seen.state == "yes"
    assert "v1" in seen.detail and "memory/job" in seen.detail


def test_a_group_that_does_not_count_oom_kills(root: Path) -> None:
    write(root, "proc/self/cgroup", V1)
    write(root, "sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n")
    seen = facilities.oom_counters(root)
    assert seen.state == "no"
    assert "4.13" in (seen.why or "")


def test_the_root_group_of_v2_counts_nothing(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/\n")
    write(root, "sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    seen = facilities.oom_counters(root)
    assert seen.state == "no"
    assert (seen.fix or "").startswith("systemd-run --user --scope")


def test_no_control_groups(root: Path) -> None:
    write(root, "proc/self/cgroup", "")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    seen = facilities.oom_counters(root)
    assert (seen.state, seen.fix) == ("no", "sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup")


# Cores; man 5 core

RESET = "sudo sysctl kernel.core_pattern=core.%p"


@pytest.mark.parametrize(
    ("pattern", "state", "words", "fix"),
    [
        ("core", "yes", "working directory", None),
        ("core.%e.%p", "yes", "core.%e.%p in the working directory", None),
        ("cores/|/bin/false", "yes", "working directory", None),
        ("|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h", "yes", "coredumpctl", None),
        ("|/usr/share/apport/apport -p%p -s%s", "yes", "/var/crash", None),
        ("|/opt/site/collect-core %p", "unknown", "/opt/site/collect-core", None),
        ("|/opt/not-systemd-coredump %p", "unknown", "/opt/not-systemd-coredump", None),
        ("@/run/coredump.socket", "unknown", "another program", None),
        ("|/bin/false", "no", "thrown away", RESET),
        ("|/usr/bin/true %p", "no", "thrown away", RESET),
        ("|", "no", "thrown away", RESET),
        ("/dev/null", "no", "thrown away", RESET),
        ("/var/cores/core.%p", "yes", "/var/cores/core.%p", None),
        ("/var/%e/core", "yes", "/var/%e/core", None),
        ("/var/missing/core.%p", "no", "nowhere to go", "sudo install -d -m 1777 /var/missing"),
    ],
)
def test_core_pattern(root: Path, pattern: str, state: str, words: str, fix: str | None) -> None:
    (root / "var/cores").mkdir(parents=True)
    (root / "dev").mkdir()
    write(root, "proc/sys/kernel/core_pattern", pattern + "\n")
    seen = facilities.core_destination(root)
    assert (seen.state, seen.fix) == (state, fix)
    assert words in seen.detail
    assert (seen.why is None) == (state == "yes")


@pytest.mark.parametrize(("uses_pid", "state"), [("0", "no"), ("1", "yes")])
def test_an_empty_core_pattern_is_a_hidden_file_only_with_core_uses_pid(root: Path, uses_pid: str, state: str) -> None:
    write(root, "proc/sys/kernel/core_pattern", "\n")
    write(root, "proc/sys/kernel/core_uses_pid", uses_pid + "\n")
    assert facilities.core_destination(root).state == state


# The guard


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied", "/proc/self/mountinfo"),
        subprocess.TimeoutExpired(["gdb", "--version"], 5),
        ValueError("invalid literal for int(): 'restricted'"),
        IndexError("list index out of range"),
    ],
)
def test_a_look_that_fails_is_a_row_that_says_so(error: Exception) -> None:
    def check() -> Seen:
        raise error

    row = facilities._look("gdb", check)
    assert (row.name, row.state, row.fix, row.essential) == ("gdb", "unknown", None, False)
    assert str(error) in (row.why or "")


def test_a_file_that_is_missing_is_could_not_check_not_no(tmp_path: Path) -> None:
    row = facilities._look("core destination", lambda: facilities.core_destination(tmp_path))
    assert row.state == "unknown"
    assert "core_pattern" in (row.why or "")


def test_what_was_never_tried_on_macos_is_not_claimed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row.name: row for row in facilities.look_at_facilities("darwin")}
    assert rows["native library"].essential
    assert rows["injection"].state == rows["attaching"].state == "unknown"
    assert "kernel log" not in rows and "OOM kill counters" not in rows


def test_an_unsupported_platform_has_no_facility() -> None:
    assert facilities.look_at_facilities("win32") == ()
