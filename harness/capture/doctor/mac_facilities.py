"""What can be observed on a Mac: its protection, its developer tools, where it keeps cores and crash reports.

Asks the system's own tools; their words were taken from Apple's documentation and manual pages, and no row has run on
a Mac yet. `ask` and `root` are variables so that recorded answers can be tested.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from harness.capture.machine.trust import look_for_program
from harness.evidence.facility import Seen

_DEADLINE_S = 5
Ask = Callable[[list[str]], str]


def ask_tool(command: list[str]) -> str:
    """What it prints, on either channel; raises what subprocess raises, and OSError where it may not be run."""
    name, *words = command
    program, why = look_for_program(name)
    if program is None:
        raise OSError(why)
    done = subprocess.run(
        [program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
    )
    return done.stdout + done.stderr


def system_protection(ask: Ask = ask_tool) -> Seen:
    """man 8 csrutil: "System Integrity Protection status: enabled."."""
    detail = "programs of the system (/bin/bash, /usr/bin/python3) keep our library and debuggers out"
    said = ask(["csrutil", "status"]).strip()
    if "status: enabled" in said:
        return Seen("yes", "System Integrity Protection is on: only a Python of your own can be watched")
    if "status: disabled" in said:
        return Seen("yes", "System Integrity Protection is off: every program can be watched")
    return Seen("unknown", detail, why=f"csrutil status: {said or 'no answer'}")


def developer_tools(ask: Ask = ask_tool) -> Seen:
    """man 1 xcode-select; lldb, sample and atos come with them."""
    said = ask(["xcode-select", "-p"]).strip()
    if said.startswith("/"):
        return Seen("yes", f"lldb, atos and vmmap: {said}")
    return Seen("no", "lldb, atos and vmmap", why=said or "xcode-select gave no answer", fix="xcode-select --install")


def debugging_allowed(ask: Ask = ask_tool) -> Seen:
    """man 1 DevToolsSecurity: "Developer mode is currently enabled."."""
    detail = "attaching to your own processes without a password"
    said = ask(["DevToolsSecurity", "-status"]).strip()
    if "enabled" in said:
        return Seen("yes", detail)
    return Seen("no", detail, why=said or "DevToolsSecurity gave no answer", fix="sudo DevToolsSecurity -enable")


def core_directory(root: Path = Path("/")) -> Seen:
    """man 5 core of macOS: kern.corefile is /cores/core.%P."""
    folder = root / "cores"
    if os.access(folder, os.W_OK | os.X_OK):
        return Seen("yes", "cores go to /cores/core.PID (ulimit -c unlimited)")
    why = "/cores is not there" if not folder.exists() else "/cores cannot be written by this user"
    return Seen("no", "a core has nowhere to go", why=why, fix="sudo install -d -m 1777 /cores")


def crash_reports(home: Path | None = None) -> Seen:
    """ReportCrash writes an .ips file some seconds after a crash."""
    folder = (home or Path.home()) / "Library/Logs/DiagnosticReports"
    if os.access(folder, os.R_OK | os.X_OK):
        return Seen("yes", f"ReportCrash writes them to {folder}")
    fix = "launchctl load -w /System/Library/LaunchAgents/com.apple.ReportCrash.plist"
    return Seen("no", "the system's own crash reports (.ips)", why=f"{folder} is not there or not readable", fix=fix)
