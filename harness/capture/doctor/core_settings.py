"""Whether a crash would leave a core, and where it would go; man 5 core.

Reads limits and settings; writes no core and moves none. `root` is a variable so that a made-up tree can be tested.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from harness.evidence.facility import Seen

_ROOT = Path("/")
_NO_CORES = "a core is thrown away"
_CORE_FIX = "sudo sysctl kernel.core_pattern=core.%p"


def core_limit() -> Seen:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if soft == resource.RLIM_INFINITY:
        return Seen("yes", "RLIMIT_CORE is unlimited: a core file may be written")
    if soft:
        return Seen("yes", f"RLIMIT_CORE: a core file is cut off after {soft} bytes")
    if hard:
        how = "not limited further" if hard == resource.RLIM_INFINITY else f"at most to {hard:,} bytes"
        return Seen("yes", f"RLIMIT_CORE is 0 in this shell; harness run raises it for its command ({how})")
    why = "RLIMIT_CORE is 0, and so is its hard limit"
    fix = "sudo prlimit --core=unlimited --pid $$"
    return Seen("no", "no core file is written when a process crashes", why=why, fix=fix)


def core_destination(root: Path = _ROOT) -> Seen:
    """Where a core would go; man 5 core. A helper runs outside of containers, so its file proves nothing here."""
    pattern = (root / "proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith("@"):
        why = f"core_pattern is {pattern}: a socket, and only its owner knows what is kept"
        return Seen("unknown", "cores go to another program", why=why)
    if pattern.startswith("|"):
        return _core_helper(pattern)
    if not pattern:
        return _core_without_pattern(root)
    if pattern.startswith("/"):
        return _core_file(pattern, root)
    return Seen("yes", f"a core becomes the file {pattern} in the working directory of the process that died")


def _core_helper(pattern: str) -> Seen:
    program = (pattern[1:].split() or [""])[0]
    name = Path(program).name
    if name in ("", "false", "true"):
        return Seen("no", _NO_CORES, why=f"core_pattern is {pattern}", fix=_CORE_FIX)
    if name == "systemd-coredump":
        return Seen("yes", "systemd-coredump keeps cores: coredumpctl list; --core never cannot keep them from it")
    if name == "apport":
        return Seen("yes", "apport keeps cores as reports in /var/crash: apport-unpack")
    why = f"core_pattern is {pattern}: only that program knows what it keeps"
    return Seen("unknown", f"cores go to {program}", why=why)


def _core_without_pattern(root: Path) -> Seen:
    if (root / "proc/sys/kernel/core_uses_pid").read_text().strip() != "0":
        return Seen("yes", "a core becomes the hidden file .PID in the working directory of the process that died")
    return Seen("no", _NO_CORES, why="core_pattern is empty", fix=_CORE_FIX)


def _core_file(pattern: str, root: Path) -> Seen:
    folder = pattern.rpartition("/")[0]
    if pattern == "/dev/null":
        return Seen("no", _NO_CORES, why=f"core_pattern is {pattern}", fix=_CORE_FIX)
    if "%" not in folder and not os.access(root / folder.lstrip("/"), os.W_OK | os.X_OK):
        why = f"core_pattern is {pattern}, and this user cannot write into {folder or '/'}"
        return Seen("no", "a core has nowhere to go", why=why, fix=f"sudo install -d -m 1777 {folder}")
    return Seen("yes", f"a core becomes the file {pattern}")
