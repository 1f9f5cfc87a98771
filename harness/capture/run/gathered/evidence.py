"""Turns what a supervisor saw into evidence, once the command has ended and its output has been delivered.

The last step of a capture: from here on nothing looks at the machine again.
"""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness import native
from harness.capture.crash.crash_link import Link, Report, read_registers
from harness.capture.crash.snapshot import complete
from harness.capture.machine.kernel_log import count_oom_kills, read_daemon_lines, read_kernel_lines, read_memory
from harness.capture.machine.processor import read_cpu
from harness.capture.proc import read_exit
from harness.capture.run.channels import Channel
from harness.capture.run.gathered.environment import ask_interpreter, read_environment, read_scripts
from harness.capture.run.gathered.what_was_left import read_room
from harness.capture.run.process_tree import Member, Tree
from harness.capture.run.supervisor import Supervisor
from harness.capture.usage.timeline import make_timeline
from harness.evidence import run as run_facts
from harness.evidence.crash import Crash
from harness.evidence.gap import Gap
from harness.evidence.memory import Kill, Room
from harness.version import __version__

_LOOP = 1
_NO_EXIT = -1  # native/harness.h, struct harness_ending
_BY_DAEMONS = ("SIGTERM", "SIGKILL")


def gather(supervisor: Supervisor, argv: list[str], no_link: str | None) -> run_facts.Evidence:
    """Of a command that was supervised; its output is read later, from what is kept of it."""
    tree, channels = supervisor.tree, supervisor.channels
    reports = supervisor.link.list_reports() if supervisor.link else []
    for report in reports:
        supervisor.sampler.note_peak(report.record.pid, report.seen.peak_rss_bytes)
    peaks = {pid: course.peak_rss_bytes for pid, course in supervisor.sampler.processes.items()}
    processes = tuple(_process(member, peaks.get(member.pid)) for member in tree.members.values())
    cwd, cwd_gap = _read_cwd()
    kernel, kernel_gap = read_kernel_lines(set(tree.members), tree.started_ns)
    daemons, daemon_gap = _ask_daemons(processes, tree.started_ns)
    timeline, room = make_timeline(supervisor.sampler), _read_room(supervisor)
    oom_kills, oom_gap = count_oom_kills(timeline)
    python, python_gap = ask_interpreter(processes)
    glimpses, unseen = supervisor.glimpses.collect()
    supervisor.killers.read()  # what came with the end itself may not have woken anybody
    why = supervisor.killers.why_not
    sender_gap = Gap("senders of SIGKILL", why, "sudo harness run …") if why else None
    link_gap = Gap("the dying process itself", no_link, None) if no_link else None
    gaps = (
        *(Gap(what, why) for what, why in supervisor.refusals.told.items()),
        *_relay_gaps(supervisor),
        _end_gap(tree),
        *_channel_gaps(channels),
        link_gap,
        cwd_gap,
        kernel_gap,
        oom_gap,
        daemon_gap,
        sender_gap,
        python_gap,
        *_glimpse_gaps(unseen, processes),
    )
    return _describe_run(
        supervisor.main.pid,
        argv,
        reports,
        cwd=cwd,
        started=time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(time.time() - tree.now_s())),
        duration_s=supervisor.main.ended_s or tree.now_s(),
        python=python,
        processes=processes,
        uncaught=tuple(
            _uncaught(record, tree.started_ns) for record in supervisor.endings if record.status == _NO_EXIT
        ),
        exits=tuple(_exit(record, tree.started_ns) for record in supervisor.endings if record.status != _NO_EXIT),
        sees_births=supervisor.sees_births,
        signals=tuple(
            run_facts.PassedSignal(run_facts.name_signal(arrived.signo), *arrived[1:]) for arrived in supervisor.signals
        ),
        channels=tuple(_channel(channel, tree.started_ns) for channel in channels),
        kernel=(*kernel, *daemons),
        oom_kills=oom_kills,
        memory=read_memory(timeline),
        timeline=timeline,
        room=room,
        glimpses=glimpses,
        kills=tuple(Kill(run_facts.name_signal(sent.signo), *sent[1:]) for sent in supervisor.killers.sent),
        script=read_scripts(processes, cwd),
        gaps=tuple(gap for gap in gaps if gap is not None),
    )


def gather_caller(pid: int, argv: tuple[str, ...], link: Link, pidfd: int, started_ns: int) -> run_facts.Evidence:
    """Of a process that was not started by us and has asked for the crash link: `harness.enable()`."""
    status, source = read_exit(pidfd, pid)
    ending = run_facts.Ending(signo=link.reports[-1].record.signo)
    if status is not None:
        ending = run_facts.Ending.from_wait_status(status)
    ended_s = (time.monotonic_ns() - started_ns) / 1e9
    process = run_facts.Process(
        pid, 0, "python", argv, sys.executable, 0.0, None, ended_s, ending, source or "crash link"
    )
    cwd, cwd_gap = _read_cwd()
    return _describe_run(
        pid,
        argv,
        link.reports,
        cwd=cwd,
        started="",
        duration_s=ended_s,
        python=sys.version.split()[0],
        processes=(process,),
        gaps=(cwd_gap,) if cwd_gap else (),
    )


def _describe_run(pid: int, argv: Iterable[str], reports: Iterable[Report], **facts: Any) -> run_facts.Evidence:
    return run_facts.Evidence(
        harness=__version__,
        origin="run",
        argv=tuple(argv),
        pid=pid,
        platform=sysconfig.get_platform(),
        environment=read_environment(),
        crashes=tuple(map(describe_crash, reports)),
        **facts,
    )


