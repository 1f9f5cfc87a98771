"""Evidence in, verdict document out. Pure: the same evidence always gives the same document."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator
from pathlib import PurePath

from msgspec import structs

from harness.diagnose.death.crash.address import fault_address, name_si_code
from harness.diagnose.death.crash.blame import Blame, blame, describe_thread
from harness.diagnose.death.crash.circumstances import advise, doubt_component, ground_damage
from harness.diagnose.death.crash.damage import tell_notice
from harness.diagnose.death.crash.jit import JIT, tell_compilers
from harness.diagnose.death.crash.phase import tell_phase
from harness.diagnose.death.culprit import Culprit, role_of
from harness.diagnose.death.details.differential import weigh
from harness.diagnose.death.details.glimpsed import Glimpsed, find_glimpsed, tell_other_ranks
from harness.diagnose.death.details.last_line import find_last_line
from harness.diagnose.death.details.stack import name_own_code, tell_stack
from harness.diagnose.death.details.unread import find_reader, is_read_by_gdb, tell_unread
from harness.diagnose.death.details.upstream import find_upstream
from harness.diagnose.death.failures import CRASH_SIGNALS
from harness.diagnose.death.kinds import KINDS
from harness.diagnose.death.limits import Named, name_full_disk, name_memory_limit, name_resource_limit
from harness.diagnose.death.matching import Finding, Kind, match
from harness.diagnose.death.oom import list_other_victims
from harness.diagnose.death.reading import Reading
from harness.diagnose.death.sender import ground_sender, is_sent_by_process, list_looked_at, tell_sender, told_to_leave
from harness.diagnose.environment.openmp import FLAG, describe, list_copies, list_runtimes, tell_collision
from harness.diagnose.frames import innermost_user_frame
from harness.diagnose.memory import judge_memory
from harness.diagnose.plumbing import is_interpreter
from harness.documents.verdict import (
    Component,
    Document,
    Frame,
    Ground,
    Outcome,
    ProcessRef,
    Remedy,
    Runtime,
    Target,
    Verdict,
)
from harness.evidence.crash import Crash
from harness.evidence.gap import Gap
from harness.evidence.run import Evidence, Process

_KERNEL_IMAGE = re.compile(r"\[(?P<pid>\d{1,9})\].* in (?P<image>[^\[\s]+)\[")
_MOST_DEATHS = 3
_PLUMBING = re.compile(r"(libc|libpthread|ld-linux.*|ld|libstdc\+\+|libgcc_s|libm)[.-]")


_OF_MEMORY = ("oom-kill", "allocation-failure")


def judge(evidence: Evidence, case: str | None = None) -> Document:
    reading = Reading(evidence)
    kind, finding = decide(reading)
    return Document(
        harness=evidence.harness,
        case=case,
        target=Target(None, evidence.pid, evidence.argv, evidence.python, evidence.platform),
        outcome=_outcome(reading),
        verdict=_verdict(kind, finding, reading),
        differential=() if kind.name == "clean" else weigh(kind.name, finding, reading),
        progress=find_last_line(finding, reading),
        gaps=(*evidence.gaps, *_missing(kind, reading)),
        openmp=_runtimes(reading),
        memory=judge_memory(evidence.timeline, alive=False),
    )


def decide(reading: Reading) -> tuple[Kind, Finding]:
    for kind in KINDS:
        if finding := match(kind, reading, KINDS):
            return kind, _limit_to_link(finding, reading)
    unseen = Kind("exit-nonzero", "", "How it ended was not visible{where}")
    return unseen, Finding("unknown", "", (), {})


def _limit_to_link(finding: Finding, reading: Reading) -> Finding:
    """What ended a process may be proven, and that the command ended because of it not."""
    if reading.culprit.linked or finding.status != "established":
        return finding
    return finding._replace(status="supported")


def _outcome(reading: Reading) -> Outcome:
    ending = reading.main.ending if reading.main else reading.culprit.ending
    signame, crash = reading.signame, reading.crash
    return Outcome(
        state="gone" if ending is None else "exited" if ending.signo is None else "died",
        exit_code=ending.exit_code if ending else None,
        signal=signame,
        si_code=name_si_code(crash.signo, crash.si_code) if crash else None,
        fault_address=fault_address(crash) if crash else None,
        core=next((core.path for core in reading.evidence.cores if core.pid == reading.culprit.pid), None),
        duration_s=round(reading.evidence.duration_s, 3),
    )


def _verdict(kind: Kind, finding: Finding, reading: Reading) -> Verdict:
    culprit = reading.culprit
    frames = reading.python_frames
    user_frame = innermost_user_frame(frames) if frames else None
    faulting, component = _images(finding, reading)
    return Verdict(
        kind=kind.name,
        status=finding.status,
        headline=_headline(kind, finding, reading, user_frame, component),
        component=component,
        faulting_image=faulting,
        process=_process(reading),
        python_frame=frames[0] if frames else None,
        user_frame=user_frame,
        context_frame=_context_frame(kind, reading),
        signature=_signature(kind.name, reading),
        grounds=(
            *culprit.grounds,
            *finding.grounds,
            *_limit_grounds(kind, finding, reading),
            *_glimpse_grounds(kind, reading),
            *_sender_grounds(kind, finding, reading),
            *_crash_grounds(reading),
            *_python_ground(reading),
            *_exception_ground(reading),
            *(tell_other_ranks(reading) if kind.name == "collective-failure" else ()),
            *_runtime_grounds(kind, reading),
            *_setting_grounds(reading),
        ),
        against=_against(finding, reading),
        upstream=find_upstream(kind.name, reading),
        remedies=() if _is_known_sent(reading) else tuple(_list_remedies(kind, finding, reading)),
        next=_next(kind, reading),
        fault=_fault(reading),
        stack=tell_stack(reading),
    )


def _next(kind: Kind, reading: Reading) -> str | None:
    """A crash that the command got over is told in full where it is the command itself."""
    below = _crashed_below(reading) if kind.ends_well else []
    if below and below[0].argv:
        return f"harness run -- {shlex.join(below[0].argv)}"
    return kind.next.replace("{python}", shlex.quote(_python(reading))) if kind.next else None


def _list_remedies(kind: Kind, finding: Finding, reading: Reading) -> Iterator[Remedy]:
    limit = name_limit(kind, finding, reading)
    if limit and limit.raised_by:
        do = f"Raise that limit, in the shell that starts the job: {limit.raised_by}"
        yield Remedy(do, True, "it is what refused" if limit.certain else "no other limit was seen that could refuse")
    for remedy in finding.remedies or kind.remedies:
        yield _fill_in(remedy, reading)


def _is_known_sent(reading: Reading) -> bool:
    """Somebody ended it on purpose, and is named: there is nothing to repair here."""
    return reading.is_sent or (reading.signame == "SIGKILL" and is_sent_by_process(reading))


def _python(reading: Reading) -> str:
    """The interpreter as it was called, so that a virtual environment is found again."""
    process = _find_process(reading)
    return process.argv[0] if process and process.argv else "python3"


def _process(reading: Reading) -> ProcessRef:
    culprit, crash = reading.culprit, reading.crash
    argv = process.argv if (process := _find_process(reading)) else ()
    ref = ProcessRef(culprit.pid, culprit.role, argv=argv, python=_python_of(process, reading), rank=culprit.rank)
    if crash is None or reading.blame is None:
        return ref
    return structs.replace(ref, thread=reading.blame.thread_name, tid=crash.tid)


def _find_process(reading: Reading) -> Process | None:
    return next((process for process in reading.evidence.processes if process.pid == reading.culprit.pid), None)


def _python_of(process: Process | None, reading: Reading) -> str | None:
    """The version that was asked for is that of one interpreter: the first of the tree."""
    pythons = [one.executable for one in reading.evidence.processes if is_interpreter(one.executable)]
    known = process is not None and process.executable in pythons[:1]
    return reading.evidence.python if known or not reading.evidence.processes else None


def _fault(reading: Reading) -> str | None:
    if reading.fault is None or reading.fault.sentence.startswith("no fault:"):
        return None
    return reading.fault.sentence


def _headline(
    kind: Kind, finding: Finding, reading: Reading, user_frame: Frame | None, component: Component | None
) -> str:
    limit = name_limit(kind, finding, reading)
    words = {
        "detail": finding.detail,
        "after": f": {finding.detail}" if finding.detail else "",
        "status": "" if reading.exit_code is None else str(reading.exit_code),
        "where": _where(reading, user_frame),
        "signal": reading.signame or "a signal",
        "sender": tell_sender(reading),
        "killer": _killer(reading),
        "limit": limit.words if limit else "",
        "before": _before(kind, reading),
        "component": _component_words(reading),
        "runtimes": tell_collision(reading.crash.openmp if reading.crash else None, component, finding.groups),
        "but": "".join(f", but {_describe_death(process, reading)}" for process in _crashed_below(reading)[:1]),
        **finding.groups,
    }
    return " ".join(kind.headline.format_map(words).split())


def _component_words(reading: Reading) -> str:
    """ " in libfaiss.so (faiss-cpu 1.15.1)" where the stack names one; of a sent signal, who sent it."""
    if reading.is_sent and reading.crash is not None:
        sender = reading.crash.sender_pid
        if sender is None:
            return " that somebody sent to it"
        return " that it sent to itself" if sender == reading.crash.pid else f" that process {sender} sent to it"
    seen = reading.blame
    if seen is None or seen.noticed is None:
        return _name_component(seen.component if seen else None, reading.crash)
    return f"{_name_component(seen.faulting_image)}: {tell_notice(seen.noticed)}"


def _name_component(component: Component | None, crash: Crash | None = None) -> str:
    if component is None or component.image is None:
        return ""
    if component.image == JIT:
        loaded = tell_compilers(crash) if crash else ""
        return f" in JIT-compiled code ({loaded})" if loaded else " in JIT-compiled code"
    owner = f" ({component.distribution} {component.version or ''}".rstrip() + ")" if component.distribution else ""
    return f" in {PurePath(component.image).name}{owner}"


def _where(reading: Reading, user_frame: Frame | None) -> str:
    who = _who(reading.culprit) + _tell_circumstances(reading)
    if user_frame is not None:
        return f"{who}, {_relation(reading)} {user_frame.place}"
    if reading.context_frame is not None:
        thread = describe_thread(reading.crash) if reading.crash else "a thread without Python"
        return f"{who}, on {thread}, while the main thread was in {reading.context_frame.place}"
    return who


def _who(culprit: Culprit) -> str:
    if culprit.rank is not None:
        return f" in rank {culprit.rank} (process {culprit.pid})"
    if culprit.role == "main":
        return ""
    return f" in {culprit.role} process {culprit.pid}" if culprit.pid else f" in a {culprit.role} process"


def _tell_circumstances(reading: Reading) -> str:
    """Of a crash: without the GIL, during an import, at exit. An exception's own traceback says where it was."""
    if reading.final is not None or reading.is_sent:
        return ""
    seen = reading.blame
    gil = ", in a call into Python without holding the GIL" if seen and seen.without_gil else ""
    return gil + tell_phase(seen.frames_below if seen else (), reading.python_frames or ())


