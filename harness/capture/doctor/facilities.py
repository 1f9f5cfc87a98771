"""What can be observed on this machine: each facility is tried where trying is harmless, else read from its file.

Judges nothing and changes nothing: what is switched on for a try belongs to a child, or is put back.
`root` is a variable so that a made-up tree can be tested.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import select
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import native
from harness.capture.doctor import mac_facilities, provisions
from harness.capture.doctor.core_settings import core_destination, core_limit
from harness.capture.machine import cgroup
from harness.capture.machine.trust import Checked, find_tool
from harness.capture.proc import read_exit, read_status_fields
from harness.capture.stacks.ladder import CARRIED
from harness.errors import HarnessError
from harness.evidence.facility import Facility, Seen

_DEADLINE_S = 5
_ROOT = Path("/")
_CAP_SYS_PTRACE = 1 << 19
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
# What the crash link does in a process that harness started: "my supervisor and its children may look" (man 2 prctl).
_ALLOW_PARENT = "import ctypes, os; ctypes.CDLL(None).prctl(0x59616D61, os.getppid(), 0, 0, 0); "
_READY_AND_WAIT = "print(flush=True); input()"
# py-spy 0.4.3 as another user: "Permission Denied: Try running again with elevated permissions by going 'sudo …"
_REFUSED = re.compile(r"permission denied|operation not permitted", re.IGNORECASE)
_SCOPES = {
    0: "any process of the same user",
    1: "only a process's own ancestors",
    2: "only with CAP_SYS_PTRACE",
    3: "nobody, until the next boot",
}


def look_at_facilities(platform: str) -> tuple[Facility, ...]:
    """Everything this platform could offer, the essential first. Elsewhere: on a host that was reached over ssh."""
    checks = {"linux": _LINUX, "linux elsewhere": _LINUX_ELSEWHERE, "darwin": _DARWIN}.get(platform, {})
    return tuple(_look(name, check) for name, check in checks.items())


def _look(name: str, check: Callable[[], Seen]) -> Facility:
    try:
        seen = check()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        seen = Seen("unknown", "could not be checked", why=str(error))
    except Exception as error:  # noqa: BLE001 (the guard around one look: a bug here costs one row)
        traceback.print_exc()
        seen = Seen("unknown", "could not be checked", why=f"{type(error).__name__}: {error}")
    return Facility(name, *seen, essential=name in _ESSENTIAL)


def native_library() -> Seen:
    try:
        native.load()
    except HarnessError as error:
        return Seen("no", str(native.LIBRARY), why=str(error), fix=error.hint)
    return Seen("yes", str(native.LIBRARY))


def process_list(root: Path = _ROOT) -> Seen:
    if (root / "proc/self/stat").exists():
        return Seen("yes", "/proc is mounted: every process below the command is followed")
    return Seen("no", "/proc is empty", why="the proc file system is not mounted", fix="mount -t proc proc /proc")


def processes_of_others(root: Path = _ROOT) -> Seen:
    """Mount option hidepid; Documentation/filesystems/proc.rst."""
    options = _proc_mount_options(root)
    hidden = options.get("hidepid", "0")
    if hidden in ("0", "off"):
        return Seen("yes", "/proc hides no process from anyone")
    if _may_trace_anything(root) or (hidden not in ("4", "ptraceable") and _in_group(options.get("gid"))):
        return Seen("yes", f"/proc is mounted with hidepid={hidden}, which does not apply to this user")
    why = f"/proc is mounted with hidepid={hidden}"
    return Seen("no", "only your own processes are visible", why=why, fix="sudo mount -o remount,hidepid=0 /proc")


def _proc_mount_options(root: Path) -> dict[str, str]:
    """Of the last mount on /proc, which is the one on top; man 5 proc_pid_mountinfo."""
    options: dict[str, str] = {}
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        mount, _, file_system = line.partition(" - ")
        if mount.split()[4] == "/proc":
            words = file_system.split()[-1].split(",")
            options = {name: value for name, _, value in (word.partition("=") for word in words)}
    return options


def _in_group(gid: str | None) -> bool:
    return gid is not None and int(gid) in {os.getegid(), *os.getgroups()}


def _may_trace_anything(root: Path) -> bool:
    return bool(int(_own_status(root, "CapEff") or "0", 16) & _CAP_SYS_PTRACE)


def _own_status(root: Path, key: str) -> str | None:
    return next(iter(read_status_fields("self", proc=root / "proc").get(key, [])), None)


def injection(python: str = sys.executable) -> Seen:
    """Loaded, not merely accepted: a static or setuid program ignores LD_PRELOAD without a word (man 8 ld.so)."""
    own = os.environ.get("LD_PRELOAD")
    variables = {"LD_PRELOAD": f"{own}:{native.LIBRARY}" if own else str(native.LIBRARY)}
    tried = _run([python, "-I", "-S", "-c", "print(open('/proc/self/maps').read())"], variables)
    kept = f"; your own LD_PRELOAD={own} stays in front of it" if own else ""
    if tried.returncode == 0 and str(native.LIBRARY.resolve()) in tried.stdout:
        return Seen("yes", f"LD_PRELOAD tried with {python}: the library is loaded{kept}")
    why, fix = _why_not_loaded(python, tried)
    return Seen("no", f"LD_PRELOAD tried with {python}: the library is not loaded{kept}", why=why, fix=fix)


def _why_not_loaded(python: str, tried: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    if re.search("[ :]", str(native.LIBRARY)):
        return "LD_PRELOAD cannot hold a path with a space or a colon", "install harness in another directory"
    if "ld.so" in tried.stderr or tried.returncode:
        return tried.stderr.strip() or f"{python} ended with status {tried.returncode}", native.REINSTALL
    if Path(python).stat().st_mode & 0o6000:
        return f"{python} is setuid or setgid, so the loader ignores LD_PRELOAD", f"sudo chmod ug-s {python}"
    with contextlib.suppress(OSError):
        os.getxattr(python, "security.capability")
        return f"{python} has capabilities, so the loader ignores LD_PRELOAD", f"sudo setcap -r {python}"
    return f"{python} ignores LD_PRELOAD: it is statically linked", "use a dynamically linked Python"


def stacks_of_own_children() -> Seen:
    return _try_attaching(_ALLOW_PARENT + _READY_AND_WAIT, "a command that harness run started")


def stacks_of_running_jobs() -> Seen:
    seen = _try_attaching(_READY_AND_WAIT, "your other processes")
    if seen.state != "yes":
        return seen
    return seen._replace(detail=f"{seen.detail}; {_describe_scope(read_ptrace_scope())}")


def _try_attaching(code: str, whose: str) -> Seen:
    """py-spy is no ancestor of the process it looks at here, so Yama judges it as it would in earnest."""
    detail = f"stops for a moment and reads the stacks of {whose}"
    spy, why = _find_tool("py-spy")
    if spy is None:
        return Seen("unknown", detail, why=f"py-spy would have been tried: {why}", fix=_PY_SPY_FIX)
    with _python_child(code) as pid:
        tried = _run([spy, "dump", "--pid", str(pid)], {"RUST_BACKTRACE": "0"})
    if tried.returncode == 0:
        return Seen("yes", detail)
    words = tried.stderr.strip()
    if not _REFUSED.search(words):
        return Seen("unknown", detail, why=f"py-spy was not refused, but failed: {words}")
    return Seen("no", detail, *explain_refusal())


@contextlib.contextmanager
def _python_child(code: str) -> Iterator[int]:
    """A Python process that has run `code` up to its first line of output and then waits."""
    command = [sys.executable, "-I", "-S", "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        try:
            if not select.select([child.stdout], [], [], _DEADLINE_S)[0]:
                raise subprocess.TimeoutExpired(command, _DEADLINE_S)
            yield child.pid
        finally:
            child.kill()


def read_ptrace_scope(root: Path = _ROOT) -> int | None:
    """Null without Yama, where nothing but the user id counts; Documentation/admin-guide/LSM/Yama.rst."""
    try:
        return int((root / "proc/sys/kernel/yama/ptrace_scope").read_text())
    except FileNotFoundError:
        return None


def _describe_scope(scope: int | None) -> str:
    if scope is None:
        return "no Yama here: any process of the same user"
    return f"Yama ptrace_scope={scope}: {_SCOPES.get(scope, 'a value unknown to harness')}"


def explain_refusal(root: Path = _ROOT) -> tuple[str, str]:
    """Why ptrace was refused, and the fix; a process with CAP_SYS_PTRACE is stopped by scope 3 alone."""
    scope = read_ptrace_scope(root)
    if scope == 3:
        return _describe_scope(scope), "remove kernel.yama.ptrace_scope=3 from /etc/sysctl.d and reboot"
    if scope and not _may_trace_anything(root):
        return _describe_scope(scope), "sudo sysctl kernel.yama.ptrace_scope=0"
    filtered = _own_status(root, "Seccomp") == "2"
    what = "a system call filter (seccomp)" if filtered else "a security module or a missing capability"
    return f"{what} refuses ptrace, as containers often do", "docker run --cap-add=SYS_PTRACE …"


def kernel_log(root: Path = _ROOT) -> Seen:
    detail = "the kernel's own lines about crashes and OOM kills (/dev/kmsg)"
    try:
        os.close(os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except (PermissionError, FileNotFoundError) as error:
        why, fix = _why_no_kernel_log(error, root)
        return Seen("no", detail, why=why, fix=fix)
    return Seen("yes", detail)


def _why_no_kernel_log(error: OSError, root: Path) -> tuple[str, str]:
    """/dev/kmsg gives EPERM for dmesg_restrict and for a container's device list, EACCES for its mode."""
    if error.errno == errno.EACCES:
        return "the mode of /dev/kmsg keeps this user out", "sudo chmod a+r /dev/kmsg"
    with contextlib.suppress(OSError):
        if (root / "proc/sys/kernel/dmesg_restrict").read_text().strip() != "0" and error.errno == errno.EPERM:
            return "kernel.dmesg_restrict=1: only root may read it", "sudo sysctl kernel.dmesg_restrict=0"
    why = f"{error.strerror}: /dev/kmsg is not given to this container"
    return why, "docker run --device /dev/kmsg --cap-add=SYSLOG …"


