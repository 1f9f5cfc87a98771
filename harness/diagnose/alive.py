"""A look at the living in, verdict document out: stuck, moving, busy or waiting. Pure.

ALIVE is the table of kinds, in the order in which they are tried: the first row that matches is the verdict. The rules
that find a fault are in `stuck`. To add a kind, add a row, a program in tests/zoo/hangs and a row in the README.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from harness.diagnose.children import find_blocked_child, find_blocked_io, follow_chain
from harness.diagnose.deadlocks import find_fork_deadlock, find_lock_deadlock, find_openmp_deadlock
from harness.diagnose.judge import list_runtimes
from harness.diagnose.lastwords import innermost_user_frame
from harness.diagnose.openmp import LET_ONE_SERVE, NEVER_THE_FLAG, ONE_DISTRIBUTOR, SEPARATE_PROCESSES
from harness.diagnose.plumbing import is_interpreter, is_plumbing, plain_function, shorten_function, symbol_of
from harness.diagnose.scene import Finding, Scene, moves, stack_of
from harness.diagnose.signature import sign_stack
from harness.diagnose.stuck import find_blocked_collective, find_blocked_device, find_stopped, keeps_line
from harness.diagnose.verdict import (
    Component,
    Document,
    Frame,
    Ground,
    Outcome,
    ProcessRef,
    Progress,
    Remedy,
    Status,
    Target,
    Verdict,
)
from harness.diagnose.waiting import (
    main_thread,
    name_function,
    name_thread,
    natives_above,
    python_frames,
    tell_native,
    tell_place,
    tell_target,
    user_frame,
    wants_gil,
)
from harness.errors import EXIT_FAULT, EXIT_INCONCLUSIVE
from harness.evidence.alive import Counter, HotSpot, LivingProcess, LivingThread, Look
from harness.evidence.crash import CrashFrame
from harness.evidence.unflushed import Unflushed

_FAULTS_PER_S = 100
_SWAPPING_CPU = 0.5
_NATIVE_SHARE = 0.75
_LONG_LOOK_S = 120
_EVALUATION = re.compile(
    r"_?PyEval_\w+|_TAIL_CALL_\w+|_PyFunction_Vectorcall|PyObject_\w+|_PyObject_\w+|Py_\w+|py\w*main\w*"
)
# What proves most comes first: the program's own word, what others can see, what only memory shows.
_COUNTERS = ("beat", "file", "buffer", "io", "child", "device", "local")
_OUTPUTS = ("buffer", "file")
_EXIT_CODES = {"progressing": 0, "clean": 0, "waiting": 11, "busy-python": 11, "busy-native": 11}


class AliveKind(NamedTuple):
    """`headline` is formatted with {detail}, {where} (process, thread, line) and {who} (process, if not the target).

    {pid}, {for} and {python} are filled into `remedies` and `next`.
    """

    name: str
    meaning: str
    headline: str
    rule: Callable[[Scene], Finding | None]
    remedies: tuple[Remedy, ...] = ()
    next: str | None = "harness attach {pid} --for {for}"


# Moving, busy, waiting


def find_swapping(scene: Scene) -> Finding | None:
    """Pages come from disk and the CPU waits. Reading a mapped file does that too: not where something moves."""
    for process in scene.processes:
        rate = process.major_faults / scene.looked_s
        cpu_s = sum(thread.cpu_s for thread in process.threads)
        moving = any(counter.kind != "io" for _, counter in scene.rising)
        if rate < _FAULTS_PER_S or cpu_s > _SWAPPING_CPU * scene.looked_s or (moving and not process.swap_bytes):
            continue
        swap = f", {process.swap_bytes / 2**20:.0f} MiB of it in swap" if process.swap_bytes else ""
        detail = f"{rate:.0f} pages a second come from disk{swap}, {cpu_s / scene.looked_s:.0%} CPU"
        ground = Ground(f"{process.major_faults} major faults in {scene.looked_s:.0f} s", f"/proc/{process.pid}/stat")
        status: Status = "established" if process.swap_bytes else "supported"
        return Finding(status, process, _busiest(process), detail, (ground,))
    return None


def find_progress(scene: Scene) -> Finding | None:
    best = choose_counter(scene)
    if best is None:
        return None
    process, counter = best
    thread = _busiest(process)
    grounds = [_tell_counter(owner, other) for owner, other in _list_rising(scene, counter)]
    output = [other for _, other in scene.rising if other.kind in _OUTPUTS]
    estimate = next((told for other in output if (told := estimate_next(other, scene.looked_s))), None)
    if estimate:
        grounds.append(Ground(estimate, f"{scene.look.samples} samples"))
    local = counter.kind == "local"
    against = ("a counter in memory rises in an endless loop as well",) if local else ()
    detail = f"{_name_counter(counter)} rises, {tell_rate(counter)}"
    status: Status = "supported" if local else "established"
    return Finding(status, process, thread, detail, tuple(grounds), against)


def choose_counter(scene: Scene) -> tuple[LivingProcess, Counter] | None:
    """Of several locals that rise, the one furthest out: the outer loop's."""
    return min(scene.rising, key=lambda item: (_COUNTERS.index(item[1].kind), -_depth(*item)), default=None)