def _relation(reading: Reading) -> str:
    """How the Python line stands to what happened."""
    seen = reading.blame
    if reading.final:
        return "in"
    if seen is not None and seen.noticed is not None:
        return "noticed while Python was in"
    is_jit = seen is not None and seen.component is not None and seen.component.image == JIT
    return "called from" if is_jit else "while Python was in"


def _killer(reading: Reading) -> str:
    """Of SIGKILL: a sender, or that none was seen."""
    if reading.signame != "SIGKILL":
        return ""
    return tell_sender(reading) or "; nothing that was seen says who sent it, or why"


def name_limit(kind: Kind, finding: Finding, reading: Reading) -> Named | None:
    """The limit that refused: of memory, of /dev/shm, or another."""
    if not kind.names_limit:
        return None
    if kind.name == "allocation-failure":
        return name_memory_limit(finding, reading)
    return (
        name_full_disk(finding, reading) if kind.name == "shared-memory-full" else name_resource_limit(finding, reading)
    )


def _images(finding: Finding, reading: Reading) -> tuple[Component | None, Component | None]:
    """(faulting image, component): from the stack, else as far as a message or the kernel names them."""
    if reading.is_sent:  # nothing faulted: where the process happened to be says nothing
        return None, None
    if reading.blame is not None and (reading.blame.faulting_image or reading.blame.component):
        return reading.blame.faulting_image, _with_offset(reading.blame)
    if image := finding.groups.get("second") or finding.groups.get("image"):
        return None, Component(None, None, image, None)
    # What the kernel prints is where the program counter was: of a crash that was seen we know that better.
    for line in reading.evidence.kernel if reading.crash is None else ():
        named = _KERNEL_IMAGE.search(line.text)
        if named and (reading.is_log or int(named["pid"]) == reading.culprit.pid):
            faulting = Component(None, None, named["image"], None)
            return faulting, None if _PLUMBING.match(PurePath(named["image"]).name) else faulting
    return None, None


