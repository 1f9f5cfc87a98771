"""What was seen of a command's run, and what could not be looked at.

Facts only. Times ending in `_s` are seconds since the command was started, on the monotonic clock.
"""

from __future__ import annotations

import signal
from typing import Literal

from msgspec import Struct

from harness.evidence.crash import Crash
from harness.evidence.gap import Gap
from harness.evidence.glimpse import Glimpse
from harness.evidence.memory import Kill, Room, Timeline

EVIDENCE_SCHEMA = "harness.evidence/1"


class Ending(Struct, frozen=True):
    """How one process ended. Exactly one of the two is set."""

    exit_code: int | None = None
    signo: int | None = None

    @classmethod
    def from_wait_status(cls, status: int) -> Ending:
        if status & 0x7F:
            return cls(signo=status & 0x7F)
        return cls(exit_code=status >> 8 & 0xFF)

    @property
    def signame(self) -> str | None:
        return None if self.signo is None else name_signal(self.signo)

    @property
    def shell_code(self) -> int:
        """The status a shell, and therefore `harness run`, gives to this ending."""
        return 128 + self.signo if self.signo is not None else self.exit_code or 0


def name_signal(signo: int) -> str:
    try:
        return signal.Signals(signo).name
    except ValueError:
        return f"signal {signo}"


class Process(Struct, frozen=True):
    """One process of the command's tree. `ending` null and `ended_s` set: it ended, its status was not visible.

    `alive_s`: where its end was not told but noticed, when it was last seen alive; it ended between then and `ended_s`.
    `execs`: how often the kernel told that it started a program; that of the command itself is its first.
    """

    pid: int
    ppid: int
    name: str
    argv: tuple[str, ...]
    executable: str | None
    first_seen_s: float
    rank: str | None = None
    ended_s: float | None = None
    ending: Ending | None = None
    source: str = ""
    peak_rss_bytes: int | None = None
    alive_s: float | None = None
    execs: int = 0


class Uncaught(Struct, frozen=True):
    """An exception that nothing caught, as the process itself told when it reached the top of its main thread.

    `lines`: of its traceback the outermost, the next (0: there is none) and the innermost; empty: not told.
    """

    pid: int
    at_s: float
    type: str
    lines: tuple[int, ...] = ()


class Exit(Struct, frozen=True):
    """A process called exit() with a status other than 0, as it told itself.

    `finalised`: the interpreter had ended itself before, as after sys.exit(); where it had not, native code called
    exit() while Python was running. `uncaught`: the type of an exception that nothing caught, if one was the last that
    happened before. `caller`: of native code's exit(), the image that called it; null: not seen.
    """

    pid: int
    at_s: float
    exit_code: int
    finalised: bool
    uncaught: str | None
    caller: str | None = None


class PassedSignal(Struct, frozen=True):
    """A signal that arrived at harness; `passed_on` when the command would not have got it otherwise."""

    signame: str
    at_s: float
    sender_pid: int
    sender_uid: int
    sender: str | None
    passed_on: bool


class Channel(Struct, frozen=True):
    """One output channel of the command: where it went and how much of it the case has.

    `target`: what the command has there, as in /proc/PID/fd; null: not known.
    """

    name: str
    kind: str
    bytes_in: int
    last_output_s: float | None
    sink_error: str | None = None
    case_error: str | None = None
    target: str | None = None


class Statement(Struct, frozen=True):
    """A line of the command's own script that matters: an import, or a variable set in os.environ."""

    file: str
    line: int
    imports: str | None = None
    sets: str | None = None
    value: str | None = None


class Core(Struct, frozen=True):
    """A core file of one process. `found`: where the kernel or a helper had put it; `path`: where it is now."""

    pid: int
    path: str
    found: str
    bytes: int
    how: Literal["moved", "linked", "left"]


class KernelLine(Struct, frozen=True):
    text: str
    source: str


class OomCount(Struct, frozen=True):
    """The number of OOM kills a control group counted during the run."""

    cgroup: str
    kills: int


class Memory(Struct, frozen=True):
    machine_bytes: int | None = None
    limit_bytes: int | None = None
    limit_source: str | None = None


class Part(Struct, frozen=True):
    """One kept file of a channel: what a reader of the terminal would have seen, line by line.

    `times_s[i]` is when line i was last added to; null where the source (a log file) has no times. `redrawn` are the
    lines that carriage returns drew over: their text is the last state only.
    """

    file: str
    lines: tuple[str, ...]
    times_s: tuple[float | None, ...]
    redrawn: frozenset[int] = frozenset()
    unfinished: bool = False


class Transcript(Struct, frozen=True):
    name: str
    parts: tuple[Part, ...]


class Evidence(Struct, frozen=True):
    """Everything a judgement may rest on. `origin` is "run" (we owned the process) or "log" (somebody's text).

    `sees_births`: the kernel told of every process of the tree, so none is missing from `processes`.
    """

    harness: str
    origin: str
    argv: tuple[str, ...]
    cwd: str
    pid: int | None
    platform: str
    started: str
    duration_s: float
    python: str | None = None
    processes: tuple[Process, ...] = ()
    crashes: tuple[Crash, ...] = ()
    uncaught: tuple[Uncaught, ...] = ()
    exits: tuple[Exit, ...] = ()
    sees_births: bool = False
    signals: tuple[PassedSignal, ...] = ()
    channels: tuple[Channel, ...] = ()
    kernel: tuple[KernelLine, ...] = ()
    oom_kills: tuple[OomCount, ...] | None = None
    memory: Memory = Memory()
    timeline: Timeline | None = None
    room: Room | None = None
    glimpses: tuple[Glimpse, ...] = ()
    kills: tuple[Kill, ...] = ()
    environment: dict[str, str] = {}
    script: tuple[Statement, ...] = ()
    cores: tuple[Core, ...] = ()
    gaps: tuple[Gap, ...] = ()
    transcripts: tuple[Transcript, ...] = ()
    schema: str = EVIDENCE_SCHEMA
