"""Where are they all? Many stacks as one prefix tree: "63 here, 1 there", the few first, with ranges of ranks.

Merges stacks of threads, processes, ranks and hosts alike. Does not say who is to blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import NamedTuple

from harness.diagnose.frames import innermost_user_frame, list_python_frames
from harness.diagnose.plumbing import image_name, is_interpreter, is_plumbing, plain_function
from harness.diagnose.words import name_some
from harness.documents.verdict import Node, Outlier
from harness.evidence.crash import CrashFrame
from harness.evidence.living.look import LivingProcess
from harness.evidence.text.numbers import find_number

_MOST_NAMES = 4


class Stack(NamedTuple):
    """One thread's frames, innermost first, and whose they are. `name` is for those without a rank: "pid 4711"."""

    frames: tuple[CrashFrame, ...]
    name: str
    rank: int | None = None
    host: str | None = None
    pid: int | None = None


def collect_stacks(processes: Iterable[LivingProcess]) -> list[Stack]:
    """The main thread of each process that was looked at and is alive."""
    return [stack for process in processes if (stack := _main_stack(process))]


def _main_stack(process: LivingProcess) -> Stack | None:
    frames = next((thread.stack for thread in process.threads if thread.tid == process.pid), ())
    frames = drop_history(frames)
    rank = find_number(process.rank or "")
    return Stack(frames, f"pid {process.pid}", rank, process.host, process.pid) if frames else None


def drop_history(frames: tuple[CrashFrame, ...]) -> tuple[CrashFrame, ...]:
    """What stands below the start of a forked worker is what its parent was doing then."""
    for index, frame in enumerate(frames):
        if frame.function == "_bootstrap" and (frame.file or "").endswith("/multiprocessing/process.py"):
            return frames[: index + 1]
    return frames


def merge(stacks: Iterable[Stack]) -> Node:
    """The root has no frames of its own unless all begin alike."""
    labels: dict[tuple[object, ...], str | None] = {}
    return _grow([(_label_stack(stack.frames, labels), stack) for stack in stacks], 0)


def _grow(members: list[tuple[tuple[str, ...], Stack]], depth: int) -> Node:
    shared = _shared_depth([labels for labels, _ in members], depth)
    branches: dict[str, list[tuple[tuple[str, ...], Stack]]] = {}
    for member in members:
        if len(member[0]) > shared:
            branches.setdefault(member[0][shared], []).append(member)
    children = sorted((_grow(branch, shared) for branch in branches.values()), key=lambda node: node.count)
    frames = members[0][0][depth:shared] if members else ()
    return Node(frames, len(members), tell_who([stack for _, stack in members]), tuple(children))


def _shared_depth(stacks: list[tuple[str, ...]], depth: int) -> int:
    """How far all of them agree."""
    if not stacks:
        return depth
    low, high = min(stacks), max(stacks)  # if these two agree, so do all between them
    while depth < min(len(low), len(high)) and low[depth] == high[depth]:
        depth += 1
    return depth


def _label_stack(frames: tuple[CrashFrame, ...], labels: dict[tuple[object, ...], str | None]) -> tuple[str, ...]:
    """Outermost first. Below the innermost Python frame, native frames only carry Python ones: left out."""
    innermost = next((index for index, frame in enumerate(frames) if frame.kind == "python"), len(frames))
    stack: list[str] = []
    for index in range(len(frames) - 1, -1, -1):
        frame = frames[index]
        if frame.kind == "native" and index > innermost:
            continue
        key = (frame.kind, frame.function, frame.file, frame.line, frame.image)
        if key not in labels:
            labels[key] = _label(frame)
        label = labels[key]
        if label is not None:
            stack.append(label)
    return tuple(stack)


def _label(frame: CrashFrame) -> str | None:
    if frame.kind == "python":
        return f"{frame.function} ({PurePath(frame.file or '?').name}:{frame.line})"
    if is_interpreter(frame.image):
        return None
    function = plain_function(frame)
    if function is None and is_plumbing(frame):
        return None
    return f"{function or '?'} [{image_name(frame.image) or '?'}]"