def _depth(process: LivingProcess, counter: Counter) -> int:
    place = counter.frame
    if place is None:
        return 0
    depths = [
        index
        for thread in process.threads
        for index, frame in enumerate(thread.stack)
        if (frame.file, frame.function) == (place.file, place.function)
    ]
    return max(depths, default=0)


def _list_rising(scene: Scene, first: Counter) -> list[tuple[LivingProcess, Counter]]:
    return sorted(scene.rising, key=lambda item: item[1] is not first)[:4]


def _name_counter(counter: Counter) -> str:
    if counter.kind != "local" or counter.frame is None or counter.name.endswith(")"):  # it has its place already
        return counter.name
    file = (counter.frame.file or "").rpartition("/")[2]
    return f"{counter.name} in {counter.frame.function} ({file}:{counter.frame.line})"


def _tell_counter(process: LivingProcess, counter: Counter) -> Ground:
    fact = f"{_name_counter(counter)}: {counter.values[0]} → {counter.values[-1]}, {tell_rate(counter)}"
    return Ground(fact, f"{len(counter.values)} samples of process {process.pid}")


def tell_rate(counter: Counter) -> str:
    """Per second where it is fast, else the seconds that one takes."""
    taken_s = max(counter.times_s[-1] - counter.times_s[0], 0.001)
    rate = (counter.values[-1] - counter.values[0]) / taken_s
    unit = " bytes" if counter.kind in ("io", "file", "buffer") and "bytes" not in counter.name else ""
    if rate < 1:
        return f"one{unit.rstrip('s')} in {1 / rate:.0f} s"
    return f"{rate:,.0f}{unit} a second" if rate >= 10 else f"{rate:.1f}{unit} a second"


def estimate_next(counter: Counter, looked_s: float) -> str | None:
    """When the output will grow again; from two observed increments at least, else nothing."""
    pairs = zip(counter.times_s[1:], counter.values, counter.values[1:], strict=False)
    grown = [time_s for time_s, before, after in pairs if after > before]
    if len(grown) < 2:
        return None
    period_s = (grown[-1] - grown[0]) / (len(grown) - 1)
    left_s = grown[-1] + period_s - max(looked_s, counter.times_s[-1])
    when = f"in about {left_s:.0f} s" if left_s >= 1 else "now or within a second" if left_s > -period_s else "overdue"
    return f"{counter.name} grew {len(grown)} times, every {period_s:.1f} s; next output {when}"


def find_busy_python(scene: Scene) -> Finding | None:
    found = _find_busy(scene)
    return found[1] if found and not found[0] else None


def find_busy_native(scene: Scene) -> Finding | None:
    found = _find_busy(scene)
    return found[1] if found and found[0] else None


def _find_busy(scene: Scene) -> tuple[bool, Finding] | None:
    """(in native code, the finding), of the thread that uses most CPU."""
    busy = [(process, thread) for process in scene.processes for thread in process.threads if scene.is_busy(thread)]
    if not busy:
        return None
    process, thread = max(busy, key=lambda item: item[1].cpu_s)
    native = _hot_native(process, thread)
    spots = sorted((spot for spot in process.hot if spot.tid == thread.tid), key=_share, reverse=True)
    line = next((spot for spot in spots if spot.frame.kind == "python"), None)
    hot = f"{name_function(native)}, called from {tell_place(thread)}" if native else _hot_line(thread, line)
    detail = f"{hot}; slow or endless: nothing outside changed for {scene.looked_s:.0f} s"
    used = f"{thread.cpu_s:.1f} s of CPU in {scene.looked_s:.1f} s, no counter moved"
    grounds = [Ground(f"{name_thread(process, thread)} used {used}", f"/proc/{process.pid}/task/{thread.tid}/stat")]
    where = stack_of(process, thread)
    grounds += [Ground(f"in {s.seen} of {s.of} samples ({_share(s):.0%}) in {_name_spot(s)}", where) for s in spots[:3]]
    if native is None and (called := _natives_called(thread)):
        grounds.append(Ground(f"when last seen it was in {name_function(called[0])}", where))
    grounds += [*_moving_locals(process), *_gil_grounds(process)]
    return native is not None, Finding("established", process, thread, detail, tuple(grounds), culprit=native)


