"""`harness watch`: follow running processes; say when and why one stops moving, that it moves again, how it ended.

While a process moves only /proc is read. One that stands still for too long gets one look, and a further one each time
the standstill has doubled, to see what moves in memory only.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.capture.living.look import take_look
from harness.capture.living.watching import Watched, Watching
from harness.capture.remote.remote_look import prepare, take_remote_look
from harness.capture.remote.remote_watching import RemoteWatched, RemoteWatching
from harness.capture.remote.target import Host
from harness.capture.run.channels import say
from harness.commands.durations import parse_duration
from harness.commands.looks.hosts import ask_hosts, find_here, find_there, label_look, open_there
from harness.commands.looks.targets import Asked, read_targets
from harness.commands.ps import show_choice
from harness.diagnose.living.document import judge_living
from harness.diagnose.living.line import stirs_beside
from harness.diagnose.living.pace import Pace, tell_quiet
from harness.diagnose.memory import judge_memory
from harness.documents.verdict import Document, MemoryUse
from harness.documents.watch import WatchEvent
from harness.errors import EXIT_COULD_NOT_LOOK, EXIT_FAULT, EXIT_INCONCLUSIVE, EXIT_INTERRUPTED, HarnessError
from harness.evidence.living.look import Look
from harness.evidence.run import Ending
from harness.evidence.text.redaction import redact, redact_argv
from harness.evidence.text.undecoded import encode_document
from harness.report.text import look_of
from harness.report.watch import render_event, render_sight

_FASTEST_S, _SLOWEST_S, _RARE_S = 1.0, 2.0, 10.0
_LOOK_S = 5.0
_SHORTEST_LOOK_S = 2.0
_CORE_DUMPED = 0x80
_WORST = (0, EXIT_INCONCLUSIVE, EXIT_COULD_NOT_LOOK, EXIT_FAULT, EXIT_INTERRUPTED)
_Target = Watched | RemoteWatched
_Followed = Watching | RemoteWatching
_Take = Callable[[Sequence[int], float], Look]


def watch_command(arguments: argparse.Namespace) -> int:
    asked = read_targets(arguments)
    if not asked.names_processes:
        return show_choice(arguments)
    asked_s = None if arguments.stall_after is None else parse_duration(arguments.stall_after)
    fastest_s = _FASTEST_S if asked_s is None else min(_FASTEST_S, asked_s / 8)
    speed = fastest_s, _SLOWEST_S if asked_s is None else min(_SLOWEST_S, asked_s / 4)
    screen = _Screen(arguments.json, several=len(asked.hosts) > 1)

    def follow(host: Host, name: str) -> int:
        with _watching(asked, host, name, speed) as (watching, look):
            return _Watch(watching, asked_s, screen, look, name if asked.is_far(host) else None).run()

    try:
        answers, unseen = ask_hosts(asked, follow, quietly=True)
    except KeyboardInterrupt:
        screen.left.set()  # several hosts, each followed by a thread of its own
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return 0  # the reader has what it wanted
    for gap in unseen:
        say(f"{gap.what}: {gap.why}")
    return max([*answers.values(), *(EXIT_COULD_NOT_LOOK for _ in unseen)], key=_WORST.index)


@contextlib.contextmanager
def _watching(asked: Asked, host: Host, name: str, speed: tuple[float, float]) -> Iterator[tuple[_Followed, _Take]]:
    """What is followed, and how it is looked at when it stands still."""
    if not asked.is_far(host):
        watching = Watching(find_here(asked.hosts.get(host, []), asked.match), *speed)
        try:
            yield watching, take_look
        finally:
            watching.close()
        return
    with open_there(asked, host) as session:
        prepare(session)
        there = RemoteWatching(session, find_there(session, asked, host), *speed)
        yield there, lambda pids, for_s: label_look(take_remote_look(session, pids, for_s), asked, host, name)


class _Screen:
    """Where events go: JSON lines, plain lines, or lines above a few that a terminal redraws."""

    def __init__(self, as_json: bool, several: bool) -> None:
        self._as_json = as_json
        self.live = os.isatty(1) and not as_json and not several and os.environ.get("TERM", "dumb") != "dumb"
        self._drawn = 0
        self._turn = threading.Lock()  # each host is followed by a thread
        self.left = threading.Event()

    def tell(self, event: WatchEvent) -> None:
        event = redact(event)
        text = encode_document(event) + b"\n" if self._as_json else render_event(event, **look_of(1)).encode()
        self._write(self._erase() + text)

    def draw(self, lines: list[str]) -> None:
        """Never more than the terminal shows: what has scrolled away cannot be redrawn."""
        lines = lines[: max(1, (os.get_terminal_size(1).lines or 24) - 1)]
        self._write(self._erase() + "".join(f"{line}\n" for line in lines).encode())
        self._drawn = len(lines)

    def _erase(self) -> bytes:
        drawn, self._drawn = self._drawn, 0
        return f"\x1b[{drawn}A\x1b[J".encode() if drawn else b""

    def _write(self, data: bytes) -> None:
        with self._turn:
            while data:
                data = data[os.write(1, data) :]


class _Course:
    """How one target fares."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.moved = self.stalled = self.slow = False
        self.look_again_s = 0.0
        self.last: Document | None = None
        self._stirred_s = -math.inf
        self._trust_s, self._trusted_until = pace.threshold_s, 0.0

    def believes(self, one: _Target, now_s: float) -> bool:
        """That what moves is its line of work: there is nobody else, or a look has said so not long ago."""
        if not one.is_alone and now_s >= self._trusted_until:
            self._stirred_s = now_s
            return False
        return True

    def trust(self, now_s: float) -> None:
        """A look has not shown that it stands: for a while, and for longer each time, whatever moves is believed."""
        self._trusted_until = now_s + self._trust_s
        self._trust_s *= 2
        self.pace.begin_again(now_s)

    def stirs(self, now_s: float) -> bool:
        """Somebody has moved of late whom only a look could believe."""
        return now_s - self._stirred_s < self.pace.threshold_s


