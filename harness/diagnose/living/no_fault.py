"""What is not a fault: it gets on, it is busy, it waits; or it waits for its own memory. Pure.

The last rows of the table in `alive`. What rises, how fast, and when the next output can be expected.
"""

from __future__ import annotations

import re

from harness.diagnose.living.blocked import keeps_line
from harness.diagnose.living.blocked_child import find_outside, follow_chain
from harness.diagnose.living.line import is_exiting, list_others, list_path
from harness.diagnose.living.locks.abandoned import tell_chances
from harness.diagnose.living.other_side import NOT_KNOWN
from harness.diagnose.living.scene import Finding, Scene, moves, stack_of
from harness.diagnose.living.thread_waits import (
    main_thread,
    name_function,
    name_thread,
    natives_above,
    python_frames,
    tell_native,
    tell_place,
    tell_target,
    wants_gil,
)
from harness.diagnose.living.wait_advice import advise, is_sleeping
from harness.diagnose.plumbing import is_interpreter, is_plumbing, plain_function
from harness.diagnose.words import name_some
from harness.documents.verdict import Frame, Ground, Status
from harness.evidence.crash import CrashFrame
from harness.evidence.living.look import FAILED, Counter, HotSpot, LivingProcess, LivingThread, Unchanged

_FAULTS_PER_S = 100
_SWAPPING_CPU = 0.5
_NATIVE_SHARE = 0.75
_EVALUATION = re.compile(
    r"_?PyEval_\w+|_TAIL_CALL_\w+|\w*[Vv]ectorcall\w*|_?Py(?:Object|Number|Sequence|Mapping|Iter|CFunction|Vectorcall)_\w+"
    r"|_?Py_\w+|py\w*main\w*|call_function|do_call_core|type_call|(?:slot|cfunction|method|wrap|wrapperdescr)_\w+"
    r"|\w*(?:unary|binary|ternary)_i?op1?|do_richcompare|object_vacall|take_gil|drop_gil|_?PyFrame_\w+|clear_thread_frame"
)
# What a reader knows them by.
_AREAS = (
    (re.compile(r"_?sre_\w+|SRE\(.*|pattern_\w+"), "the regular expression engine"),
    (re.compile(r"_?(?:Py)?_?long_\w+|_?PyLong_\w+|[xkl]_\w+|int_\w+"), "integer arithmetic"),
)
# What proves most comes first: the program's own word, what others can see, what only memory shows.
_COUNTERS = ("beat", "file", "buffer", "io", "child", "device", "local")
_OUTPUTS = ("buffer", "file")
_MOST_LOCALS = 3
_DOUBT = "another thread, task or process, or a handler of a signal, may have moved it, and not what is waited for"


def find_swapping(scene: Scene) -> Finding | None:
    """Pages come from disk, and it runs little code of its own. Reading a mapped file is that too: not where it moves.

    Where swap is fast (compressed memory, a good disk), the kernel is busy all the time to fetch pages. Where it is
    slow few come in a second; then a thread stands there, in no system call, while part of its memory is in swap.
    """
    for process in scene.processes:
        rate = process.major_faults / scene.looked_s
        cpu_s = sum(thread.cpu_s for thread in process.threads)
        moving = any(counter.kind != "io" for _, counter in scene.rising)
        of_its_own_s = cpu_s - process.kernel_s
        if (
            (rate < _FAULTS_PER_S and not _waits_for_swap(process))
            or of_its_own_s > _SWAPPING_CPU * scene.looked_s
            or (moving and not process.swap_bytes)
        ):
            continue
        swap = f", {process.swap_bytes / 2**20:.0f} MiB of it in swap" if process.swap_bytes else ""
        detail = f"{rate:.0f} pages a second come from disk{swap}, {cpu_s / scene.looked_s:.0%} CPU"
        ground = Ground(f"{process.major_faults} major faults in {scene.looked_s:.0f} s", f"/proc/{process.pid}/stat")
        status: Status = "established" if process.swap_bytes else "supported"
        return Finding(status, process, _busiest(process), detail, (ground,))
    return None


def _waits_for_swap(process: LivingProcess) -> bool:
    in_fault = (thread.state == "D" and (thread.wait is None or not thread.wait.syscall) for thread in process.threads)
    return bool(process.swap_bytes and process.major_faults) and any(in_fault)