def _share(spot: HotSpot) -> float:
    return spot.seen / max(spot.of, 1)


def _hot_line(thread: LivingThread, line: HotSpot | None) -> str:
    place = tell_place(thread)
    if line is None:
        return place
    at = f" at {_name_spot(line)}" if _name_spot(line) != place else ""
    return f"{place}, {_share(line):.0%} of {line.of} samples{at}"


def _name_spot(spot: HotSpot) -> str:
    frame = spot.frame
    if frame.kind == "python":
        return Frame(frame.file or "?", frame.line or 0, frame.function or "?").place
    return name_function(frame)


def _hot_native(process: LivingProcess, thread: LivingThread) -> CrashFrame | None:
    """The innermost native function it was in nearly always: by the samples, else by a stack that does not change.

    Of the interpreter's own functions only the samples can tell: every line of Python goes through them.
    """
    spots = [spot for spot in process.hot if spot.tid == thread.tid and spot.frame.kind == "native"]
    often = {(spot.frame.function, spot.frame.image) for spot in spots if _share(spot) >= _NATIVE_SHARE}
    steady = not thread.changed or keeps_line(process, thread)
    for frame in _natives_called(thread):
        unsampled = not spots and steady and not is_interpreter(frame.image)
        if unsampled or (frame.function, frame.image) in often:
            return frame
    return None


def _natives_called(thread: LivingThread) -> list[CrashFrame]:
    return [frame for frame in natives_above(thread) if not is_plumbing(frame) and not _is_evaluation(frame)]


def _is_evaluation(frame: CrashFrame) -> bool:
    """The interpreter's own loop, or a frame of it without a name."""
    function = plain_function(frame)
    return is_interpreter(frame.image) and (function is None or _EVALUATION.fullmatch(function) is not None)


def _moving_locals(process: LivingProcess) -> list[Ground]:
    """Those that change and do not only rise: shown, not believed."""
    changing = [counter for counter in process.counters if counter.kind == "local" and not moves(counter)]
    told = [
        f"{_name_counter(counter)} changes but does not only rise: {', '.join(map(str, counter.values[:6]))}"
        for counter in [*process.moving, *changing]
        if len(set(counter.values)) > 1
    ]
    return [Ground(fact, "locals") for fact in told[:3]]


def _gil_grounds(process: LivingProcess) -> list[Ground]:
    """Who has it, and who wants it."""
    holder = next((thread for thread in process.threads if thread.holds_gil), None)
    kept = [name_thread(process, thread) for thread in process.threads if wants_gil(thread)]
    if holder is None or not kept:
        return []
    where = tell_native(holder) or tell_place(holder)
    fact = f"{name_thread(process, holder)} holds the GIL in {where}; {', '.join(kept[:3])} cannot run"
    return [Ground(fact, stack_of(process, holder))]


def find_waiting(scene: Scene) -> Finding | None:
    """What is left. Somebody who waits for a child's end shows the child."""
    chain = follow_chain(scene, scene.processes[0])
    process = next((link.child for link in reversed(chain) if link.child), scene.processes[0])
    holder = next((t for t in process.threads if t.holds_gil and any(map(wants_gil, process.threads))), None)
    thread = holder or main_thread(process)
    if thread is None or not (thread.stack or thread.wait):
        return Finding("unknown", process, thread, "no stack could be read")
    gil = "holding the GIL, " if holder else ""
    telling = thread.wait is not None and thread.wait.syscall not in ("futex", None)
    wait = f": {tell_target(thread.wait)}" if telling and thread.wait else ""
    native = tell_native(thread) if holder else None
    detail = f"{gil}asleep in {native + ', called from ' if native else ''}{tell_place(thread)}{wait}"
    count = len(process.threads)
    asleep = f"{'all ' + str(count) + ' threads are' if count > 1 else 'its one thread is'} asleep, no ring of locks"
    grounds = (Ground(f"{asleep}, no counter moved in {scene.looked_s:.0f} s", "stacks"), *_gil_grounds(process))
    return Finding("supported", process, thread, detail, grounds)


