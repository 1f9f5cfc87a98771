"""The verdict document: what `--verdict` and `verdict.json` hold. docs/pages/documents.md tells how to read it.

Null with an entry in `gaps` means "could not look"; null without one, "not applicable". Types only.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from harness.evidence.gap import Gap

VERDICT_SCHEMA = "harness.verdict/1"
Status = Literal["established", "supported", "hypothesis", "unknown"]


class Target(Struct, frozen=True):
    """`address`: how a process of that host is named to harness, with {pid} in it; null for this machine."""

    host: str | None
    pid: int | None
    argv: tuple[str, ...]
    python: str | None
    platform: str
    rank: str | None = None
    address: str | None = None


class Outcome(Struct, frozen=True):
    """How the command ended; `signal` is that of the process the verdict names, which may be a worker's."""

    state: Literal["died", "exited", "alive", "gone"]
    exit_code: int | None
    signal: str | None
    si_code: str | None = None
    fault_address: str | None = None
    core: str | None = None
    duration_s: float | None = None


class Component(Struct, frozen=True):
    distribution: str | None
    version: str | None
    image: str | None
    function: str | None
    offset: str | None = None


class ProcessRef(Struct, frozen=True):
    """`python`: the version of the interpreter, where this process is one and it is known."""

    pid: int | None
    role: Literal["main", "worker", "child"]
    thread: str | None = None
    tid: int | None = None
    host: str | None = None
    argv: tuple[str, ...] = ()
    python: str | None = None
    rank: str | None = None


class Frame(Struct, frozen=True):
    file: str
    line: int
    function: str

    @property
    def place(self) -> str:
        name = self.file.rpartition("/")[2]
        return f"{self.function} ({name}:{self.line})"


class Call(Struct, frozen=True):
    """One place on a stack; `times` in a row. Native calls have an image, and file and line where those are known."""

    kind: Literal["python", "native"]
    function: str | None
    file: str | None
    line: int | None
    image: str | None = None
    offset: str | None = None
    times: int = 1


class Stack(Struct, frozen=True):
    """The innermost calls of the thread that died, the innermost first; `more`: frames that are not among them."""

    calls: tuple[Call, ...]
    more: int


class Ground(Struct, frozen=True):
    fact: str
    source: str


class Upstream(Struct, frozen=True):
    ref: str
    why: str


class Remedy(Struct, frozen=True):
    do: str
    safe: bool
    why: str
    verify: str | None = None


class Verdict(Struct, frozen=True):
    kind: str
    status: Status
    headline: str
    component: Component | None
    faulting_image: Component | None
    process: ProcessRef
    python_frame: Frame | None
    user_frame: Frame | None
    context_frame: Frame | None
    signature: str | None
    grounds: tuple[Ground, ...]
    against: tuple[str, ...]
    upstream: tuple[Upstream, ...]
    remedies: tuple[Remedy, ...]
    next: str | None
    fault: str | None = None
    stack: Stack | None = None


class Hypothesis(Struct, frozen=True):
    hypothesis: str
    state: Literal["ruled-out", "supported", "open"]
    because: str


class Runtime(Struct, frozen=True):
    """One loaded OpenMP runtime."""

    image: str
    family: Literal["llvm", "intel", "gnu", "msvc"]
    version: str | None
    distribution: str | None
    base: str | None
    registered: bool | None
    bound_by: tuple[str, ...]


class Progress(Struct, frozen=True):
    """What the command had to say before it ended; of a living one, what moves, and what it has not said yet.

    `moving` null: no counter could be read. `unflushed_stdout`: printed, and still in the process's own memory.
    `cut_off`: channels that could not be kept to their end; what came last there is not known.
    """

    moving: bool | None
    counter: str | None
    last_line: str | None
    last_output_age_s: float | None
    unfinished_line: str | None = None
    unflushed_stdout: str | None = None
    unflushed_stdout_bytes: int | None = None
    looked_s: float | None = None
    samples: int | None = None
    cut_off: tuple[str, ...] = ()


class Growth(Struct, frozen=True):
    """Steady growth before the end. `fit`: r squared of the straight line through `samples` samples."""

    bytes_per_s: float
    over_s: float
    samples: int
    fit: float
    reaches_limit_s: float | None


class MemoryUse(Struct, frozen=True):
    """Memory of all processes of the command together (pages that they share count for each); `growth` null: none.

    `limit`: which one would be met first; `limit_used_bytes`: what a limiting control group had at most, all told.
    `course`: evenly over time. `peak_s` null: the kernel knows the peak, not when it was; `largest_pid`
    null: nor whose.
    """

    peak_bytes: int
    peak_s: float | None
    last_bytes: int
    processes: int
    largest_pid: int | None
    largest_bytes: int | None
    limit_bytes: int | None
    limit: str | None
    limit_used_bytes: int | None
    swap_bytes: int
    available_low_bytes: int | None
    growth: Growth | None
    samples: int
    course: tuple[int, ...]


class Node(Struct, frozen=True):
    """`frames`, outermost first, that all `count` stacks share beyond their parent's. Children: the fewest first."""

    frames: tuple[str, ...]
    count: int
    who: str
    children: tuple[Node, ...] = ()


class Outlier(Struct, frozen=True):
    """The few that are elsewhere, and where most of the others are.

    `place` is a line of the user's, `inside` the function that it has called if that is another; `kind` is what the
    verdict would be on one of them alone. `host`, `others_host`: of the first of each.
    """

    who: str
    count: int
    place: str
    others: int
    others_place: str
    inside: str | None = None
    others_inside: str | None = None
    kind: str | None = None
    others_kind: str | None = None
    pids: tuple[int, ...] = ()
    others_pids: tuple[int, ...] = ()
    host: str | None = None
    others_host: str | None = None


class Printed(Struct, frozen=True):
    """What a process has printed and not written yet. A truncated `text` is its end."""

    pid: int
    stream: str
    bytes: int
    text: str
    truncated: bool


class Living(Struct, frozen=True):
    """What else was seen of one that lives. `threads`: of process `pid`, which is the one that the verdict names.

    `stopped_ms`: how long one of the `processes` stood still for our sake, at most. `tree`: where more than two are.
    `interrupted`: system calls that our stops may have cut short, of all of them. `tasks`: of asyncio, those below that
    the one above waits for.
    """

    pid: int | None
    threads: tuple[str, ...]
    rising: tuple[str, ...]
    unflushed: tuple[Printed, ...]
    stopped_ms: float
    processes: int
    tree: Node | None = None
    outlier: Outlier | None = None
    interrupted: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()


class Document(Struct, frozen=True):
    harness: str
    case: str | None
    target: Target
    outcome: Outcome
    verdict: Verdict
    differential: tuple[Hypothesis, ...]
    progress: Progress | None
    gaps: tuple[Gap, ...]
    openmp: tuple[Runtime, ...] | None = None
    living: Living | None = None
    memory: MemoryUse | None = None
    schema: str = VERDICT_SCHEMA
