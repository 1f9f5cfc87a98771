"""What the output says about the end: faulthandler dumps, tracebacks, and notices of a parent about its child.

Parses text only; whether it explains the death is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from harness.diagnose.verdict import Frame
from harness.evidence.model import Part, Transcript, name_signal

SIGNAL_WORDS = {
    "Segmentation fault": "SIGSEGV",
    "segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Abort trap: 6": "SIGABRT",
    "abort": "SIGABRT",
    "Bus error": "SIGBUS",
    "bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "illegal hardware instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Trace/breakpoint trap": "SIGTRAP",
    "Bad system call": "SIGSYS",
    "Killed": "SIGKILL",
    "killed": "SIGKILL",
    "Terminated": "SIGTERM",
}
_WORDS = "|".join(sorted(map(re.escape, SIGNAL_WORDS), key=len, reverse=True))

_TITLE = re.compile(r"Fatal Python error: (?P<title>.+)")
_THREAD = re.compile(r"(?P<current>Current thread|Thread) (?P<ident>0x[0-9a-fA-F]+).*\(most recent call first\):")
_DUMP_FRAME = re.compile(r'\s+File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.+)')
_TRACEBACK = "Traceback (most recent call last):"
_RANK_PREFIX = re.compile(r"^\[rank\d+\]:(?: |$)")
_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.+)')
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$")
_IN_THREAD = re.compile(r"Exception in thread (?P<thread>.+):\s*$")
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception")
_NOT_USER_CODE = re.compile(r"/(site|dist)-packages/|/lib/python\d\.\d+/|^<(?!string>|stdin>|ipython)")
_COMPREHENSIONS = frozenset({"<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>"})
_MESSAGE_LINES = 12

# Exceptions by which a parent says that its child failed: never the cause themselves.
CASCADE_EXCEPTIONS = frozenset(
    ["ChildFailedError", "ProcessExitedException", "ProcessRaisedException", "BrokenProcessPool", "CalledProcessError"]
)

# A parent's words about a child that died of a signal: (pattern, role).
_NOTICES = (
    (
        re.compile(rf"DataLoader worker \(pid (?P<pid>\d+)\) is killed by signal: (?P<word>{_WORDS})"),
        "worker",
    ),
    (
        re.compile(
            r"Root Cause \(first observed failure\):(?:\n.*){0,6}?"
            r"\n\s+exitcode\s+: -(?P<signo>\d+) \(pid: (?P<pid>\d+)\)"
        ),
        "worker",
    ),
    (re.compile(rf"^\S*?: line \d+:\s+(?P<pid>\d+) (?P<word>{_WORDS})", re.MULTILINE), "child"),
    (re.compile(rf"\[\d+\]\s+(?P<pid>\d+) (?P<word>{_WORDS})\s"), "child"),
    (re.compile(rf"^(?:zsh: )?(?P<word>{_WORDS})(?: \(core dumped\))?(?:\s+\S.*)?$", re.MULTILINE), "child"),
)


class Place(NamedTuple):
    """A line of the kept output: `stderr.log:88`."""

    file: str
    number: int
    at_s: float | None

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


class ThreadStack(NamedTuple):
    ident: str
    is_current: bool
    frames: tuple[Frame, ...]


class Dump(NamedTuple):
    """faulthandler's or Py_FatalError's text. `signame` null: the title is not a signal's."""

    title: str
    signame: str | None
    threads: tuple[ThreadStack, ...]
    place: Place

    @property
    def current(self) -> ThreadStack | None:
        return next((thread for thread in self.threads if thread.is_current), None)


class Traceback(NamedTuple):
    """`end` is the line that names the exception; whether the lines after it belong to its message, no one can tell."""

    type: str
    message: str
    frames: tuple[Frame, ...]
    thread: str | None
    follows_chain: bool
    place: Place
    end: Place

    @property
    def is_cascade(self) -> bool:
        return self.type.rpartition(".")[2] in CASCADE_EXCEPTIONS

    @property
    def sentence(self) -> str:
        first = self.message.strip().partition("\n")[0]
        return f"{self.type}: {first}" if first else self.type


class Notice(NamedTuple):
    pid: int | None
    signame: str
    role: str
    text: str
    place: Place


def place_in(part: Part, number: int) -> Place:
    """`number` counts from 0."""
    return Place(part.file, number + 1, part.times_s[number])