def find_progress(scene: Scene) -> Finding | None:
    best = choose_counter(scene)
    if best is None:
        return None
    process, counter = best
    thread = _find_mover(scene, process, counter)
    grounds = [_tell_counter(owner, other) for owner, other in _list_rising(scene, counter)]
    output = [other for _, other in scene.rising if other.kind in _OUTPUTS]
    estimate = next((told for other in output if (told := estimate_next(other, scene.looked_s))), None)
    if estimate:
        grounds.append(Ground(estimate, f"{scene.look.samples} samples"))
    doubted = any(counter is other for other in scene.doubted)
    against = ["a counter in memory rises in an endless loop as well"] if counter.kind == "local" else []
    against += [_DOUBT] if doubted else []
    detail = f"{_tell_exit(process, list_path(scene, process))}{name_counter(counter)} rises, {tell_rate(counter)}"
    status: Status = "supported" if counter.kind == "local" or doubted else "established"
    return Finding(status, process, thread, detail, tuple(grounds), tuple(against))


def choose_counter(scene: Scene) -> tuple[LivingProcess, Counter] | None:
    """Of several locals that rise, the one furthest out: the outer loop's."""

    def rank(item: tuple[LivingProcess, Counter]) -> tuple[bool, int, int]:
        doubted = any(item[1] is other for other in scene.doubted)
        return doubted, _COUNTERS.index(item[1].kind), -_depth(*item)

    return min(scene.rising, key=rank, default=None)


def _find_mover(scene: Scene, process: LivingProcess, counter: Counter) -> LivingThread | None:
    """The thread that moved it; where that is not known, the last of the process on the line."""
    mover = next((thread for thread in process.threads if thread.tid == counter.tid), None)
    on_line = [step.thread for step in scene.line if step.process is process]
    return mover or (on_line[-1] if on_line else _busiest(process))


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


def name_counter(counter: Counter) -> str:
    if counter.kind != "local" or counter.frame is None or counter.name.endswith(")"):  # it has its place already
        return counter.name
    file = (counter.frame.file or "").rpartition("/")[2]
    return f"{counter.name} in {counter.frame.function} ({file}:{counter.frame.line})"


def _tell_counter(process: LivingProcess, counter: Counter) -> Ground:
    fact = f"{name_counter(counter)}: {counter.values[0]} → {counter.values[-1]}, {tell_rate(counter)}"
    return Ground(fact, f"{len(counter.values)} samples of process {process.pid}")


def tell_rate(counter: Counter) -> str:
    """Per second where it is fast, else the seconds that one takes; no rate from a single increment."""
    taken_s = max(counter.times_s[-1] - counter.times_s[0], 0.001)
    risen = counter.values[-1] - counter.values[0]
    rate = risen / taken_s
    unit = " bytes" if counter.kind in ("io", "file", "buffer") and "bytes" not in counter.name else ""
    if (len(set(counter.values)) == 2 and len(counter.values) > 2) or (unit and rate < 1):
        return f"by {risen:,}{unit if risen > 1 else unit.rstrip('s')} in {taken_s:.0f} s"
    if rate < 1:
        return f"one in {1 / rate:.0f} s"
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
    """(in native code, the finding), of the thread that uses most CPU; of those on the line of work, if any is busy."""
    busy = [(process, thread) for process in scene.processes for thread in process.threads if scene.is_busy(thread)]
    if not busy:
        return None
    on_line = [item for item in busy if any(step[:2] == item for step in scene.line)]
    busy = on_line or busy
    process, thread = max(busy, key=lambda item: item[1].cpu_s)
    native = _hot_native(process, thread)
    spots = sorted((spot for spot in process.hot if spot.tid == thread.tid), key=_share, reverse=True)
    line = next((spot for spot in spots if spot.frame.kind == "python"), None)
    hot = _tell_hot(native, thread) if native else _hot_line(thread, line)
    detail = f"{hot}; slow or endless: nothing outside changed for {scene.looked_s:.0f} s"
    used = f"{thread.cpu_s:.1f} s of CPU in {scene.looked_s:.1f} s, {_tell_still(scene, process)}"
    grounds = [Ground(f"{name_thread(process, thread)} used {used}", f"/proc/{process.pid}/task/{thread.tid}/stat")]
    where = stack_of(process, thread)
    grounds += [
        Ground(f"in {s.seen} of {s.of} samples ({_share(s):.0%}) in {_name_spot(s)}", where)
        for s in spots
        if _is_telling(s)
    ][:3]
    if native is None and (called := _natives_called(thread)):
        grounds.append(Ground(f"when last seen it was in {name_function(called[0])}", where))
    grounds += [*_unchanged_locals(process, thread), *_moving_locals(process), *_gil_grounds(process)]
    is_native = native is not None or _runs_no_python(process, thread)
    return is_native, Finding("established", process, thread, detail, tuple(grounds), culprit=native)