def oom_counters(root: Path = _ROOT) -> Seen:
    """Of the groups this process is in: what tells an OOM kill from any other SIGKILL."""
    version = cgroup_version(root)
    counts = cgroup.read_oom_counts(root)
    if counts:
        return Seen("yes", f"control groups {version}: OOM kills are counted in {next(iter(counts))}")
    detail = f"control groups {version or 'absent'}: no OOM kill counter"
    if version is None:
        return Seen("no", detail, "no control group file system", "sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup")
    if cgroup.memory_groups(root):
        return Seen("no", detail, "the kernel does not count them (Linux before 4.13)", "use a newer kernel")
    why = "this process is in no group with memory accounting"
    return Seen("no", detail, why, "systemd-run --user --scope -p MemoryAccounting=yes harness run …")


def cgroup_version(root: Path = _ROOT) -> str | None:
    """Of the memory controller; on a hybrid system that is v1."""
    base = root / "sys/fs/cgroup"
    if (base / "cgroup.controllers").exists():
        return "v2"
    return "v1" if (base / "memory").is_dir() else None


def py_spy() -> Seen:
    return _tool("py-spy", "Python stacks", _PY_SPY_FIX)


def pystack() -> Seen:
    return _tool("pystack", "native stacks of every thread", f"{sys.executable} -m pip install pystack")


