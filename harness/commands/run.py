"""`harness run`: supervise, and if the command did not end well, judge and report.

Everything it says is on stderr: stdout belongs to the command.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.capture.machine.refusals import REFUSED, explain
from harness.capture.run.channels import hold_closed_descriptors, say, say_own
from harness.capture.run.launch import find_command
from harness.capture.run.stall.forked_look import Look, Quiet
from harness.capture.run.stall.quit_key import is_asked_by_key
from harness.capture.run.supervisor import Supervisor
from harness.commands.durations import parse_duration
from harness.commands.job import Job, Supervised, judge_case, keep_case, supervise
from harness.errors import UsageError
from harness.evidence import case as cases

if TYPE_CHECKING:
    from harness.documents.verdict import Document

_HIDES_THE_FAULT = "KMP_DUPLICATE_LIB_OK"


def run_command(arguments: argparse.Namespace) -> int:
    closed = hold_closed_descriptors()
    argv = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if arguments.json:
        hint = f"harness run --verdict verdict.json -- {shlex.join(argv)}"
        raise UsageError("stdout belongs to the command, so run has no --json.", hint=hint)
    stall_after_s = _read_stall_options(arguments)
    path = find_command(argv)
    quit_looks = is_asked_by_key()
    started_ns = time.monotonic_ns()
    case, moved = cases.create_case(arguments.cases, argv, started_ns)
    _warn(moved)

    def prepare(supervisor: Supervisor) -> None:
        look = _make_look(arguments, case, supervisor.channels[-1].name)
        ends_stalled = arguments.on_stall == "term"
        supervisor.watch_standstill(look, stall_after_s, ends_stalled=ends_stalled, quit_looks=quit_looks)

    def note(status: int | None) -> None:
        arguments.started = True
        if status is not None:
            arguments.status = status

    job = Job(argv, path, case, started_ns, closed, arguments.inject, arguments.core, quit_looks)
    done = supervise(job, prepare, note)
    try:
        _tell(done, arguments)
    except REFUSED as error:
        name = _describe_status(done.status)
        say_own(f"The command ended with {name}. More could not be told: {explain(error)}.")
    done.let_go()
    return done.status


def _tell(done: Supervised, arguments: argparse.Namespace) -> None:
    """Judges and reports, and keeps the case if there is something in it."""
    argv, case, started_ns = done.job.argv, done.job.case, done.job.started_ns
    noteworthy = bool(done.status) or done.supervisor.saw_crash() or _has_stalled(done.supervisor)
    if noteworthy or arguments.keep or arguments.verdict:
        evidence = done.gather()
        document = judge_case(evidence, case)
        kept = keep_case(case, evidence, document, argv, started_ns)
        open_line = any(
            transcript.parts and transcript.parts[-1].unfinished for transcript in evidence.transcripts[-1:]
        )
        kept = kept and (noteworthy or arguments.keep)
        _report(document if kept else _without_case(document), arguments, left_a_line_open=open_line)
    else:
        done.drop_cores()
    if not (noteworthy or arguments.keep):
        cases.remove_case(case)


def _describe_status(status: int) -> str:
    """As the shell's status tells it, without anything that would have to be imported."""
    try:
        return signal.Signals(status - 128).name if status > 128 else f"status {status}"
    except ValueError:
        return f"status {status}"


def _read_stall_options(arguments: argparse.Namespace) -> float | None:
    if arguments.stall_after is not None:
        return parse_duration(arguments.stall_after)
    if arguments.on_stall is not None:
        raise UsageError("--on-stall needs to know when.", hint="harness run --stall-after 10m --on-stall report …")
    return None


def _has_stalled(supervisor: Supervisor) -> bool:
    """Also when the command ended before the look, which had told of the case already."""
    return supervisor.stalled or (supervisor.case / "stall.json").exists()


def _make_look(arguments: argparse.Namespace, case: Path, channel: str) -> Look:
    def look(pids: tuple[int, ...], quiet: Quiet | None) -> int:
        from harness.commands.job_look import Asked, look_at_job

        return look_at_job(Asked(pids, quiet, arguments.on_stall == "core", arguments.quiet), case, channel)

    return look


def _warn(moved: str | None) -> None:
    if moved:
        say(moved)
    if value := os.environ.get(_HIDES_THE_FAULT):
        say(
            f"{_HIDES_THE_FAULT}={value} is set. It does not fix two OpenMP runtimes in one process, it hides them: "
            f"hangs, crashes and wrong numbers follow. Without it: env -u {_HIDES_THE_FAULT} harness run …"
        )


def _without_case(document: Document) -> Document:
    import msgspec

    return msgspec.structs.replace(document, case=None)


def _report(document: Document, arguments: argparse.Namespace, *, left_a_line_open: bool) -> None:
    from harness.evidence.text.undecoded import encode_document
    from harness.report.text import look_of, render, verdict_line

    if arguments.verdict:
        try:
            Path(arguments.verdict).write_bytes(encode_document(document) + b"\n")
        except OSError as error:
            instead = f" It is in {document.case}" if document.case else ""
            say(f"The verdict could not be written to {arguments.verdict}: {error.strerror}.{instead}")
    if document.verdict.kind == "clean" and not document.verdict.against:
        return
    text = verdict_line(document) + "\n" if arguments.quiet else render(document, **look_of(2), terminal=os.isatty(2))
    if left_a_line_open:
        text = "\n" + text
    try:
        os.write(2, text.encode())
    except OSError:
        return  # stderr is gone; the case has it
