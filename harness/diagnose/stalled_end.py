"""Why a job that was ended for standing still stood still: the stall's verdict in the words of the last one. Pure.

That it was stuck is said only where that was established: else it stood still."""

from __future__ import annotations

from msgspec.structs import replace

from harness.diagnose.living.kinds import exit_code_of
from harness.documents.verdict import Document, Ground
from harness.errors import EXIT_FAULT
from harness.evidence.run import Evidence
from harness.evidence.senders import ON_STALL_TERM

# What a program does that is asked to leave: it dies of the signal, or leaves with a status of its own.
_ENDS_WHEN_ASKED = ("terminated", "exit-nonzero", "python-exception", "clean")


def was_ended_for_stall(evidence: Evidence, document: Document) -> bool:
    asked = any(signal.sender == ON_STALL_TERM for signal in evidence.signals)
    return asked and document.verdict.kind in _ENDS_WHEN_ASKED


def add_cause(document: Document, stall: Document) -> Document:
    """The kind stays: what ended it is the signal. Process, thread and lines are those it stood at.

    One that left with a status of its own keeps its sentence.
    """
    verdict, cause = document.verdict, stall.verdict
    own = "" if verdict.kind == "terminated" else f" {verdict.headline.partition(', while')[0]}."
    is_stuck = cause.status == "established" and exit_code_of(stall) == EXIT_FAULT
    how = "was stuck" if is_stuck else "stood still"
    told = (Ground(f"before it was ended: {cause.headline}  [{cause.kind}, {cause.status}]", "stall.json"),)
    return replace(
        document,
        verdict=replace(
            verdict,
            headline=f"Ended by harness with SIGTERM, as --on-stall term says.{own} It {how}: {cause.headline}",
            component=cause.component or verdict.component,
            process=cause.process,
            python_frame=cause.python_frame or verdict.python_frame,
            user_frame=cause.user_frame or verdict.user_frame,
            context_frame=cause.context_frame or verdict.context_frame,
            grounds=(*verdict.grounds, *told, *cause.grounds),
            remedies=(*cause.remedies, *(one for one in verdict.remedies if one not in cause.remedies)),
        ),
    )
