"""Whom a parent says that it lost, in an exception or in a sentence of a known library, among those that were seen.

What the words say of a process (its command, pid, status or signal) must agree with one that was seen; words that name
none are about a process of the kind that their library starts. Where several may be meant each is told.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import NamedTuple

from harness.diagnose.death.failures import Failures
from harness.diagnose.death.last_words import SIGNAL_WORDS, Traceback
from harness.evidence.run import Ending, Process

# Exceptions by which a parent says that a child of its failed, whatever their message: concurrent.futures, torch,
# subprocess, joblib, Dask, nbclient, Ray.
_LOST_CHILD = re.compile(
    r"Broken(?:ProcessPool|Executor)|ChildFailedError|Process(?:Exited|Raised)Exception|CalledProcessError"
    r"|TerminatedWorkerError|KilledWorker|DeadKernelError|WorkerCrashedError|ActorDiedError"
)
# Others that say so in their message.
_LOST_WORKER = re.compile(
    r"RuntimeError: DataLoader worker \(pid\(?s?\)? (?P<pids>[\d, ]+)\) "
    r"(?:is killed by signal: (?P<word>[\w ]+)|exited unexp)"
)
_COMMAND = re.compile(
    r"CalledProcessError: Command '?(?P<command>.*?)'? (?:died with <Signals\.\w+: (?P<signo>\d{1,3})>"
    r"|died with unknown signal (?P<unknown>\d{1,3})|returned non-zero exit status (?P<status>-?\d{1,9}))\.",
    re.DOTALL,
)
_PATH = re.compile(r"\b\w*Path\(('(?:[^'\\]|\\.)*')\)")
_SPAWNED = re.compile(r"terminated with (?:signal (?P<signame>\w+)|exit code (?P<status>\d{1,3}))")
_EXIT_CODES = re.compile(r"exit codes of the workers are \{(?P<codes>[^}]*)\}")
_CODE = re.compile(r"\((-?\d{1,3})\)")
# Their workers are programs of their own, named so.
_PROGRAMS = {
    "DeadKernelError": re.compile(r"kernel"),
    "WorkerCrashedError": re.compile(r"\bray\b"),
    "ActorDiedError": re.compile(r"\bray\b"),
}
_ANSWERED_PARENT = "SIGTERM"  # what a pool that broke sends to the workers that it still has


class Lost(NamedTuple):
    """`rivals`: those who may be meant as well. `doubt`: why it may be none of them."""

    process: Process
    rivals: tuple[Process, ...] = ()
    doubt: str | None = None


IsWorker = Callable[[Process], bool]


def tells_of_lost_child(item: Traceback) -> bool:
    """A parent's exception, which is never the cause itself."""
    return bool(_LOST_CHILD.fullmatch(item.name) or _LOST_WORKER.match(item.text))


def find_lost(failures: Failures, parent: Process, own: Traceback, is_worker: IsWorker) -> Lost | None:
    """Null: nobody who was seen fits what the exception says."""
    failed = failures.before(parent)
    children = [process for process in failed if process.ppid == parent.pid]
    if own.name == "CalledProcessError":
        return _find_called(failures, parent, own, children)
    if own.name == "ProcessExitedException" and (said := _SPAWNED.search(own.text)):
        return _first_that(children, lambda process: _agrees(process, said["signame"], said["status"]))
    if named := _LOST_WORKER.match(own.text):
        return _find_numbered(failures, failed, named)
    if own.name in _PROGRAMS:
        pattern = _PROGRAMS[own.name]
        return _choose(failures, parent, [one for one in failed if pattern.search(" ".join(one.argv))])
    codes = _read_codes(own)

    def may_be_lost(process: Process) -> bool:
        return is_worker(process) and (not codes or _code_of(process.ending) in codes)

    leaving = tuple(filter(may_be_lost, failures.left_meanwhile(parent)))
    if found := _choose(failures, parent, list(filter(may_be_lost, failed))):
        return found._replace(rivals=(*found.rivals, *leaving))
    if leaving:
        return Lost(leaving[0], leaving[1:], "it was gone only after that exception was raised")
    return _find_ended_by_parent(failures, parent, is_worker)


def _find_called(failures: Failures, parent: Process, own: Traceback, children: list[Process]) -> Lost | None:
    said = _COMMAND.search(own.text)
    if said is None:
        return _choose(failures, parent, children)
    status = said["status"] or f"-{said['signo'] or said['unknown']}"
    agreeing = [process for process in children if str(_code_of(process.ending)) == status]
    called = [process for process in agreeing if is_command(said["command"], process)]
    if called:
        return Lost(called[-1])
    if not agreeing:
        return None
    # What was gone at once had no command line to be read; where every birth is told it can be no other.
    only = len(agreeing) == 1 and failures.evidence.sees_births and not agreeing[0].argv
    doubt = f"whether process {agreeing[-1].pid} was the command in that exception was not seen"
    return Lost(agreeing[-1], doubt=None if only else doubt)


def is_command(command: str, process: Process) -> bool:
    """Whether a process is one that this command became: by a shell, an interpreter, env, or exec in a shell."""
    words, argv = _read_words(command), process.argv
    if not words or not argv:
        return False
    if argv[-len(words) :] == words:  # ["/bin/sh", "-c", "…"], or ["bash", "./script", …]
        return True
    shared = min(len(words), len(argv))
    first, other = words[-shared:], argv[-shared:]
    return first[1:] == other[1:] and PurePath(first[0]).name == PurePath(other[0]).name