def _with_offset(blame: Blame) -> Component | None:
    if blame.component is None or blame.component_frame is None:
        return blame.component
    return structs.replace(blame.component, offset=blame.component_frame.offset)


def _signature(kind: str, reading: Reading) -> str | None:
    """Equal for deaths of one kind at one place, whatever the line numbers and directories."""
    if reading.blame is not None and reading.blame.signature is not None:
        return reading.blame.signature
    frames = reading.python_frames
    if not frames:
        return None
    stack = [f"{PurePath(frame.file).name}:{frame.function}" for frame in frames]
    return hashlib.sha256("\n".join([kind, *stack]).encode()).hexdigest()[:12]


def _limit_grounds(kind: Kind, finding: Finding, reading: Reading) -> tuple[Ground, ...]:
    limit = name_limit(kind, finding, reading)
    return (limit.ground,) if limit else ()


def _glimpse(kind: Kind, reading: Reading) -> Glimpsed | None:
    return find_glimpsed(reading) if kind.name in _OF_MEMORY else None


def _glimpse_grounds(kind: Kind, reading: Reading) -> tuple[Ground, ...]:
    seen = _glimpse(kind, reading)
    return (seen.ground,) if seen else ()


def _context_frame(kind: Kind, reading: Reading) -> Frame | None:
    """Where nothing tells where it died: where it was when it came near its limit."""
    if reading.python_frames is None and (seen := _glimpse(kind, reading)):
        return seen.frame
    return reading.context_frame