def find_outlier(stacks: Sequence[Stack]) -> Outlier | None:
    """The fewest that share a line, where more than half share another: of two against two, nobody is the odd one."""
    groups: dict[tuple[str, str | None], list[Stack]] = {}
    for stack in stacks:
        groups.setdefault(_find_place(stack.frames), []).append(stack)
    by_count = sorted(groups.items(), key=lambda item: len(item[1]))
    if len(groups) < 2 or 2 * len(by_count[-1][1]) <= len(stacks):
        return None
    ((place, inside), few), ((others_place, others_inside), many) = by_count[0], by_count[-1]
    return Outlier(
        who=tell_few(few),
        count=len(few),
        place=place,
        others=len(many),
        others_place=others_place,
        inside=inside,
        others_inside=others_inside,
        pids=tuple(stack.pid for stack in few if stack.pid is not None),
        others_pids=tuple(stack.pid for stack in many if stack.pid is not None),
        host=few[0].host,
        others_host=many[0].host,
    )


def _find_place(frames: tuple[CrashFrame, ...]) -> tuple[str, str | None]:
    """(the user's line, the Python function that it has called), else the innermost frame that has a name."""
    python = list_python_frames(frames)
    if not python:
        return next((label for frame in frames if (label := _label(frame))), "an unknown place"), None
    own = innermost_user_frame(python) or python[0]
    return own.place, python[0].function if python[0] != own else None


def outline(root: Node, most: int | None = None) -> list[str]:
    """For a terminal: each node once, indented under what it shares; of its Python frames the `most` innermost."""
    lines: list[str] = []

    def add(node: Node, depth: int) -> None:
        lines.append(f"{'  ' * depth}{node.count} × {node.who}")
        frames = node.frames if most is None else _shorten(node.frames, most)
        lines.extend(f"{'  ' * depth}  {frame}" for frame in frames)
        for child in node.children:
            add(child, depth + 1)

    add(root, 0)
    return lines


def _shorten(frames: tuple[str, ...], most: int) -> tuple[str, ...]:
    """What Python has called says most; how that waits in the end is the same everywhere."""
    native = tuple(frame for frame in frames if frame.endswith("]"))
    python = frames[: len(frames) - len(native)]
    hidden = len(python) - most
    if hidden > 1:  # a line that says so is no shorter than one frame
        python = (f"… {hidden} frames …", *python[hidden:])
    return (*python, *native[:1])


def tell_who(stacks: Sequence[Stack]) -> str:
    """ "gpu07[rank 12-15], gpu08[rank 16]", "rank 0-61,63", "pid 7, pid 9 and 3 more", "rank 0-63 on 16 hosts" """
    hosts: dict[str | None, list[Stack]] = {}
    for stack in stacks:
        hosts.setdefault(stack.host, []).append(stack)
    if len(hosts) > _MOST_NAMES:
        ranks = [stack.rank for stack in stacks if stack.rank is not None]
        return f"{tell_ranks(ranks) if len(ranks) == len(stacks) else 'processes'} on {len(hosts)} hosts"
    told = [f"{host}[{_tell_members(members)}]" if host else _tell_members(members) for host, members in hosts.items()]
    return ", ".join(told)


def tell_few(stacks: Sequence[Stack]) -> str:
    """ "rank 12 on gpu07"; of several hosts as `tell_who`."""
    (host, *others) = dict.fromkeys(stack.host for stack in stacks)
    return f"{_tell_members(list(stacks))} on {host}" if host and not others else tell_who(stacks)


def _tell_members(stacks: list[Stack]) -> str:
    ranks = [stack.rank for stack in stacks if stack.rank is not None]
    names = list(dict.fromkeys(stack.name for stack in stacks if stack.rank is None))
    shown = name_some(names, _MOST_NAMES)
    return ", ".join(part for part in (tell_ranks(ranks) if ranks else "", shown) if part)


def tell_ranks(ranks: Iterable[int]) -> str:
    """ "rank 0-61,63" """
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return "rank " + ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
