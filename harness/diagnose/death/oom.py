"""Was it killed for lack of memory? Only on the word of the kernel, a control group, an OOM daemon or jetsam.

High memory is no proof, and neither is a kill of somebody else in the same group. Pure.
"""

from __future__ import annotations

import re

from harness.diagnose.death.matching import Finding
from harness.diagnose.death.reading import Reading
from harness.diagnose.death.sender import describe_sender, find_kill, is_oom_daemon, is_sent_by_process
from harness.diagnose.words import cut_words
from harness.documents.verdict import Ground, Hypothesis
from harness.evidence.memory import GroupKills, GroupMemory
from harness.evidence.run import KernelLine, Process

_GIB = 1024**3
_SLACK = 0.05  # what it may have grown after it was last seen, and is not worth a word
# mm/oom_kill.c; earlyoom's kill.c (the uid came with 1.7); xnu's kern_memorystatus.c; our own words for a JetsamEvent.
VICTIM = re.compile(
    r"oom-kill:.*\bpid=(?P<kernel>\d{1,9})|Killed process (?P<killed>\d{1,9})"
    r"|sending SIG(?:TERM|KILL) to process (?P<earlyoom>\d{1,9})"
    r"|memorystatus: killing[^\[\]]* pid (?P<specific>\d{1,9}) \[|memorystatus: killing .*\[(?P<largest>\d{1,9})\]"
    r"|JetsamEvent: killed .*\[(?P<jetsam>\d{1,9})\]"
)
_MEMCG = re.compile(r"constraint=CONSTRAINT_MEMCG.*\boom_memcg=(?P<path>[^,]+)")
# systemd-oomd kills control groups, not processes.
_GROUP = re.compile(r"(?:^|: )Killed (?P<path>/\S+) due to memory|(?P<unit>\S+): systemd-oomd killed \d+ process")


def find_oom(reading: Reading) -> Finding | None:
    for line in reading.evidence.kernel:
        named = name_victim(line)
        if named is not None and (reading.is_log or named == reading.culprit.pid):
            ground = Ground(f"{_who(line)}: {cut_words(line.text, 160)}", line.source)
            return Finding("established", f"pid {named}{_tell_limit(line)}", (ground,), {})
        if not reading.is_log and _names_group(line, reading):
            return Finding(
                "established", f"pid {reading.culprit.pid}", (Ground(cut_words(line.text, 160), line.source),), {}
            )
    kill = find_kill(reading)
    if is_oom_daemon(kill) and kill is not None:
        ground = Ground(f"{kill.signame} was sent by the OOM daemon {kill.sender}", kill.source)
        return Finding("established", f"pid {kill.pid}, by {(kill.sender or '').split(' ')[0]}", (ground,), {})
    return _find_count(reading)


def name_victim(line: KernelLine) -> int | None:
    named = VICTIM.search(line.text)
    return next(int(pid) for pid in named.groups() if pid) if named else None


def _tell_limit(line: KernelLine) -> str:
    """Whose memory it was: a control group's, or the machine's."""
    if group := _MEMCG.search(line.text):
        return f": the limit of control group {group['path']} was met"
    return ": the machine had none left" if "constraint=CONSTRAINT_NONE" in line.text else ""


def _who(line: KernelLine) -> str:
    return "earlyoom" if "sending SIG" in line.text else "kernel"


def _names_group(line: KernelLine, reading: Reading) -> bool:
    """The very group that the culprit was in, or one above it."""
    named = _GROUP.search(line.text)
    if named is None or reading.signame != "SIGKILL":
        return False
    if named["path"]:
        return any(group.endswith(named["path"]) for group in _groups_of(reading))
    return any(named["unit"] in group.split("/") for group in _groups_of(reading))


def _groups_of(reading: Reading) -> tuple[str, ...]:
    timeline = reading.evidence.timeline
    own = (process for process in timeline.processes if process.pid == reading.culprit.pid) if timeline else ()
    return next((process.groups for process in own), ())


def _find_count(reading: Reading) -> Finding | None:
    """A counter that rose when the culprit died of SIGKILL, and that nobody else's death explains."""
    kill = find_kill(reading)
    if reading.signame != "SIGKILL" or reading.is_log or is_sent_by_process(reading):
        return None
    for group, rise in rises_at_death(reading):
        if _others_named(reading) >= rise.kills:
            return None
        ground = Ground(f"oom_kill rose by {rise.kills} when it died", group.path)
        detail = f"pid {reading.culprit.pid}"
        if group.others == 0 or kill is not None:
            return Finding("established", detail, (ground,), {})
        against = "other processes share that control group, and no kernel line says which one was killed"
        return Finding("supported", detail, (ground,), {}, (against,))
    return None


def rises_at_death(reading: Reading) -> list[tuple[GroupMemory, GroupKills]]:
    timeline = reading.evidence.timeline
    if timeline is None:
        return []
    chain = set(_groups_of(reading)) or {group.path for group in timeline.groups}
    return [
        (group, rise)
        for group in timeline.groups
        if group.path in chain
        for rise in group.oom_kills
        if reading.culprit.pid in _victims(rise, reading) and not _lived_on_after(rise, reading)
    ]


def _lived_on_after(rise: GroupKills, reading: Reading) -> bool:
    """It still had its memory when the counter had risen, and later: what was killed gives it up."""
    timeline = reading.evidence.timeline
    own = next((one for one in timeline.processes if one.pid == reading.culprit.pid), None) if timeline else None
    course = list(zip(own.rss_bytes.times_s, own.rss_bytes.values, strict=True)) if own else []
    then = [value for at_s, value in course if at_s <= rise.at_s]
    later = [value for at_s, value in course if at_s > rise.at_s]
    return bool(then and later) and max(later) >= then[-1] > 0