def _read_words(command: str) -> tuple[str, ...]:
    """A list as it is printed, or the one string for a shell."""
    if not command.startswith(("[", "(")):
        return (command,)
    try:
        listed = ast.literal_eval(_PATH.sub(r"\1", command))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    return tuple(word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word) for word in listed)


def _code_of(ending: Ending | None) -> int | None:
    """As subprocess and multiprocessing write it: a signal is negative."""
    if ending is None:
        return None
    return ending.exit_code if ending.signo is None else -ending.signo


def _agrees(process: Process, signame: str | None, status: str | None) -> bool:
    if process.ending is None:
        return False
    return process.ending.signame == signame if signame else str(process.ending.exit_code) == status


def _first_that(processes: list[Process], fits: Callable[[Process], bool]) -> Lost | None:
    fitting = [process for process in processes if fits(process)]
    return Lost(fitting[0], tuple(fitting[1:])) if fitting else None


def _find_numbered(failures: Failures, failed: list[Process], said: re.Match[str]) -> Lost | None:
    pids = {int(pid) for pid in re.findall(r"\d{1,9}", said["pids"])}
    named = [process for process in failed if process.pid in pids]
    if said["word"]:
        signame = SIGNAL_WORDS.get(said["word"].strip())
        named = [process for process in named if process.ending and process.ending.signame == signame]
    own = [process for process in named if not failures.was_told_to_leave(process)] or named
    return Lost(own[0]) if own else None


def _read_codes(own: Traceback) -> set[int]:
    """joblib tells with what its workers ended."""
    said = _EXIT_CODES.search(own.text)
    return {int(code) for code in _CODE.findall(said["codes"])} if said else set()


def _choose(failures: Failures, parent: Process, candidates: list[Process]) -> Lost | None:
    """The last that fell by itself and that the parent did not get over. Of whom nobody tells who ended him, and of
    whom the parent may have ended because of another, nothing is known where there is another."""
    unasked = [one for one in candidates if not failures.was_told_to_leave(one)]
    unasked = [one for one in unasked if not _may_be_answer(failures, one, unasked)]
    surely = [one for one in unasked if not failures.is_sender_unknown(one)]
    lasting = [one for one in unasked if not failures.went_on_after(one, parent)]
    sure = [one for one in lasting if one in surely]
    chosen = next((some[-1] for some in (sure, lasting, unasked) if some), None)
    if chosen is None:
        return None
    others = lasting if chosen in surely else unasked
    rivals = tuple(one for one in others if one is not chosen and one.ending != chosen.ending)
    return Lost(chosen, rivals)


def _may_be_answer(failures: Failures, process: Process, others: list[Process]) -> bool:
    """Nobody tells who sent it SIGTERM; another worker had fallen before, while it was there."""
    if not failures.is_sender_unknown(process) or (process.ending and process.ending.signame != _ANSWERED_PARENT):
        return False
    return any(process.first_seen_s <= failures.fell_s(one) < failures.fell_s(process) for one in others)


def _find_ended_by_parent(failures: Failures, parent: Process, is_worker: IsWorker) -> Lost | None:
    """Nobody fell by himself: the parent ended one itself, if no worker was gone that it had not told to leave. One may
    have left with status 0, as a pool's does when its initializer fails."""
    workers = [one for one in failures.below(parent) if is_worker(one)]
    gone = [one for one in workers if one.ended_s is not None and failures.fell_s(one) <= failures.fell_s(parent)]
    if not gone or not all(failures.was_told_to_leave(one) for one in gone):
        return None
    return Lost(min(gone, key=failures.fell_s))


# Sentences


class Sentence(NamedTuple):
    """What a parent prints of a child that it lost, where it raises nothing.

    `author`: the command line of a process that prints it; `status`: with which it leaves then. `lost`: the command
    line of the child.
    """

    pattern: re.Pattern[str]
    author: re.Pattern[str]
    status: int
    lost: re.Pattern[str]


SENTENCES = (
    Sentence(  # pytest-xdist; execnet starts its workers
        re.compile(r"worker 'gw\d+' crashed while running .*|\[gw\d+\] node down: .*", re.MULTILINE),
        re.compile(r"\bpy\.?test\b"),
        1,
        re.compile(r"exec\(eval\(sys\.stdin\.readline"),
    ),
    Sentence(
        re.compile(r".*Kernel died before replying to kernel_info", re.MULTILINE),
        re.compile(r"jupyter|nbconvert|papermill|nbclient"),
        1,
        re.compile(r"kernel"),
    ),
)


def find_said(failures: Failures, main: Process, sentence: Sentence) -> Lost | None:
    """Of an author who left with the status that goes with it, a child of the kind that the sentence is about."""
    if main.ending is None or main.ending.exit_code != sentence.status:
        return None
    for author in _list_authors(failures, main, sentence):
        lost = [one for one in failures.before(author) if one.ppid == author.pid]
        if found := _choose(failures, author, [one for one in lost if sentence.lost.search(" ".join(one.argv))]):
            return found
    return None


def _list_authors(failures: Failures, main: Process, sentence: Sentence) -> Iterator[Process]:
    for process in (main, *failures.below(main)):
        if process.ending == main.ending and sentence.author.search(" ".join(process.argv)):
            yield process


def tell_end(process: Process) -> str:
    ending = process.ending
    told = "unknown" if ending is None else ending.signame or f"exit status {ending.exit_code}"
    return f"process {process.pid} ended with {told}"