def _runs_no_python(process: LivingProcess, thread: LivingThread) -> bool:
    """It is another program, or a thread that Python has no frames on, wherever in its code it was seen."""
    return process.python is None or (bool(thread.stack) and not python_frames(thread))


def _is_telling(spot: HotSpot) -> bool:
    return spot.frame.kind == "python" or not _is_evaluation(spot.frame)


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

    Of the interpreter's own functions only the samples can tell: every line of Python goes through them. Of several
    it is the one that Python called: the others only serve it.
    """
    spots = [spot for spot in process.hot if spot.tid == thread.tid and spot.frame.kind == "native"]
    often = {(spot.frame.function, spot.frame.image) for spot in spots if _share(spot) >= _NATIVE_SHARE}
    steady = not thread.changed or keeps_line(process, thread)
    called = _natives_called(thread)
    stays = [frame for frame in called if (frame.function, frame.image) in often]
    stays = stays or [frame for frame in called if not spots and steady and not is_interpreter(frame.image)]
    return stays[-1] if stays and is_interpreter(stays[0].image) else next(iter(stays), None)


def _tell_hot(native: CrashFrame, thread: LivingThread) -> str:
    caller = tell_place(thread)
    return _name_native(native) + (f", called from {caller}" if caller != name_function(native) else "")


def _name_native(frame: CrashFrame) -> str:
    function = plain_function(frame) or ""
    areas = (area for pattern, area in _AREAS if is_interpreter(frame.image) and pattern.fullmatch(function))
    area = next(areas, None)
    return f"{area} ({function})" if area else name_function(frame)


def _natives_called(thread: LivingThread) -> list[CrashFrame]:
    return [frame for frame in natives_above(thread) if not is_plumbing(frame) and not _is_evaluation(frame)]


def _is_evaluation(frame: CrashFrame) -> bool:
    """The interpreter's own loop, or a frame of it without a name."""
    function = plain_function(frame)
    return is_interpreter(frame.image) and (function is None or _EVALUATION.fullmatch(function) is not None)


def _moving_locals(process: LivingProcess) -> list[Ground]:
    """Those that change and prove nothing: shown, not believed."""
    unproven = [counter for counter in process.counters if counter.kind == "local" and not moves(counter)]
    told = [_tell_unproven(counter) for counter in [*unproven, *process.moving] if len(set(counter.values)) > 1]
    return [Ground(fact, "locals") for fact in told[:_MOST_LOCALS]]


def _unchanged_locals(process: LivingProcess, thread: LivingThread) -> list[Ground]:
    return [Ground(_tell_unchanged(one), "locals") for one in process.unchanged if one.tid == thread.tid]


def _tell_unchanged(one: Unchanged) -> str:
    place = Frame(one.frame.file or "?", one.frame.line or 0, one.frame.function or "?").place
    changed = f"never changed in {one.of}" if one.seen == one.of else f"were the same in {one.seen} of {one.of}"
    fact = f"{', '.join(one.names)} in {place} {changed} samples while the loop ran"
    return f"{fact}: it most likely never ends" if one.closed else fact


def _tell_still(scene: Scene, process: LivingProcess) -> str:
    if _moving_locals(process):
        return "no counter that proves progress moved"
    beside = any(owner is process for owner, _ in list_others(scene))
    return "no counter of its line of work moved" if beside else "no counter moved"


def _tell_unproven(counter: Counter) -> str:
    name = name_counter(counter)
    if not counter.rises:
        return f"{name} changes but does not only rise: {name_some([*map(str, counter.values)], 6)}"
    if counter.consumes is None:
        return f"{name} rises ({tell_rate(counter)}): its loop could not be read, so that proves no progress"
    if counter.consumes:
        return f"{name} rises ({tell_rate(counter)}), seen {len(counter.values)} times only"
    where = "in a `while` loop, or a `for` that is not shown to end"
    return f"{name} rises ({tell_rate(counter)}), {where}: that proves no progress"


