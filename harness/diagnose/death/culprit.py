"""Which process is the cause of how the command ended, and which ends are only its consequences.

Decided by the tree of processes that was seen: who failed first, whose status was passed on, and of whom the command
itself says that it was lost, in the form in which a known library says it. A number or a word in a text names nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from harness.diagnose.death import last_words
from harness.diagnose.death.failures import CRASH_SIGNALS, Failures, is_wrapper
from harness.diagnose.death.last_words import Notice, Traceback
from harness.diagnose.death.losses import SENTENCES, Lost, Sentence, find_lost, find_said, tell_end, tells_of_lost_child
from harness.diagnose.death.passing import Printed, find_passed_on, find_printed_after
from harness.documents.verdict import Frame, Ground
from harness.evidence.run import Ending, Evidence, Process, Uncaught, name_signal

# A worker runs the same program as its parent (fork, multiprocessing, a rank); a child runs another one.
Role = Literal["main", "worker", "child"]
_POOLS = ("multiprocessing", "loky")  # in the command of a worker that was spawned; loky is joblib's

# What one gets who talks to a process that is gone; input() raises an EOFError of its own.
_LOST_PEER = frozenset(
    ["EOFError", "BrokenPipeError", "ConnectionResetError", "ConnectionAbortedError", "IncompleteReadError"]
)
_NO_INPUT = "EOF when reading a line"
# A pool of multiprocessing starts another worker in silence; who waits for what the lost one had, waits for ever.
_LOST_RESULT = "multiprocessing.context.TimeoutError"
_LOST_PEER_TEXT = re.compile(
    r"Connection (?:closed|reset) by peer|Broken pipe|remote process exited|Connection refused"
)
_COLLECTIVE = re.compile(r"/gloo/|\bnccl|NCCL|TCPStore|c10d|Dist(?:Backend|Network)Error")


class Culprit(NamedTuple):
    """`seen`: its ending came from the kernel, not from what another process printed.

    `linked`: the command says, in words or by its status, that this process's end ended it, and nobody else's can be
    meant; `doubts`: why it does not.
    """

    role: Role
    pid: int | None
    ending: Ending | None
    ended_s: float | None
    seen: bool
    linked: bool
    grounds: tuple[Ground, ...]
    rank: str | None = None
    doubts: tuple[str, ...] = ()

    @property
    def signame(self) -> str | None:
        return self.ending.signame if self.ending else None


class Words(NamedTuple):
    """What is printed about ends. `exceptions`: in the order in which they were printed."""

    notices: list[Notice]
    exceptions: list[Traceback]
    said: list[tuple[Sentence, Ground]]

    @classmethod
    def of(cls, evidence: Evidence) -> Words:
        said = [
            (sentence, Ground(f"printed: {match[0].strip()}", str(place)))
            for sentence in SENTENCES
            for match, place in last_words.search(
                evidence.transcripts, sentence.pattern
            )  # anchored, as all notices are
        ]
        return cls(
            last_words.find_notices(evidence.transcripts), last_words.find_tracebacks(evidence.transcripts), said
        )

    def printed(self, evidence: Evidence) -> Printed:
        return Printed(self.notices, self.exceptions, last_words.find_dumps(evidence.transcripts))


def find_culprit(evidence: Evidence, words: Words) -> Culprit:
    failures = Failures(evidence)
    main = failures.main
    if main is None or main.ending is None:
        return _reported(main, words.notices) or Culprit("main", evidence.pid, None, None, False, True, ())
    if main.ending.exit_code == 0:
        return _of(evidence, main)
    if evidence.origin == "log":
        return _reported(main, words.notices) or _of(evidence, main)
    blamed = _follow(failures, words, Blamed(main))
    if blamed.process is main and (missed := _find_missed(failures, main, words)):
        return missed
    return _of(evidence, blamed.process, blamed.doubts, blamed.grounds)


class Blamed(NamedTuple):
    """`doubts`: none where it is proven that this process's end is why the command ended."""

    process: Process
    doubts: tuple[str, ...] = ()
    grounds: tuple[Ground, ...] = ()

    def blame(self, process: Process, doubts: tuple[str, ...], *grounds: Ground) -> Blamed:
        return Blamed(process, (*self.doubts, *doubts), (*self.grounds, *grounds))


