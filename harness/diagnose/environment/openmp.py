"""Will these OpenMP runtimes get along? From a census to `conflict`, `risk` or `no-conflict`, with the reason.

Loaded is not bound, and bound is not initialised: a copy that nobody calls is no conflict, whatever its name. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from msgspec.structs import replace

from harness.diagnose.words import name_some
from harness.documents import verdict
from harness.documents.openmp import Look, OpenmpDocument, Ruling, RulingKind
from harness.documents.verdict import Component, Ground, Remedy, Upstream
from harness.evidence.openmp import Binding, Caller, Census, Place, Runtime, Setting, Step

FLAG = "KMP_DUPLICATE_LIB_OK"

_FAMILIES = {"llvm": "LLVM", "intel": "Intel", "gnu": "GNU", "msvc": "Microsoft"}
_REGISTERING = ("llvm", "intel")
_SEVERITY: dict[RulingKind, int] = {"no-conflict": 0, "risk": 1, "conflict": 2}
# What a user does that makes a package call OpenMP.
_FIRST_CALL = {"faiss-cpu": "FAISS search", "torch": "torch operation", "scikit-learn": "scikit-learn fit"}
_SITES = ("/site-packages/", "/dist-packages/")


class Copy(NamedTuple):
    """A runtime and who calls it."""

    runtime: Runtime
    callers: tuple[Caller, ...]

    @property
    def can_start(self) -> bool:
        return bool(self.callers or self.runtime.registered or self.runtime.initialised or self.runtime.static)


def judge_openmp(harness: str, censuses: Sequence[Census]) -> OpenmpDocument:
    looks = tuple(Look(rule(census), census) for census in censuses)
    worst = max(looks, key=lambda look: _SEVERITY[look.ruling.kind])
    ruling = worst.ruling
    if len({look.ruling.kind for look in looks}) > 1:
        ruling = replace(ruling, headline=f"With import {', then '.join(worst.census.order)}: {ruling.headline}")
    if safe_order := _safe_order(looks):
        ruling = _with_order(ruling, safe_order, worst.census)
    return OpenmpDocument(harness, ruling, looks)


def rule(census: Census) -> Ruling:
    ruling = _rule(census)
    if census.absent and ruling.kind == "no-conflict":
        ruling = replace(ruling, status="unknown", headline=f"{_missing(census)} Without it: {ruling.headline}")
    python = f" --python {census.name}" if census.subject in ("environment", "imports") else ""
    remedies = [_fill_in(remedy, python) for remedy in ruling.remedies]
    if census.subject == "wheels":  # nothing is installed yet that could be looked at
        remedies = [replace(remedy, verify=None) for remedy in remedies]
    return replace(ruling, remedies=tuple(remedies))


def _missing(census: Census) -> str:
    """The first of what was asked for and is not there."""
    where = f" (asked of {census.name})" if census.subject == "imports" else ""
    return census.absent[0].rstrip(".") + f"{where}."


def _fill_in(remedy: Remedy, python: str) -> Remedy:
    blank = " --python {python}"
    verify = remedy.verify.replace(blank, python) if remedy.verify else None
    return replace(remedy, do=remedy.do.replace(blank, python), verify=verify)


def _rule(census: Census) -> Ruling:
    copies = [copy for copy in list_copies(census) if copy.can_start]
    registering = [copy for copy in copies if copy.runtime.family in _REGISTERING]
    families = {_kin(copy.runtime) for copy in copies}
    if len(registering) > 1 and _one_alone_started(census, registering):
        return _no_conflict(census, [copy for copy in registering if copy.runtime.initialised])
    if len(registering) > 1:
        return _conflict(census, registering)
    if len(families) > 1:
        return _mixed(census, copies)
    if len(copies) > 1:
        return _two_pools(census, copies)
    if waiting := _lazy_callers(census):
        return _undecided(census, waiting)
    return _no_conflict(census, copies)


def list_copies(census: Census) -> list[Copy]:
    return [
        Copy(runtime, tuple(caller for caller in census.callers if _calls(caller, runtime)))
        for runtime in census.runtimes
    ]


def _calls(caller: Caller, runtime: Runtime) -> bool:
    """A helper library that came with the runtime itself, and lies beside it, is no user of it."""
    own = caller.place.distribution is not None and caller.place.distribution == runtime.place.distribution
    beside = PurePath(caller.place.image).parent == PurePath(runtime.place.image).parent
    among_packages = any(site in caller.place.image for site in _SITES) or not caller.place.image.startswith("/")
    if own and beside and not among_packages:
        return False
    return any(_leads_to(binding, runtime) for binding in caller.bindings)


def _one_alone_started(census: Census, copies: list[Copy]) -> bool:
    """Every import was used to its end, and of the copies with callers one alone had initialised by then."""
    return (
        census.subject == "imports"
        and not any(step.ended for step in census.steps)
        and all(copy.runtime.initialised is not None for copy in copies)
        and sum(bool(copy.runtime.initialised) for copy in copies) == 1
    )


def _leads_to(binding: Binding, runtime: Runtime) -> bool:
    if binding.state not in ("bound", "linked") or binding.runtime != runtime.place.image:
        return False
    return binding.base is None or binding.base == runtime.place.base


def _kin(runtime: Runtime) -> str:
    return "llvm" if runtime.family == "intel" else runtime.family


def _lazy_callers(census: Census) -> list[Caller]:
    """Could still bind to either of several copies, when they are first called."""
    if len(census.runtimes) < 2:
        return []
    return [caller for caller in census.callers if any(binding.state == "lazy" for binding in caller.bindings)]


# --- the rulings ------------------------------------------------------------------------------------------------------


def _conflict(census: Census, copies: list[Copy]) -> Ruling:
    first, second, *more = _by_weight(copies)
    several = f"{_count(len(copies))} copies of an LLVM-family OpenMP runtime"
    certain = census.subject == "process" or (census.platform.startswith("macosx") and census.subject == "wheels")
    when = f"at the first {_first_call(second)} after {_owner(first)} has used threads"
    sometimes = (
        ""
        if certain or census.subject == "imports"
        else " On Linux the order of the imports decides whether both are really started."
    )
    explanation = (
        f"{several} can start in one process here: {describe(first)}, and {describe(second)}"
        + (f", and {len(more)} more" if more else "")
        + ". Each keeps a table of its own threads and puts its name on record for the whole process when it is first "
        'used. Whichever comes second finds the other\'s record and aborts with "OMP: Error #15"; where that check '
        "does not fire, threads of one copy sleep in the code of the other: a hang, a segfault, or wrong numbers. "
        f"Expect it {when}.{sometimes}"
    )
    return Ruling(
        kind="conflict",
        status="established" if certain or census.subject == "imports" else "supported",
        headline=f"{several}: {_name(first.runtime.place)} and {_name(second.runtime.place)}; Error #15 or worse "
        f"{when}",
        explanation=explanation,
        grounds=_grounds(census, copies),
        remedies=(*_one_runtime(census, copies), *_unsafe(census)),
        upstream=_UPSTREAM,
        next=_next(census, copies),
    )


def _mixed(census: Census, copies: list[Copy]) -> Ruling:
    names = " and ".join(_name(copy.runtime.place) for copy in copies)
    return Ruling(
        kind="risk",
        status="supported",
        headline=f"OpenMP runtimes of two families in one process: {names}",
        explanation=f"{'; '.join(describe(copy) for copy in copies)}. Runtimes of different families do not know of "
        "each other: each makes a thread pool as large as the machine, so that they compete for the cores, and a call "
        "that starts in one and ends in the other can hang. Many programs run well like this; it is a reason to look "
        "here first when one is slow or hangs.",
        grounds=_grounds(census, copies),
        remedies=(ONE_DISTRIBUTOR, SEPARATE_PROCESSES, FEWER_THREADS, *_unsafe(census)),
        next=_next(census, copies),
    )


def _two_pools(census: Census, copies: list[Copy]) -> Ruling:
    return Ruling(
        kind="risk",
        status="established" if census.subject in ("process", "imports") else "supported",
        headline=f"{_count(len(copies))} copies of the GNU OpenMP runtime: "
        + " and ".join(_name(copy.runtime.place) for copy in copies),
        explanation=f"{'; '.join(describe(copy) for copy in copies)}. GNU copies do not abort as LLVM's do, they are "
        "separate thread pools: with all of them busy there are more threads than cores, and everything is slower. A "
        "process that has used one of them and then forks (a DataLoader worker, multiprocessing) can hang in the child "
        "at its next parallel loop.",
        grounds=_grounds(census, copies),
        remedies=(*_one_runtime(census, copies), *_unsafe(census)),
        upstream=(Upstream("pytorch#98836", "two libgomp in one process: two pools, slow"),),
        next=_next(census, copies),
    )


def _undecided(census: Census, waiting: list[Caller]) -> Ruling:
    names = name_some([_name(caller.place) for caller in waiting], 3)
    return Ruling(
        kind="risk",
        status="supported",
        headline=f"{_count(len(census.runtimes))} OpenMP runtimes are loaded, and {names} has not chosen one yet",
        explanation="A function is bound when it is first called. Until then nobody can tell from outside which copy "
        "it will enter; the same look after a few steps of work can.",
        grounds=_grounds(census, list_copies(census)),
        remedies=_unsafe(census),
        next=f"harness openmp {census.name}" if census.subject == "process" else None,
    )


def _no_conflict(census: Census, copies: list[Copy]) -> Ruling:
    idle = [copy for copy in list_copies(census) if not copy.can_start]
    if not copies:
        where = f"in the environment of {census.name}" if census.subject == "environment" else "here"
        headline, explanation = f"No OpenMP runtime is used {where}", f"Nothing {where} calls an OpenMP runtime."
    else:
        headline = f"One OpenMP runtime serves all callers: {_name(copies[0].runtime.place)}"
        explanation = f"{describe(copies[0])}."
    if idle:
        names = ", ".join(_name(copy.runtime.place) for copy in idle)
        explanation += f" Also present, and called by nobody: {names}."
    return Ruling(
        kind="no-conflict",
        status="established" if census.subject in ("process", "imports") else "supported",
        headline=headline,
        explanation=explanation,
        grounds=_grounds(census, copies),
        remedies=_unsafe(census),
    )


# --- what to do -------------------------------------------------------------------------------------------------------

_UPSTREAM = (
    Upstream("pytorch#149201", "two libomp copies on macOS: a crash at 0x8 in __kmp_suspend_64"),
    Upstream("pytorch#78490", f"{FLAG} turned the abort into a segfault"),
    Upstream("faiss#1977", f"{FLAG} with faiss: a segfault instead of the abort"),
)
ONE_DISTRIBUTOR = Remedy(
    do="Install the packages from one distributor, for example all of them from conda-forge.",
    safe=True,
    why="one distributor builds them against one shared runtime",
    verify="harness openmp --python {python}",
)


LET_ONE_SERVE = Remedy(
    do="Let one copy serve all: harness openmp fix --python {python} shows what would be changed, --apply does it, "
    "--undo takes it back.",
    safe=True,
    why="the duplicate becomes a link to the other copy of the same family, so the loader loads it once",
    verify="harness openmp --python {python}",
)
SEPARATE_PROCESSES = Remedy(
    do="Keep the two libraries in separate processes: search in one, train in the other.",
    safe=True,
    why="the runtime's record and its threads belong to one process",
    verify="harness openmp PID",
)
FEWER_THREADS = Remedy(
    do="To keep working meanwhile: OMP_NUM_THREADS=1 in the environment, before Python starts.",
    safe=True,
    why="a mitigation, not a fix: without worker threads nothing hangs or oversubscribes, but a second LLVM runtime "
    "still aborts",
    verify="OMP_NUM_THREADS=1 harness run -- COMMAND",
)
NEVER_THE_FLAG = Remedy(
    do=f"{FLAG}=TRUE",
    safe=False,
    why="it hides the fault: the abort becomes a segfault, a hang or wrong numbers (pytorch#78490, pytorch#83540, "
    "faiss#1977)",
)


def _one_runtime(census: Census, copies: list[Copy]) -> tuple[Remedy, ...]:
    alike = len({copy.runtime.family for copy in copies}) == 1 and not any(copy.runtime.static for copy in copies)
    return (
        ONE_DISTRIBUTOR,
        *([LET_ONE_SERVE] if alike and census.subject != "wheels" else ()),
        SEPARATE_PROCESSES,
        *([FEWER_THREADS] if census.subject != "wheels" else ()),
    )


def _unsafe(census: Census) -> tuple[Remedy, ...]:
    """Shown where it is set, and where somebody may be tempted."""
    where = [f"{setting.name}={setting.value} ({setting.source})" for setting in find_flag(census.settings)]
    tempting = sum(runtime.family in _REGISTERING for runtime in census.runtimes) > 1
    if not where and not tempting:
        return ()
    return (replace(NEVER_THE_FLAG, do=f"{FLAG}; it is set here: {', '.join(where)}") if where else NEVER_THE_FLAG,)


def find_flag(settings: Iterable[Setting]) -> list[Setting]:
    return [setting for setting in settings if setting.name == FLAG]


def _safe_order(looks: tuple[Look, ...]) -> tuple[str, ...] | None:
    """An order that the bindings prove to be well, where another is not."""
    if all(look.ruling.kind == "no-conflict" for look in looks):
        return None
    return next((look.census.order for look in looks if look.census.order and look.ruling.kind == "no-conflict"), None)


def _with_order(ruling: Ruling, safe: tuple[str, ...], bad: Census) -> Ruling:
    remedy = Remedy(
        do=f"Import in this order, first thing in the program: {', then '.join(safe)}.",
        safe=True,
        why=f"in this order the binding table shows one runtime for all; with {', then '.join(bad.order)} there are "
        "two. It holds for these versions only",
        verify=f"harness openmp --python {bad.name} --import {','.join(safe)}",
    )
    return replace(ruling, remedies=(*ruling.remedies[:1], remedy, *ruling.remedies[1:]))


def _next(census: Census, copies: list[Copy]) -> str | None:
    if census.subject in ("imports", "process"):
        return None
    modules = ",".join(dict.fromkeys(module for copy in copies if (module := _module(copy))))
    return f"harness openmp --python {census.name} --import {modules}" if census.subject == "environment" else None


def _module(copy: Copy) -> str | None:
    """What to import to load it: the package that one of its callers is in."""
    parts = (_name(caller.place).split("/") for caller in copy.callers)
    return next((names[0] for names in parts if len(names) > 1 and names[0].isidentifier()), None)


# --- words ------------------------------------------------------------------------------------------------------------


def _by_weight(copies: list[Copy]) -> list[Copy]:
    """torch's first: it is what has used threads when the other one comes."""
    return sorted(copies, key=lambda copy: (_owner(copy) != "torch", -len(copy.callers)))