def _busiest(process: LivingProcess) -> LivingThread | None:
    """The thread that uses most CPU; the main one where nobody uses any."""
    return max(process.threads, key=lambda thread: (thread.cpu_s, thread.tid == process.pid), default=None)


_ONE_ORDER = Remedy(
    "Take the locks in one order everywhere, and with `with`, so that an exception lets go of them.",
    True,
    "a ring of waiting threads, or a lock whose owner has ended, does not come undone",
)
_START_FRESH = Remedy(
    'Start workers with multiprocessing.get_context("spawn") or "forkserver", or fork before threads and torch start.',
    True,
    "fork copies locks and thread pools, but not the threads that would release or serve them",
)
ALIVE: tuple[AliveKind, ...] = (
    AliveKind(
        "stopped",
        "a signal, a debugger or a frozen control group keeps it from running; the tracer is named",
        "Stopped: {detail}{where}",
        find_stopped,
        next=None,
    ),
    AliveKind(
        "deadlock-openmp",
        "a stack crosses from one OpenMP runtime straight into another, and stays there",
        "Deadlock between two OpenMP runtimes: {detail}{where}",
        find_openmp_deadlock,
        (ONE_DISTRIBUTOR, LET_ONE_SERVE, SEPARATE_PROCESSES, NEVER_THE_FLAG),
        next="harness openmp {pid}",
    ),
    AliveKind(
        "deadlock-fork",
        "a forked child waits for a lock or a thread pool whose threads only its parent has",
        "Deadlock after fork: it waits for {detail}{where}",
        find_fork_deadlock,
        (_START_FRESH,),
        next=None,
    ),
    AliveKind(
        "deadlock-lock",
        "threads wait for each other's locks in a ring, or for one that nobody is left to release",
        "Deadlock: {detail}{where}",
        find_lock_deadlock,
        (_ONE_ORDER,),
        next=None,
    ),
    AliveKind(
        "blocked-collective",
        "it waits in gloo, NCCL or MPI for ranks that have not arrived; says who, and where they are instead",
        "Blocked in a {detail}",
        find_blocked_collective,
        (
            Remedy(
                "Make every rank call the same collectives in the same order, as often.",
                True,
                "a collective ends when all have come to it",
            ),
        ),
    ),
    AliveKind(
        "blocked-device",
        "it waits for a GPU that does not answer, asleep or spinning in the driver",
        "Blocked on the device: {detail}{where}",
        find_blocked_device,
        (Remedy("Look at the device (nvidia-smi, dmesg for Xid lines).", True, "the driver waits for work to finish"),),
    ),
    AliveKind(
        "blocked-child",
        "it waits for a child or worker that is stuck, dead, or cannot get rid of its output",
        "Blocked on a child: {detail}",
        find_blocked_child,
        (
            Remedy(
                "Read a child's pipes while it runs (communicate()), collect the dead, give tasks a time limit.",
                True,
                "whoever waits for process {stuck} without a limit waits as long as that one does",
            ),
        ),
        next="harness attach {stuck} --for {for}",
    ),
    AliveKind(
        "blocked-io",
        "it waits for a file, a pipe, a socket or a file lock that nobody answers; which one is named",
        "Blocked on input or output: {detail}{where}",
        find_blocked_io,
        (Remedy("Look at the other end, and set a time limit (socket.settimeout).", True, "nobody has answered"),),
    ),
    AliveKind(
        "swapping",
        "it waits for its own memory to come back from disk",
        "Short of memory: {detail}{where}",
        find_swapping,
        (
            Remedy(
                "Lower its memory (smaller batches, fewer workers) or raise the limit.", True, "pages come from disk"
            ),
        ),
    ),
    AliveKind(
        "progressing",
        "a counter that can only rise has risen: not stuck, with its rate",
        "Not stuck, it moves: {detail}{where}",
        find_progress,
        next=None,
    ),
    AliveKind(
        "busy-python",
        "on CPU in Python code, and nothing outside changes: slow or endless",
        "Busy in Python{who}: {detail}",
        find_busy_python,
    ),
    AliveKind(
        "busy-native",
        "on CPU in native code, and nothing outside changes: slow or endless",
        "Busy in native code{who}: {detail}",
        find_busy_native,
    ),
    AliveKind(
        "waiting",
        "all asleep and no ring: a server without clients and a lost queue look alike from outside",
        "Waiting{who}: {detail}",
        find_waiting,
    ),
)
ALIVE_NAMES = tuple(kind.name for kind in ALIVE)
_UNBUFFERED = Remedy(
    "Next time start it with python -u or PYTHONUNBUFFERED=1.",
    True,
    "stdout that is not a terminal is written in blocks, so a log stays empty while the program runs",
)
_ENDINGS = {"SIGKILL": "killed", "SIGINT": "interrupted", "SIGTERM": "terminated", "SIGSEGV": "segfault"}