def _gil_grounds(process: LivingProcess) -> list[Ground]:
    """Who has it, and who wants it."""
    holder = next((thread for thread in process.threads if thread.holds_gil), None)
    kept = [name_thread(process, thread) for thread in process.threads if wants_gil(thread)]
    if holder is None or not kept:
        return []
    where = tell_native(holder) or tell_place(holder)
    fact = f"{name_thread(process, holder)} holds the GIL in {where}; {name_some(kept, 3)} cannot run"
    return [Ground(fact, stack_of(process, holder))]


def find_waiting(scene: Scene) -> Finding | None:
    """What is left. Somebody who waits for a child's end shows the child; for something outside, what that is."""
    outside = find_outside(scene)
    chain = follow_chain(scene, scene.processes[0])
    failing = next((item for item in list_others(scene) if item[1].name == FAILED), None)
    process = next((link.child for link in reversed(chain) if link.child), scene.processes[0])
    process = failing[0] if failing else process
    holder = next((t for t in process.threads if t.holds_gil and any(map(wants_gil, process.threads))), None)
    path = list_path(scene, process)
    own = [outside.thread] if outside and outside.process is process else []
    thread = holder or next(iter([*path[1:][-1:], *own, *path[-1:]]), main_thread(process))
    if thread is None or not (thread.stack or thread.wait):
        return Finding("unknown", process, thread, "no stack could be read")
    gil = "holding the GIL, " if holder else ""
    native = tell_native(thread) if holder else None
    if failing:
        gil = f"its children fail, {failing[1].values[-1] - failing[1].values[0]} while it was looked at, "
    begins = gil or _tell_path(process, path)
    detail = f"{begins}asleep in {native + ', called from ' if native else ''}{tell_place(thread)}{_tell_wait(thread)}"
    count = len(process.threads)
    asleep = f"{'all ' + str(count) + ' threads are' if count > 1 else 'its one thread is'} asleep"
    grounds = (
        Ground(f"{asleep}, {_tell_still(scene, process)} in {scene.looked_s:.0f} s", "stacks"),
        *(Ground(fact, f"threads of {process.pid}") for fact in tell_chances(scene, process, thread)),
        *_tell_runs(process, thread),
        *_moving_locals(process),
        *_gil_grounds(process),
    )
    found = Finding("supported", process, thread, detail, grounds, ends_itself=is_sleeping(thread))
    if outside is None or outside.thread is not thread:
        return found
    remedies = (advise(outside.wait, thread),)
    return found._replace(detail=f"{detail}; {NOT_KNOWN}", remedies=remedies, ask=outside.ask)


def _tell_runs(process: LivingProcess, thread: LivingThread) -> list[Ground]:
    """Of one that waits for a disk: whether that answers."""
    if thread.state != "D" or thread.runs is None:
        return []
    ran = f"it got the CPU {thread.runs} times" if thread.runs else "it did not get the CPU once"
    fact = f"{name_thread(process, thread)} is in uninterruptible sleep; from sample to sample of that {ran}"
    return [Ground(fact, f"/proc/{process.pid}/task/{thread.tid}/schedstat")]


def _tell_wait(thread: LivingThread) -> str:
    telling = thread.wait is not None and (thread.state == "D" or thread.wait.syscall not in ("futex", None))
    return f": {tell_target(thread.wait)}" if telling and thread.wait else ""


def _tell_path(process: LivingProcess, path: list[LivingThread]) -> str:
    """ "MainThread → Thread-1 (bg), " """
    if len(path) < 2:
        return ""
    return _tell_exit(process, path) or f"{' → '.join(name_thread(process, thread) for thread in path)}, "


def _tell_exit(process: LivingProcess, path: list[LivingThread]) -> str:
    """Where the interpreter only waits for threads that are no daemons."""
    if not path or not is_exiting(path[0]):
        return ""
    whom = f"the non-daemon thread {name_thread(process, path[-1])}" if len(path) > 1 else "threads that are no daemons"
    return f"the program has ended; the interpreter waits for {whom}, "


def _busiest(process: LivingProcess) -> LivingThread | None:
    """The thread that uses most CPU; the main one where nobody uses any."""
    return max(process.threads, key=lambda thread: (thread.cpu_s, thread.tid == process.pid), default=None)