def tell_collision(census: Census | None, component: Component | None, groups: Mapping[str, str]) -> str:
    """Which copy ran into which, with their owners and callers; as far as the message tells, without a census."""
    if "calling" in groups:
        return f"a thread of {groups['calling']} went on in the code of {groups['called']}"
    copies = list_copies(census) if census else []
    second = next((copy for copy in copies if component and copy.runtime.place.image == component.image), None)
    first = next((copy for copy in copies if copy != second and copy.runtime.family in _REGISTERING), None)
    if second is None or first is None:
        names = groups.get("second", "one copy"), groups.get("first", "another")
        return f"{names[0]} started while {names[1]} was already running, and aborted"
    return f"{_with_caller(second)}, started while {_with_caller(first)}, was already running, and aborted"


def _with_caller(copy: Copy) -> str:
    owned = [caller for caller in copy.callers if caller.place.distribution == copy.runtime.place.distribution]
    names = [PurePath(caller.place.image).name for caller in (*owned, *copy.callers)]
    best = next((name for name in names if "blas" not in name), None)  # what a reader knows it by
    return f"{name_place(copy.runtime.place)}" + (f", called by {best}" if best else "")


def describe(copy: Copy) -> str:
    runtime = copy.runtime
    version = f" {runtime.version}" if runtime.version else ""
    inside = "inside " if runtime.static else ""
    names = [_name(caller.place).rpartition("/")[2] for caller in copy.callers]
    called = f", called by {name_some(names, 3)}" if names else ""
    state = ", registered" if runtime.registered else ""
    kind = f"{_FAMILIES[runtime.family]} OpenMP{version}"
    return f"{kind} {inside}{name_place(runtime.place)}{called}{state}"