def _follow(failures: Failures, words: Words, blamed: Blamed) -> Blamed:
    """From the command to the process whose end it passes on, or says that it lost; and so may that one."""
    seen = {blamed.process.pid}
    while below := _find_passed_on(failures, words, blamed) or _find_by_words(failures, words, blamed):
        if below.process.pid in seen:
            break
        seen.add(below.process.pid)
        blamed = below
    return blamed


def _find_passed_on(failures: Failures, words: Words, blamed: Blamed) -> Blamed | None:
    """A shell, a debugger or a launcher ends as the last of its children that failed has ended."""
    process = blamed.process
    passed = find_passed_on(failures, words.printed(failures.evidence), process)
    if passed is None:
        return None
    changed = passed.process.ending != process.ending
    who = "the command" if process is failures.main else f"process {process.pid}"
    ground = Ground(f"{who} passed it on as {_tell(process.ending)}", "wait status")
    return blamed.blame(passed.process, passed.doubts, *((ground,) if changed and not passed.doubts else ()))


def _find_by_words(failures: Failures, words: Words, blamed: Blamed) -> Blamed | None:
    """By what a process itself says of its own end; where the command says nothing, by who failed before it."""
    process = blamed.process
    if process.ending is None or process.ending.signo is not None:
        return None
    own = _own_exception(failures, process, words)
    if own is not None and tells_of_lost_child(own):
        return _blame_lost(failures, words, blamed, own)
    if process is not failures.main:
        return None
    if own is None and (found := _blame_said(failures, process, words)):
        return found
    if own is not None and not _may_have_lost_another(own):
        return None
    return _blame_likely(failures, words, process, own)


def _may_have_lost_another(own: Traceback) -> bool:
    return own.type == _LOST_RESULT or (own.name in _LOST_PEER and not own.message.startswith(_NO_INPUT))


def _blame_lost(failures: Failures, words: Words, blamed: Blamed, own: Traceback) -> Blamed | None:
    ground = Ground(f"the command raised {own.sentence}", str(own.end))
    ranks, doubts = _failed_ranks(failures, words)
    ranks = [rank for rank in ranks if rank.pid != blamed.process.pid]
    if ranks and own.name == "ChildFailedError":
        return blamed.blame(ranks[0], doubts, ground)
    lost = find_lost(failures, blamed.process, own, lambda one: role_of(failures.evidence, one) == "worker")
    if lost is None:
        return None
    below = {lost.process.pid, *(one.pid for one in failures.below(lost.process))}
    if any(rank.pid in below for rank in ranks):
        return blamed.blame(ranks[0], doubts, ground)
    return blamed.blame(lost.process, _tell_doubts(lost), ground)


def _tell_doubts(lost: Lost) -> tuple[str, ...]:
    rivals = tuple(f"{tell_end(rival)}: it may be the one that was lost" for rival in lost.rivals)
    return rivals if lost.doubt is None else (*rivals, lost.doubt)


def _blame_said(failures: Failures, main: Process, words: Words) -> Blamed | None:
    for sentence, ground in words.said:
        if lost := find_said(failures, main, sentence):
            return Blamed(lost.process, _tell_doubts(lost), (ground,))
    return None


def _blame_likely(failures: Failures, words: Words, main: Process, own: Traceback | None) -> Blamed | None:
    """Nobody says that the command ended because of another one: a rank, a crash, an exception with its status."""
    ranks, doubts = _failed_ranks(failures, words)
    unsaid, printed = _tell_unsaid(main), words.printed(failures.evidence)
    if ranks:
        return Blamed(ranks[0], (*(() if _passes_rank_on(failures, printed, main, ranks[0]) else unsaid), *doubts))
    candidates = [process for process in failures.before(main) if not failures.was_told_to_leave(process)]
    lasting = [process for process in candidates if own is not None or not failures.went_on_after(process, main)]
    likely = next(filter(_has_crashed, lasting), None) or _find_same_status(
        failures, main, words.printed(failures.evidence), own, lasting
    )
    return Blamed(likely, unsaid) if likely else None


