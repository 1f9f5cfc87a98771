"""One arm of an experiment: supervised as `harness run` does it, watched by its steps, looked at when they stop.

Does not say whether the arm counts or what it proves.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from harness.capture.experiment.steps import VARIABLE, StepFile
from harness.capture.living.look import take_look
from harness.capture.run.detached import Apart
from harness.capture.run.launch import find_command
from harness.commands.job import Job, judge_case, keep_case, supervise
from harness.commands.job_look import keep_look
from harness.diagnose.living.document import judge_living
from harness.documents.verdict import Document
from harness.errors import HarnessError
from harness.evidence import case as cases
from harness.evidence.experiment import Told
from harness.evidence.text.redaction import redact
from harness.evidence.text.undecoded import decode_document, encode_document

_TICK_S = 0.05
_LOOK_S = 5.0


class Trial(NamedTuple):
    """`document` null: its supervisor failed, and `why` is what it said. `hung`: it was ended by us, after a look."""

    told: Told
    document: Document | None
    why: str | None
    hung: bool
    seconds: float


def run_trial(
    argv: list[str], cases_dir: str | None, scratch: Path, timeout_s: float, tick: Callable[[Told], None]
) -> Trial:
    """`scratch`: an empty directory for what the processes tell each other."""
    steps = StepFile(scratch / "steps")
    document_file = scratch / "document"

    def work(tell: Callable[[int, Path], None]) -> None:
        os.environ[VARIABLE] = str(scratch / "steps")
        _supervise(argv, cases_dir, document_file, tell)

    begun = moved = time.monotonic()
    seen: Document | None = None
    hung = False
    apart = Apart(work, scratch / "log")
    try:
        while apart.poll() is None:
            now = time.monotonic()
            if steps.read():
                moved = now
            elif now - moved > timeout_s:
                seen = _look(apart)
                if steps.read():  # it was only slow
                    moved = time.monotonic()
                    continue
                hung = True
                apart.end()
                break
            tick(steps.told)
            time.sleep(_TICK_S)
    except BaseException:
        apart.end()
        raise
    finally:
        apart.close()
    steps.read()
    seconds = time.monotonic() - begun
    try:
        ended = decode_document(document_file.read_bytes(), Document)
    except OSError:
        said = (scratch / "log").read_text(errors="replace").strip().splitlines()
        return Trial(steps.told, seen, said[-1] if said else "its supervisor was killed", hung, seconds)
    return Trial(steps.told, seen if hung and seen else ended, None, hung, seconds)


def _supervise(argv: list[str], cases_dir: str | None, result: Path, tell: Callable[[int, Path], None]) -> None:
    """In a process of its own."""
    started_ns = time.monotonic_ns()
    path = find_command(argv)
    case, _ = cases.create_case(cases_dir, argv, started_ns)
    job = Job(argv, path, case, started_ns, closed=frozenset({1, 2}))
    supervised = supervise(job, lambda supervisor: tell(supervisor.main.pid, case))
    evidence = supervised.gather()
    document = judge_case(evidence, case)
    well = supervised.status == 0 and not supervised.supervisor.saw_crash()
    kept = not well and keep_case(case, evidence, document, argv, started_ns)
    if not kept:
        cases.remove_case(case)
        document = msgspec.structs.replace(document, case=None)
    cases.write_file(result, encode_document(document))
    supervised.let_go()


def _look(apart: Apart) -> Document | None:
    """What `attach` would say; null when it cannot be looked at, or is over."""
    if apart.command_pid is None or apart.case is None:
        return None
    try:
        look = redact(take_look([apart.command_pid], _LOOK_S))
    except HarnessError:
        return None
    document = judge_living(look)
    return None if document.outcome.state == "gone" else keep_look(look, document, apart.case)