def name_place(place: Place) -> str:
    """With whose it is."""
    owner = f" ({place.distribution} {place.version or ''})".replace(" )", ")") if place.distribution else ""
    return _name(place) + owner


def _name(place: Place) -> str:
    for site in _SITES:
        if site in place.image:
            return place.image.rpartition(site)[2]
    return place.image


def _owner(copy: Copy) -> str:
    owners = [copy.runtime.place.distribution, *(caller.place.distribution for caller in copy.callers)]
    return next((owner for owner in owners if owner), _name(copy.runtime.place))


def _first_call(copy: Copy) -> str:
    callers = [caller.place.distribution for caller in copy.callers]
    known = next((_FIRST_CALL[owner] for owner in (_owner(copy), *callers) if owner in _FIRST_CALL), None)
    return known or f"parallel loop of {_owner(copy)}"


def _count(number: int) -> str:
    return {2: "Two", 3: "Three", 4: "Four"}.get(number, str(number))


def _grounds(census: Census, copies: list[Copy]) -> tuple[Ground, ...]:
    source = {
        "process": f"/proc/{census.name}",
        "environment": "the installed files",
        "wheels": "the wheels' files",
        "imports": "a child that imported " + ", ".join(census.order),
    }[census.subject]
    ends = [step for step in census.steps if step.ended]
    return (
        *(Ground(describe(copy), source) for copy in copies),
        *(Ground(f"{tell_step(step)}", source) for step in ends),
    )


def tell_step(step: Step) -> str:
    what = f"{'import' if step.kind == 'import' else 'first use of'} {step.module}"
    if step.ended:
        return f"{what}: the child ended with {step.ended}" + (f" ({step.words})" if step.words else "")
    loaded = f"{what}: {len(step.loaded)} runtime{'s' * (len(step.loaded) != 1)} loaded"
    names = ", ".join(image.rpartition("-packages/")[2] for image in step.initialised)
    return f"{loaded}, initialised: {names}" if names else loaded


def list_runtimes(census: Census) -> tuple[verdict.Runtime, ...]:
    return tuple(
        verdict.Runtime(
            image=runtime.place.image,
            family=runtime.family,
            version=runtime.version,
            distribution=runtime.place.distribution,
            base=runtime.place.base,
            registered=runtime.registered,
            bound_by=tuple(caller.place.image for caller in callers),
        )
        for runtime, callers in list_copies(census)
    )
