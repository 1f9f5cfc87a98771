"""What an experiment has done so far, kept after every arm, so that Ctrl-C and a crash of ours lose at most one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from harness.capture.run.channels import say
from harness.documents.repro import Run
from harness.errors import BadCase, Unreadable, UsageError
from harness.evidence import case as cases
from harness.evidence.experiment import Arm, Plan
from harness.evidence.text.answers import read_bounded
from harness.evidence.text.undecoded import decode_document, encode_document

_FILE = "repro.json"


class Kept(Struct, frozen=True):
    plan: Plan
    runs: tuple[Run, ...]


class Session:
    """One case directory, which is not complete before the last arm has its row."""

    def __init__(self, plan: Plan, case: Path, runs: tuple[Run, ...] = ()) -> None:
        self.plan, self.case, self.runs = plan, case, list(runs)
        self._started_ns = time.monotonic_ns()

    def add(self, run: Run) -> None:
        self.runs.append(run)
        self.keep()

    def keep(self) -> None:
        self._write(encode_document(Kept(self.plan, tuple(self.runs))), None)

    def finish(self, document: msgspec.Struct, text: str) -> None:
        self._write(encode_document(document), text)

    def _write(self, data: bytes, text: str | None) -> None:
        """A full disk costs the case, never the answer."""
        try:
            cases.write_file(self.case / _FILE, data)
            if text is not None:
                cases.write_file(self.case / "report.txt", text.encode())
                cases.mark_case(self.case, ["harness", "repro", *self.plan.names], self._started_ns, complete=True)
        except OSError as error:
            say(f"What is done could not be kept in {self.case}: {error.strerror}. To make room: df {self.case}")

    def abandon(self) -> None:
        """Nothing was done: nothing is kept."""
        if not self.runs:
            cases.remove_case(self.case)

    def has(self, arm: Arm, device: str, python: str, repeat: int) -> bool:
        return any(run.key == (arm.name, arm.arm, device, python, repeat) for run in self.runs)


def open_session(plan: Plan, cases_dir: str | None) -> Session:
    case, _ = cases.create_case(cases_dir, ["harness", "repro", *plan.names], time.monotonic_ns())
    session = Session(plan, case)
    session.keep()
    return session


def resume_session(plan: Plan | None, cases_dir: str | None) -> Session:
    """The newest one that was not finished; with a plan, the newest with exactly that plan."""
    folder = Path(cases_dir) if cases_dir else cases.default_cases_dir()
    for case, kept in _list_unfinished(folder):
        if plan is None or kept.plan == plan:
            ran = tuple(run for run in kept.runs if run.state not in ("not-run", "ended"))
            return Session(kept.plan, case, ran)
    what = "with these options " if plan else ""
    raise UsageError(f"No interrupted repro {what}is kept in {folder}.", hint="harness repro all")


def _list_unfinished(folder: Path) -> Iterator[tuple[Path, Kept]]:
    for file in sorted(folder.glob(f"*/{_FILE}"), reverse=True):
        try:
            if not cases.is_complete(file.parent) and not cases.is_being_written(file.parent):
                yield file.parent, decode_document(read_bounded(file), Kept)
        except (OSError, BadCase, Unreadable):
            continue  # another program's, or of another version
