"""The OpenMP and BLAS runtimes of a process, an environment or a set of wheels, and who calls which: facts only.

A copy of a runtime is told apart by its load base in a process and by its path on disk. Addresses are "0x…" strings.
Whether two copies are a conflict is decided in `diagnose`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from harness.evidence.gap import Gap

Family = Literal["llvm", "intel", "gnu", "msvc"]
Subject = Literal["process", "environment", "wheels", "imports"]
# bound: the address in the slot lies in that copy. lazy: not called yet, the slot still points into the caller itself.
# linked: the file asks for that copy by name, nothing was loaded. unresolved: nobody was found who defines it.
BindingState = Literal["bound", "lazy", "linked", "unresolved"]


class Place(Struct, frozen=True):
    """A file, whose it is, and where it is loaded; `base` null: on disk only. `deleted`: replaced or removed since."""

    image: str
    base: str | None = None
    distribution: str | None = None
    version: str | None = None
    owner: Literal["wheel", "conda", "system", "interpreter", "unowned"] = "unowned"
    deleted: bool = False
    modified: bool | None = None


class Runtime(Struct, frozen=True):
    """One copy of an OpenMP runtime, recognised by its content. `static`: inside an image that is more than that.

    `registered`: it holds the process's registration record (LLVM and Intel only); null: not known or not applicable.
    """

    place: Place
    family: Family
    version: str | None
    static: bool = False
    registered: bool | None = None
    initialised: bool | None = None
    threads: int | None = None


class Blas(Struct, frozen=True):
    """`config` is the library's own description of itself; `threading` its layer (pthreads, openmp, …)."""

    place: Place
    kind: Literal["openblas", "mkl", "blis", "accelerate"]
    config: str | None
    threading: str | None = None
    threads: int | None = None


class Binding(Struct, frozen=True):
    """Some OpenMP symbols of one caller, and the copy that they lead to; null where none is known."""

    state: BindingState
    symbols: tuple[str, ...]
    runtime: str | None = None
    base: str | None = None


class Caller(Struct, frozen=True):
    """An image that calls OpenMP functions that it does not define itself."""

    place: Place
    bindings: tuple[Binding, ...]


class Setting(Struct, frozen=True):
    """A variable that steers a runtime; `source`: "environment", or FILE:LINE."""

    name: str
    value: str
    source: str


class Step(Struct, frozen=True):
    """One step of a child that imports modules: the runtimes that were loaded, and that had initialised, after it.

    `ended`: the child died in this step, of that signal or with that status; `words`: what it said about it.
    """

    kind: Literal["import", "use"]
    module: str
    loaded: tuple[str, ...] = ()
    initialised: tuple[str, ...] = ()
    ended: str | None = None
    words: str | None = None


class Census(Struct, frozen=True):
    """`name`: the pid, the interpreter, or the wheels. `order`: the modules imported, for imports; `steps`: how.

    `absent`: what was asked for and does not exist, in one sentence each (no wheel for that platform).
    """

    subject: Subject
    name: str
    python: str | None
    platform: str
    images: int
    runtimes: tuple[Runtime, ...]
    blas: tuple[Blas, ...]
    callers: tuple[Caller, ...]
    settings: tuple[Setting, ...] = ()
    order: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()
    steps: tuple[Step, ...] = ()