def _passes_rank_on(failures: Failures, printed: Printed, main: Process, rank: Process) -> bool:
    """A program that ran ranks at once, and left with the status of the first that failed, without another deed."""
    others = [other for other in failures.ranks() if other is not rank]
    at_once = not others or any(failures.overlap(rank, other) for other in others)
    silent = not failures.started_after(rank, main) and find_printed_after(failures, printed, rank) is None
    return main.ending == rank.ending and at_once and silent


def _find_same_status(
    failures: Failures, main: Process, printed: Printed, own: Traceback | None, lasting: list[Process]
) -> Process | None:
    """The last, if an exception ended it: a program may leave at once with the status that a child of its left with."""
    children = [process for process in lasting if failures.is_awaited_by(process, main)]
    last = children[-1] if children and own is None and failures.exit(main) is not None else None
    if last is None or last.ending != main.ending or failures.uncaught(last) is None:
        return None
    return None if find_printed_after(failures, printed, last) else last


def _tell_unsaid(main: Process) -> tuple[str, ...]:
    return (f"the command's own end, {_tell(main.ending)}, may have a reason of its own",)


def _find_missed(failures: Failures, main: Process, words: Words) -> Culprit | None:
    """Where processes may have been missed: a notice of one that was not seen to end so."""
    own = _own_exception(failures, main, words)
    if failures.evidence.sees_births or (main.ending and main.ending.signo is not None):
        return None
    if own is not None and not _may_have_lost_another(own):
        return None
    seen = [(one.pid, one.ending.signame) for one in failures.evidence.processes if one.ending is not None]
    notices = [
        notice
        for notice in words.notices
        if not any(signame == notice.signame and notice.pid in (None, pid) for pid, signame in seen)
    ]
    return _reported(main, notices)


def _failed_ranks(failures: Failures, words: Words) -> tuple[list[Process], tuple[str, ...]]:
    """The first that failed first, and why another one may have. One that lost its peer failed because of another,
    which had fallen before, or, where it left by itself, had begun to leave before it was gone."""
    ranks = [rank for rank in failures.failed_ranks() if not failures.was_told_to_leave(rank)]
    told = {rank.pid: text for rank in ranks if (text := _find_lost_peer(failures, words, rank)) is not None}
    leaving = [rank for rank in ranks if rank.pid not in told and _left_slowly(failures, rank)]
    if not ranks or ranks[0].pid not in told or not leaving:
        return ranks, ()
    first = leaving[0]
    doubt = () if _COLLECTIVE.search(told[ranks[0].pid]) else (f"{tell_end(ranks[0])}, and was gone before",)
    return [first, *(rank for rank in ranks if rank is not first)], doubt


def _find_lost_peer(failures: Failures, words: Words, rank: Process) -> str | None:
    uncaught = failures.uncaught(rank)
    text = find_printed(uncaught, rank.rank, words.exceptions).text if uncaught else ""
    return text if _LOST_PEER_TEXT.search(text) else None


def _left_slowly(failures: Failures, rank: Process) -> bool:
    """It left by a status that it chose: its connections were closed before it was gone. The moment of an exception
    or of a crash is known."""
    return rank.ending is not None and rank.ending.signo is None and failures.uncaught(rank) is None


def _has_crashed(process: Process) -> bool:
    return process.ending is not None and process.ending.signame in CRASH_SIGNALS


def _own_exception(failures: Failures, process: Process, words: Words) -> Traceback | None:
    """What ended a process, as far as it can be known: told by it, or, of the command, the last that was printed."""
    if uncaught := failures.uncaught(process):
        return find_printed(uncaught, process.rank, words.exceptions)
    if failures.exit(process) is not None or process is not failures.main:
        return None
    return next((item for item in reversed(words.exceptions) if item.thread is None and item.rank is None), None)


