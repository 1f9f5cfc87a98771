"""What was seen of a process while it stood still in its own death: the record of the crash link, and the snapshot.

Facts only. Addresses are "0x…" strings. Frames start with the innermost.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from harness.evidence.gap import Gap
from harness.evidence.openmp import Census

# How much of the stacks could be had, best first.
Step = Literal["native-all", "native", "python", "raw", "none"]


class CrashFrame(Struct, frozen=True):
    """One frame of a thread. Python frames have file and line; native ones an image and an offset into it.

    `guessed`: the unwinder had lost the thread of the stack before it came here. `omitted`: how many frames between
    this one and the next are not kept, of a stack too deep for that.
    """

    kind: Literal["python", "native"]
    function: str | None
    file: str | None = None
    line: int | None = None
    image: str | None = None
    offset: str | None = None
    address: str | None = None
    guessed: bool = False
    omitted: int = 0


class CrashThread(Struct, frozen=True):
    """`source` is the tool that read it ("pystack native-all", "py-spy", …).

    `python_state`: the interpreter knows this thread (PyThreadState). `holds_gil`: it has the GIL. Null: not told.
    """

    tid: int
    name: str | None
    crashed: bool
    frames: tuple[CrashFrame, ...]
    source: str
    python_state: bool | None = None
    holds_gil: bool | None = None


class Image(Struct, frozen=True):
    """A loaded library or program. `distribution` null: an unowned file; `modified`: it differs from its RECORD."""

    path: str
    base: str
    end: str
    distribution: str | None = None
    version: str | None = None
    owner: Literal["wheel", "conda", "system", "interpreter", "unowned"] = "unowned"
    modified: bool | None = None
    deleted: bool = False


class Mapping(Struct, frozen=True):
    """One line of /proc/PID/maps."""

    start: str
    end: str
    permissions: str
    path: str | None


class Cpu(Struct, frozen=True):
    """`flags`: the extensions it shows (/proc/cpuinfo). `is_virtual` null: it does not tell."""

    model: str | None
    flags: tuple[str, ...]
    is_virtual: bool | None = None


class ToolRun(Struct, frozen=True):
    """One tool's try at the stacks, in the order they were made; `error` are its own words.

    Where it counts them itself: `stopped_ms`, the sum of its stops, and the system calls that one may have cut short.
    """

    tool: str
    seconds: float
    error: str | None
    pid: int | None = None
    stopped_ms: float | None = None
    interrupted: tuple[str, ...] = ()


class Crash(Struct, frozen=True):
    """One fatal signal as it arrived, before any other handler saw it; `origin` core: read from a core afterwards.

    `code`: the bytes at pc, in hexadecimal; null: not kept. `cpu`: of a SIGILL.
    """

    pid: int
    tid: int
    signo: int
    si_code: int
    fault_address: str | None
    pc: str
    sp: str
    registers: dict[str, str]
    raw_frames: tuple[str, ...]
    at_s: float
    held_s: float
    step: Step
    threads: tuple[CrashThread, ...] = ()
    images: tuple[Image, ...] = ()
    mappings: tuple[Mapping, ...] = ()
    tools: tuple[ToolRun, ...] = ()
    open_files: tuple[str, ...] = ()
    rss_bytes: int | None = None
    threads_total: int | None = None
    shm_free_bytes: int | None = None
    packages: dict[str, str] = {}
    openmp: Census | None = None
    loop: bool = False
    sender_pid: int | None = None
    origin: Literal["crash link", "core"] = "crash link"
    code: str | None = None
    cpu: Cpu | None = None
    gaps: tuple[Gap, ...] = ()
