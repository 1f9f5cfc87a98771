"""The verdict document: what `--verdict` and `verdict.json` hold. DESIGN section 6 is its contract.

Null with an entry in `gaps` means "could not look"; null without one, "not applicable". Types only.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from harness.evidence.gap import Gap

VERDICT_SCHEMA = "harness.verdict/1"
Status = Literal["established", "supported", "hypothesis", "unknown"]


class Target(Struct, frozen=True):
    host: str | None
    pid: int | None
    argv: tuple[str, ...]
    python: str | None
    platform: str


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
    pid: int | None
    role: Literal["main", "worker", "child"]
    thread: str | None = None
    tid: int | None = None


class Frame(Struct, frozen=True):
    file: str
    line: int
    function: str

    @property
    def place(self) -> str:
        name = self.file.rpartition("/")[2]
        return f"{self.function} ({name}:{self.line})"


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
    """What the command had to say before it ended."""

    moving: bool | None
    counter: str | None
    last_line: str | None
    last_output_age_s: float | None
    unfinished_line: str | None = None


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
    schema: str = VERDICT_SCHEMA