def gdb() -> Seen:
    fix = "sudo apt-get install gdb  (elsewhere: dnf, zypper or conda install gdb)"
    return _tool("gdb", "core files and what the other two cannot read", fix, "-nx")


_PY_SPY_FIX = f"{sys.executable} -m pip install py-spy"


def _tool(name: str, purpose: str, fix: str, *options: str) -> Seen:
    path, why = _find_tool(name)
    if path is None:
        return Seen("no", f"reads {purpose}", why=why, fix=fix)
    answer = _run([path, *options, "--version"])
    if answer.returncode:
        words = answer.stderr.strip() or f"exit status {answer.returncode}"
        return Seen("no", f"reads {purpose}", why=f"{path} --version: {words}", fix=fix)
    version = answer.stdout.partition("\n")[0]
    return Seen("yes", f"reads {purpose}: {version}, {path}")


def _find_tool(name: str) -> Checked:
    return Checked(CARRIED[name]) if name in CARRIED else find_tool(name)


def orphans_adopted() -> Seen:
    """Tried on ourselves and put back."""
    detail = "a grandchild whose parent is gone comes to harness, with its exit status"
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int()
    if libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before)) or libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        why = f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(ctypes.get_errno())}"
        return Seen("no", detail, why=why, fix="use Linux 3.4 or newer, outside of a system call filter")
    libc.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)
    return Seen("yes", detail)