def _before(kind: Kind, reading: Reading) -> str:
    seen = _glimpse(kind, reading) if reading.python_frames is None else None
    return seen.words if seen else ""


def _sender_grounds(kind: Kind, finding: Finding, reading: Reading) -> tuple[Ground, ...]:
    """Who sent it; for a SIGKILL that nobody owns to, where was looked."""
    grounds = ground_sender(reading)
    if kind.name == "killed" and not grounds and not reading.is_log:
        looked = list_looked_at(reading)
        return (Ground(f"no sign of a killer in: {', '.join(looked)}", "looked at"),) if looked else ()
    if kind.name in ("python-exception", "exit-nonzero") and (told := told_to_leave(reading)):
        grounds = (*grounds, told)
    return tuple(ground for ground in grounds if ground not in finding.grounds)


def _tell_when(crash: Crash) -> str:
    from_core = crash.origin == "core" or crash.threads[0].source.endswith(" core")
    return "read from its core" if from_core else f"taken while it stood still for {crash.held_s:.2f} s"


def _crash_grounds(reading: Reading) -> tuple[Ground, ...]:
    crash = reading.crash
    if crash is None:
        return ()
    grounds = [Ground(f"siginfo {name_si_code(crash.signo, crash.si_code)}", crash.origin)]
    native = [thread for thread in crash.threads if any(frame.kind == "native" for frame in thread.frames)]
    python = [thread for thread in crash.threads if any(frame.kind == "python" for frame in thread.frames)]
    counts = [
        f"{what} stack of {len(threads)}" for what, threads in (("native", native), ("Python", python)) if threads
    ]
    if counts:
        threads = f"{' and '.join(counts)} of {crash.threads_total or len(crash.threads)} threads"
        grounds.append(Ground(f"{threads}, {_tell_when(crash)}", crash.threads[0].source))
    return (*grounds, *ground_damage(crash, reading.blame))


def _python_ground(reading: Reading) -> tuple[Ground, ...]:
    if reading.dump is None or reading.dump.signame is None or (reading.blame and reading.blame.python_frames):
        return ()
    count = len(reading.dump.threads)
    return (Ground(f"Python stack of {count} thread{'s' * (count != 1)} (faulthandler)", str(reading.dump.place)),)


def _exception_ground(reading: Reading) -> tuple[Ground, ...]:
    """What the program had failed of when a signal ended it."""
    before = reading.before_signal
    if before is None:
        return ()
    frame = innermost_user_frame(before.frames)
    where = f", in {frame.place}" if frame else ""
    return (Ground(f"before that nothing caught {before.sentence}{where}", str(before.end)),)


def _runtime_grounds(kind: Kind, reading: Reading) -> tuple[Ground, ...]:
    if kind.name != "duplicate-openmp" or reading.crash is None or reading.crash.openmp is None:
        return ()
    return tuple(Ground(describe(copy), "binding table") for copy in list_copies(reading.crash.openmp))


def _runtimes(reading: Reading) -> tuple[Runtime, ...] | None:
    census = reading.crash.openmp if reading.crash else None
    return None if census is None else list_runtimes(census)


def _setting_grounds(reading: Reading) -> tuple[Ground, ...]:
    """The flag that hides a duplicate runtime, wherever it was set."""
    grounds = [
        Ground(
            f"{FLAG}={statement.value} is set: unsafe, it hides the fault",
            f"{statement.file}:{statement.line}",
        )
        for statement in reading.evidence.script
        if statement.sets == FLAG
    ]
    if value := reading.evidence.environment.get(FLAG):
        grounds.append(Ground(f"{FLAG}={value} is set: unsafe, it hides the fault", "environment"))
    return tuple(grounds)


