"""Did a process end as one of its children had, because that one had? That both ended alike proves little.

It is proven where programs of that kind pass an end on, and nothing is seen to have happened between the two: nobody
was started, nothing was printed, no other child may be meant. Every doubt is told.
"""

from __future__ import annotations

from typing import NamedTuple

from harness.diagnose.death.afterwords import AFTERWORDS
from harness.diagnose.death.failures import Failures, is_wrapper, names_of
from harness.diagnose.death.last_words import Dump, Notice, Traceback
from harness.evidence.run import Ending, Evidence, Part, Process

# They end by the signal that ended their command, where others make a status of it; a shell does so with SIGINT only.
_DIE_ALIKE = frozenset({"sudo", "doas", "timeout"})
_LAUNCHERS = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "srun"})
_MINUS_ONE = 255  # SIGHUP, as subprocess writes it; but most often what sys.exit(-1) makes


class Passed(NamedTuple):
    """`doubts`: none where it is proven."""

    process: Process
    doubts: tuple[str, ...]


class Printed(NamedTuple):
    """What is found of ends in the output, which shows of nobody that he went on."""

    notices: list[Notice]
    exceptions: list[Traceback]
    dumps: list[Dump]


def find_passed_on(failures: Failures, printed: Printed, process: Process) -> Passed | None:
    fitting = [
        other
        for other in failures.before(process)
        if failures.is_awaited_by(other, process) and _ends_alike(failures, process, other)
    ]
    lasting = [other for other in fitting if not failures.started_after(other, process)]
    if not lasting:
        telling = [other for other in fitting if _tells_its_end(failures, other)]
        if not telling:
            return None
        doubt = f"process {process.pid} started another process after process {telling[-1].pid} had ended"
        return Passed(telling[-1], (doubt,))
    chosen, others = _choose(failures, lasting)
    doubts = [_doubt_rival(other) for other in others]
    doubts += _list_doubts(failures, printed, process, chosen)
    return Passed(chosen, tuple(doubts))


def _ends_alike(failures: Failures, process: Process, other: Process) -> bool:
    assert process.ending is not None and other.ending is not None
    if process.ending.signo is not None:
        is_of_kind = names_of(process) & _DIE_ALIKE or (process.ending.signame == "SIGINT" and is_wrapper(process))
        return process.ending == other.ending and bool(is_of_kind) and failures.raised_itself(process)
    if failures.timed_out(process, other):
        return True
    if is_wrapper(process) or names_of(process) & _LAUNCHERS:
        return process.ending.exit_code == other.ending.shell_code
    return is_signal_as_status(process.ending.exit_code, other.ending) and not failures.was_told_to_leave(other)


def is_signal_as_status(code: int | None, ending: Ending) -> bool:
    """Whether a status is a child's signal, as a shell writes it (139) or as subprocess does (-11, so 245)."""
    return ending.signo is not None and code in {ending.shell_code, -ending.signo & 0xFF} - {_MINUS_ONE}


def _tells_its_end(failures: Failures, process: Process) -> bool:
    """More than a status, which the next command may have had as well."""
    return failures.uncaught(process) is not None or (process.ending is not None and process.ending.signo is not None)


def _choose(failures: Failures, lasting: list[Process]) -> tuple[Process, list[Process]]:
    """(the one, those that may be it as well). Of a pipeline the first that failed by itself: the others fail of it."""
    signalled = [other for other in lasting if other.ending and other.ending.signo is not None]
    if signalled:
        return signalled[-1], []
    own = [other for other in lasting if not failures.has_lost_reader(other)] or lasting
    return own[0], own[1:]


def _doubt_rival(other: Process) -> str:
    assert other.ending is not None
    return f"process {other.pid} ended with {other.ending.signame or f'exit status {other.ending.exit_code}'} as well"


def _list_doubts(failures: Failures, printed: Printed, process: Process, chosen: Process) -> list[str]:
    assert process.ending is not None and chosen.ending is not None
    doubts = []
    if line := find_printed_after(failures, printed, chosen):
        doubts.append(f"after process {chosen.pid} had ended, something was still printed: {line}")
    if failures.timed_out(process, chosen):
        return doubts
    if process.ending.signo is None and failures.was_signalled(process, chosen.ending):
        doubts.append(f"{chosen.ending.signame} was sent to process {process.pid} itself as well")
    asked = failures.was_told_to_leave(chosen) or failures.is_sender_unknown(chosen)
    earlier = [
        other
        for other in failures.before(process)
        if other.ending != chosen.ending and failures.fell_s(other) <= failures.fell_s(chosen)
        if failures.is_awaited_by(other, process) and not failures.started_after(other, process)
    ]
    if asked and earlier:
        doubts.append(f"process {chosen.pid} may have been told to leave because {_tell_fall(earlier[0])}")
    return doubts


def _tell_fall(other: Process) -> str:
    assert other.ending is not None
    return f"process {other.pid} had ended with {other.ending.signame or f'exit status {other.ending.exit_code}'}"


def find_printed_after(failures: Failures, printed: Printed, process: Process) -> str | None:
    """A line that came after its end and is no word about an end: whoever printed it was still at work."""
    ended_s = failures.lived_until_s(process)
    if ended_s is None:
        return None
    for part, last_s in _list_parts(failures.evidence):
        for number, line in enumerate(part.lines):
            at_s = part.times_s[number]
            if number == len(part.lines) - 1 and last_s is not None:
                at_s = last_s
            if at_s is not None and at_s > ended_s and not _is_about_end(printed, part, number):
                return line.strip()[:80]
    return None


def _list_parts(evidence: Evidence) -> list[tuple[Part, float | None]]:
    """Each file, and when the last of its lines came, which is known better than of the others."""
    last = {channel.name: channel.last_output_s for channel in evidence.channels}
    return [
        (part, last.get(transcript.name) if part is transcript.parts[-1] else None)
        for transcript in evidence.transcripts
        for part in transcript.parts
    ]


def _is_about_end(printed: Printed, part: Part, number: int) -> bool:
    if AFTERWORDS.match(part.lines[number]):
        return True
    at = (part.file, number + 1)
    places = (*(notice.place for notice in printed.notices), *(dump.place for dump in printed.dumps))
    if any((place.file, place.number) == at for place in places):
        return True
    return any(
        item.place.file == part.file and item.place.number <= number + 1 <= item.end.number
        for item in printed.exceptions
    )