def search(transcripts: tuple[Transcript, ...], pattern: re.Pattern[str]) -> Iterator[tuple[re.Match[str], Place]]:
    for transcript in transcripts:
        for part in transcript.parts:
            text = "\n".join(part.lines)
            for match in pattern.finditer(text):
                yield match, place_in(part, text.count("\n", 0, match.start()))


def innermost_user_frame(frames: tuple[Frame, ...]) -> Frame | None:
    """`frames` start with the innermost. A comprehension is part of the function it stands in."""
    own = [frame for frame in frames if not _NOT_USER_CODE.search(frame.file)]
    named = (frame for frame in own if frame.function not in _COMPREHENSIONS)
    return next(named, own[0] if own else None)


def find_dumps(transcripts: tuple[Transcript, ...]) -> list[Dump]:
    dumps = []
    for transcript in transcripts:
        for part in transcript.parts:
            for number, line in enumerate(part.lines):
                if title := _TITLE.search(line):
                    dumps.append(_read_dump(part, number, title["title"].strip()))
    return dumps


def _read_dump(part: Part, start: int, title: str) -> Dump:
    threads: list[ThreadStack] = []
    for line in part.lines[start + 1 :]:
        if header := _THREAD.match(line):
            threads.append(ThreadStack(header["ident"], header["current"].startswith("Current"), ()))
        elif (frame := _DUMP_FRAME.match(line)) and threads:
            threads[-1] = threads[-1]._replace(frames=(*threads[-1].frames, _frame(frame)))
        elif line.startswith("Extension modules:") or _TITLE.search(line):
            break
    return Dump(title, SIGNAL_WORDS.get(title), tuple(threads), place_in(part, start))


def _frame(match: re.Match[str]) -> Frame:
    return Frame(file=match["file"], line=int(match["line"]), function=match["function"])


def find_tracebacks(transcripts: tuple[Transcript, ...]) -> list[Traceback]:
    """All tracebacks in the order of their ends; the last one that is no cascade is usually the uncaught one."""
    found = []
    for transcript in transcripts:
        for part in transcript.parts:
            lines = [_RANK_PREFIX.sub("", line) for line in part.lines]
            for number, line in enumerate(lines):
                if _TRACEBACK in line and (traceback := _read_traceback(part, lines, number)):
                    found.append(traceback)
    return sorted(found, key=lambda traceback: traceback.end.at_s or 0.0)


def _read_traceback(part: Part, lines: list[str], start: int) -> Traceback | None:
    frames: list[Frame] = []
    number = start + 1
    while number < len(lines) and (lines[number].startswith("  ") or not lines[number].strip()):
        if frame := _FRAME.match(lines[number]):
            frames.append(_frame(frame))
        number += 1
    exception = _EXCEPTION.match(lines[number]) if number < len(lines) else None
    if exception is None:
        return None
    message = [exception["message"] or ""]
    for line in lines[number + 1 : number + _MESSAGE_LINES]:
        if not line.strip() or _TRACEBACK in line or _TITLE.search(line):
            break
        message.append(line)
    before = [line for line in lines[max(0, start - 3) : start] if line.strip()]
    in_thread = _IN_THREAD.search(before[-1]) if before else None
    return Traceback(
        type=exception["type"],
        message="\n".join(message),
        frames=tuple(reversed(frames)),
        thread=in_thread["thread"] if in_thread else None,
        follows_chain=bool(before) and before[-1].startswith(_CHAINED),
        place=place_in(part, start),
        end=place_in(part, number),
    )


def find_notices(transcripts: tuple[Transcript, ...]) -> list[Notice]:
    """What is said in words about a death by a signal: by the parent, or by the process itself (faulthandler)."""
    notices = []
    for pattern, role in _NOTICES:
        for match, place in search(transcripts, pattern):
            groups = match.groupdict()
            signame = SIGNAL_WORDS[groups["word"]] if groups.get("word") else name_signal(int(groups["signo"]))
            pid = int(groups["pid"]) if groups.get("pid") else None
            notices.append(Notice(pid, signame, role, match[0].strip().rpartition("\n")[2].strip(), place))
    for dump in find_dumps(transcripts):
        if dump.signame:
            notices.append(Notice(None, dump.signame, "itself", f"Fatal Python error: {dump.title}", dump.place))
    return notices
