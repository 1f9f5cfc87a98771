"""A look at the living in, verdict document out. Pure.

The kind is decided by the table in `alive`; here it gets its words, its process, thread and line, and what was printed.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import Literal

from harness.diagnose.environment.openmp import list_runtimes
from harness.diagnose.frames import innermost_user_frame
from harness.diagnose.living.kinds import AliveKind, decide
from harness.diagnose.living.line import open_scene, tell_others
from harness.diagnose.living.no_fault import choose_counter, name_counter
from harness.diagnose.living.scene import Finding, Scene
from harness.diagnose.living.thread_waits import main_thread, name_thread, python_frames, tell_place, user_frame
from harness.diagnose.plumbing import shorten_function, symbol_of
from harness.diagnose.signature import sign_stack
from harness.diagnose.words import name_some
from harness.documents.verdict import (
    Component,
    Document,
    Ground,
    Outcome,
    ProcessRef,
    Progress,
    Remedy,
    Target,
    Verdict,
)
from harness.evidence.crash import CrashFrame
from harness.evidence.gap import Gap
from harness.evidence.living.look import Counter, LivingProcess, LivingThread, Look
from harness.evidence.living.unflushed import Unflushed

_LONG_LOOK_S = 120
_UNBUFFERED = Remedy(
    "Next time start it with python -u or PYTHONUNBUFFERED=1.",
    True,
    "stdout that is not a terminal is written in blocks, so a log stays empty while the program runs",
)
# Signals that have a kind of their own; by any other it was terminated.
_ENDINGS = {
    "SIGKILL": "killed", "SIGINT": "interrupted", "SIGSEGV": "segfault", "SIGBUS": "bus-error",
    "SIGILL": "illegal-instruction", "SIGFPE": "arithmetic", "SIGTRAP": "trap", "SIGSYS": "bad-syscall",
    "SIGABRT": "abort",
}  # fmt: skip
_UNDECIDED = ("busy-python", "busy-native", "waiting")
_MOST_FILES = 3


def judge_look(look: Look, pid: int | None = None) -> Document:
    """About one target: `pid`, else the first one. Ranks in the same look are considered wherever they stand."""
    scene = open_scene(look, pid)
    target = scene.processes[0]
    if target.ended is not None or target.state == "Z":
        return _document(scene, _tell_gone(scene), "gone")
    kind, finding = decide(scene)
    return _document(scene, _verdict(scene, kind, finding), "alive")


def _document(scene: Scene, verdict: Verdict, state: Literal["alive", "gone"]) -> Document:
    target, look = scene.processes[0], scene.look
    gaps = [*look.gaps, *(gap for process in scene.processes for gap in process.gaps)]
    gaps += _hidden_movement(scene, verdict)
    return Document(
        harness=look.harness,
        case=None,
        target=_name_target(look, target),
        outcome=Outcome(state, *_read_ending(target.ended or ""), duration_s=round(target.age_s, 3)),
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
        process=_name_process(process, thread),
        python_frame=frames[0] if frames else None,
        user_frame=innermost_user_frame(frames),
        context_frame=user_frame(main) if main and thread and not frames else None,
        signature=sign_stack(kind.name, thread.stack) if thread else None,
        grounds=(*finding.grounds, *_others(scene, kind), *buffered),
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
        next=_next(scene, kind, finding, blanks),
    )


def _next(scene: Scene, kind: AliveKind, finding: Finding, blanks: dict[str, str]) -> str | None:
    if finding.ask is not None:
        return f"harness attach {scene.look.address.replace('{pid}', str(finding.ask))}"
    return _fill(kind.next, blanks) if kind.next and not finding.ends_itself else None


def _name_target(look: Look, target: LivingProcess) -> Target:
    address = look.address if look.host else None
    return Target(look.host, target.pid, target.argv, target.python, look.platform, address=address)


def _name_process(process: LivingProcess, thread: LivingThread | None) -> ProcessRef:
    name, tid = (name_thread(process, thread), thread.tid) if thread else (None, None)
    return ProcessRef(process.pid, process.role, name, tid, process.host, process.argv, process.python)


def _blanks(scene: Scene, finding: Finding) -> dict[str, str]:
    target = scene.processes[0]
    argv = () if scene.look.host else target.argv  # no command comes from another host
    return {
        "{pid}": _address(scene.look, target if finding.process.state not in ("T", "t") else finding.process),
        "{stuck}": _address(scene.look, finding.process),
        "{for}": _longer(scene),
        "{python}": shlex.quote(argv[0]) if argv else "python3",
        "{command}": shlex.join(argv) or "COMMAND",
    }


def _longer(scene: Scene) -> str:
    return "10m" if scene.looked_s >= _LONG_LOOK_S else "2m"


def _address(look: Look, process: LivingProcess) -> str:
    return look.address.replace("{pid}", str(process.pid))


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


def _tell_gone(scene: Scene) -> Verdict:
    """It ended while we looked, or before: what is known of how, and no more."""
    target = scene.processes[0]
    uncollected = target.state == "Z" and target.ppid
    ended = target.ended or f"a zombie: its parent, process {target.ppid}, has not collected it"
    status, signame = _read_ending(ended)
    kind = _ENDINGS.get(signame, "terminated") if signame else None
    if status is not None:
        kind = "exit-nonzero" if status else "clean"
    return Verdict(
        kind=kind or "exit-nonzero",
        status="established" if kind else "unknown",
        headline=f"It has ended: {ended}" if kind else f"It has ended; how was not visible ({ended})",
        component=None,
        faulting_image=None,
        process=ProcessRef(target.pid, target.role, argv=target.argv, python=target.python),
        python_frame=None,
        user_frame=None,
        context_frame=None,
        signature=None,
        grounds=(Ground(ended, f"process {target.pid}"),),
        against=(),
        upstream=(),
        remedies=(),
        next=f"harness attach {scene.look.address.replace('{pid}', str(target.ppid))}" if uncollected else None,
    )


def _read_ending(ended: str) -> tuple[int | None, str | None]:
    """The exit status or the name of the signal. What follows a colon or semicolon are words of others: a command."""
    told = re.split("[:;]", ended)[0]
    status, signame = re.search(r"\bexit status (\d{1,9})", told), re.search(r"\bSIG[A-Z0-9]+", told)
    return int(status[1]) if status else None, signame[0] if signame else None


# What may have moved unseen


def _hidden_movement(scene: Scene, verdict: Verdict) -> list[Gap]:
    """Where nothing that can be seen decides, and something would that cannot."""
    process = scene.find(verdict.process.pid or 0)
    if verdict.kind not in _UNDECIDED or process is None:
        return []
    gaps = []
    if verdict.user_frame and verdict.user_frame.function == "<module>":
        fix = "put the loop into a function, or call harness.beat(step=…)"
        gaps.append(Gap("variables at module level", "only those of functions can be read from outside", fix))
    if files := _written_elsewhere(process):
        names = name_some([f"{PurePath(one.name).name} ({one.values[-1]} bytes)" for one in files], _MOST_FILES)
        address = _address(scene.look, process)
        fix = f"flush what is written, or look longer: harness attach {address} --for {_longer(scene)}"
        why = "only stdout and stderr are read from memory"
        gaps.append(Gap(f"what is still in the buffers of {names}", why, fix))
    return gaps


def _written_elsewhere(process: LivingProcess) -> list[Counter]:
    """Files open for writing besides the standard streams. One that is unlinked is nobody's log."""
    standard = {output.path for output in process.outputs}
    files = (counter for counter in process.counters if counter.kind == "file")
    return [file for file in files if file.name not in standard and not file.name.endswith(" (deleted)")]


def _others(scene: Scene, kind: AliveKind) -> list[Ground]:
    """What moves beside the line of work."""
    if kind.name == "progressing":
        return []
    return [Ground(fact, f"{scene.look.samples} samples") for fact in tell_others(scene)]


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
        counter=name_counter(best[1]) if best else None,
        last_line=None,
        last_output_age_s=round(min(quiet), 1) if quiet else None,
        unflushed_stdout="".join(part.text for part in unflushed) if unflushed else None,
        unflushed_stdout_bytes=sum(part.bytes for part in unflushed) if unflushed else None,
        looked_s=scene.look.looked_s,
        samples=scene.look.samples,
    )
