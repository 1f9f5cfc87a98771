"""Owns the command until it ends: passes signals on, follows its descendants, keeps the relays alive.

Says what happened, never why. It pauses no process and ends none, unless --on-stall term asks for it. Imports little:
while it loads, the command already runs, and a child that dies meanwhile would not be seen.
"""

from __future__ import annotations

import collections
import contextlib
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from harness import native
from harness.capture.crash.crash_link import FULL_LOOKS, HELD_DEADLINE_S, Link, is_ending, is_leave
from harness.capture.machine.killers import Killers
from harness.capture.machine.refusals import REFUSED, Refusals
from harness.capture.proc import read_fate
from harness.capture.run.arrivals import Arrivals, Arrived, Record, send
from harness.capture.run.channels import Channel, Holder, say
from harness.capture.run.glimpses import Glimpses
from harness.capture.run.process_tree import Member, Tree, note_cwd
from harness.capture.run.stall.clock import Standstill
from harness.capture.run.stall.forked_look import Look, Looker, Quiet
from harness.capture.run.stall.quit_key import ignores_quit, pass_quit_on
from harness.capture.usage.pressure import Pressure
from harness.capture.usage.sampler import Sampler
from harness.evidence.senders import ON_STALL_TERM

# A scan costs what it costs on this machine; it may use this share of one core, and need not be more frequent.
_SCAN_SHARE = 0.002
_FASTEST_SCAN_S = 0.005
_USUAL_SCAN_S = 0.03
# Where the kernel tells of births itself, scans only make up for news that were lost.
_RARE_SCAN_S = 1.0
_UNHEARD_S = 3.0
# Nothing is prepared for a command that is over by then.
_SHORT_LIVED_S = 1.0
_REFUSED_S = 0.01  # after a refusal, which may last: it must not keep a processor busy
_MOST_EVENTS = 256
_MOST_ENDINGS = 2000
_TWICE_S = 2.0
# After a crash was reported: how long its end is looked for, and how often.
_FALL_S = 1.0
_FALL_LOOK_S = 0.002
# Of a look: its line of work moves after all; it is stuck, or rests as a whole; neither is shown; it could not be made.
_MOVES, _STANDS, _LOOKED = 0, 10, frozenset({0, 3, 10, 11})
CRASHES = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGILL,
        signal.SIGFPE,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
    }
)
_CORE_DUMPED = 0x80  # man 2 wait, WCOREDUMP
_EXEC = -1  # native/harness.h
_STOPS = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
# What the kernel sends to us means a whole group, which has the command in it, or our own children and CPU time.
_NOT_FOR_COMMAND = _STOPS | {signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD, signal.SIGXCPU}
# A terminal that goes away tells the session leader only (Linux, __tty_hangup): without us the command.
_HANGUP = frozenset({signal.SIGHUP, signal.SIGCONT})
_MOST_ARRIVALS = 1000
# How long after Ctrl-Z it may still stop because of it, and we with it.
_STOP_S = 5.0


class Arrival(NamedTuple):
    """A signal that arrived at harness itself."""

    signo: int
    at_s: float
    sender_pid: int
    sender_uid: int
    sender: str
    passed_on: bool


