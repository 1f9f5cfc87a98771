"""What a POSIX shell can see of processes where there is no Python to ask: states, CPU time, system calls, streams.

Everything from /proc by cat and readlink; nothing is sent there and nothing stopped. No stacks, no memory, no locks.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence

from harness.capture.machine.syscalls import CALLS
from harness.capture.proc import Stat, parse_stat
from harness.capture.remote.session import Session
from harness.errors import HarnessError, Unreadable
from harness.evidence.gap import Gap
from harness.evidence.living.look import Counter, LivingProcess, LivingThread, Look, Output, Wait
from harness.evidence.text.numbers import find_number
from harness.version import __version__

_BESIDES_S = 30.0
_UPTIME = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")
_KINDS = {"pipe:": "pipe", "socket:": "socket", "/dev/null": "null", "/dev/pts/": "tty", "/dev/tty": "tty"}
# Samples a second apart; "p FILE" is followed by what is in it, a line each. The last also says what is waited for.
_SCRIPT = (
    'p() {{ echo "$t p $i $1"; cat "$1" 2>/dev/null | while IFS= read -r x || test -n "$x"; do echo "$t l $x"; done; }}'
    '; echo "$t b 0 $(cat /proc/uptime)"; '
    "i=0; while test $i -lt {samples}; do for k in {pids}; do "
    "for f in /proc/$k/stat /proc/$k/io /proc/$k/task/*/stat; do p $f; done; done; "
    "i=$((i + 1)); test $i -lt {samples} && sleep 1; done; "
    "for k in {pids}; do for f in /proc/$k/task/*/wchan /proc/$k/task/*/syscall; do p $f; done; "
    'for f in 0 1 2; do echo "$t f $k $f $(readlink /proc/$k/fd/$f 2>/dev/null)"; done; '
    'echo "$t c $k $(tr "\\000" " " </proc/$k/cmdline 2>/dev/null)"; '
    'echo "$t e $k $(readlink /proc/$k/exe 2>/dev/null)"; done'
)


def take_shell_look(session: Session, pids: Sequence[int], for_s: float) -> Look:
    """HarnessError: it is no Linux, or none of the processes is there."""
    session.check_system()
    machine = session.facts.machine
    begun = time.monotonic()
    samples = max(2, round(for_s) + 1)
    script = _SCRIPT.format(samples=samples, pids=" ".join(map(str, pids)))
    told = ShellLook(session.run_shell(script, begun + for_s + _BESIDES_S), samples)
    processes = told.describe(pids, machine)
    if not processes:
        raise HarnessError(f"There is no process {pids[0]}.", hint="harness ps")
    return Look(
        harness=__version__,
        platform=f"linux-{machine}",
        started=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        looked_s=round(time.monotonic() - begun, 2),
        samples=told.samples,
        targets=tuple(process.pid for process in processes),
        processes=processes,
        gaps=_list_gaps(session),
    )


def _list_gaps(session: Session) -> tuple[Gap, ...]:
    old = f"; {session.facts.unfit}" if session.facts.unfit else ""
    why = f"{session.name} has no python3 that could be asked{old}: only /proc was read, by its shell"
    fix = "install python3 over there; or: py-spy dump --pid PID, there"
    return (Gap("stacks, locks, output not flushed, OpenMP", why, fix),)


class ShellLook:
    """What the shell has printed, by file and sample. Reading it takes time for its lines, not for numbers in them."""

    def __init__(self, lines: Sequence[str], most_samples: int) -> None:
        """`most_samples`: how many were asked for."""
        self.samples = 0
        self._files: dict[str, dict[int, list[str]]] = {}
        self._facts: dict[str, str] = {}
        current: list[str] = []
        for line in lines:
            kind, _, rest = line.partition(" ")
            if kind == "p":
                number, _, path = rest.partition(" ")
                at = min(find_number(number) or 0, most_samples)
                self.samples = max(self.samples, at)
                current = self._files.setdefault(path, {}).setdefault(at, [])
            elif kind == "l":
                current.append(rest)
            elif kind in ("f", "c", "e", "b"):
                key, _, value = rest.partition(" ")
                if kind == "f":
                    number, _, value = value.partition(" ")
                    key = f"{key} {number}"
                self._facts[f"{kind} {key}"] = value

    @property
    def uptime_s(self) -> float:
        return float((_UPTIME.match(self.fact("b 0")) or "0")[0])

    def fact(self, name: str) -> str:
        return self._facts.get(name, "")

    def tids(self, pid: int) -> list[int]:
        prefix = f"/proc/{pid}/task/"
        found = {path[len(prefix) :].partition("/")[0] for path in self._files if path.startswith(prefix)}
        return sorted({tid for tid in map(find_number, found) if tid})

    def stats(self, pid: int, tid: int | None = None) -> list[Stat]:
        path = f"/proc/{pid}/task/{tid}/stat" if tid else f"/proc/{pid}/stat"
        return list(_parse(["\n".join(lines) for at, lines in self._of(path) if at < self.samples]))

    def last(self, path: str) -> list[str]:
        return self._files.get(path, {}).get(self.samples, [])

    def _of(self, path: str) -> list[tuple[int, list[str]]]:
        return sorted(self._files.get(path, {}).items())

    def written(self, pid: int) -> list[tuple[float, int]]:
        seen = []
        for at, lines in self._of(f"/proc/{pid}/io"):
            words = " ".join(lines).split()
            if at < self.samples and len(words) > 3 and (written := find_number(words[3])) is not None:
                seen.append((float(at), written))
        return seen

    def describe(self, pids: Sequence[int], machine: str) -> tuple[LivingProcess, ...]:
        return tuple(_describe(self, pid, machine) for pid in pids if self.stats(pid) and self.stats(pid, pid))


def _parse(texts: Sequence[str]) -> Iterator[Stat]:
    for text in texts:
        with contextlib.suppress(Unreadable):  # it has ended, or the line is no such line
            yield parse_stat(text)


def _describe(told: ShellLook, pid: int, machine: str) -> LivingProcess:
    first, last = told.stats(pid)[0], told.stats(pid)[-1]
    exe, seen = told.fact(f"e {pid}"), told.written(pid)
    counter = Counter("io", "bytes written", tuple(at for at, _ in seen), tuple(value for _, value in seen))
    return LivingProcess(
        pid=pid,
        ppid=last.ppid,
        name=last.name,
        argv=tuple(told.fact(f"c {pid}").split()),
        executable=exe or None,
        python="unknown" if "python" in exe.rpartition("/")[2] else None,
        state=last.state,
        age_s=round(max(0.0, told.uptime_s - last.started_s), 1),
        rss_bytes=last.rss_bytes,
        major_faults=max(0, last.major_faults - first.major_faults),
        kernel_s=round(max(0.0, last.kernel_s - first.kernel_s), 3),
        threads=tuple(_describe_thread(told, pid, tid, machine) for tid in told.tids(pid) if told.stats(pid, tid)),
        counters=(counter,) if seen else (),
        outputs=tuple(_describe_output(fd, told.fact(f"f {pid} {fd}")) for fd in range(3)),
    )


def _describe_thread(told: ShellLook, pid: int, tid: int, machine: str) -> LivingThread:
    stats = told.stats(pid, tid)
    cpu_s = stats[-1].cpu_s - stats[0].cpu_s
    return LivingThread(
        tid=tid,
        name=stats[-1].name,
        state=stats[-1].state,
        cpu_s=round(max(0.0, cpu_s), 3),
        stack=(),
        changed=cpu_s > 0,
        wait=_describe_wait(told, f"/proc/{pid}/task/{tid}", machine),
    )


def _describe_wait(told: ShellLook, task: str, machine: str) -> Wait | None:
    wchan = "".join(told.last(f"{task}/wchan")).strip()
    words = " ".join(told.last(f"{task}/syscall")).split()
    if words[:1] == ["running"] or (not words and wchan in ("", "0")):
        return None
    known = CALLS.get(machine, {}).get(find_number(words[0]) or -1) if words else None
    return Wait(known[0] if known else None, tuple(words[1:7]), wchan=wchan if wchan not in ("", "0") else None)


def _describe_output(fd: int, path: str) -> Output:
    if not path:
        return Output(fd, "closed", None)
    kind = next((kind for start, kind in _KINDS.items() if path.startswith(start)), "file")
    return Output(fd, kind, path)  # type: ignore[arg-type]
