"""Which limit said no: to memory, to threads, to files, to CPU time, to the disk. Named only where the evidence has it.

Pure. A refusal without a limit that explains it says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

from harness.diagnose.death.matching import Finding, status_of_death
from harness.diagnose.death.reading import Reading
from harness.diagnose.death.sender import find_kill, is_sent_by_process
from harness.documents.verdict import Ground
from harness.evidence.memory import FullDisk, Limit, ProcessMemory

_NEAR = 0.9
# What the kernel counts at the moment of the kill is at most a tick behind the limit.
_CPU_SLACK_S = 0.1
_DEVICE = re.compile(r"CUDA|MPS|HIP|XPU|device", re.IGNORECASE)
_ASKED = re.compile(
    r"(?:you tried to allocate|Unable to allocate|Tried to allocate|memory allocation of) "
    r"(?P<count>[\d.]+) ?(?P<unit>bytes|[KMGTPE]iB)"
)
_UNITS = {"bytes": 1, **{f"{letter}iB": 1024 ** (index + 1) for index, letter in enumerate("KMGTPE")}}
_THREADS = re.compile(r"thread", re.IGNORECASE)
_PATH = re.compile(r"'(?P<path>/[^']*)'")
_DEFAULT_STACK_BYTES = 8 << 20
_MANY_FILES = 65536


class Named(NamedTuple):
    """`words` end the headline; the ground has the numbers. `raised_by`: what to type, where that is all.

    `certain`: the numbers show that it refused; else it is what was seen nearest to its limit.
    """

    words: str
    ground: Ground
    raised_by: str | None = None
    certain: bool = True


def tell_bytes(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB" if count < 10 else f"{count:,.1f} GiB"


def name_memory_limit(finding: Finding, reading: Reading) -> Named | None:
    """Of host memory; a device has its own."""
    if _DEVICE.search(finding.detail) or reading.evidence.timeline is None:
        return None
    asked, overcommit = _asked_bytes(finding, reading), _overcommit(reading, _asked_bytes(finding, reading))
    limits = sorted(_list_user_limits(_culprit(reading)), key=lambda limit: limit.room_bytes)
    for limit in limits:
        if asked is not None and limit.room_bytes < asked:
            return _name_user_limit(limit, asked, reading, certain=True)
    if overcommit is None and limits and (asked is None or limits[0].is_near(asked)):
        return _name_user_limit(limits[0], asked, reading, certain=False)
    return overcommit or Named("", Ground(_tell_no_limit(limits, asked, reading), "limits"))


class _UserLimit(NamedTuple):
    """`used_bytes`: at most, when it was last seen; from then to the end it may have grown.

    Not what was in use at that very moment: that may be after the refusal, when much was given back.
    """

    name: str
    what: str
    option: str
    soft_bytes: int
    used_bytes: int

    @property
    def room_bytes(self) -> int:
        return self.soft_bytes - self.used_bytes

    @property
    def words(self) -> str:
        return f"{self.what} is limited to {tell_bytes(self.soft_bytes)} (ulimit {self.option})"

    def is_near(self, asked: int) -> bool:
        return self.used_bytes + asked > _NEAR * self.soft_bytes


def _list_user_limits(process: ProcessMemory) -> Iterator[_UserLimit]:
    for name, what, option, used in (
        ("RLIMIT_AS", "the address space", "-v", process.peak_vsize_bytes),
        ("RLIMIT_DATA", "data", "-d", process.data_bytes),
    ):
        if (soft := _soft(process, name)) is not None:
            yield _UserLimit(name, what, option, soft, used)


def _name_user_limit(limit: _UserLimit, asked: int | None, reading: Reading, *, certain: bool) -> Named:
    ground = Ground(f"{limit.words}; {_in_use(limit.used_bytes, reading)}{_wanted(asked)}", limit.name)
    return Named(f"; {limit.words}", ground, f"ulimit {limit.option} unlimited", certain)


def _culprit(reading: Reading) -> ProcessMemory:
    timeline = reading.evidence.timeline
    processes = timeline.processes if timeline else ()
    return next((one for one in processes if one.pid == reading.culprit.pid), ProcessMemory(0))


def _limit(process: ProcessMemory, name: str) -> Limit | None:
    return next((limit for limit in process.limits if limit.name == name), None)


def _soft(process: ProcessMemory, name: str) -> int | None:
    limit = _limit(process, name)
    return limit.soft if limit else None


def _asked_bytes(finding: Finding, reading: Reading) -> int | None:
    texts = (finding.detail, reading.chain, *(ground.fact for ground in finding.grounds))
    found = next((match for text in texts if (match := _ASKED.search(text))), None)
    return int(float(found["count"]) * _UNITS[found["unit"]]) if found else None


def _in_use(count: int, reading: Reading) -> str:
    seen_s, ended_s = _culprit(reading).rss_bytes.times_s[-1:], reading.culprit.ended_s
    before = f", {max(0.0, ended_s - seen_s[0]):.1f} s before the end" if seen_s and ended_s is not None else ""
    return f"{tell_bytes(count)} of it had been in use when last seen{before}"


def _wanted(asked: int | None) -> str:
    return "" if asked is None else f", {tell_bytes(asked)} more was asked for"


def _overcommit(reading: Reading, asked: int | None) -> Named | None:
    room, timeline = reading.evidence.room, reading.evidence.timeline
    if room is None or timeline is None:
        return None
    if room.overcommit == 2 and room.commit_limit_bytes is not None:
        words = f"the kernel promises at most {tell_bytes(room.commit_limit_bytes)} (vm.overcommit_memory=2)"
        promised = (
            "" if room.committed_bytes is None else f"; {tell_bytes(room.committed_bytes)} was promised afterwards"
        )
        return Named(f"; {words}", Ground(f"{words}{promised}{_wanted(asked)}", "/proc/meminfo"))
    whole = (timeline.machine_bytes or 0) + (timeline.swap_bytes or 0)
    if room.overcommit == 0 and asked is not None and whole and asked > whole:
        words = f"this machine has {tell_bytes(whole)} with swap, and the kernel refuses more than that at once"
        return Named(f"; {words}", Ground(f"{words} (vm.overcommit_memory=0){_wanted(asked)}", "/proc/meminfo"))
    return None


def _tell_no_limit(limits: list[_UserLimit], asked: int | None, reading: Reading) -> str:
    """One that had room when it was last seen is told with its numbers: it may have been met since."""
    room = reading.evidence.room
    mode = "" if room is None or room.overcommit is None else f", vm.overcommit_memory={room.overcommit}"
    if not _culprit(reading).limits:
        return f"its limits could not be read (ulimit -v and -d){mode}"
    if not limits:
        return f"no limit that was seen explains it: ulimit -v and -d are unlimited{mode}"
    told = "; ".join(f"{limit.words}, {_in_use(limit.used_bytes, reading)}" for limit in limits)
    return f"no limit that was seen explains it: {told}{_wanted(asked)}{mode}"


def find_cpu_limit(reading: Reading) -> Finding | None:
    return _find_warned(reading) if reading.signame == "SIGXCPU" else _find_killed(reading)


def _find_warned(reading: Reading) -> Finding | None:
    """The kernel warns with SIGXCPU at the soft limit, and anybody may send it: who did decides, else the numbers."""
    kill, process = find_kill(reading), _culprit(reading)
    detail = "CPU time (SIGXCPU; ulimit -t)"
    if is_sent_by_process(reading):
        return None
    if kill is not None:
        return Finding(status_of_death(reading), detail, (), {})
    soft = _soft(process, "RLIMIT_CPU")
    is_met = soft is not None and (process.cpu_s is None or process.cpu_s >= soft - 1 - _CPU_SLACK_S)
    if process.limits and not is_met:
        return None
    return Finding("supported", detail, (), {}, ("who sent SIGXCPU was not seen",))


def _find_killed(reading: Reading) -> Finding | None:
    """At the hard limit the kernel sends SIGKILL (`ulimit -t` sets both limits): no other trace than the numbers."""
    process = _culprit(reading)
    limit = _limit(process, "RLIMIT_CPU")
    if reading.signame != "SIGKILL" or limit is None or limit.hard is None or process.cpu_s is None:
        return None
    if process.cpu_s < limit.hard - _CPU_SLACK_S or is_sent_by_process(reading):
        return None
    words = f"{process.cpu_s:.1f} s of CPU time used of {limit.hard} s allowed (ulimit -t)"
    detail = f"CPU time ({limit.hard} s, ulimit -t; the kernel kills at the hard limit)"
    return Finding("established", detail, (Ground(words, "RLIMIT_CPU"),), {})


def name_resource_limit(finding: Finding, reading: Reading) -> Named | None:
    if reading.evidence.timeline is None:
        return None
    if reading.signame == "SIGXCPU":
        return _cpu(_culprit(reading))
    if reading.signame == "SIGXFSZ" or "[Errno 27]" in finding.detail:
        return _simple(_culprit(reading), "RLIMIT_FSIZE", "a file may have {} (ulimit -f)")
    if "[Errno 24]" in finding.detail:
        return _open_files(_culprit(reading))
    if "[Errno 28]" in finding.detail:
        return name_full_disk(finding, reading)
    return _threads(reading) if _THREADS.search(finding.detail) else None


def _cpu(process: ProcessMemory) -> Named | None:
    soft = _soft(process, "RLIMIT_CPU")
    if soft is None:
        return None
    if process.cpu_s is not None and process.cpu_s < soft:
        soft -= 1  # the kernel raises it by a second with each SIGXCPU, and this was read afterwards
    used = "" if process.cpu_s is None else f"{process.cpu_s:.1f} s of CPU time used; "
    words = f"{soft} s of CPU time are allowed (ulimit -t)"
    return Named(f"; {words}", Ground(used + words, "RLIMIT_CPU"), "ulimit -t unlimited")


def _simple(process: ProcessMemory, name: str, words: str) -> Named | None:
    soft = _soft(process, name)
    if soft is None:
        return None
    text = words.format(tell_bytes(soft))
    return Named(f"; {text}", Ground(text, name), "ulimit -f unlimited" if name == "RLIMIT_FSIZE" else None)


def _open_files(process: ProcessMemory) -> Named | None:
    soft = _soft(process, "RLIMIT_NOFILE")
    if soft is None:
        return None
    words = f"{soft} open files are allowed (ulimit -n)"
    seen = f"; {process.fds.peak} were open when most were seen" if process.fds.peak else ""
    return Named(f"; {words}", Ground(words + seen, "RLIMIT_NOFILE"), f"ulimit -n {_MANY_FILES}")


def name_full_disk(finding: Finding, reading: Reading) -> Named | None:
    """The one that the message names, else the one that the command ran in, else any that is full."""
    room = reading.evidence.room
    if room is None or not room.full_disks:
        return None
    named = [match["path"] for text in (reading.chain, finding.detail) if (match := _PATH.search(text))]
    for path in (*named, reading.evidence.cwd):
        if holder := _holder(path, room.full_disks):
            return _tell_disk(holder)
    return _tell_disk(room.full_disks[0]) if len(room.full_disks) == 1 and not named else None


def _holder(path: str, disks: tuple[FullDisk, ...]) -> FullDisk | None:
    holding = [disk for disk in disks if disk.path != "/" and PurePath(path).is_relative_to(disk.path)]
    return max(holding, key=lambda disk: len(disk.path), default=None)


def _tell_disk(disk: FullDisk) -> Named:
    what = "has no room for another file" if disk.is_inodes else "is full"
    words = f"{disk.path} ({disk.kind}, {tell_bytes(disk.total_bytes)}) {what}"
    return Named(f"; {words}", Ground(f"{words}: {tell_bytes(disk.free_bytes)} left", "statvfs"))


def _threads(reading: Reading) -> Named | None:
    """A group's count proves it; stacks that fill the address space are arithmetic; a limit of the user may be it."""
    room, process = reading.evidence.room, _culprit(reading)
    for group in room.pids_groups if room else ():
        if group.refused > 0:
            words = f"the control group allows {group.limit} processes and threads (pids.max)"
            return Named(f"; {words}", Ground(f"{words} and refused {group.refused} more", group.path))
    count, stack = process.threads.peak, _soft(process, "RLIMIT_STACK") or _DEFAULT_STACK_BYTES
    space, most = _soft(process, "RLIMIT_AS"), _soft(process, "RLIMIT_NPROC")
    if space is not None:
        words = (
            f"each thread's stack takes {tell_bytes(stack)} of an address space of {tell_bytes(space)} (ulimit -s, -v)"
        )
        seen = f"; {count} threads and {_in_use(process.peak_vsize_bytes, reading)}"
        return Named(f"; {words}", Ground(words + seen, "RLIMIT_AS, RLIMIT_STACK"))
    timeline = reading.evidence.timeline
    tree = sum(one.threads.peak for one in timeline.processes) if timeline else 0
    if most is not None and tree >= _NEAR * most:
        words = f"this user may have {most} processes and threads (ulimit -u)"
        return Named(f"; {words}", Ground(f"{words}; the command alone had {tree}", "RLIMIT_NPROC"))
    return None