# The document


def judge_look(look: Look, pid: int | None = None) -> Document:
    """About one target: `pid`, else the first one. Ranks in the same look are considered wherever they stand."""
    scene = Scene(look, pid)
    target = scene.processes[0]
    if target.ended is not None or target.state == "Z":
        return _document(scene, _tell_gone(target), "gone")
    kind, finding = decide(scene)
    return _document(scene, _verdict(scene, kind, finding), "alive")


def decide(scene: Scene) -> tuple[AliveKind, Finding]:
    for kind in ALIVE:
        if finding := kind.rule(scene):
            return kind, finding
    raise AssertionError("the last rule matches everything")


def exit_code_of(document: Document) -> int:
    """0 it moves; 11 undecided: waiting, busy, or not known; 10 a fault."""
    if document.verdict.status == "unknown":
        return EXIT_INCONCLUSIVE
    return _EXIT_CODES.get(document.verdict.kind, EXIT_FAULT)


def _document(scene: Scene, verdict: Verdict, state: Literal["alive", "gone"]) -> Document:
    target, look = scene.processes[0], scene.look
    gaps = [*look.gaps, *(gap for process in scene.processes for gap in process.gaps)]
    return Document(
        harness=look.harness,
        case=None,
        target=Target(None, target.pid, target.argv, target.python, look.platform),
        outcome=Outcome(state, None, None, duration_s=round(target.age_s, 3)),
        verdict=verdict,
        differential=(),
        progress=_progress(scene),
        gaps=tuple(dict.fromkeys(gaps)),
        openmp=list_runtimes(target.openmp) if target.openmp else None,
    )


def _verdict(scene: Scene, kind: AliveKind, finding: Finding) -> Verdict:
    process, thread = finding.process, finding.thread
    frames = python_frames(thread) if thread else ()
    main = main_thread(process)
    words = {"detail": finding.detail, "where": _where(scene, finding), "who": _who(scene, process)}
    blanks = _blanks(scene, finding)
    buffered = _buffered(scene)
    remedies = (*(finding.remedies or kind.remedies), *([_UNBUFFERED] if buffered else []))
    return Verdict(
        kind=kind.name,
        status=finding.status,
        headline=" ".join(kind.headline.format_map(words).split()),
        component=_component(process, finding.culprit) if finding.culprit else None,
        faulting_image=None,
        process=ProcessRef(process.pid, process.role, name_thread(process, thread) if thread else None, _tid(thread)),
        python_frame=frames[0] if frames else None,
        user_frame=innermost_user_frame(frames),
        context_frame=user_frame(main) if main and thread and not frames else None,
        signature=sign_stack(kind.name, thread.stack) if thread else None,
        grounds=(*finding.grounds, *buffered),
        against=finding.against,
        upstream=(),
        remedies=tuple(
            Remedy(
                do=_fill(remedy.do, blanks),
                safe=remedy.safe,
                why=_fill(remedy.why, blanks),
                verify=_fill(remedy.verify, blanks) if remedy.verify else None,
            )
            for remedy in remedies
        ),
        next=_fill(kind.next, blanks) if kind.next else None,
    )


def _tid(thread: LivingThread | None) -> int | None:
    return thread.tid if thread else None


def _blanks(scene: Scene, finding: Finding) -> dict[str, str]:
    target = scene.processes[0]
    return {
        "{pid}": str(target.pid if finding.process.state not in ("T", "t") else finding.process.pid),
        "{stuck}": str(finding.process.pid),
        "{for}": "10m" if scene.looked_s >= _LONG_LOOK_S else "2m",
        "{python}": target.argv[0] if target.argv else "python3",
        "{command}": " ".join(target.argv) or "COMMAND",
    }


