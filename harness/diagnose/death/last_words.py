"""What the output says about the end: faulthandler dumps, tracebacks, and notices of a parent about its child.

Parses text only; whether it explains the death is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from harness.documents.verdict import Frame
from harness.evidence.run import Part, Transcript, name_signal

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
# Without the GIL faulthandler shows the current thread only, and does not name it.
_THREAD = re.compile(
    r"(?:(?P<current>Current thread|Thread) (?P<ident>0x[0-9a-fA-F]+).*|Stack )\(most recent call first\):"
)
_DUMP_FRAME = re.compile(r'\s+File "(?P<file>.*)", line (?P<line>\d{1,9}) in (?P<function>.+)')
_TRACEBACK = "Traceback (most recent call last):"
# torch's excepthook in a rank, and torchrun's --tee, write a rank in front of each line; or both do, one by one.
# The last part: it is one of the two, not nothing.
_RANK_PREFIX = re.compile(r"^(?:\[default(?P<local>\d{1,9})\]:)?(?:\[rank(?P<rank>\d{1,9})\]:(?: |$))?(?<=.)")
# loguru marks the frame that caught it.
_FRAME = re.compile(r'(?:> |\s*)File "(?P<file>.*)", line (?P<line>\d{1,9})(?:, in (?P<function>.+)|$)')
# What stands in front of each line of an exception group; "|" in front of the first one: it is one of such a group.
_MARGIN = re.compile(r"\s*(?P<mark>[|+]) ")
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_](?:[\w.]|<locals>)*)(?:: ?(?P<message>.*))?$")
_IN_THREAD = re.compile(r"Exception in thread (?P<thread>.+):\s*$")
_CAUSED = "The above exception was the direct cause"
# What a worker sent to its parent: torch prints it in the exception, pools as text of the cause, torch's spawn in that
# of the parent.
_RERAISED = "Original Traceback (most recent call last):"
_REMOTE = re.compile(r"(?:\w+\.)*_?RemoteTraceback: ?$")
_SPAWNED = re.compile(r"-- Process \d+ terminated with the following error:$")
_MESSAGE_LINES = 12
SYNTAX_ERRORS = ("SyntaxError", "IndentationError", "TabError")
MARK_S = 0.05  # how much later than its time a line may have been read (native/relay.c, MARK_INTERVAL_NS)

# A parent's words about a child that died of a signal, each in the one form in which its author prints it.
_NOTICES = (
    (
        re.compile(
            rf"RuntimeError: DataLoader worker \(pid (?P<pid>\d{{1,9}})\) is killed by signal: (?P<word>{_WORDS})"
        ),
        "worker",
    ),
    (
        re.compile(
            r"Root Cause \(first observed failure\):(?:\n.*){0,6}?"
            r"\n\s+exitcode\s+: -(?P<signo>\d{1,3}) \(pid: (?P<pid>\d{1,9})\)"
        ),
        "worker",
    ),
    (re.compile(rf"^\S*?: line \d+:\s+(?P<pid>\d{{1,9}}) (?P<word>{_WORDS})", re.MULTILINE), "child"),
    (re.compile(rf"^\[\d+\][ +-]*\s(?P<pid>\d{{1,9}}) (?P<word>{_WORDS})\s", re.MULTILINE), "child"),
    (re.compile(rf"^zsh: (?P<word>{_WORDS})(?: \(core dumped\))?(?:\s+\S.*)?$", re.MULTILINE), "child"),
    (re.compile(rf"^(?P<word>{_WORDS})(?: \(core dumped\))?(?:\s{{2,}}\S.*)?$", re.MULTILINE), "child"),
)


class Place(NamedTuple):
    """A line of the kept output: `stderr.log:88`."""

    file: str
    number: int
    at_s: float | None

    def __str__(self) -> str:
        return f"{self.file}:{self.number}" if self.number else self.file


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
    """`end` is the line that names the exception; whether the lines after it belong to its message, no one can tell.

    `caused`: it says that the exception printed before it was its direct cause; one that was merely being handled is
    none. `reraised`: what a worker had sent, printed as part of the exception before it, or of its cause. `rank`: in
    front.
    """

    type: str
    message: str
    frames: tuple[Frame, ...]
    thread: str | None
    caused: bool
    reraised: bool
    place: Place
    end: Place
    rank: str | None = None

    @property
    def name(self) -> str:
        """The type without its module: the interpreter tells no more of it."""
        return self.type.rpartition(".")[2]

    @property
    def text(self) -> str:
        return f"{self.type}: {self.message}"

    @property
    def sentence(self) -> str:
        lines = (line.strip() for line in self.message.splitlines())
        first = next((line for line in lines if line.strip("=-")), "")  # torchrun's begins with a rule
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
    """Where the pattern stands at the start of a line, or behind a progress bar: anywhere else it is quoted."""
    for transcript in transcripts:
        for part in transcript.parts:
            text = "\n".join(part.lines)
            for match in pattern.finditer(text):
                number = text.count("\n", 0, match.start())
                if match.start() == text.rfind("\n", 0, match.start()) + 1 or number in part.redrawn:
                    yield match, place_in(part, number)


def find_dumps(transcripts: tuple[Transcript, ...]) -> list[Dump]:
    dumps = []
    for transcript in transcripts:
        for part in transcript.parts:
            for number, line in enumerate(part.lines):
                if (title := _TITLE.search(line)) and (title.start() == 0 or _is_followed_by_stack(part, number)):
                    dumps.append(_read_dump(part, number, title["title"].strip()))
    return dumps


def _is_followed_by_stack(part: Part, number: int) -> bool:
    """A dump may begin behind a progress bar; a sentence that quotes its title has no threads under it."""
    return any(_THREAD.match(line) for line in part.lines[number + 1 : number + 5])


def _read_dump(part: Part, start: int, title: str) -> Dump:
    threads: list[ThreadStack] = []
    for line in part.lines[start + 1 :]:
        if header := _THREAD.match(line):
            threads.append(ThreadStack(header["ident"] or "", header["current"] != "Thread", ()))
        elif (frame := _DUMP_FRAME.match(line)) and threads:
            threads[-1] = threads[-1]._replace(frames=(*threads[-1].frames, _frame(frame)))
        elif line.startswith("Extension modules:") or _TITLE.search(line):
            break
    return Dump(title, SIGNAL_WORDS.get(title), tuple(threads), place_in(part, start))


def _frame(match: re.Match[str]) -> Frame:
    return Frame(file=match["file"], line=int(match["line"]), function=match["function"] or "<module>")


def find_tracebacks(transcripts: tuple[Transcript, ...]) -> list[Traceback]:
    """All tracebacks in the order of their ends. Ranks that write at once are read apart, by their prefixes."""
    found = []
    for transcript in transcripts:
        for part in transcript.parts:
            for rank, lines in _split_ranks(part).items():
                for index, (_, line) in enumerate(lines):
                    if _TRACEBACK in line:
                        traceback = _read_group(part, rank, lines, index)
                    elif _begins_syntax_error(lines, index):
                        traceback = _read_traceback(part, rank, lines, index, index)
                    else:
                        continue
                    if traceback is not None:
                        found.append(traceback)
    return sorted(found, key=lambda traceback: (traceback.end.at_s or 0.0, traceback.end.number))


def _split_ranks(part: Part) -> dict[str | None, list[tuple[int, str]]]:
    """The lines of each rank, without its prefix, and those of nobody; each with its number in the file, from 0."""
    streams: dict[str | None, list[tuple[int, str]]] = {None: []}
    for number, line in enumerate(part.lines):
        prefix = _RANK_PREFIX.match(line)
        rank, text = (prefix["rank"] or prefix["local"], line[prefix.end() :]) if prefix else (None, line)
        streams.setdefault(rank, []).append((number, text))
    return streams


def _begins_syntax_error(lines: list[tuple[int, str]], index: int) -> bool:
    """What cannot be compiled at all has no traceback: its place stands alone above the line that names the error."""
    place = _FRAME.match(lines[index][1]) if lines[index][1].startswith('  File "') else None
    if place is None or place["function"] or (index and lines[index - 1][1].startswith(("  ", _TRACEBACK))):
        return False
    rest = (line for _, line in lines[index + 1 : index + 6] if not line.startswith("  "))
    return next(rest, "").partition(":")[0] in SYNTAX_ERRORS


def _read_group(part: Part, rank: str | None, lines: list[tuple[int, str]], start: int) -> Traceback | None:
    """Of an exception group its own traceback, without the margin; those that it is a group of did not end anything."""
    margin = _MARGIN.match(lines[start][1])
    if margin is None:
        return _read_traceback(part, rank, lines, start, start + 1)
    if margin["mark"] == "|":
        return None
    own = [*lines[max(0, start - 3) : start], (lines[start][0], lines[start][1][margin.end() :])]
    begun = len(own)
    for number, line in lines[start + 1 :]:
        if line[: margin.end()].strip() != "|":
            break
        own.append((number, line[margin.end() :]))
    return _read_traceback(part, rank, own, begun - 1, begun)


def _read_traceback(
    part: Part, rank: str | None, lines: list[tuple[int, str]], start: int, first: int
) -> Traceback | None:
    """`start`: its first line; `first`: that of its frames."""
    frames: list[Frame] = []
    index = first
    while index < len(lines) and (lines[index][1].startswith(("  ", "> File ")) or not lines[index][1].strip()):
        if frame := _FRAME.match(lines[index][1]):
            frames.append(_frame(frame))
        index += 1
    exception = _EXCEPTION.match(lines[index][1]) if index < len(lines) else None
    if exception is None:
        return None
    before = [text for _, text in lines[max(0, start - 3) : start] if text.strip()]
    in_thread = _IN_THREAD.search(before[-1]) if before else None
    return Traceback(
        type=exception["type"],
        message="\n".join([exception["message"] or "", *_read_message(lines[index + 1 : index + _MESSAGE_LINES])]),
        frames=tuple(reversed(frames)),
        thread=in_thread["thread"] if in_thread else None,
        caused=bool(before) and before[-1].startswith(_CAUSED),
        reraised=lines[start][1].startswith(_RERAISED) or _is_remote(before),
        place=place_in(part, lines[start][0]),
        end=place_in(part, lines[index][0]),
        rank=rank,
    )


def _is_remote(before: list[str]) -> bool:
    if before[-1:] == ['"""']:
        return any(_REMOTE.match(text) for text in before)
    return bool(before) and _SPAWNED.match(before[-1]) is not None


def _read_message(lines: list[tuple[int, str]]) -> Iterator[str]:
    for _, line in lines:
        if not line.strip() or _TRACEBACK in line or _TITLE.search(line):
            return
        yield line


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
