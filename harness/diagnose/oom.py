"""Was it killed for lack of memory? Only on the word of the kernel, a control group, an OOM daemon or jetsam.

High memory is no proof, and neither is a kill of somebody else in the same group. Pure.
"""

from __future__ import annotations

import re

from harness.diagnose.killers import describe_sender, find_kill, is_oom_daemon, is_sent_by_process
from harness.diagnose.matching import Finding
from harness.diagnose.reading import Reading
from harness.diagnose.verdict import Ground, Hypothesis
from harness.evidence.memory import GroupKills, GroupMemory
from harness.evidence.model import KernelLine

_GIB = 1024**3
# The counter is read when a process ends, and at each sample: a rise that belongs to this death is close to it.
_SAME_MOMENT_S = 1.0
# mm/oom_kill.c; earlyoom's kill.c (the uid came with 1.7); xnu's kern_memorystatus.c; our own words for a JetsamEvent.
VICTIM = re.compile(
    r"oom-kill:.*\bpid=(?P<kernel>\d+)|Killed process (?P<killed>\d+)"
    r"|sending SIG(?:TERM|KILL) to process (?P<earlyoom>\d+)"
    r"|memorystatus: killing[^\[\]]* pid (?P<specific>\d+) \[|memorystatus: killing .*\[(?P<largest>\d+)\]"
    r"|JetsamEvent: killed .*\[(?P<jetsam>\d+)\]"
)
_MEMCG = re.compile(r"constraint=CONSTRAINT_MEMCG.*\boom_memcg=(?P<path>[^,]+)")
# systemd-oomd kills control groups, not processes.
_GROUP = re.compile(r"(?:^|: )Killed (?P<path>/\S+) due to memory|(?P<unit>\S+): systemd-oomd killed \d+ process")


def find_oom(reading: Reading) -> Finding | None:
    for line in reading.evidence.kernel:
        named = name_victim(line)
        if named is not None and (reading.is_log or named == reading.culprit.pid):
            ground = Ground(f"{_who(line)}: {line.text[:160]}", line.source)
            return Finding("established", f"pid {named}{_tell_limit(line)}", (ground,), {})
        if not reading.is_log and _names_group(line, reading):
            return Finding("established", f"pid {reading.culprit.pid}", (Ground(line.text[:160], line.source),), {})
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
    timeline, ended_s = reading.evidence.timeline, reading.culprit.ended_s
    if timeline is None or ended_s is None:
        return []
    chain = set(_groups_of(reading)) or {group.path for group in timeline.groups}
    return [
        (group, rise)
        for group in timeline.groups
        if group.path in chain
        for rise in group.oom_kills
        if rise.after_s - _SAME_MOMENT_S <= ended_s <= rise.at_s + _SAME_MOMENT_S
    ]


def _others_named(reading: Reading) -> int:
    """How many others the kernel's lines name as killed for memory."""
    named = {name_victim(line) for line in reading.evidence.kernel}
    return len(named - {None, reading.culprit.pid})


def weigh_oom(kind: str, finding: Finding, reading: Reading) -> Hypothesis | None:
    if kind == "oom-kill":
        return Hypothesis("oom-kill", "supported", finding.grounds[0].fact)
    if reading.signame is None:
        return Hypothesis(
            "oom-kill", "ruled-out", f"it ended by itself; the OOM killer sends SIGKILL{tell_peak(reading)}"
        )
    kill, peak = find_kill(reading), tell_peak(reading)
    if kill is not None and is_sent_by_process(reading):
        because = f"{kill.signame} was sent by {describe_sender(kill, reading)}, not by the kernel{peak}"
        return Hypothesis("oom-kill", "ruled-out", because)
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
    return "" if peak is None or limit is None else f"; peak memory {peak / _GIB:.2f} of {limit / _GIB:.1f} GiB"


def peak_of(reading: Reading) -> int | None:
    evidence, pid = reading.evidence, reading.culprit.pid
    peaks = [process.peak_rss_bytes for process in evidence.processes if process.pid == pid]
    if evidence.timeline is not None:
        peaks += [process.peak_rss_bytes for process in evidence.timeline.processes if process.pid == pid]
    return max((peak for peak in peaks if peak), default=None)