def _against(finding: Finding, reading: Reading) -> tuple[str, ...]:
    against = []
    culprit = reading.culprit
    if not culprit.linked:
        against.append(f"the command itself does not say that it failed because of process {culprit.pid}")
        against += culprit.doubts
    against += [*finding.against, *doubt_component(reading.blame)]
    if (
        finding.status == "supported"
        and finding.grounds
        and not (finding.against or reading.is_log)
        and reading.signame
    ):
        against.append("another process could have printed the text that names the cause")
    crashed = _crashed_below(reading) if culprit.role == "main" else []
    against += [
        f"{role_of(reading.evidence, process)} process {process.pid} was killed for lack of memory"
        for process in list_other_victims(reading)[:_MOST_DEATHS]
    ]
    against += [_describe_death(process, reading) for process in crashed[:_MOST_DEATHS]]
    if len(crashed) > _MOST_DEATHS:
        against.append(f"… and {len(crashed) - _MOST_DEATHS} more processes died of a crash")
    return tuple(against)


def _crashed_below(reading: Reading) -> list[Process]:
    """Processes that crashed although the command does not say that it ended because of them; best seen ones first."""
    seen = {crash.pid for crash in reading.evidence.crashes if crash.threads}
    crashed = [
        process
        for process in reading.evidence.processes
        if process.pid != reading.culprit.pid and process.ending and process.ending.signame in CRASH_SIGNALS
    ]
    return sorted(crashed, key=lambda process: process.pid not in seen)


def _describe_death(process: Process, reading: Reading) -> str:
    signame = process.ending.signame if process.ending else None
    crash = next((crash for crash in reading.evidence.crashes if crash.pid == process.pid), None)
    seen = blame(crash) if crash else None
    where = _name_component(seen.component) if seen else ""
    place = f", at {seen.user_frame.place}" if seen and seen.user_frame else ""
    return f"{role_of(reading.evidence, process)} process {process.pid} died of {signame}{where}{place}"


def _fill_in(remedy: Remedy, reading: Reading) -> Remedy:
    if remedy.do == "{native}":
        remedy = _advise_native(reading, remedy)
    words = {"{command}": reading.command or "COMMAND", "{python}": shlex.quote(_python(reading))}
    do, verify = remedy.do, remedy.verify
    for name, value in words.items():
        do, verify = do.replace(name, value), verify.replace(name, value) if verify else None
    return Remedy(do, remedy.safe, remedy.why, verify)


def _advise_native(reading: Reading, remedy: Remedy) -> Remedy:
    """Whose move it is: the caller's first, then the library's."""
    user = innermost_user_frame(reading.python_frames or ()) or reading.context_frame
    place = user.place if user else None
    seen, crash = reading.blame, reading.crash
    special = advise(crash, seen, place) if crash is not None and seen is not None else None
    return special or structs.replace(remedy, do=_advise_caller(reading, place))


def _advise_caller(reading: Reading, place: str | None) -> str:
    component = reading.blame.component if reading.blame else None
    caller = place or "the caller"
    if component is None or component.image is None:
        return f"Read the stack of what died: {find_reader(reading)}"
    if component.distribution == "CPython":
        return f"Look at {caller}: the interpreter most likely did what it was asked to (a bad pointer, os.abort())."
    image = PurePath(component.image).name
    if place is None and component.distribution is None and (own := name_own_code(reading)):
        return f"Look at {own}."
    if place is None and component.distribution is None and not is_read_by_gdb(reading):
        return f"Read the stack of what died, with its lines: {find_reader(reading)}"
    if place is None and component.distribution is None:
        return f"Build {image} with debug information (-g, not stripped), which names the line of {component.function}."
    owner = component.distribution or image
    return f"Check what {caller} gives to {image}; if it is valid, report it to {owner} with the case."


def _missing(kind: Kind, reading: Reading) -> tuple[Gap, ...]:
    gaps: list[Gap] = []
    if reading.crash is not None:
        gaps += reading.crash.gaps
    elif reading.signame in CRASH_SIGNALS:
        gaps.append(tell_unread(reading))
        process = _find_process(reading)
        if reading.python_frames is None and (process is None or is_interpreter(process.executable)):
            gaps.append(Gap("Python stack", "no faulthandler text of this death is in the output", None))
    if kind.name == "duplicate-openmp" and reading.blame is None:
        gaps.append(Gap("owners of the two runtimes", "the message names the files, not the packages they belong to"))
    if not reading.culprit.seen and reading.culprit.role != "main":
        gaps.append(
            Gap(
                "status of that process",
                "its parent collected it before we could; the signal is its parent's word",
            )
        )
    return tuple(gaps)
