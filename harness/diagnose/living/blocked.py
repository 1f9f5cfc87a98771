"""Is a process kept from running, or does it wait for other ranks or a device?"""

from __future__ import annotations

from harness.diagnose.living.blocked_child import list_workers
from harness.diagnose.living.scene import Finding, Scene, moves, stack_of
from harness.diagnose.living.stack_tree import tell_ranks
from harness.diagnose.living.thread_waits import (
    find_collective_frame,
    find_device,
    is_collective,
    main_thread,
    name_collective_library,
    name_function,
    python_frames,
    tell_place,
    tell_target,
    waits_for_device_file,
)
from harness.diagnose.words import name_some
from harness.documents.verdict import Ground, Remedy
from harness.evidence.living.look import LivingProcess, LivingThread
from harness.evidence.text.numbers import find_number

_MOST_HOSTS = 4

# Stopped


def find_stopped(scene: Scene) -> Finding | None:
    """The target itself; one below it only when nothing moves: it may be meant to rest. Who ran meanwhile is not."""
    for process in scene.processes[: 1 if scene.rising else None]:
        held = process.threads and all(thread.state in "Tt" for thread in process.threads)
        if process.frozen or ((process.state in "Tt" or held) and not process.stopped_at_times):
            return _tell_stop(process)
    return None


def _tell_stop(process: LivingProcess) -> Finding:
    source = f"/proc/{process.pid}/status"
    traced = process.tracer_pid is not None
    if process.frozen:
        detail, source = "its control group is frozen", "cgroup.freeze"
        do = "Thaw it: write 0 to cgroup.freeze of its control group (docker unpause, systemctl thaw)."
    elif process.state == "t" or traced:
        tracer = f"the tracer, process {process.tracer_pid}," if traced else "a tracer that could not be named"
        detail = f"{tracer} keeps it stopped"
        do = "Let the tracer (a debugger, strace) continue or end: the process then goes on."
    else:
        detail = "by SIGSTOP or another job-control signal (SIGTSTP, SIGTTIN, SIGTTOU)"
        do = f"Let it go on: kill -CONT {process.pid}"
    grounds = (Ground(f"state {process.state}: {detail}", source),)
    remedies = (Remedy(do, True, "it is not stuck, it is not allowed to run"),)
    return Finding("established", process, main_thread(process), detail, grounds, remedies=remedies)


# Other ranks


def find_blocked_collective(scene: Scene) -> Finding | None:
    """Also while those move who have not arrived, as long as they are not most: all the others wait for them."""
    for process in scene.processes:
        thread = find_in_collective(process)
        if thread is not None and (not scene.rising or _only_late_move(scene)):
            return _tell_collective(scene, process, thread)
    return None


def _only_late_move(scene: Scene) -> bool:
    arrived, late = split_ranks(scene)
    movers = [process for process, _ in scene.rising]
    owners = [next((rank for rank in late if _is_of_rank(scene, process, rank)), None) for process in movers]
    return 0 < len(late) <= len(arrived) and None not in owners


def _is_of_rank(scene: Scene, process: LivingProcess | None, rank: LivingProcess) -> bool:
    """It, or one below it."""
    seen: list[LivingProcess] = []
    while process is not None and process not in seen:
        if process is rank:
            return True
        seen.append(process)
        process = scene.find(process.ppid)
    return False


def split_ranks(scene: Scene) -> tuple[list[LivingProcess], list[LivingProcess]]:
    """Those that stand in a collective, and those that do not."""
    arrived: list[LivingProcess] = []
    late: list[LivingProcess] = []
    for process in list_ranks_seen(scene):
        (late if find_in_collective(process) is None else arrived).append(process)
    return arrived, late


def list_ranks_seen(scene: Scene) -> list[LivingProcess]:
    here = [process for process in scene.everybody if process.rank and not _is_below_rank(scene, process)]
    return [*(here or _list_siblings(scene)), *scene.look.elsewhere]


def _list_siblings(scene: Scene) -> list[LivingProcess]:
    """Where no rank is to be seen (torch.multiprocessing.spawn passes it as an argument): the workers of one parent."""
    parents = [process.ppid for process in scene.everybody if process.role == "worker" and find_in_collective(process)]
    parent = scene.find(parents[0]) if len(set(parents)) == 1 else None
    return [one for one in list_workers(scene, parent) if one.role == "worker" and one.python] if parent else []


def find_in_collective(process: LivingProcess) -> LivingThread | None:
    """Asleep or spinning there: some libraries poll. Who writes meanwhile does not stay there."""
    wrote = {counter.tid for counter in process.counters if counter.tid is not None and moves(counter)}
    found = [t for t in process.threads if is_collective(t) and not t.changed and t.tid not in wrote]
    return next(iter(sorted(found, key=lambda thread: thread.tid != process.pid)), None)


