"""`harness run`: supervise, and if the command did not end well, judge and report.

What judges and reports is imported only when there is something to report: a command that ends well costs little.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from harness.capture.alive.quitting import is_asked_by_key, quit_ignored
from harness.capture.cgroup import read_oom_counts
from harness.capture.channels import hold_closed_descriptors, open_channels, say, settle
from harness.capture.injection import link_variables, why_not
from harness.capture.launch import find_command, open_processes, open_signals, spawn, stop_following
from harness.capture.link import Link
from harness.capture.supervise import Supervisor
from harness.commands.durations import parse_duration
from harness.errors import UsageError
from harness.evidence import case as cases

if TYPE_CHECKING:
    from harness.diagnose.verdict import Document
    from harness.evidence.model import Evidence

_HIDES_THE_FAULT = "KMP_DUPLICATE_LIB_OK"
# After a failure, what outlives the command (a resource tracker) gets this long for its last words.
_LAST_WORDS_S = 0.3


def run_command(arguments: argparse.Namespace) -> int:
    closed = hold_closed_descriptors()
    argv = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if arguments.json:
        hint = f"harness run --verdict verdict.json -- {' '.join(argv)}"
        raise UsageError("stdout belongs to the command, so run has no --json.", hint=hint)
    stall_after_s = _read_stall_options(arguments)
    path = find_command(argv)
    quit_looks = is_asked_by_key()
    started_ns = time.monotonic_ns()
    case, moved = cases.create_case(arguments.cases, argv, started_ns)
    _warn(moved)
    oom_before = read_oom_counts()
    try:
        channels = open_channels(closed)
        for channel in channels:
            channel.start_relay(case)
        signals_fd, processes_fd = open_signals(), open_processes()
        link, no_link = _open_link(path, arguments.inject)
        variables = link_variables(link.path, arguments.inject) if link else {}
        with quit_ignored() if quit_looks else contextlib.nullcontext():
            pid = spawn(path, argv, channels, variables)
    except BaseException:
        cases.remove_case(case)
        raise
    supervisor = Supervisor(pid, channels, case, started_ns, signals_fd, processes_fd, link)
    look = _make_look(arguments, case, channels[-1].name)
    ends_stalled = arguments.on_stall == "term"
    supervisor.watch_standstill(look, stall_after_s, ends_stalled=ends_stalled, quit_looks=quit_looks)
    status = supervisor.follow()
    supervisor.end_look()
    stop_following()
    settle(channels, at_least_s=_LAST_WORDS_S if status else 0.0)
    if link:
        link.close()
    noteworthy = bool(status) or supervisor.saw_crash() or _has_stalled(supervisor)
    if noteworthy or arguments.keep or arguments.verdict:
        evidence = _gather(supervisor, argv, oom_before, no_link)
        document = _judge(evidence, case)
        kept = keep_case(case, evidence, document, argv, started_ns)
        open_line = any(
            transcript.parts and transcript.parts[-1].unfinished for transcript in evidence.transcripts[-1:]
        )
        kept = kept and (noteworthy or arguments.keep)
        _report(document if kept else _without_case(document), arguments, left_a_line_open=open_line)
    if not (noteworthy or arguments.keep):
        cases.remove_case(case)
    return status


def _read_stall_options(arguments: argparse.Namespace) -> float | None:
    if arguments.stall_after is not None:
        return parse_duration(arguments.stall_after)
    if arguments.on_stall is not None:
        raise UsageError("--on-stall needs to know when.", hint="harness run --stall-after 10m --on-stall report …")
    return None


def _has_stalled(supervisor: Supervisor) -> bool:
    """Also when the command ended before the look, which had told of the case already."""
    return supervisor.stalled or (supervisor.case / "stall.json").exists()


def _make_look(arguments: argparse.Namespace, case: Path, channel: str) -> Callable[..., int]:
    def look(pids: tuple[int, ...], quiet_s: float | None, tell_if_moving: bool) -> int:
        from harness.commands.stall import Asked, look_at_job

        asked = Asked(pids, quiet_s, tell_if_moving, arguments.on_stall == "core", arguments.quiet)
        return look_at_job(asked, case, channel)

    return look


def _warn(moved: str | None) -> None:
    if moved:
        say(moved)
    if value := os.environ.get(_HIDES_THE_FAULT):
        say(
            f"{_HIDES_THE_FAULT}={value} is set. It does not fix two OpenMP runtimes in one process, it hides them: "
            f"hangs, crashes and wrong numbers follow. Without it: env -u {_HIDES_THE_FAULT} harness run …"
        )


def _open_link(path: str, inject: str) -> tuple[Link | None, str | None]:
    """The link, or why there is none."""
    if inject == "none":
        return None, "--inject none was asked for"
    trouble = why_not(path)
    return (None, trouble) if trouble else (Link(), None)


def _gather(supervisor: Supervisor, argv: list[str], oom_before: dict[str, int], no_link: str | None) -> Evidence:
    from harness.capture.gather import gather

    return gather(supervisor, argv, oom_before, no_link)


def _judge(evidence: Evidence, case: Path) -> Document:
    from harness.diagnose.judge import judge

    return judge(evidence, str(case))


def keep_case(case: Path, evidence: Evidence, document: Document, argv: list[str], started_ns: int) -> bool:
    """Writes the case. A full disk costs the case, never the report."""
    import msgspec

    from harness.report.text import render

    try:
        facts = msgspec.structs.replace(evidence, transcripts=())  # they are the kept files themselves
        cases.write_file(case / "evidence.json", msgspec.json.encode(facts))
        cases.write_file(case / "verdict.json", msgspec.json.encode(document))
        cases.write_file(case / "report.txt", render(document, width=110, color=False).encode())
        cases.mark_case(case, argv, started_ns, complete=True)
        cases.prune_cases(case.parent)
    except OSError as error:
        say(f"The case could not be kept in {case}: {error.strerror}. The report follows. To make room: df {case}")
        return False
    return True


def _without_case(document: Document) -> Document:
    import msgspec

    return msgspec.structs.replace(document, case=None)


def _report(document: Document, arguments: argparse.Namespace, *, left_a_line_open: bool) -> None:
    import msgspec

    from harness.report.text import look_of, render, verdict_line

    if arguments.verdict:
        try:
            Path(arguments.verdict).write_bytes(msgspec.json.encode(document) + b"\n")
        except OSError as error:
            instead = f" It is in {document.case}" if document.case else ""
            say(f"The verdict could not be written to {arguments.verdict}: {error.strerror}.{instead}")
    if document.verdict.kind == "clean" and not document.verdict.against:
        return
    text = verdict_line(document) + "\n" if arguments.quiet else render(document, **look_of(2))
    if left_a_line_open:
        text = "\n" + text
    try:
        os.write(2, text.encode())
    except OSError:
        return  # stderr is gone; the case has it