def _fill(text: str, blanks: dict[str, str]) -> str:
    for blank, value in blanks.items():
        text = text.replace(blank, value)
    return text


def _who(scene: Scene, process: LivingProcess) -> str:
    return f" in {process.role} process {process.pid}" if process is not scene.processes[0] else ""


def _where(scene: Scene, finding: Finding) -> str:
    """ ", worker process 7, thread loader in load (train.py:3)" """
    process, thread = finding.process, finding.thread
    who = [f"{process.role} process {process.pid}"] if process is not scene.processes[0] else []
    if thread is None or not python_frames(thread):
        main = main_thread(process)
        context = user_frame(main) if main and thread else None
        return "".join(f", {part}" for part in [*who, *([f"the main thread in {context.place}"] if context else [])])
    who += [f"thread {name_thread(process, thread)}"] if thread.tid != process.pid else []
    return f", {', '.join(who)}{' ' * bool(who)}in {tell_place(thread)}"


def _component(process: LivingProcess, frame: CrashFrame) -> Component:
    """Whose it is by the images, else by the census."""
    symbol = symbol_of(frame)
    function = shorten_function(symbol) if symbol else None
    owners = [(image.path, image.distribution, image.version) for image in process.images]
    places = [runtime.place for runtime in process.openmp.runtimes] if process.openmp else []
    owners += [(place.image, place.distribution, place.version) for place in places]
    owner = next(((name, version) for path, name, version in owners if path == frame.image), (None, None))
    return Component(owner[0], owner[1], frame.image, function, frame.offset)


def _tell_gone(target: LivingProcess) -> Verdict:
    """It ended while we looked: what is known of how, and no more."""
    ended = target.ended or f"a zombie: its parent, process {target.ppid}, has not collected it"
    status = re.search(r"exit(?:ed with| status)?\D{0,10}(\d+)", ended)
    kind = next((kind for signame, kind in _ENDINGS.items() if signame in ended), None)
    if kind is None and status:
        kind = "clean" if status[1] == "0" else "exit-nonzero"
    return Verdict(
        kind=kind or "exit-nonzero",
        status="established" if kind else "unknown",
        headline=f"It has ended: {ended}" if kind else f"It has ended; how was not visible ({ended})",
        component=None,
        faulting_image=None,
        process=ProcessRef(target.pid, target.role),
        python_frame=None,
        user_frame=None,
        context_frame=None,
        signature=None,
        grounds=(Ground(ended, f"process {target.pid}"),),
        against=(),
        upstream=(),
        remedies=(),
        next=None,
    )


# What it printed, and what it did not


def _stdout(process: LivingProcess) -> tuple[Unflushed, ...]:
    return tuple(part for part in process.unflushed if part.fd == 1)


def _buffered(scene: Scene) -> tuple[Ground, ...]:
    """Why the log is empty."""
    target = scene.processes[0]
    waiting = sum(part.bytes for part in _stdout(target))
    output = next((output for output in target.outputs if output.fd == 1), None)
    if not waiting or (output is not None and output.kind == "tty"):
        return ()
    kind = output.kind if output else "no terminal"
    path = f" {output.path}" if output and output.path else ""
    size = f" of {output.size} bytes" if output and output.size is not None else ""
    fact = f"{waiting} bytes were printed and not written yet: stdout is a block-buffered {kind}{path}{size}"
    return (Ground(fact, f"memory of {target.pid}"),)


def _progress(scene: Scene) -> Progress:
    target = scene.processes[0]
    best = choose_counter(scene)
    counted = any(process.counters for process in scene.processes)
    unflushed = _stdout(target)
    quiet = [output.quiet_s for output in target.outputs if output.fd in (1, 2) and output.quiet_s is not None]
    return Progress(
        moving=bool(best) if counted else None,
        counter=_name_counter(best[1]) if best else None,
        last_line=None,
        last_output_age_s=round(min(quiet), 1) if quiet else None,
        unflushed_stdout="".join(part.text for part in unflushed) if unflushed else None,
        unflushed_stdout_bytes=sum(part.bytes for part in unflushed) if unflushed else None,
        looked_s=scene.look.looked_s,
        samples=scene.look.samples,
    )