def exit_status_of_others() -> Seen:
    detail = "how processes ended that are not harness's own children (pidfd exit info)"
    if _status_after_collection() == 7 << 8:
        return Seen("yes", detail)
    why = f"this kernel ({os.uname().release}) does not tell; Linux does since 6.15"
    return Seen("no", detail, why=why, fix="use Linux 6.15 or newer")


def _status_after_collection() -> int | None:
    """Of a child that ended with 7 and was collected, as a grandchild is by its own parent."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "raise SystemExit(7)"], stdin=subprocess.DEVNULL) as child:
        try:
            pidfd = os.pidfd_open(child.pid)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            return None  # Linux before 5.3
        try:
            child.wait(_DEADLINE_S)
            return read_exit(pidfd, child.pid)[0]
        finally:
            os.close(pidfd)
            child.kill()


def _run(command: list[str], variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_DEADLINE_S,
        env={**os.environ, **(variables or {})},
        check=False,
    )


def _not_tried_here() -> Seen:
    return Seen("unknown", "not tried", why="harness has been compiled for this system, never run on it")


_ESSENTIAL = frozenset({"native library", "process list"})
_LINUX: dict[str, Callable[[], Seen]] = {
    "native library": native_library,
    "process list": process_list,
    "injection": injection,
    "ptrace, harness run": stacks_of_own_children,
    "ptrace, running jobs": stacks_of_running_jobs,
    "py-spy": py_spy,
    "pystack": pystack,
    "gdb": gdb,
    "adopting orphans": orphans_adopted,
    "exit statuses": exit_status_of_others,
    "OOM kill counters": oom_counters,
    "kernel log": kernel_log,
    "core size limit": core_limit,
    "core destination": core_destination,
    "others' processes": processes_of_others,
    "killers": provisions.signal_tracing,
    "container": provisions.container,
    "memory": provisions.memory_limit,
    "swap": provisions.swap,
    "overcommit": provisions.overcommit,
    "shared memory": provisions.shared_memory,
    "user limits": provisions.user_limits,
}
_LINUX_ELSEWHERE = {
    name: _LINUX[name]
    for name in (
        "process list",
        "ptrace, running jobs",
        "py-spy",
        "gdb",
        "exit statuses",
        "OOM kill counters",
        "kernel log",
        "others' processes",
    )
}
_DARWIN: dict[str, Callable[[], Seen]] = {
    "native library": native_library,
    "injection": _not_tried_here,
    "attaching": _not_tried_here,
    "py-spy": py_spy,
    "system protection": mac_facilities.system_protection,
    "developer tools": mac_facilities.developer_tools,
    "debugging": mac_facilities.debugging_allowed,
    "crash reports": mac_facilities.crash_reports,
    "core destination": mac_facilities.core_directory,
    "core size limit": core_limit,
    "user limits": provisions.user_limits,
}
