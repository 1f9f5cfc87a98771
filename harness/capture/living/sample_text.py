"""What living processes do on macOS: the text of `sample`, and the Python lines that the shim's signal prints. macOS.

Everything here that is particular to macOS: the commands, what a refusal means, and how the text is read. `sample` is
Apple's own and works without root on processes of your own; py-spy and task_for_pid do not. Decides nothing. The text
is parsed in tests; the commands have never run on a Mac.

`sample` suspends the process for a moment at every sample and says not for how long. Python lines exist only where the
process was started by `harness run`, whose shim has faulthandler listen to SIGINFO, which is ignored by default.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from harness.capture.stacks.frames import Places
from harness.capture.stacks.tools import run_tool
from harness.errors import HarnessError, Unreadable
from harness.evidence.crash import CrashFrame, Image, ToolRun
from harness.evidence.gap import Gap
from harness.evidence.living.look import LivingProcess, LivingThread, Look
from harness.version import __version__

_SAMPLE = "/usr/bin/sample"
_SHORTEST_S, _LONGEST_S = 1, 10
PATIENCE_S = 20.0  # to read symbols, after the samples
_ANSWER_S = 2.0
_POLL_S = 0.02
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "": 1}
_HEAD = re.compile(r"^([A-Z][\w /()-]*?):\s+(.+)$", re.MULTILINE)
_EVERY_MS = re.compile(r"every ([0-9]{1,9}) millisecond")
_NODE = re.compile(r"^(?P<lead>[ +!:|]*)(?P<count>[0-9]{1,9}) (?P<rest>\S.*)$")
_THREAD = re.compile(r"Thread_(?P<tid>[0-9]{1,18})(?:: (?P<name>.+?)|\s+DispatchQueue_\d+: (?P<queue>\S+).*)?$")
_FRAME = re.compile(r"(?P<function>.+?)  \(in (?P<image>.+?)\)(?: \+ [\d,.+]+)?  \[(?P<address>0x[0-9a-f]{1,16})")
_IMAGE = re.compile(
    r"^\s*(0x[0-9a-f]{1,16}) -\s+(0x[0-9a-f]{1,15})\s+\+?(.+?) \(.*?\) <[0-9A-F-]+>\s+(.+)$", re.MULTILINE
)
_EVALUATES = re.compile(r"_PyEval_EvalFrame\w*|_TAIL_CALL_\w+")
_PYTHON_LINE = re.compile(r'^  File "(?P<file>.*)", line (?P<line>[0-9]{1,9}) in (?P<function>.*)$')
# In which functions of the kernel's library a thread sleeps.
_ASLEEP = re.compile(
    r"__psynch_\w+|__semwait_signal\w*|semaphore_\w+trap|mach_msg\w*trap|kevent\w*|__workq_kernreturn|__ulock_wait2?"
    r"|__(?:read|write|recvfrom|sendto|accept|connect|open|flock|fcntl)(?:_nocancel)?|read|write|poll|__poll\w*"
    r"|__select\w*|__wait4\w*|__sigwait\w*|__sigsuspend\w*|swtch_pri|nanosleep"
)


class _Node(NamedTuple):
    """`column`: where its count stands; those further right below it were called by it."""

    column: int
    times: int
    rest: str


def sample_processes(pids: Sequence[int], for_s: float) -> Look:
    """HarnessError: none of them could be sampled; its hint is what to type."""
    begun = time.monotonic()
    looks, refused = [], []
    for pid in dict.fromkeys(pids):
        said = run_tool(build_command(pid, for_s), for_s + PATIENCE_S)
        try:
            if said.error is not None:
                raise Unreadable(said.error)
            look = read_sample(said.output.decode(errors="replace"))
        except ValueError as error:
            refused.append(explain_refusal(pid, str(error)))
            continue
        run = ToolRun("sample", round(time.monotonic() - begun, 4), None, said.pid)
        looks.append(replace(_add_python(look.processes[0]), tools=(run,)))
    return join_processes(looks, refused, f"macosx-{os.uname().release}-{os.uname().machine}", begun)


def join_processes(
    processes: Sequence[LivingProcess], refused: Sequence[HarnessError], platform: str, begun: float
) -> Look:
    """One look at those that were sampled since `begun`. HarnessError: the first refusal, if there are none."""
    if not processes:
        raise refused[0]
    looked_s = time.monotonic() - begun
    return Look(
        harness=__version__,
        platform=platform,
        started=time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(time.time() - looked_s)),
        looked_s=round(looked_s, 2),
        samples=1,
        targets=tuple(process.pid for process in processes),
        processes=tuple(processes),
        gaps=tuple(Gap("a process", str(error), error.hint) for error in refused),
    )


def build_command(pid: int, for_s: float) -> list[str]:
    """`-mayDie`: what is needed to name its functions is read before it can end."""
    seconds = max(_SHORTEST_S, min(_LONGEST_S, round(for_s)))
    return [_SAMPLE, str(pid), str(seconds), "-mayDie", "-file", "/dev/stdout"]


def explain_refusal(pid: int, words: str) -> HarnessError:
    """One of your own may be refused, too: a hardened program lets only root look."""
    last = words.strip().splitlines()[-1] if words.strip() else "no word"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return HarnessError(f"There is no process {pid}.", hint="harness ps")
    except PermissionError:
        pass
    return HarnessError(f"Process {pid} could not be sampled: {last}", hint=f"sudo harness attach {pid}")


def read_sample(text: str) -> Look:
    """Unreadable: this is no text of `sample`."""
    head = {name: value.strip() for name, value in _HEAD.findall(text.partition("Call graph:")[0])}
    every = _EVERY_MS.search(text)
    named = re.search(r"\[([0-9]{1,9})\]", head.get("Process", ""))
    if every is None or named is None or "Call graph:" not in text:
        raise Unreadable("no text of `sample`: its head and call graph are missing")
    images = tuple(_list_images(text))
    every_s = int(every[1]) / 1000
    threads = list(_list_threads(text, int(named[1]), Places(images), every_s))
    process = _describe(head, int(named[1]), images, tuple(thread for thread, _ in threads))
    return Look(
        harness=__version__,
        platform=f"{head.get('OS Version', 'macOS').partition(' (')[0]} {head.get('Code Type', '')}".strip(),
        started=head.get("Date/Time", ""),
        looked_s=round(max((count for _, count in threads), default=0) * every_s, 3),
        samples=max((count for _, count in threads), default=0),
        targets=(process.pid,),
        processes=(process,),
    )


def _describe(
    head: dict[str, str], pid: int, images: tuple[Image, ...], threads: tuple[LivingThread, ...]
) -> LivingProcess:
    path, parent = head.get("Path", ""), re.search(r"\[([0-9]{1,9})\]", head.get("Parent Process", ""))
    is_python = "python" in head.get("Identifier", "").lower() or "python" in path.lower()
    return LivingProcess(
        pid=pid,
        ppid=int(parent[1]) if parent else 0,
        name=head.get("Process", "").partition(" [")[0],
        argv=(path,) if path else (),
        executable=path or None,
        python=(head.get("Version", "").partition(" ")[0] or "unknown") if is_python else None,
        state="S" if threads and all(thread.state == "S" for thread in threads) else "R",
        age_s=_age_s(head),
        rss_bytes=_read_size(head.get("Physical footprint")),
        threads=threads,
        images=images,
        gaps=(Gap("how long it was stopped", "`sample` does not say"), Gap("locks and open files", "not on macOS")),
    )


def _age_s(head: dict[str, str]) -> float:
    with contextlib.suppress(KeyError, ValueError):
        now, then = (datetime.strptime(head[name], "%Y-%m-%d %H:%M:%S.%f %z") for name in ("Date/Time", "Launch Time"))
        return round((now - then).total_seconds(), 1)
    return 0.0


def _read_size(words: str | None) -> int | None:
    found = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)([KMG]?)", words or "")
    return int(float(found[1]) * _UNITS[found[2]]) if found else None


def _list_images(text: str) -> Iterator[Image]:
    """User paths are redacted to /Users/*: two copies are told apart by where they are loaded."""
    for base, last, _, path in _IMAGE.findall(text.partition("Binary Images:")[2]):
        yield Image(path, base, hex(int(last, 16) + 1))


def _list_threads(text: str, pid: int, places: Places, every_s: float) -> Iterator[tuple[LivingThread, int]]:
    """Each with its number of samples. The main thread gets the process's id, as on Linux."""
    graph = text.partition("Call graph:\n")[2].partition("\n\n")[0]
    nodes = [_Node(match.start("count"), int(match["count"]), match["rest"]) for match in _matches(graph)]
    starts = [at for at, node in enumerate(nodes) if _THREAD.match(node.rest)]
    for start, end in pairwise([*starts, len(nodes)]):
        head = _THREAD.match(nodes[start].rest)
        assert head is not None
        path = _follow_heaviest(nodes[start:end])
        frames = tuple(frame for node in reversed(path) if (frame := _read_frame(node.rest, places)))
        total, inner = nodes[start].times, path[-1].times if path else 0
        asleep = bool(frames) and _ASLEEP.fullmatch(frames[0].function or "") is not None
        is_main = start == starts[0]
        thread = LivingThread(
            tid=pid if is_main else int(head["tid"]),
            name="MainThread" if is_main else head["name"] or head["queue"],
            state="S" if asleep else "R",
            cpu_s=0.0 if asleep else round(inner * every_s, 3),
            stack=frames,
            changed=inner < total,
        )
        yield thread, total


def _matches(graph: str) -> Iterator[re.Match[str]]:
    return (match for line in graph.splitlines() if (match := _NODE.match(line)))


def _follow_heaviest(nodes: Sequence[_Node]) -> list[_Node]:
    """From the thread's own line inwards, each time the one that was seen most."""
    path, inside, column = [], list(nodes[1:]), nodes[0].column
    while inside:
        deeper = [node for node in inside if node.column > column]
        if not deeper:
            break
        level = min(node.column for node in deeper)
        best = max((at for at, node in enumerate(inside) if node.column == level), key=lambda at: inside[at].times)
        path.append(inside[best])
        rest = inside[best + 1 :]
        until = next((at for at, node in enumerate(rest) if node.column <= level), len(rest))
        inside, column = rest[:until], level
    return path


def _read_frame(words: str, places: Places) -> CrashFrame | None:
    match = _FRAME.match(words)
    if match is None:
        return None
    image = places.find(int(match["address"], 16))
    return CrashFrame(
        kind="native",
        function=None if match["function"] == "???" else match["function"],
        image=image.path if image else match["image"],
        offset=hex(int(match["address"], 16) - int(image.base, 16)) if image else None,
        address=match["address"],
    )


# Python's own lines


def stacks_path(pid: int) -> Path:
    """Where the shim has faulthandler write; the same words are in probes/shim/sitecustomize.py."""
    return Path(os.environ.get("TMPDIR", "/tmp"), f"harness-stacks-{os.getuid()}-{pid}")


def _add_python(process: LivingProcess) -> LivingProcess:
    frames = ask_python(process.pid, getattr(signal, "SIGINFO", None))
    if not frames:
        fix = f"sudo py-spy dump --pid {process.pid}"
        return replace(process, gaps=(*process.gaps, Gap("Python lines", "it was not started by harness run", fix)))
    main = replace(process.threads[0], stack=merge_python(process.threads[0].stack, frames))
    return replace(process, threads=(main, *process.threads[1:]))


def ask_python(pid: int, signo: int | None) -> tuple[CrashFrame, ...]:
    """The main thread's lines, innermost first: the last in faulthandler's list. Nothing where nobody listens."""
    path = stacks_path(pid)
    try:
        about = path.lstat()
        if signo is None or about.st_uid != os.getuid():
            return ()
        os.kill(pid, signo)
        deadline = time.monotonic() + _ANSWER_S
        text, before = "", ""
        while time.monotonic() < deadline and (text == "" or text != before):
            time.sleep(_POLL_S)
            before = text
            with path.open("rb") as file:
                text = os.pread(file.fileno(), 1 << 20, about.st_size).decode(errors="replace")
    except OSError:
        return ()
    last = text.rpartition("(most recent call first):\n")[2]
    lines = [_PYTHON_LINE.match(line) for line in last.splitlines()]
    return tuple(CrashFrame("python", one["function"], one["file"], int(one["line"])) for one in lines if one)


def merge_python(native: Sequence[CrashFrame], python: Sequence[CrashFrame]) -> tuple[CrashFrame, ...]:
    """What the innermost line called, then the lines: which of the interpreter's frames runs which is not known."""
    ends = (at for at, frame in enumerate(native) if _EVALUATES.fullmatch(frame.function or ""))
    return (*native[: next(ends, len(native))], *python)
