"""A look at the command of `harness run`, in a process of its own: judged, told on stderr, kept in the case.

Supervision goes on meanwhile. The exit status of that process tells the supervisor whether the line of work moves, is
stuck or rests with all else, or none of these is shown.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

import msgspec

from harness.capture.living.look import take_look
from harness.capture.machine.trust import look_for_program
from harness.capture.run.channels import say
from harness.capture.run.stall.forked_look import Quiet
from harness.capture.stacks.tools import gdb_command, run_tool
from harness.diagnose.living.document import judge_living
from harness.diagnose.living.kinds import exit_code_of
from harness.diagnose.living.line import stirs_beside
from harness.diagnose.living.pace import tell_quiet
from harness.diagnose.living.scene import Scene
from harness.documents.verdict import Document, Ground
from harness.errors import EXIT_COULD_NOT_LOOK, EXIT_FAULT, HarnessError, Unreadable
from harness.evidence.case import write_file
from harness.evidence.living.look import Look
from harness.evidence.text.redaction import redact
from harness.evidence.text.transcript import read_transcript
from harness.evidence.text.undecoded import encode_document, mark_bytes
from harness.report.text import look_of, render, verdict_line

MOVES, STANDS, UNDECIDED = 0, 10, 11
_LOOK_S = 5.0
_SHORTEST_LOOK_S = 2.0
_CORE_S = 600.0
_NO_GDB = "there is no gdb; to install it: apt-get install gdb (dnf, zypper, conda)"


class Asked(NamedTuple):
    """`quiet` null: the user asked for the look, with Ctrl-\\."""

    pids: tuple[int, ...]
    quiet: Quiet | None
    write_core: bool
    only_line: bool


def look_at_job(asked: Asked, case: Path, channel: str) -> int:
    """`channel`: where the command's last words may have left a line open."""
    quiet = asked.quiet
    try:
        look = redact(take_look(asked.pids, _LOOK_S if quiet is None else _how_long(quiet.for_s)))
    except HarnessError as error:
        say(f"{_open(asked)}, and it could not be looked at: {error}")
        return EXIT_COULD_NOT_LOOK
    document = judge_living(look)
    if document.outcome.state == "gone":
        return MOVES
    moves, line_is_open = bool(document.progress and document.progress.moving), _leaves_line_open(case, channel)
    if quiet is None:
        _tell(asked, document, line_is_open, short=asked.only_line)
        return MOVES if moves else UNDECIDED
    if moves and quiet.tell_if_moving and not _is_plain(document):
        _tell(asked, document, line_is_open, short=True)
    if moves or (quiet.stirs and not stirs_beside(look)):
        return MOVES  # who stirred before rested during the look: it has not shown whose line that is
    document = keep_look(look, _add_quiet(document, quiet), case)
    _tell(asked, document, line_is_open, short=asked.only_line)
    if asked.write_core:
        _write_core(document.verdict.process.pid or asked.pids[0], case)
    is_over = exit_code_of(document) == EXIT_FAULT or (quiet.rests and Scene(look).rests)
    return STANDS if is_over else UNDECIDED


def _is_plain(document: Document) -> bool:
    """It moves for all to see, only not by a main thread: nothing to tell."""
    return document.verdict.kind == "progressing" and document.verdict.status == "established"


def _how_long(quiet_s: float) -> float:
    return min(_LOOK_S, max(_SHORTEST_LOOK_S, quiet_s))


def _add_quiet(document: Document, quiet: Quiet) -> Document:
    """The last verdict, on a job that was ended for it, takes its grounds from here."""
    ground = Ground(tell_quiet(quiet.for_s, rests=quiet.rests), "supervision")
    grounds = (*document.verdict.grounds, ground)
    return msgspec.structs.replace(document, verdict=msgspec.structs.replace(document.verdict, grounds=grounds))


def _open(asked: Asked) -> str:
    if asked.quiet is None:
        return "A look was asked for"
    told = tell_quiet(asked.quiet.for_s, rests=asked.quiet.rests)
    return told[0].upper() + told[1:]


def _tell(asked: Asked, document: Document, line_is_open: bool, *, short: bool) -> None:
    text = verdict_line(document) + "\n" if short else render(document, **look_of(2), terminal=os.isatty(2))
    reason = "" if asked.quiet is None else f"harness: {_open(asked)}.\n"
    try:
        os.write(2, (("\n" if line_is_open else "") + reason + text).encode())
    except OSError:
        return  # stderr is gone; the case has it


def _leaves_line_open(case: Path, channel: str) -> bool:
    try:
        parts = read_transcript(case, channel, 0).parts
    except (OSError, Unreadable):
        return False
    return bool(parts and parts[-1].unfinished)


def keep_look(look: Look, document: Document, case: Path) -> Document:
    """With its case, if that could be written: a full disk costs the files, never the report."""
    number = 1 + len(list(case.glob("stall*.json")))
    suffix = "" if number == 1 else f"-{number}"
    kept = msgspec.structs.replace(document, case=mark_bytes(str(case)))
    try:
        write_file(case / f"look{suffix}.json", encode_document(look))
        write_file(case / f"stall{suffix}.json", encode_document(kept))
    except OSError as error:
        say(f"The look could not be kept in {case}: {error.strerror}.")
        return document
    return kept


def _write_core(pid: int, case: Path) -> None:
    path = case / f"core.{pid}"
    if trouble := _why_no_core(pid, case) or _ask_gdb(pid, path):
        path.unlink(missing_ok=True)
        say(f"No core of process {pid} could be written: {trouble}.")
    else:
        say(f"A core of process {pid} is in {path} ({path.stat().st_size / 2**20:,.0f} MiB); it runs on.")


def _why_no_core(pid: int, case: Path) -> str | None:
    if why := look_for_program("gdb").why:
        return why if shutil.which("gdb") else _NO_GDB
    try:
        words = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return "it has ended"
    needed, free = int(words[1]) * os.sysconf("SC_PAGE_SIZE"), shutil.disk_usage(case).free
    return f"it needs about {needed >> 20} MiB, and {free >> 20} are free in {case}" if needed > free else None


def _ask_gdb(pid: int, path: Path) -> str | None:
    """Its words when it failed. It holds the process while it writes; killed, it lets go."""
    gdb, why = look_for_program("gdb")
    if gdb is None:
        return why
    said = run_tool([*gdb_command(gdb), "-p", str(pid), "-ex", f"generate-core-file {path}"], _CORE_S)
    if path.exists() and said.error is None:
        path.chmod(0o600)
        return None
    words = (said.error or said.output.decode(errors="replace")).strip().splitlines()
    return f"gdb says: {words[-1]}" if words else "gdb wrote none"