class _Watch:
    def __init__(
        self, watching: _Followed, asked_s: float | None, screen: _Screen, look: _Take, host: str | None
    ) -> None:
        self._watching = watching
        self._take_look, self._host = look, host
        self._screen = screen
        self._courses = {
            pid: _Course(Pace(watching.now_s(), asked_s, one.last_output_s() or 0.0))
            for pid, one in watching.targets.items()
        }

    def run(self) -> int:
        try:
            return self.follow()
        except KeyboardInterrupt:
            self.leave()
            return EXIT_INTERRUPTED

    def follow(self) -> int:
        """Until all have ended; the exit status."""
        for one in self._watching.living():
            self._tell(one, "watching", f"{shlex.join(redact_argv(one.argv))}; {self._courses[one.pid].pace.tell()}")
        next_s = 0.0
        while self._watching.living():
            for one in self._watching.wait(next_s - self._watching.now_s()):
                self._tell_end(one)
            if self._watching.now_s() >= next_s:
                self._watching.sample()
                self._consider()
                self._draw()
                next_s = self._watching.now_s() + self._interval_s()
            if self._screen.left.is_set():
                raise KeyboardInterrupt
        return max(map(_exit_code_of, self._watching.targets.values()))

    def _interval_s(self) -> float:
        """Rarely when all stand still: nobody waits for the second in which one moves again."""
        courses = [self._courses[one.pid] for one in self._watching.living()]
        if courses and all(course.stalled for course in courses):
            return max(self._watching.interval_s, min(_RARE_S, min(course.pace.threshold_s for course in courses) / 4))
        return self._watching.interval_s

    def _consider(self) -> None:
        for one in self._watching.living():
            course = self._courses[one.pid]
            if one.moving and course.believes(one, self._watching.now_s()):
                self._note_movement(one, course, ", ".join(dict.fromkeys(counter.name for counter in one.moving)))
        if still := [one for one in self._watching.living() if self._is_due(one)]:
            self._look(still)

    def _is_due(self, one: _Target) -> bool:
        course, now_s = self._courses[one.pid], self._watching.now_s()
        return course.pace.is_over(now_s) and course.pace.quiet_s(now_s) >= course.look_again_s

    def _note_movement(self, one: _Target, course: _Course, what: str) -> None:
        quiet_s = course.pace.note_movement(self._watching.now_s())
        if course.stalled:
            self._tell(one, "recovered", f"it moves again after {quiet_s:.0f} s: {what}; {course.pace.tell()}")
        elif not course.moved:
            self._tell(one, "moves", what)
        course.moved, course.stalled, course.slow, course.look_again_s = True, False, False, 0.0

    def _look(self, still: list[_Target]) -> None:
        """One look for all that stand still: what one of them waits for may be another."""
        stirring = set()
        for one in still:
            course, now_s = self._courses[one.pid], self._watching.now_s()
            quiet_s = course.pace.quiet_s(now_s)
            stirring |= {one.pid} if course.stirs(now_s) else set()
            course.look_again_s = quiet_s + (course.pace.threshold_s if one.pid in stirring else quiet_s)
        self._draw("  looks at what stands still …")
        shortest_s = min(self._courses[one.pid].pace.threshold_s for one in still)
        try:
            for_s = min(_LOOK_S, max(_SHORTEST_LOOK_S, shortest_s))
            look = redact(self._take_look([one.pid for one in still], for_s))
        except HarnessError as error:
            for one in still:
                self._note_stall(one, self._courses[one.pid], f", and it could not be looked at: {error}", None)
            return
        for one in still:
            if one.pid in look.targets:
                document, beside = judge_living(look, one.pid), stirs_beside(look, one.pid)
                self._judge(one, self._courses[one.pid], document, stirs=one.pid in stirring, beside=beside)

    def _judge(self, one: _Target, course: _Course, document: Document, *, stirs: bool, beside: bool) -> None:
        if document.outcome.state == "gone":
            return  # the end is told when the kernel tells it
        course.last = document
        progresses = document.verdict.kind == "progressing"
        if progresses and course.stalled and stirs:
            self._note_movement(one, course, document.verdict.headline)
            self._trust(course)
        elif stirs and not course.stalled and (progresses or not beside):  # who stirred has rested during the look
            self._trust(course)
            if progresses and not course.moved:
                self._tell(one, "moves", document.verdict.headline)
            course.moved = course.moved or progresses
        elif progresses:
            self._note_slow(one, course, document)
        else:
            self._note_stall(one, course, "", document)

    def _trust(self, course: _Course) -> None:
        course.trust(self._watching.now_s())
        course.look_again_s = 0.0

    def _note_stall(self, one: _Target, course: _Course, trouble: str, document: Document | None) -> None:
        if course.stalled or one.is_gone():
            return
        course.stalled = True
        quiet_s = course.pace.quiet_s(self._watching.now_s())
        told = tell_quiet(quiet_s, rests=one.rests_s >= quiet_s)
        self._tell(one, "stall", f"{told}{trouble}", verdict=document)

    def _note_slow(self, one: _Target, course: _Course, document: Document) -> None:
        quiet_s = course.pace.note_movement(self._watching.now_s())
        course.look_again_s = 0.0
        if course.stalled:
            text = f"it moves again after {quiet_s:.0f} s: {document.verdict.headline}; {course.pace.tell()}"
            self._tell(one, "recovered", text, verdict=document)
        elif not course.slow:
            text = f"nothing outside changed for {quiet_s:.0f} s; {document.verdict.headline}; {course.pace.tell()}"
            self._tell(one, "slow", text, verdict=document)
        course.stalled, course.slow = False, True

    def _tell_end(self, one: _Target) -> None:
        ending = None if one.wait_status is None else Ending.from_wait_status(one.wait_status)
        if ending is None:
            text = "ended, status not visible to us"
        elif ending.signame is None:
            text = f"ended with exit status {ending.exit_code}"
        else:
            core = ", core dumped" if (one.wait_status or 0) & _CORE_DUMPED else ""
            kernel = self._watching.kernel_lines(one.pid)[-1:]
            sender = self._tell_sender(one, ending)
            told = (f"the kernel said: {line}" for line in kernel)
            text = "; ".join([f"ended by {ending.signame}{core}{sender}", *told])
        self._tell(
            one,
            "ended",
            f"{text}, after {self._watching.now_s():.0f} s of watching",
            exit_code=ending and ending.exit_code,
            signal=ending and ending.signame,
            source=one.how_seen,
            memory=_judge_memory(one),
        )

    def _tell_sender(self, one: _Target, ending: Ending) -> str:
        sent = None if ending.signo is None else self._watching.sender_of(one.pid, ending.signo)
        if sent is None:
            return ""
        if sent.sender_pid is None:
            return ", sent by the kernel"
        return f", sent by process {sent.sender_pid} ({sent.sender or 'gone before its command line could be read'})"

    def leave(self) -> None:
        for one in self._watching.living():
            self._tell(one, "left", "you left, it runs on")

    def _tell(self, one: _Target, event: Any, text: str, **more: Any) -> None:
        pace, now_s = self._courses[one.pid].pace, self._watching.now_s()
        told = WatchEvent(
            event=event,
            at=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            pid=one.pid,
            host=self._host,
            text=text,
            watched_s=round(now_s, 3),
            quiet_s=round(pace.quiet_s(now_s), 3),
            rule=pace.tell(),
            moving=tuple(dict.fromkeys(counter.name for counter in one.moving)),
            **more,
        )
        self._screen.tell(told)

    def _draw(self, note: str | None = None) -> None:
        if not self._screen.live:
            return
        width, lines = look_of(1)["width"], []
        for one in self._watching.living():
            one.look_at_lines(self._watching.now_s())
            course = self._courses[one.pid]
            quiet_s = course.pace.quiet_s(self._watching.now_s())
            lines += render_sight(
                redact(one.describe()), quiet_s, course.pace.tell(), course.last, memory=_judge_memory(one), width=width
            )
        self._screen.draw(lines if note is None else [*lines, note])


def _judge_memory(one: _Target) -> MemoryUse | None:
    timeline = one.timeline()
    return None if timeline is None else judge_memory(timeline, alive=not one.is_gone())


def _exit_code_of(one: _Target) -> int:
    """0 ended well, 10 otherwise; 11 nobody saw how."""
    if one.wait_status is None:
        return EXIT_INCONCLUSIVE
    return EXIT_FAULT if one.wait_status else 0