def _victims(rise: GroupKills, reading: Reading) -> list[int]:
    """Those that a rise can be about: the first that SIGKILL ended after the counter was last seen lower.

    However long the kernel takes to free their memory, they end after it has counted them.
    """
    killed = [
        process
        for process in reading.evidence.processes
        if process.ended_s is not None
        and process.ended_s >= rise.after_s
        and process.ending is not None
        and process.ending.signame == "SIGKILL"
    ]
    return [process.pid for process in sorted(killed, key=lambda one: one.ended_s or 0.0)[: rise.kills]]


def list_other_victims(reading: Reading) -> list[Process]:
    """Processes of the command, other than the one that is told of, that the kernel says it killed for memory."""
    named = {name_victim(line) for line in reading.evidence.kernel} - {None, reading.culprit.pid}
    return [
        process
        for process in reading.evidence.processes
        if process.pid in named and process.ending is not None and process.ending.signame == "SIGKILL"
    ]


def _others_named(reading: Reading) -> int:
    """How many others the kernel's lines name as killed for memory."""
    named = {name_victim(line) for line in reading.evidence.kernel}
    return len(named - {None, reading.culprit.pid})


def weigh_oom(kind: str, finding: Finding, reading: Reading) -> Hypothesis | None:
    if kind == "oom-kill":
        return Hypothesis("oom-kill", "supported", finding.grounds[0].fact)
    kill, peak = find_kill(reading), tell_peak(reading)
    if kill is not None and is_sent_by_process(reading):
        because = f"{kill.signame} was sent by {describe_sender(kill, reading)}, not by the kernel{peak}"
        return Hypothesis("oom-kill", "ruled-out", because)
    if others := list_other_victims(reading):
        because = f"process {others[0].pid} of the command was; that it ended because of that was not seen"
        return Hypothesis("oom-kill", "open", because)
    if reading.signame is None:
        return Hypothesis("oom-kill", "ruled-out", f"it ended by itself; the OOM killer sends SIGKILL{peak}")
    if reading.signame not in ("SIGKILL", "SIGTERM"):
        return Hypothesis("oom-kill", "ruled-out", f"it died of {reading.signame}, not of SIGKILL{peak}")
    return _weigh_silence(reading, peak)


def _weigh_silence(reading: Reading, peak: str) -> Hypothesis:
    """Nobody names it. Whether that rules it out depends on who could be asked."""
    evidence = reading.evidence
    wanted = ("OOM daemons",) if reading.signame == "SIGTERM" else ("kernel log", "OOM kill counters")
    blind = [gap.what for gap in evidence.gaps if gap.what in wanted]
    if reading.signame == "SIGTERM":
        if blind:
            because = f"the kernel sends SIGKILL, but earlyoom sends SIGTERM first, and could not be asked{peak}"
            return Hypothesis("oom-kill", "open", because)
        because = f"it died of SIGTERM, not of SIGKILL, and no OOM daemon names it{peak}"
        return Hypothesis("oom-kill", "ruled-out", because)
    if evidence.room is not None and evidence.room.oom_kills_machine == 0:
        because = f"nobody on this machine was killed for memory during the run (/proc/vmstat){peak}"
        return Hypothesis("oom-kill", "ruled-out", because)
    if others := _others_named(reading):
        because = (
            f"the kernel killed {others} other process{'es' * (others != 1)} for memory meanwhile, not this one{peak}"
        )
        return Hypothesis("oom-kill", "ruled-out", because)
    if evidence.oom_kills is None or blind:
        return Hypothesis("oom-kill", "open", f"could not look at: {', '.join(blind) or 'OOM kill counters'}{peak}")
    if rose := sum(count.kills for count in evidence.oom_kills):
        because = f"its control groups counted {rose} OOM kills during the run, but none when it died{peak}"
        return Hypothesis("oom-kill", "ruled-out", because)
    return Hypothesis("oom-kill", "ruled-out", f"no oom_kill event in its control groups, no kernel line{peak}")


def tell_peak(reading: Reading) -> str:
    """Measured, never guessed: what the culprit itself had at most, and of what."""
    peak = peak_of(reading)
    memory = reading.evidence.memory
    limit = memory.limit_bytes or memory.machine_bytes
    if peak is None or limit is None:
        return ""
    most = _most_of(reading)
    bound = f" (at most {most / _GIB:.2f})" if most is not None and most > (1 + _SLACK) * peak else ""
    return f"; peak memory {peak / _GIB:.2f}{bound} of {limit / _GIB:.1f} GiB"


def _most_of(reading: Reading) -> int | None:
    """The number that the kernel has for it and all that it had collected: its own peak is not above that."""
    timeline = reading.evidence.timeline
    own = (process for process in timeline.processes if process.pid == reading.culprit.pid) if timeline else ()
    return next((process.most_rss_bytes for process in own), None)


def peak_of(reading: Reading) -> int | None:
    evidence, pid = reading.evidence, reading.culprit.pid
    peaks = [process.peak_rss_bytes for process in evidence.processes if process.pid == pid]
    if evidence.timeline is not None:
        peaks += [process.peak_rss_bytes for process in evidence.timeline.processes if process.pid == pid]
    return max((peak for peak in peaks if peak), default=None)
