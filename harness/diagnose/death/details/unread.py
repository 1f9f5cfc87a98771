"""A stack that was not read: why, and the command that reads it, which is never the one that was just run.

Pure. What was read is judged elsewhere.
"""

from __future__ import annotations

import shlex
from pathlib import PurePath

from harness.diagnose.death.reading import Reading
from harness.evidence.gap import Gap
from harness.evidence.run import Process, name_signal

_ALL_STACKS = "-ex 'thread apply all bt'"
# They start the command with an environment of their own, in which nothing of ours is left; options that take a word.
_CLEANING = {
    "sudo": frozenset({"-u", "-g", "-p", "-C", "-D", "-R", "-T", "-h", "-r", "-t", "-U"}),
    "doas": frozenset({"-u", "-C"}),
}
_WITHOUT_LINK = "the dying process itself"  # the gap in which capture says why there was no crash link


def tell_unread(reading: Reading) -> Gap:
    """Of a crash of which neither the crash link nor a core tells."""
    return Gap("native stack", _why(reading), find_reader(reading))


def _why(reading: Reading) -> str:
    if reading.is_log:
        return "a log has none"
    if no_link := _no_link(reading):
        return f"there was no crash link: {no_link}"
    if cleaner := _cleaner(reading):
        return f"{cleaner} starts its command with an environment of its own: the crash link was not in that process"
    if earlier := _earlier_signal(reading):
        return f"the crash link looked when {earlier} came; what ended it came later, in a handler of the process's own"
    return "the crash link was not in that process (its environment was cleared, or it is static or setuid)"


def _earlier_signal(reading: Reading) -> str | None:
    """Another fatal one, which the link saw; faulthandler of 3.14 faults itself where the stack is damaged."""
    own = [name_signal(crash.signo) for crash in reading.evidence.crashes if crash.pid == reading.culprit.pid]
    return own[0] if own else None


def _no_link(reading: Reading) -> str | None:
    return next((gap.why for gap in reading.evidence.gaps if gap.what == _WITHOUT_LINK), None)


def is_read_by_gdb(reading: Reading) -> bool:
    """Then there is nothing more to be had from it: what has no lines was built without them."""
    return reading.crash is not None and any(
        one.crashed and one.source.startswith("gdb") for one in reading.crash.threads
    )


def find_reader(reading: Reading) -> str:
    """The core first: it is there, and a second run may end otherwise."""
    if command := _read_core(reading):
        return command
    if _cleaner(reading):
        return shlex.join(_behind(reading.evidence.argv))
    if "setuid" in (_no_link(reading) or ""):
        return f"sudo harness run -- {reading.command}"
    if "--inject none" in (_no_link(reading) or ""):
        return f"harness run -- {reading.command}"
    return f"gdb -batch -ex run {_ALL_STACKS} --args {reading.command or 'COMMAND'}"


def _read_core(reading: Reading) -> str | None:
    core = next((core.path for core in reading.evidence.cores if core.pid == reading.culprit.pid), None)
    program = _program(reading)
    if core is None or program is None:
        return None
    unpacked = core.removesuffix(".gz")
    unpack = f"gunzip -k {shlex.quote(core)} && " if unpacked != core else ""
    return f"{unpack}gdb -batch {_ALL_STACKS} {shlex.quote(program)} {shlex.quote(unpacked)}"


def _program(reading: Reading) -> str | None:
    process = _process(reading)
    return process.executable or next(iter(process.argv), None) if process else None


def _process(reading: Reading) -> Process | None:
    return next((one for one in reading.evidence.processes if one.pid == reading.culprit.pid), None)


def _cleaner(reading: Reading) -> str | None:
    name = PurePath(next(iter(reading.evidence.argv), "")).name
    return name if name in _CLEANING else None


def _behind(argv: tuple[str, ...]) -> list[str]:
    """`sudo -u ann job` becomes `sudo -u ann harness run -- job`."""
    with_word = _CLEANING[PurePath(argv[0]).name]
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        at += 2 if argv[at] in with_word else 1
        if argv[at - 1] == "--":
            break
    return [*argv[:at], "harness", "run", "--", *argv[at:]]