def find_printed(told: Uncaught, rank: str | None, exceptions: Iterable[Traceback]) -> Traceback:
    """The printed form of an exception that was told of: of that type and rank, on its lines, and printed after that.

    A program may print its exceptions in a form of its own; then there are only its name and where that comes from, and
    what was printed of one that it had handled, or by another process, is not its message.
    """
    name, at_s = told.type.rpartition(".")[2], told.at_s
    same = [item for item in exceptions if item.name == name and item.thread is None and not item.reraised]
    same = [item for item in same if item.rank in (None, rank) and _stands_on(item, told.lines)]
    same = [item for item in same if item.end.at_s is None or item.end.at_s + last_words.MARK_S >= at_s]
    place = last_words.Place("crash link", 0, at_s)
    unprinted = Traceback(name, "", (), None, False, False, place, place, rank)
    return min(reversed(same), key=lambda item: abs((item.end.at_s or at_s) - at_s), default=unprinted)


def _stands_on(item: Traceback, lines: tuple[int, ...]) -> bool:
    """Whether a printed traceback goes through the lines that were told of. That of a SyntaxError adds its own line."""
    stacks = (item.frames, item.frames[1:]) if item.name in last_words.SYNTAX_ERRORS else (item.frames,)
    return not lines or any(frames and _list_told(frames) == lines for frames in stacks)


def _list_told(frames: tuple[Frame, ...]) -> tuple[int, ...]:
    """As `Uncaught.lines`."""
    return frames[-1].line, frames[-2].line if len(frames) > 1 else 0, frames[0].line


def _reported(main: Process | None, notices: list[Notice]) -> Culprit | None:
    """Where processes may have been missed: what was printed about one, or a status that a shell makes of a signal."""
    if notices:
        first = notices[0]
        ending = Ending(signo=_signo(first.signame))
        who = "it" if first.role == "itself" else "its parent"
        ground = Ground(f"{who} printed: {first.text}", str(first.place))
        role: Role = "worker" if first.role == "worker" else "child"
        return Culprit(role, first.pid, ending, first.place.at_s, seen=False, linked=True, grounds=(ground,))
    code = main.ending.exit_code if main is not None and main.ending is not None else None
    if code is None or not is_wrapper(main) or name_signal(code - 128) not in CRASH_SIGNALS | {"SIGKILL"}:
        return None
    fact = (
        f"exit status {code} = 128 + {code - 128} ({name_signal(code - 128)}): a command inside it died of that signal"
    )
    ground = Ground(fact, "wait status")
    return Culprit("child", None, Ending(signo=code - 128), None, seen=False, linked=True, grounds=(ground,))


def _of(
    evidence: Evidence, process: Process, doubts: tuple[str, ...] = (), grounds: tuple[Ground, ...] = ()
) -> Culprit:
    role = role_of(evidence, process)
    who = "the command" if role == "main" else f"{role} process {process.pid}"
    ground = Ground(f"{who} ended with {_tell(process.ending)}", process.source or "wait status")
    return Culprit(
        role,
        process.pid,
        process.ending,
        process.ended_s,
        process.ending is not None,
        not doubts,
        (ground, *grounds),
        process.rank,
        tuple(dict.fromkeys(doubts)),
    )


def _tell(ending: Ending | None) -> str:
    return "unknown" if ending is None else ending.signame or f"exit status {ending.exit_code}"


def role_of(evidence: Evidence, process: Process) -> Role:
    if process.pid == evidence.pid:
        return "main"
    if process.rank is not None:
        return "worker"
    parent = next((other for other in evidence.processes if other.pid == process.ppid), None)
    if parent is None or is_wrapper(process):
        return "child"
    # A process first seen after its death shows no argv any more, but maybe still the name it had; one that its parent
    # had collected by then shows neither, and below anything but a shell that was a fork. Where births are told a fork
    # is known to be one, and who shows no argv had become another program.
    unseen = not process.argv and (process.name == parent.name or (not process.name and not is_wrapper(parent)))
    unseen = unseen and not evidence.sees_births
    forked = process.argv == parent.argv or unseen
    if forked or any(pool in word for word in process.argv for pool in _POOLS):
        return "worker"
    return "child"


def _signo(signame: str) -> int:
    import signal

    return int(signal.Signals[signame])