def _end_gap(tree: Tree) -> Gap | None:
    if not tree.unseen_ends:
        return None
    what = f"how {tree.unseen_ends} of the command's processes ended"
    return Gap(what, "there were more processes than descriptors to watch them with", "ulimit -n")


def _glimpse_gaps(unseen: dict[int, str], processes: tuple[run_facts.Process, ...]) -> list[Gap]:
    """Of those that SIGKILL ended: all others tell themselves where they were."""
    killed = {process.pid for process in processes if process.ending and process.ending.signame == "SIGKILL"}
    return [Gap(f"where process {pid} was near its limit", why) for pid, why in unseen.items() if pid in killed]


def _ask_daemons(
    processes: tuple[run_facts.Process, ...], started_ns: int
) -> tuple[tuple[run_facts.KernelLine, ...], Gap | None]:
    """Only where one of them may have killed: they send SIGTERM and SIGKILL."""
    killed = {process.pid for process in processes if process.ending and process.ending.signame in _BY_DAEMONS}
    return read_daemon_lines(killed, started_ns) if killed else ((), None)


def _read_room(supervisor: Supervisor) -> Room:
    return read_room(supervisor.sampler.pids_refused, supervisor.sampler.count_machine_kills())


def _read_cwd() -> tuple[str, Gap | None]:
    try:
        return str(Path.cwd()), None
    except FileNotFoundError:
        return "", Gap("working directory", "it was deleted during the run")


def _process(member: Member, peak_rss_bytes: int | None) -> run_facts.Process:
    status = member.wait_status
    return run_facts.Process(
        pid=member.pid,
        ppid=member.ppid,
        name=member.name,
        argv=member.argv,
        executable=member.executable,
        first_seen_s=member.first_seen_s,
        rank=member.rank,
        ended_s=member.ended_s,
        ending=None if status is None else run_facts.Ending.from_wait_status(status),
        source=member.source,
        peak_rss_bytes=peak_rss_bytes or None,
        alive_s=member.alive_s if member.told_s is None else None,
        execs=member.execs,
    )


def _uncaught(record: Any, started_ns: int) -> run_facts.Uncaught:
    lines = tuple(record.lines) if record.lines[0] else ()
    return run_facts.Uncaught(record.pid, (record.time_ns - started_ns) / 1e9, _text(record.type) or "?", lines)


def _exit(record: Any, started_ns: int) -> run_facts.Exit:
    at_s = (record.time_ns - started_ns) / 1e9
    caller = _text(record.caller)
    return run_facts.Exit(record.pid, at_s, record.status & 0xFF, bool(record.finalised), _text(record.type), caller)


def _text(field: Any) -> str | None:
    ffi, _ = native.load()
    return ffi.string(field, len(field)).decode("utf-8", "replace") or None


def describe_crash(report: Report) -> Crash:
    record, seen = report.record, report.seen if report.complete else complete(report.seen)
    return Crash(
        pid=record.pid,
        tid=record.tid,
        signo=record.signo,
        si_code=record.code,
        fault_address=hex(record.address),
        pc=hex(record.pc),
        sp=hex(record.sp),
        registers={name: hex(value) for name, value in read_registers(record).items()},
        raw_frames=tuple(hex(record.frames[index]) for index in range(record.frame_count)),
        at_s=report.at_s,
        held_s=report.held_s,
        step=seen.step,
        threads=seen.threads,
        images=seen.images,
        mappings=seen.mappings,
        tools=seen.tools,
        open_files=seen.open_files,
        rss_bytes=seen.rss_bytes,
        threads_total=seen.threads_total,
        shm_free_bytes=seen.shm_free_bytes,
        packages=seen.packages,
        openmp=seen.openmp,
        loop=bool(record.flags & _LOOP),
        sender_pid=record.sender or None,
        code=report.code.hex() or None,
        cpu=read_cpu() if record.signo == signal.SIGILL else None,
        gaps=(*seen.gaps, *_link_gaps(record)),
    )


def _link_gaps(record: Any) -> list[Gap]:
    gaps = []
    if record.parked < record.threads:
        why = f"{record.threads - record.parked} of {record.threads} other threads block all signals and ran on"
        gaps.append(Gap("some other threads as they were", why))
    if record.bypassed:
        gaps.append(Gap("signals whose handler was set behind the link", "a raw system call replaced ours"))
    return gaps


def _channel(channel: Channel, started_ns: int) -> run_facts.Channel:
    state = channel.state
    return run_facts.Channel(
        name=channel.name,
        kind=channel.kind,
        bytes_in=int(state.bytes_in),
        last_output_s=(state.last_ns - started_ns) / 1e9 if state.last_ns else None,
        sink_error=os.strerror(state.sink_errno) if state.sink_errno else None,
        case_error=os.strerror(channel.case_errno) if channel.case_errno else None,
        target=channel.target,
    )


def _relay_gaps(supervisor: Supervisor) -> list[Gap]:
    gaps = []
    for channel, status in supervisor.lost_relays:
        ending = run_facts.Ending.from_wait_status(status)
        why = f"its relay process was ended by {ending.signame or ending.exit_code} and replaced"
        gaps.append(Gap(f"up to 64 KiB of {channel.name}", why))
    return gaps


def _channel_gaps(channels: list[Channel]) -> list[Gap]:
    return [
        Gap(f"{what} {channel.name}", os.strerror(number))
        for channel in channels
        for what, number in (
            ("part of the kept copy of", channel.case_errno),
            ("delivery of all of", channel.state.sink_errno),
        )
        if number
    ]
