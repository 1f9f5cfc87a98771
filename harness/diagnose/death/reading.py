"""One reading of the evidence: who is the culprit, what were its last words, what ended it. Input of every rule."""

from __future__ import annotations

import re
from functools import cached_property

from harness.diagnose.death import last_words
from harness.diagnose.death.afterwords import AFTERWORDS
from harness.diagnose.death.crash.address import Fault, describe_fault
from harness.diagnose.death.crash.blame import Blame, blame, crashed_thread
from harness.diagnose.death.crash.si_codes import is_sent
from harness.diagnose.death.culprit import Words, find_culprit, find_printed
from harness.diagnose.death.failures import Failures, is_wrapper
from harness.diagnose.death.last_words import Dump, Place, Traceback
from harness.diagnose.death.losses import tells_of_lost_child
from harness.diagnose.frames import innermost_user_frame
from harness.diagnose.plumbing import plain_function
from harness.documents.verdict import Frame
from harness.evidence.crash import Crash
from harness.evidence.run import Evidence, Exit, Part, Uncaught, name_signal


class Reading:
    """Derived facts, each computed once."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.transcripts = evidence.transcripts
        self.words = Words.of(evidence)
        self.dumps = last_words.find_dumps(self.transcripts)
        self.failures = Failures(evidence)
        self.main = self.failures.main
        self.culprit = find_culprit(evidence, self.words)

    @property
    def is_log(self) -> bool:
        return self.evidence.origin == "log"

    @property
    def signame(self) -> str | None:
        return self.culprit.signame

    @property
    def exit_code(self) -> int | None:
        return self.culprit.ending.exit_code if self.culprit.ending else None

    @property
    def command(self) -> str:
        import shlex

        return shlex.join(self.evidence.argv)

    @cached_property
    def uncaught(self) -> Uncaught | None:
        """The exception that ended the culprit, told by itself."""
        process = next((one for one in self.evidence.processes if one.pid == self.culprit.pid), None)
        return self.failures.uncaught(process) if process else None

    @cached_property
    def exit(self) -> Exit | None:
        """The culprit's call of exit(), told by itself."""
        process = next((one for one in self.evidence.processes if one.pid == self.culprit.pid), None)
        return self.failures.exit(process) if process else None

    @cached_property
    def dump(self) -> Dump | None:
        """faulthandler's text for the culprit's signal, or a fatal error of the interpreter itself.

        It names no process: where several have died of that signal, it is the one that was printed next.
        """
        fitting = [dump for dump in self.dumps if dump.signame in (None, self.signame)]
        died_s = self.crash.at_s if self.crash else self.culprit.ended_s
        if died_s is None:
            return fitting[0] if fitting else None
        return min(fitting, key=lambda dump: abs((dump.place.at_s or died_s) - died_s), default=None)

    @cached_property
    def crash(self) -> Crash | None:
        """The culprit's death as the crash link saw it."""
        own = [crash for crash in self.evidence.crashes if crash.pid == self.culprit.pid]
        return next((crash for crash in reversed(own) if name_signal(crash.signo) == self.signame), None)

    @cached_property
    def fault(self) -> Fault | None:
        return describe_fault(self.crash) if self.crash else None

    @property
    def is_sent(self) -> bool:
        """Somebody sent the signal, and it is not the one that abort() sends: nothing faulted."""
        return self.crash is not None and self.signame != "SIGABRT" and is_sent(self.crash.si_code)

    @cached_property
    def blame(self) -> Blame | None:
        return blame(self.crash) if self.crash else None

    @cached_property
    def aborting_image(self) -> str | None:
        """The image that called abort(), where the stack was read."""
        frames = self.blame.frames_below if self.blame else ()
        below = [index for index, frame in enumerate(frames) if plain_function(frame) in ("abort", "__abort")]
        return frames[below[-1] + 1].image if below and below[-1] + 1 < len(frames) else None

    @property
    def functions_below(self) -> tuple[str, ...]:
        """All that have a name on the stack of the thread that died."""
        frames = self.blame.frames_below if self.blame else ()
        return tuple(name for frame in frames if (name := plain_function(frame)))

    @cached_property
    def final(self) -> Traceback | None:
        """The exception that ended the culprit, when an exception did.

        It is proven where the process told of it; else it is what was printed last, with the status that fits. Ctrl-C
        is one as well: CPython prints the traceback, then dies of SIGINT to tell its parent the truth.
        """
        if self.signame not in (None, "SIGINT") or self.exit_code == 0:
            return None
        if self.uncaught is not None:
            told = self.uncaught
            return self._origin(find_printed(told, self.culprit.rank, self.words.exceptions))
        if self._raised_in_spawned is not None:
            return self._raised_in_spawned
        printed = [item for item in self.words.exceptions if self._may_be_final(item)]
        own = [item for item in printed if not tells_of_lost_child(item)]  # the others are a parent's
        last = next(reversed(own or (printed if self.culprit.role == "main" else [])), None)
        return last if last is not None and self.is_last_word(last) else None

    @property
    def before_signal(self) -> Traceback | None:
        """An exception that nothing caught, where a signal ended the culprit later."""
        if self.uncaught is None or self.signame in (None, "SIGINT"):
            return None
        return find_printed(self.uncaught, self.culprit.rank, self.words.exceptions)

    @property
    def printed_last(self) -> Traceback | None:
        """Whatever ended the culprit: the last exception that it may have printed. That it was lost, others say."""
        of_another = self.culprit.role != "main"
        items = (one for one in reversed(self.words.exceptions) if one.rank in (None, self.culprit.rank))
        return next((one for one in items if not (of_another and tells_of_lost_child(one))), None)

    def _may_be_final(self, item: Traceback) -> bool:
        if self.signame == "SIGINT":
            return item.type == "KeyboardInterrupt"
        if item.thread is not None:
            return True
        return self.exit is None and self.exit_code in (1, None) and self.culprit.role != "child"

    @property
    def is_proven(self) -> bool:
        """The process itself told that the exception was uncaught: a text alone may have been logged."""
        return self.uncaught is not None or self._raised_in_spawned is not None

    @cached_property
    def _raised_in_spawned(self) -> Traceback | None:
        """A worker of torch's spawn puts its exception aside and leaves with exit(1); its parent raises it again."""
        told = self.failures.uncaught(self.main) if self.main is not None and self.culprit.role == "worker" else None
        if told is None or told.type != "ProcessRaisedException":
            return None
        return next((item for item in reversed(self.words.exceptions) if item.reraised), None)

    def _origin(self, item: Traceback) -> Traceback:
        """What a worker had sent, where that is what the exception printed, or its cause."""
        sent = [one for one in self.words.exceptions if one.place.file == item.place.file and one.reraised]
        follows = (one for one in sent if 0 < one.place.number - item.end.number <= 2)
        precedes = (
            one for one in reversed(sent) if item.caused and one.name == item.name and one == self._printed_before(item)
        )
        return next(follows, next(precedes, item))

    @cached_property
    def exceptions(self) -> tuple[Traceback, ...]:
        """The final exception, and those that it says were its direct cause, that one first."""
        if self.final is None:
            return ()
        found = [self.final]
        while found[-1].caused and (cause := self._printed_before(found[-1])):
            found.append(cause)
        return tuple(found)

    def _printed_before(self, item: Traceback) -> Traceback | None:
        same = (
            other for other in self.words.exceptions if other.end.file == item.place.file and other.rank == item.rank
        )
        earlier = [other for other in same if other.end.number < item.place.number]
        return max(earlier, key=lambda other: other.end.number, default=None)

    @property
    def chain(self) -> str:
        return "\n".join(item.text for item in self.exceptions)

    def is_last_word(self, item: Traceback) -> bool:
        """Nothing but what follows a death, and the exceptions it set off, was printed after it."""
        later = {other.place.number for other in self.words.exceptions if other.place.file == item.place.file}
        part = self._part(item.end.file)
        lines = part.lines[item.end.number + item.message.count("\n") :] if part else ()
        for number, line in enumerate(lines, item.end.number + item.message.count("\n") + 1):
            if number in later or line.startswith(("[rank", "[default")):
                return True
            if not AFTERWORDS.match(line):
                return False
        return True

    def list_said_beside(self, item: Traceback) -> list[tuple[str, Place]]:
        """What came by the other channels when it was printed, or later: none is in order with another."""
        others = (one.parts for one in self.transcripts if all(part.file != item.end.file for part in one.parts))
        return [
            (line.strip(), last_words.place_in(part, number))
            for parts in others
            for part in parts
            for number, line in enumerate(part.lines)
            if (part.times_s[number] or 0.0) + last_words.MARK_S >= (item.end.at_s or 0.0) and line.strip()
        ]

    def last_words(self, pattern: re.Pattern[str]) -> tuple[re.Match[str], Place] | None:
        """The last place where the pattern stands as a line of its own, if nothing shows that the process went on."""
        found = self.said(pattern)
        return None if found is None or self._went_on_after(*found) else found

    def said(self, pattern: re.Pattern[str]) -> tuple[re.Match[str], Place] | None:
        """The last place where the pattern stands as a line of its own."""
        return next(reversed(list(last_words.search(self.transcripts, pattern))), None)

    def mentions(self, pattern: re.Pattern[str]) -> bool:
        """Whether the pattern stands anywhere in the output."""
        return any(pattern.search("\n".join(part.lines)) for one in self.transcripts for part in one.parts)

    def _went_on_after(self, match: re.Match[str], place: Place) -> bool:
        """It printed more, and nobody else was there who could have: neither this nor what came after."""
        if self.is_log:
            return False
        rest = self._list_rest(match, place)
        return bool(rest) and (self.is_printed_by_culprit(place) or any(map(self.is_printed_by_culprit, rest)))

    def is_followed(self, match: re.Match[str], place: Place) -> bool:
        """Something else than what follows a death was printed after it, by whomever."""
        return bool(self._list_rest(match, place))

    def _list_rest(self, match: re.Match[str], place: Place) -> list[Place]:
        """What was printed after it, but for what follows a death."""
        part, start = self._part(place.file), place.number + match[0].count("\n")
        return [
            last_words.place_in(part, number)
            for number, line in enumerate(part.lines[start:] if part else (), start)
            if part is not None and not AFTERWORDS.match(line) and not line.startswith((" ", "\t"))
        ]

    def _part(self, file: str) -> Part | None:
        return next((part for one in self.transcripts for part in one.parts if part.file == file), None)

    def is_printed_by_culprit(self, place: Place) -> bool:
        """No other process that could have printed it was alive, or faulthandler's dump of this death follows it."""
        if self.is_log:
            return False
        if self.culprit.seen and not self._others_alive(place.at_s, place.at_s):
            return True
        dump = self.dump
        return dump is not None and dump.place.file == place.file and 0 <= dump.place.number - place.number <= 8

    def may_be_printed_by_another(self, match: re.Match[str], place: Place) -> bool:
        """Another process lived after what stands before it had been read: a line has the time at which it was read.

        Where the culprit's own words came to the same channel, and nothing else did after these, one that was gone by
        then is out of it: its words would stand before the culprit's.
        """
        if not self.culprit.seen or self._others_alive(place.at_s, place.at_s):
            return True
        part = self._part(place.file)
        before = [at_s for at_s in part.times_s[: place.number] if at_s is not None] if part else []
        read_s = max((at_s for at_s in before if at_s < (place.at_s or 0.0)), default=0.0)
        is_last = self._complains_to(place) and not self.is_followed(match, place)
        return not is_last and self._others_alive(read_s, place.at_s)

    def _complains_to(self, place: Place) -> bool:
        """Whether what the culprit had as its stderr when it died is the channel of that line."""
        name = next((one.name for one in self.transcripts if any(part.file == place.file for part in one.parts)), None)
        files = {channel.target for channel in self.evidence.channels if channel.name == name}
        open_files = self.crash.open_files if self.crash else ()
        return any(target is not None and f"2 -> {target}" in open_files for target in files)

    def _others_alive(self, since_s: float | None, until_s: float | None) -> bool:
        """Whether any process lived then that may print to the same channel. A shell above the culprit waits for it."""
        return any(
            process.pid not in self._waiting_above
            and (process.ended_s is None or since_s is None or process.ended_s >= since_s)
            and (until_s is None or process.first_seen_s <= until_s + last_words.MARK_S)
            for process in self.evidence.processes
        )

    @cached_property
    def _waiting_above(self) -> set[int | None]:
        """The culprit, and the wrappers that it was started by."""
        by_pid = {process.pid: process for process in self.evidence.processes}
        above: set[int | None] = {self.culprit.pid}
        process = by_pid.get(self.culprit.pid or 0)
        while process is not None and (process := by_pid.get(process.ppid)) and process.pid not in above:
            if is_wrapper(process):
                above.add(process.pid)
        return above

    @property
    def python_frames(self) -> tuple[Frame, ...] | None:
        """Of the thread that ended, innermost first; empty when it had none; null when nothing tells."""
        if self.final is not None:
            return self.final.frames
        if self.blame is not None and self.blame.python_frames:
            return self.blame.python_frames
        if self.dump is not None and self.dump.current is not None:
            return self.dump.current.frames
        return () if self._saw_crashed_thread() else None

    def _saw_crashed_thread(self) -> bool:
        return self.crash is not None and self.crash.step == "native-all" and crashed_thread(self.crash) is not None

    @property
    def context_frame(self) -> Frame | None:
        """The main thread's user frame, for a thread that died without any Python frame."""
        if self.python_frames != ():
            return None
        if self.blame is not None and self.blame.context_frame is not None:
            return self.blame.context_frame
        if self.dump is None:
            return None
        main_thread = next((thread for thread in reversed(self.dump.threads) if not thread.is_current), None)
        return innermost_user_frame(main_thread.frames) if main_thread else None
