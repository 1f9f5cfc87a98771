"""One reading of the evidence: who is the culprit, what were its last words, what ended it. Input of every rule."""

from __future__ import annotations

import re
from functools import cached_property

from harness.diagnose import lastwords
from harness.diagnose.address import Fault, describe_fault
from harness.diagnose.blame import Blame, blame, crashed_thread
from harness.diagnose.culprit import find_culprit, is_wrapper, main_process
from harness.diagnose.lastwords import Dump, Place, Traceback
from harness.diagnose.sicodes import is_sent
from harness.diagnose.verdict import Frame
from harness.evidence.crash import Crash
from harness.evidence.model import Evidence, name_signal

# Text printed longer before the death than this is not its explanation.
_LAST_WORDS_S = 5.0
# An uncaught exception ends the process at once; what follows is teardown.
_TEARDOWN_S = 2.0
_NOISE = re.compile(r"resource_tracker|warnings\.warn\(|^\s*$|leaked|^\[exit status|: line \d+: +\d+ ")


class Reading:
    """Derived facts, each computed once."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.transcripts = evidence.transcripts
        self.main = main_process(evidence)
        self.notices = lastwords.find_notices(self.transcripts)
        self.dumps = lastwords.find_dumps(self.transcripts)
        self.tracebacks = lastwords.find_tracebacks(self.transcripts)
        self.culprit = find_culprit(evidence, self.notices, self.tracebacks)

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
    def dump(self) -> Dump | None:
        """faulthandler's text for the culprit's signal, or a fatal error of the interpreter itself."""
        near = [dump for dump in self.dumps if self._is_near_death(dump.place)]
        return next((dump for dump in near if dump.signame in (None, self.signame)), None)

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
    def final(self) -> Traceback | None:
        """The exception that ended the culprit, when an exception did. CPython's status for that is 1.

        Ctrl-C is one as well: CPython prints the traceback, then dies of SIGINT to tell its parent the truth.
        """
        if self.signame == "SIGINT":
            return next((item for item in reversed(self.tracebacks) if item.type == "KeyboardInterrupt"), None)
        if self.signame is not None or self.exit_code == 0:
            return None
        own = [traceback for traceback in self.tracebacks if not traceback.is_cascade] or self.tracebacks
        for traceback in reversed(own):
            if traceback.thread is not None or self.exit_code in (1, None):
                return traceback if self._is_near_death(traceback.end, _TEARDOWN_S) else None
        return None

    @cached_property
    def chain(self) -> str:
        """The final exception with those it says it was caused by, as text."""
        if self.final is None:
            return ""
        index = self.tracebacks.index(self.final)
        first = index
        while first > 0 and self.tracebacks[first].follows_chain:
            first -= 1
        return "\n".join(f"{item.type}: {item.message}" for item in reversed(self.tracebacks[first : index + 1]))

    def is_last_word(self, traceback: Traceback) -> bool:
        """Nothing but teardown noise and the cascade it set off was printed after it."""
        later = {item.place.number for item in self.tracebacks if item.place.file == traceback.place.file}
        for transcript in self.transcripts:
            for part in transcript.parts:
                if part.file != traceback.end.file:
                    continue
                for number, line in enumerate(part.lines[traceback.end.number :], traceback.end.number + 1):
                    if number in later or line.startswith(("Exception ", "[rank", "W1", "E1")):
                        return True
                    if not _NOISE.search(line):
                        return False
        return True

    def last_words(self, pattern: re.Pattern[str]) -> tuple[re.Match[str], Place] | None:
        """The pattern in what was printed shortly before the culprit's end."""
        return next(
            (
                (match, place)
                for match, place in lastwords.search(self.transcripts, pattern)
                if self._is_near_death(place)
            ),
            None,
        )

    def _is_near_death(self, place: Place, window_s: float = _LAST_WORDS_S) -> bool:
        if place.at_s is None or self.culprit.ended_s is None:
            return True
        return -window_s <= self.culprit.ended_s - place.at_s <= window_s

    def is_printed_by_culprit(self, place: Place) -> bool:
        """No other process that could have printed it was alive, or faulthandler's dump of this death follows it."""
        if self.is_log:
            return False
        others = [
            process
            for process in self.evidence.processes
            if process.pid != self.culprit.pid
            and not is_wrapper(process)
            and (process.ended_s is None or place.at_s is None or process.ended_s >= place.at_s)
            and (place.at_s is None or process.first_seen_s <= place.at_s)
        ]
        if not others and self.culprit.seen:
            return True
        dump = self.dump
        return dump is not None and dump.place.file == place.file and 0 <= dump.place.number - place.number <= 8

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
        return lastwords.innermost_user_frame(main_thread.frames) if main_thread else None
