"""One command under supervision, from its start to its case: what `harness run` and every arm of `harness repro` share.

What judges and reports is imported only when there is something to report: a command that ends well costs little.
Prints nothing of the verdict.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness import native
from harness.capture.cores.limits import CoreLimit, Wish
from harness.capture.crash.crash_link import STEPS_ENOUGH, Link, was_refused
from harness.capture.machine.killers import Killers
from harness.capture.machine.refusals import REFUSED, explain
from harness.capture.run.arrivals import Arrivals, Given
from harness.capture.run.channels import Channel, Holder, open_channels, say, settle
from harness.capture.run.injection import link_variables, why_not
from harness.capture.run.launch import TELL, open_processes, spawn
from harness.capture.run.supervisor import Supervisor, outlive, shell_status
from harness.errors import NotSupervised
from harness.evidence import case as cases

if TYPE_CHECKING:
    from harness.capture.run.gathered.collected_cores import Collected
    from harness.documents.verdict import Document
    from harness.evidence.run import Evidence

# After a failure, what outlives the command (a resource tracker) gets this long for its last words.
_LAST_WORDS_S = 0.3


class Job(NamedTuple):
    """A command to supervise. `closed`: which of 0, 1, 2 lead nowhere; its output is then in the case only."""

    argv: list[str]
    path: str
    case: Path
    started_ns: int
    closed: frozenset[int]
    inject: str = "auto"
    core: Wish = "auto"
    ignores_quit: bool = False


class Supervised(NamedTuple):
    """A command that has ended, before anything of it was thought about. `no_link`: why there was no crash link."""

    status: int
    job: Job
    supervisor: Supervisor
    limit: CoreLimit
    no_link: str | None

    def gather(self) -> Evidence:
        import msgspec

        from harness.capture.run.gathered.collected_cores import add_crashes
        from harness.capture.run.gathered.evidence import gather
        from harness.evidence.text.kept_output import redact_output
        from harness.evidence.text.redaction import redact, redact_argv

        for argv in (self.job.argv, *(member.argv for member in self.supervisor.tree.members.values())):
            redact_argv(argv)  # what they give away may be in the output
        redact_output(self.job.case, self.supervisor.channels)
        evidence, found = gather(self.supervisor, self.job.argv, self.no_link), self._collect_cores()
        crashes = add_crashes(evidence.crashes, found.crashes)
        gaps = (*evidence.gaps, *found.gaps)
        facts = redact(msgspec.structs.replace(evidence, cores=found.cores, crashes=crashes, gaps=gaps))
        return self._add_output(facts)

    def _add_output(self, evidence: Evidence) -> Evidence:
        """As whoever loads the case will read it."""
        import msgspec

        from harness.errors import Unreadable
        from harness.evidence.gap import Gap
        from harness.evidence.text.kept_output import read_output
        from harness.evidence.text.redaction import is_on

        names = [channel.name for channel in evidence.channels]
        try:
            transcripts = read_output(self.job.case, names, self.job.started_ns, is_redacted=is_on())
        except Unreadable as error:
            gaps = (*evidence.gaps, Gap("what the command printed", str(error)))
            return msgspec.structs.replace(evidence, gaps=gaps)
        return msgspec.structs.replace(evidence, transcripts=transcripts)

    def _collect_cores(self) -> Collected:
        from harness.capture.run.gathered.collected_cores import collect_cores
        from harness.capture.stacks.tools import broke_down

        reports = self.supervisor.link.list_reports() if self.supervisor.link else []
        return collect_cores(
            self.supervisor.tree,
            self.limit,
            self.job.case,
            seen=frozenset(report.record.pid for report in reports if report.seen.step in STEPS_ENOUGH),
            reported=frozenset(report.record.pid for report in reports),
            broken=frozenset(
                report.record.pid for report in reports if any(broke_down(tool) for tool in report.seen.tools)
            ),
        )

    def drop_cores(self) -> None:
        """Those of a command that ended well: they go with the case."""
        if self.supervisor.has_cores():
            self._collect_cores()

    def let_go(self) -> None:
        """Returns when the command is gone. What outlives it has the limit it would have had: nobody takes its core."""
        for member in self.supervisor.tree.members.values():
            if member.ended_s is None:
                self.limit.put_back(member.pid)
        self.supervisor.collect()


def supervise(
    job: Job, prepare: Callable[[Supervisor], None], tell: Callable[[int | None], None] = lambda status: None
) -> Supervised:
    """Runs a command to its end. `prepare` is called as soon as it runs. Not started: the case is removed.

    `tell` is called when it has started, and with its status, whatever happens to us: a bug of ours included.
    """
    arrivals: Arrivals | None = None
    channels: list[Channel] = []
    holder: Holder | None = None
    killers = Killers(job.started_ns)
    try:
        channels = open_channels(job.closed)
        for channel in channels:
            channel.begin(job.case)
        holder = Holder(channels, job.case)
        arrivals, processes_fd = Arrivals(job.argv), open_processes()
        limit = CoreLimit(job.core)
        link, variables, no_link = _open_link(job, limit)
        killers.open()  # what is sent while the command starts is told as well
        if link and killers.fd is None:
            variables[TELL] = "1"
        given = arrivals.given
        if job.ignores_quit:
            given = Given(given.ignored | {signal.SIGQUIT}, given.blocked)
        with limit.applied():
            pid = spawn(job.path, job.argv, channels, variables, given)
    except BaseException as error:
        for channel in channels:
            channel.abandon()
        if holder is not None:
            holder.abandon()
        killers.close()
        if arrivals is not None:
            arrivals.close()
            if signal.SIGCHLD in arrivals.given.ignored:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        native.load()[1].harness_adopt_orphans(0)
        cases.remove_case(job.case)
        if isinstance(error, REFUSED):
            words = f"Nothing can be put beside the command: {explain(error)}."
            raise NotSupervised(words, hint="harness doctor") from error
        raise
    supervisor: Supervisor | None = None
    tell(None)
    try:
        supervisor = Supervisor(pid, channels, job.case, job.started_ns, arrivals, processes_fd, link, holder, killers)
        prepare(supervisor)
        status = supervisor.follow()
    except BaseException:
        known = supervisor.main.wait_status if supervisor else None
        tell(outlive(pid, arrivals) if known is None else shell_status(known))
        raise
    tell(status)
    refusals = supervisor.refusals
    with refusals.without("the end of a look"):
        supervisor.end_look()
    with refusals.without("the end of the command's stand-in"):
        arrivals.close()
    with refusals.without("whether all of the output was delivered"):
        settle(channels, at_least_s=_LAST_WORDS_S if status and supervisor.is_collected else 0.0)
    if link:
        link.close()
    return Supervised(status, job, supervisor, limit, no_link)


def _open_link(job: Job, limit: CoreLimit) -> tuple[Link | None, dict[str, str], str | None]:
    """The link and the variables that lead to it, or why there is none."""
    if job.inject == "none":
        return None, {}, "--inject none was asked for"
    if trouble := why_not(job.path):
        return None, {}, trouble
    try:
        link = Link(_list_words(), limit.put_back)
        variables = link_variables(link.path, job.inject)
    except REFUSED as error:
        trouble = f"a crash could not be told to harness: {explain(error)}"
        say(f"There is no place for the crash link, so {trouble}.")
        return None, {}, trouble
    given = os.environ.get("TMPDIR")
    if given and was_refused(Path(given), link.path):
        say(f"TMPDIR={given} cannot be used; what is needed for a crash is in {link.directory.parent}.")
    return link, variables, None


def _list_words() -> Iterator[str]:
    """What judges and reports; in the time in which the command is busy, so that the answer to a crash is not late."""
    import pkgutil

    import harness.diagnose

    yield "harness.capture.run.gathered.collected_cores"
    yield "harness.capture.run.gathered.evidence"
    yield from (module.name for module in pkgutil.walk_packages(harness.diagnose.__path__, "harness.diagnose."))
    yield "harness.report.text"


def judge_case(evidence: Evidence, case: Path) -> Document:
    """What the case says, and nothing else: now, and when its evidence is loaded again (`load_evidence`)."""
    import msgspec

    from harness.diagnose.death.judge import judge
    from harness.diagnose.stalled_end import add_cause, was_ended_for_stall
    from harness.errors import BadCase
    from harness.evidence.gap import Gap
    from harness.evidence.text.undecoded import mark_bytes

    document = judge(evidence, mark_bytes(str(case)))
    if not was_ended_for_stall(evidence, document):
        return document
    try:
        stall = load_stall(case)
    except BadCase as error:
        return msgspec.structs.replace(document, gaps=(*document.gaps, Gap("why it stood still", str(error))))
    return document if stall is None else add_cause(document, stall)


def load_stall(case: Path) -> Document | None:
    """The last verdict on a command that stood still. Null: the look failed, or could not be kept; it was said then."""
    from harness.documents.verdict import Document
    from harness.evidence.kept_case import list_kept, load_fact

    stalls = list_kept(case, "stall")
    return load_fact(stalls[-1], Document) if stalls else None


def keep_case(case: Path, evidence: Evidence, document: Document, argv: list[str], started_ns: int) -> bool:
    """Writes the case. A full disk costs the case, never the report."""
    import msgspec

    from harness.evidence.text.undecoded import encode_document
    from harness.report.text import render

    try:
        facts = msgspec.structs.replace(evidence, transcripts=())  # they are the kept files themselves
        cases.write_file(case / "evidence.json", encode_document(facts))
        cases.write_file(case / "verdict.json", encode_document(document))
        cases.write_file(case / "report.txt", render(document, width=110, color=False).encode())
        cases.mark_case(case, argv, started_ns, complete=True)
        cases.prune_cases(case.parent, case)
    except OSError as error:
        say(f"The case could not be kept in {case}: {error.strerror}. The report follows. To make room: df {case}")
        return False
    return True