def _tell_collective(scene: Scene, process: LivingProcess, thread: LivingThread) -> Finding:
    library = name_collective_library(process, thread)
    groups = _group_ranks(scene)
    arrived = {key: ranks for key, ranks in groups.items() if key[0]}
    late = {key: ranks for key, ranks in groups.items() if not key[0]}
    grounds = tuple(
        Ground(f"{_name(ranks)}: {'in ' + library if key[0] else 'not there'}, at {key[1]}", "stacks")
        for key, ranks in sorted(groups.items(), key=lambda item: (item[0][0], len(item[1])))
    ) or (Ground(f"waits in {library} at {tell_place(thread)}", stack_of(process, thread)),)
    odd = late or (arrived if len(arrived) > 1 else {})
    if not odd:
        unseen = "ranks that were not looked at" if len(groups) < 2 and len(_all_ranks(groups)) < 2 else "each other"
        detail = f"{library} collective: it waits for {unseen}, at {tell_place(thread)}"
        return Finding("established", process, thread, detail, grounds, culprit=find_collective_frame(thread))
    key, ranks = min(odd.items(), key=lambda item: len(item[1]))
    tied = not late and len(ranks) == max(map(len, arrived.values()))
    moved = _tell_movement(scene, ranks) if late else ""
    absent = "has not arrived" if ranks[0].rank else "is not in it"
    instead = f"{absent}, it {moved or 'is'}" if late else "is in one," if tied else "is in another one,"
    others = ", ".join(f"{_name(r)} at {k[1]}" for k, r in arrived.items() if k != key)
    rest = "in another" if tied else "waiting"
    detail = f"{library} collective: {_name(ranks)} {instead} at {key[1]}; {rest}: {others}"
    stuck = ranks[0]
    there = find_in_collective(stuck) or main_thread(stuck)
    culprit = find_collective_frame(thread)
    return Finding("established", stuck, there, detail, grounds, culprit=culprit)


def _tell_movement(scene: Scene, ranks: list[LivingProcess]) -> str:
    """ "moves (bytes written +120)," """
    for process, counter in scene.rising:
        if any(_is_of_rank(scene, process, rank) for rank in ranks):
            return f"moves ({counter.name} +{counter.values[-1] - counter.values[0]:,}),"
    return ""


def _group_ranks(scene: Scene) -> dict[tuple[bool, str], list[LivingProcess]]:
    """(in a collective, at which line) → who."""
    groups: dict[tuple[bool, str], list[LivingProcess]] = {}
    for process in list_ranks_seen(scene):
        inside = find_in_collective(process)
        thread = inside or main_thread(process)
        place = tell_place(thread) if thread else "an unknown place"
        groups.setdefault((inside is not None, place), []).append(process)
    return groups


def _is_below_rank(scene: Scene, process: LivingProcess) -> bool:
    """A DataLoader worker inherits the rank of its parent."""
    parent = scene.find(process.ppid)
    return parent is not None and parent.rank == process.rank


def _all_ranks(groups: dict[tuple[bool, str], list[LivingProcess]]) -> list[LivingProcess]:
    return [process for members in groups.values() for process in members]


def _name(processes: list[LivingProcess]) -> str:
    """ "rank 0-1 on gpu07, rank 3 on gpu08", "rank 0-63 on 16 hosts", "worker 4711" where no rank is known"""
    if not all(process.rank for process in processes):
        return name_some([f"{process.role} {process.pid}" for process in processes], _MOST_HOSTS)
    hosts: dict[str | None, list[LivingProcess]] = {}
    for process in processes:
        hosts.setdefault(process.host, []).append(process)
    if len(hosts) > _MOST_HOSTS:
        return f"{tell_ranks(_numbers(processes))} on {len(hosts)} hosts"
    told = [(tell_ranks(_numbers(members)), host) for host, members in hosts.items()]
    return ", ".join(f"{ranks} on {host}" if host else ranks for ranks, host in told)


def _numbers(processes: list[LivingProcess]) -> list[int]:
    return [rank for process in processes if (rank := find_number(process.rank or "")) is not None]


# A device


def find_blocked_device(scene: Scene) -> Finding | None:
    if scene.rising:
        return None
    for process in scene.processes:
        for thread in process.threads:
            frame = find_device(thread)
            if (frame is None and not waits_for_device_file(thread)) or not _stays(scene, process, thread):
                continue
            where = name_function(frame) if frame else tell_target(thread.wait) if thread.wait else "the driver"
            spins = "spins" if scene.is_busy(thread) else "sleeps"
            detail = f"it {spins} in {where}"
            ground = Ground(
                f"{detail} for all of the {scene.looked_s:.0f} s, no counter moves", stack_of(process, thread)
            )
            against = ("one long kernel looks the same for as long as it runs",)
            return Finding("established", process, thread, detail, (ground,), against, frame)
    return None


def _stays(scene: Scene, process: LivingProcess, thread: LivingThread) -> bool:
    """In the driver whenever it was looked at; a spinning one need not be at the same instruction."""
    return not thread.changed or (scene.is_busy(thread) and keeps_line(process, thread))


def keeps_line(process: LivingProcess, thread: LivingThread) -> bool:
    """On one Python line at every sample, while native code below it may move."""
    frames = python_frames(thread)
    spots = [spot for spot in process.hot if spot.tid == thread.tid and spot.frame.kind == "python"]
    return bool(frames) and any(
        spot.seen == spot.of > 1 and (spot.frame.function, spot.frame.line) == (frames[0].function, frames[0].line)
        for spot in spots
    )