def is_child(pid: int) -> bool:
    """Also one that lost its parent and came to us."""
    with contextlib.suppress(ChildProcessError, AttributeError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    return False


def shell_status(wait_status: int) -> int:
    """The exit status, or 128+N for signal N."""
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else 128 - code


def outlive(pid: int, arrivals: Arrivals) -> int:
    """All that is left of supervision after a bug of ours: signals are passed on, and the command's status comes back.

    What else it starts is nobody's concern then.
    """
    while True:
        with contextlib.suppress(*REFUSED):
            select.select([arrivals.fd], [], [], _RARE_SCAN_S)
            arrivals.read()
            for arrived in arrivals.take():
                if not arrived.shared:
                    send(pid, arrived.record)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return shell_status(status)


class Supervisor:
    """The state of one supervised run; `follow` returns when the command itself has ended."""

    def __init__(
        self,
        pid: int,
        channels: list[Channel],
        case: Path,
        started_ns: int,
        arrivals: Arrivals,
        processes_fd: int | None,
        link: Link | None,
        holder: Holder,
        killers: Killers,
    ) -> None:
        self.refusals = Refusals()
        self.channels = channels
        self.case = case
        self.signals: collections.deque[Arrival] = collections.deque(maxlen=_MOST_ARRIVALS)
        self.endings: list[Any] = []
        self._rank_failed = False
        self.lost_relays: list[tuple[Channel, int]] = []
        self._holder = holder
        self.tree = Tree(started_ns, not_ours={holder.pid, *(channel.relay_pid for channel in channels)})
        self.main = self.tree.add(pid, os.getpid())
        self.sampler = Sampler(started_ns, self.tree.not_ours)
        self.glimpses = Glimpses(self.tree)
        self._pressure = Pressure()
        self.killers, killers.members = killers, self.tree.members
        self._arrivals = arrivals
        self._stops_until = 0.0
        if arrivals.stand_in.pid is not None:
            self.tree.hide(arrivals.stand_in.pid)
        self._processes_fd = processes_fd
        self.link = link
        self._poll = select.poll()
        self._poll.register(arrivals.fd, select.POLLIN)
        if processes_fd is not None:
            self._poll.register(processes_fd, select.POLLIN)
        if link is not None:
            self._poll.register(link.fileno(), select.POLLIN)
        self._watch_exit(self.main)
        if self.killers.fd is not None:
            self._poll.register(self.killers.fd, select.POLLIN)
        self._scan_interval_s = _FASTEST_SCAN_S
        self._next_scan = time.monotonic()
        self._unheard_at: float | None = None
        self._kernel_tells = False
        self._has_work = False  # for the time in which nothing happens
        self.stalled = False
        self._looker: Looker | None = None
        self._standstill: Standstill | None = None
        self._ends_stalled = False
        self._slow = False
        self._quit_looks = False
        self._quit_at = -_TWICE_S
        self._falls_until = 0.0
        self._asked_s = 0.0
        self.is_collected = False

    def _watch_exit(self, member: Member) -> None:
        if member.pidfd is not None:
            self._poll.register(member.pidfd, select.POLLIN)

    def watch_standstill(self, look: Look, after_s: float | None, *, ends_stalled: bool, quit_looks: bool) -> None:
        """`look` runs in a process of its own, when nothing has moved for `after_s`, or on Ctrl-\\ (`quit_looks`)."""
        self._looker = Looker(look)
        self._standstill = None if after_s is None else Standstill(after_s)
        self._ends_stalled, self._quit_looks = ends_stalled, quit_looks

    def follow(self) -> int:
        """Returns the status a shell would give. Only the command's end ends it, nothing that is refused on the way."""
        self._next_scan = time.monotonic()
        while self.main.wait_status is None:
            self._try("some news of the command's processes", self._attend)
            self._try("some ends of the command's processes", self._reap)
            self._try("an early look at how it ends", self._see_fate)
            if self.main.wait_status is not None:
                break
            self._say_if_unheard()
            if self._standstill is not None and self._standstill.is_due():
                self._try("a check whether it moves", self._check_standstill)
            self._try("a quick look at Python stacks", self.glimpses.tend)
            if time.monotonic() >= self.sampler.due:
                self._try("a sample of memory", self._sample)
            if time.monotonic() >= self._next_scan:
                self._try("a scan of the process table", self._scan)
                self._next_scan = time.monotonic() + self._scan_interval_s
        if self.main.ended_s is None:
            self.tree.mark_ended(self.main, self.main.wait_status, "wait status")
        self._try("the last news of the command's processes", lambda: self._handle_events(0.0))
        self._try("the last sample of memory", self.sampler.finish)
        self._try("a quick look at Python stacks", self.glimpses.end)
        return shell_status(self.main.wait_status)

    def _try(self, what: str, step: Callable[[], object]) -> None:
        """A step that the machine refuses costs what it was for; the next round makes it again."""
        try:
            step()
        except REFUSED as error:
            self.refusals.note(what, error)
            time.sleep(_REFUSED_S)

    def _wait_s(self) -> float:
        now = time.monotonic()
        if self._has_work:
            return 0.0
        if now < self._falls_until:
            return _FALL_LOOK_S
        still = self._next_scan if self._standstill is None else self._standstill.due
        arrival = self._next_scan if self._arrivals.due is None else self._arrivals.due
        return max(0.0, min(self._next_scan, self.sampler.due, still, arrival, self.glimpses.due) - now)

    def _see_fate(self) -> None:
        """A crash that was reported need not wait for the kernel to free gigabytes, if nothing else can have a say."""
        if self.main.wait_status is not None or time.monotonic() >= self._falls_until:
            return
        status = read_fate(self.main.pid)
        if status is None:
            return
        self._scan()
        if self._living() == [self.main.pid]:
            self.sampler.note_end(self.main.pid)
            self.tree.mark_ended(self.main, status, "wait status")
        else:
            self._falls_until = 0.0

    def _sample(self) -> None:
        living = self._living()
        self.sampler.sample(living)
        for near in self._pressure.check(self.sampler, living):
            self.glimpses.take(near.pids, near.why, "memory")

    def collect(self) -> None:
        """Returns when the command is gone with all it held: memory, ports, locks."""
        if not self.is_collected:
            os.waitpid(self.main.pid, 0)

    def _living(self) -> list[int]:
        return [pid for pid, member in self.tree.members.items() if member.ended_s is None]

    def _check_standstill(self) -> None:
        if (still := self._standstill) is None:
            return
        quiet_s = still.quiet_s
        output_bytes = sum(int(channel.state.bytes_in) for channel in self.channels)
        parents = {pid: self.tree.members[pid].ppid for pid in self._living()}
        ended = {pid: one.wait_status for pid, one in self.tree.members.items() if one.ended_s is not None}
        if still.sample(parents, output_bytes, ended):
            self._slow = False
            if still.told:
                still.told = False
                say(f"It moves again, after {quiet_s:.0f} s.")
        elif still.is_over() and not still.told and self._looker is not None and self._looker.pid is None:
            self._start_look(self._looker, Quiet(quiet_s, still.stirs, still.rests, not self._slow))

    def _start_look(self, looker: Looker, quiet: Quiet | None) -> None:
        """At the command, and at those below it that lost their parents and came to us."""
        orphans = [pid for pid in self._living() if pid != self.main.pid and is_child(pid)]
        self.tree.hide(looker.start((self.main.pid, *orphans), quiet))

    def _finish_look(self, looker: Looker, wait_status: int) -> None:
        code, quiet = os.waitstatus_to_exitcode(wait_status), looker.quiet
        looker.pid = None
        if code not in _LOOKED:
            say(f"The look at the command failed, with status {code}.")
        still = self._standstill
        if quiet is None or still is None:
            return
        if code == _MOVES:
            self._slow = True
            still.restart()
            return
        self.stalled, still.told = True, still.is_over()
        if not still.told:
            say(f"It moves again, after {quiet.for_s:.0f} s.")  # while the look was being told
        elif self._ends_stalled and code != _STANDS:
            say("It is not ended: that it is stuck is not shown, nor that nothing of it moves.")
        elif self._ends_stalled:
            say(f"SIGTERM goes to pid {self.main.pid}, as --on-stall term says.")
            own = Record(signal.SIGTERM, 0, os.getpid(), os.getuid(), 0, time.monotonic_ns())
            self._note_signal(own, ON_STALL_TERM, passed_on=True)

    def end_look(self) -> None:
        """One that is under way when the command has ended."""
        if self._looker is not None:
            self._looker.end()

    def _use_idle_time(self) -> None:
        if self.link is not None and (self._has_work or self.tree.now_s() > _SHORT_LIVED_S):
            self._has_work = self.link.work()

    def _scan(self) -> None:
        begun = time.thread_time()
        found = self.tree.scan()
        for member in found:
            self._watch_exit(member)
        affordable_s = max(_USUAL_SCAN_S, (time.thread_time() - begun) / _SCAN_SHARE)
        if self._kernel_tells:
            self._scan_interval_s = max(_RARE_SCAN_S, affordable_s)
        else:
            self._scan_interval_s = _FASTEST_SCAN_S if found else min(self._scan_interval_s * 1.1, affordable_s)

    def _attend(self) -> None:
        if not self._handle_events(self._wait_s()):
            self._use_idle_time()

    def _handle_events(self, timeout_s: float) -> bool:
        """Whether there were any."""
        asked_s, self._asked_s = self._asked_s, self.tree.now_s()
        events = self._poll.poll(timeout_s * 1000)
        for fd, _ in events:
            if fd == self._arrivals.fd:
                self._arrivals.read()
            elif fd == self._processes_fd:
                self._read_processes(fd)
            elif fd == self.killers.fd:
                self.killers.read()
            elif self.link is not None and fd == self.link.fileno():
                self._take_reports(self.link)
            else:
                self._poll.unregister(fd)
                with self.refusals.without("limits and CPU time of some processes"):
                    self.sampler.note_end(self.tree.by_pidfd[fd].pid)
                self.tree.note_exit(fd, asked_s)
        self._take_signals()
        return bool(events)

    def _take_reports(self, link: Link) -> None:
        """Processes that stand still in their own death; none waits longer than its own deadline."""
        while accepted := link.accept():
            with accepted[0]:
                self._take_report(link, *accepted)

    def _take_report(self, link: Link, connection: socket.socket, pid: int) -> None:
        if pid not in self.tree.members:
            self._try("a scan of the process table", self._scan)
        record = link.receive(connection, pid) if pid in self.tree.members else None
        if record is None:
            return
        if is_leave(record):
            self.killers.note_leave(record, self.tree.now_s())
        elif is_ending(record):
            self._note_ending(record)
        else:
            self.end_look()  # it may hold the very process
            note_cwd(self.tree.members[pid])
            if pid == self.main.pid:
                self._falls_until = time.monotonic() + HELD_DEADLINE_S + _FALL_S
            for tool in link.look(record, self.tree.started_ns):
                self.tree.hide(tool)
            self._has_work = True
            self._prevent_more_cores(link)

    def _note_ending(self, record: Any) -> None:
        """Where the other ranks are when the first one fails is known only now: a launcher is about to end them."""
        if len(self.endings) < _MOST_ENDINGS or record.pid == self.main.pid:
            self.endings.append(record)
        rank = self.tree.members[record.pid].rank
        if rank is not None and not self._rank_failed:
            self._rank_failed = True
            others = [pid for pid in self._living() if self.tree.members[pid].rank not in (None, rank)]
            self.glimpses.take(others, f"rank {rank} failed")

    def _prevent_more_cores(self, link: Link) -> None:
        """In a storm the first ones tell what there is to tell; hundreds of cores would fill the disk."""
        if len(link.reports) == FULL_LOOKS:
            for pid in self._living():
                link.needs_no_core(pid)

    def _read_processes(self, fd: int) -> None:
        ffi, lib = native.load()
        events = ffi.new(f"struct harness_process[{_MOST_EVENTS}]")
        for index in range(lib.harness_processes_read(fd, events, _MOST_EVENTS)):
            event = events[index]
            self._kernel_tells = True
            if event.ppid == _EXEC:
                self.tree.note_exec(event.pid)
                if event.pid in self.tree.members:
                    self.sampler.read_limits(event.pid)
            elif not event.ppid:
                self.tree.note_status(event.pid, event.status, event.time_ns)
            elif member := self.tree.note_birth(event.pid, event.ppid, event.time_ns):
                self._watch_exit(member)

    def _take_signals(self) -> None:
        for arrived in self._arrivals.take():
            record = arrived.record
            if record.signo == signal.SIGWINCH:
                self._pass_window_size(arrived)
            elif record.signo == signal.SIGQUIT and record.code > 0 and self._quit_looks and self._looker is not None:
                self._take_quit_key(self._looker)
            else:
                self._pass_signal(arrived)
        if time.monotonic() < self._stops_until:
            self._stop_with_command()

    def _pass_window_size(self, arrived: Arrived) -> None:
        for channel in self.channels:
            channel.copy_window_size()
        if not arrived.shared or any(channel.kind == "terminal" for channel in self.channels):
            self._send(arrived.record)  # it may have asked for the size before we had set it

    def _pass_signal(self, arrived: Arrived) -> None:
        """Unless the command has got it already, as one of the group. A member of the tree does not mean itself."""
        record = arrived.record
        if record.signo in _STOPS or record.signo == signal.SIGCONT:
            self._stops_until = time.monotonic() + _STOP_S if record.signo in _STOPS else 0.0
        if arrived.shared or record.pid in self.tree.members:
            pass_on = False
        elif record.signo in _HANGUP and record.code > 0:
            pass_on = os.getsid(0) == os.getpid()
        else:
            pass_on = record.code <= 0 or record.signo not in _NOT_FOR_COMMAND
        self._note_signal(record, arrived.words, passed_on=pass_on)

    def _note_signal(self, record: Record, words: str, *, passed_on: bool) -> None:
        passed_on = passed_on and self._send(record)
        at_s = (record.time_ns - self.tree.started_ns) / 1e9
        self.signals.append(Arrival(record.signo, at_s, record.sender, record.uid, words, passed_on))
        if passed_on and record.signo == signal.SIGTERM:
            self._unheard_at = time.monotonic() + _UNHEARD_S

    def _stop_with_command(self) -> None:
        """Once it has stopped: whoever waits for us, as a shell does, is to see that. It may not want to stop.

        Only if we were told to as well: who stops the command alone will continue the command alone.
        """
        with contextlib.suppress(ChildProcessError, AttributeError):
            if os.waitid(os.P_PID, self.main.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None:
                self._stops_until = 0.0
                native.load()[1].harness_signals_stop()

    def _take_quit_key(self, looker: Looker) -> None:
        """Ctrl-\\ asks for a look; twice in a row it is meant for the job, which has got it from the terminal too."""
        now = time.monotonic()
        twice, self._quit_at = now - self._quit_at < _TWICE_S, now
        self.signals.append(Arrival(signal.SIGQUIT, self.tree.now_s(), 0, 0, "the terminal", twice))
        if not twice:
            if looker.pid is None:
                say("Looking at the command; it goes on. Ctrl-\\ again within 2 s ends it.")
                self._start_look(looker, None)
            return
        for member in self.tree.members.values():
            if member.ended_s is None and member.pidfd is not None:
                pass_quit_on(member.pid, member.pidfd)

    def _send(self, record: Record) -> bool:
        """Whether it could: the command may be another user's (sudo), or have no room in its queue."""
        if record.signo == signal.SIGQUIT and self._quit_looks and ignores_quit(self.main.pid):
            record = record._replace(signo=signal.SIGABRT)  # it would be ignored, because of us
        is_there = self.main.wait_status is None  # not collected yet, so the pid is still the command's
        return is_there and send(self.main.pid, record)

    def _say_if_unheard(self) -> None:
        if self._unheard_at is not None and time.monotonic() > self._unheard_at:
            self._unheard_at = None
            pid = self.main.pid
            say(f"SIGTERM was passed on to pid {pid}, which is still running. To end it: kill -KILL {pid}")

    @property
    def sees_births(self) -> bool:
        """Whether the kernel told of every process; else one that lived for some milliseconds may have been missed."""
        return self._kernel_tells

    def saw_crash(self) -> bool:
        """Some process of the tree died of a signal that nobody sends on purpose."""
        statuses = [member.wait_status for member in self.tree.members.values()]
        return any(status is not None and status & 0x7F in CRASHES for status in statuses)

    def has_cores(self) -> bool:
        """The kernel says that it wrote a core of some process of the tree."""
        return any((member.wait_status or 0) & _CORE_DUMPED for member in self.tree.members.values())

    def _reap(self) -> None:
        while True:
            try:
                with self.refusals.without("limits and CPU time of some processes"):
                    self._note_end()
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.main.pid:  # first of all: it is told once, and whatever comes now may be refused
                self.is_collected, self.main.wait_status = True, status
            if self.glimpses.note_exit(pid, status):
                continue
            if self._looker is not None and pid == self._looker.pid:
                self._finish_look(self._looker, status)
                continue
            if pid == self._arrivals.stand_in.pid:
                self._arrivals.stand_in.end()
                continue
            if pid == self._holder.pid:
                self._holder.start()
                self.tree.not_ours.add(self._holder.pid)
                continue
            relay = next((channel for channel in self.channels if channel.relay_pid == pid), None)
            if relay:
                self._replace_relay(relay, status)
                continue
            member = self.tree.members.get(pid) or self.tree.add(pid, os.getpid())
            self.tree.mark_ended(member, status, "wait status")
            self._note_usage(member, usage)

    def _note_usage(self, member: Member, usage: resource.struct_rusage) -> None:
        """What we had when we started the command counts as its own."""
        unit_bytes = 1 if sys.platform == "darwin" else 1024
        floor = None
        if member is self.main:
            floor = self.sampler.read_own_peak() or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes
            self.sampler.note_children(member.pid, any(one.ppid == member.pid for one in self.tree.members.values()))
        cpu_s = usage.ru_utime + usage.ru_stime
        self.sampler.note_usage(member.pid, cpu_s, usage.ru_maxrss * unit_bytes, floor)

    def _note_end(self) -> None:
        """Of the one that is collected next: until then its limits can be read."""
        if sys.platform == "linux":
            with contextlib.suppress(ChildProcessError):
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is not None and ended.si_pid in self.tree.members:
                    self.sampler.note_end(ended.si_pid)

    def _replace_relay(self, channel: Channel, status: int) -> None:
        if channel.unread:
            channel.close_source()
        if channel.state.ended:
            channel.let_go_of_sink()
            return
        self.lost_relays.append((channel, status))
        say(f"The relay of {channel.name} was killed and replaced: up to 64 KiB of the output may be lost.")
        channel.state.busy = 0
        channel.start_relay(self.case)
        self.tree.not_ours.add(channel.relay_pid)
