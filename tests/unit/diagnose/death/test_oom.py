"""Killed for memory, or not: every proof, its near-miss, and what the report says when there is none."""

from __future__ import annotations

import signal

import pytest
from msgspec.structs import replace

from harness.capture.machine.macos_kernel_log import parse_jetsam, parse_memorystatus
from harness.diagnose.death.judge import judge
from harness.documents.verdict import Document
from harness.evidence.gap import Gap
from harness.evidence.memory import GroupKills, Room
from harness.evidence.run import Ending, KernelLine, Memory, OomCount, Process
from tests.builders.evidence import run_evidence, told
from tests.builders.timelines import GIB, GROUP, sent, timeline

KILLED, TERMINATED = Ending(signo=int(signal.SIGKILL)), Ending(signo=int(signal.SIGTERM))
AT_DEATH, LONG_BEFORE = GroupKills(9.0, 10.0, 1), GroupKills(2.0, 3.0, 1)
NO_LOG = Gap("kernel log", "denied")
# The shapes of mm/oom_kill.c, earlyoom 1.6 and 1.7, systemd-oomd, xnu.
NAMES_US = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,task=python,pid=100,uid=0",
    "Memory cgroup out of memory: Killed process 100 (python) total-vm:1kB, anon-rss:1kB",
    "Out of memory: Killed process 100 (python) total-vm:1kB",
    'sending SIGTERM to process 100 "python": badness 866, VmRSS 6000 MiB',
    'sending SIGKILL to process 100 uid 1000 "python": badness 866, VmRSS 6000 MiB',
    "memorystatus: killing largest compressed process Python [100] 20479 MB",
    "memorystatus: killing_specific_process pid 100 [Python] (per-process-limit 10) 8388608KB",
    "Killed /job due to memory used (24G) / total (24G) and swap used being more than 90.00%",
)


def killed(**facts: object) -> Document:
    return judge(run_evidence("", KILLED, **facts))


def because(document: Document) -> tuple[str, str]:
    return next((row.state, row.because) for row in document.differential if row.hypothesis == "oom-kill")


@pytest.mark.parametrize("text", NAMES_US)
def test_each_killers_own_words_prove_it(text: str) -> None:
    verdict = killed(kernel=(KernelLine(text, "log"),), timeline=timeline(GIB)).verdict
    assert (verdict.kind, verdict.status) == ("oom-kill", "established")
    assert any(text[:40] in ground.fact for ground in verdict.grounds)


@pytest.mark.parametrize("text", NAMES_US)
def test_the_same_words_about_another_process_prove_nothing(text: str) -> None:
    other = text.replace("100", "1000").replace("/job due", "/other due")
    assert killed(kernel=(KernelLine(other, "log"),), timeline=timeline(GIB)).verdict.kind == "killed"


@pytest.mark.parametrize(("pid", "state"), [(101, "open"), (900, "ruled-out")])
def test_a_worker_that_was_killed_for_memory_before_another_exception_is_told(pid: int, state: str) -> None:
    """A pool puts another worker in its place, and the parent waits in vain for what the first had to do."""
    worker = Process(101, 100, "python", ("python", "train.py"), None, 1.0, None, 5.0, KILLED)
    line = KernelLine(NAMES_US[1].replace("100", str(pid)), "log")
    document = judge(run_evidence("", Ending(exit_code=1), others=(worker,), kernel=(line,), **told("TimeoutError")))
    assert document.verdict.kind == "python-exception"
    assert because(document)[0] == state
    assert ("worker process 101 was killed for lack of memory" in document.verdict.against) is (state == "open")


def test_a_counter_that_rose_when_it_died_proves_it_where_it_was_alone_in_its_group() -> None:
    verdict = killed(timeline=timeline(GIB, kills=(AT_DEATH,))).verdict
    assert (verdict.kind, verdict.status) == ("oom-kill", "established")
    assert any(ground.source == GROUP for ground in verdict.grounds)


def test_among_others_in_the_group_the_counter_only_supports_it_and_says_what_is_missing() -> None:
    verdict = killed(timeline=timeline(GIB, kills=(AT_DEATH,), others=3), gaps=(NO_LOG,)).verdict
    assert (verdict.kind, verdict.status) == ("oom-kill", "supported")
    assert any("share that control group" in row for row in verdict.against)


def test_a_kill_of_a_sibling_is_not_ours() -> None:
    line = (KernelLine("Memory cgroup out of memory: Killed process 77 (chrome) total-vm:1kB", "/dev/kmsg"),)
    counted = (OomCount(GROUP, 1),)
    document = killed(timeline=timeline(GIB, kills=(AT_DEATH,), others=1), kernel=line, oom_kills=counted)
    assert document.verdict.kind == "killed"
    assert because(document)[0] == "ruled-out" and "other process" in because(document)[1]


def test_a_counter_that_rose_long_before_is_somebody_elses() -> None:
    document = killed(timeline=timeline(*[GIB] * 6, kills=(LONG_BEFORE,), others=1), oom_kills=(OomCount(GROUP, 1),))
    assert document.verdict.kind == "killed"
    assert because(document)[0] == "ruled-out" and "none when it died" in because(document)[1]


def test_a_known_sender_outweighs_a_counter() -> None:
    kill = (sent("SIGKILL", 77, "watchdog --strict", "kernel, signal:signal_generate"),)
    document = killed(timeline=timeline(GIB, kills=(AT_DEATH,)), kills=kill)
    assert document.verdict.kind == "killed" and "watchdog --strict" in document.verdict.headline
    assert because(document)[0] == "ruled-out" and "77" in because(document)[1]


def test_high_memory_is_no_proof() -> None:
    """INCIDENTS A, "out of memory, 80 %": almost all memory used, SIGKILL, and nobody who names it."""
    document = killed(
        timeline=timeline(20 * GIB, 23 * GIB), oom_kills=(OomCount(GROUP, 0),), memory=Memory(machine_bytes=24 * GIB)
    )
    assert document.verdict.kind == "killed"
    assert because(document) == (
        "ruled-out",
        "no oom_kill event in its control groups, no kernel line; peak memory 23.00 of 24.0 GiB",
    )


def test_a_small_guess_is_corrected_by_the_measured_peak() -> None:
    """INCIDENTS A, "not OOM, uses 5–7 GB": it had 20.1 GB, and that is what the report says, with the limit."""
    measured = int(20.1e9)
    lines = tuple(KernelLine(text, "/dev/kmsg") for text in NAMES_US[:1])
    document = killed(timeline=timeline(6 * GIB, measured, 6 * GIB), kernel=lines)
    assert document.verdict.kind == "oom-kill"
    assert document.memory is not None
    assert (document.memory.peak_bytes, document.memory.peak_s) == (measured, 1.0)
    assert (document.memory.limit_bytes, document.memory.limit) == (24 * GIB, "this machine's memory")


@pytest.mark.parametrize("gap", [NO_LOG, Gap("OOM kill counters", "no group")])
def test_what_could_not_be_looked_at_stays_open(gap: Gap) -> None:
    document = killed(timeline=timeline(GIB), oom_kills=(OomCount(GROUP, 0),), gaps=(gap,))
    assert because(document)[0] == "open" and gap.what in because(document)[1]


@pytest.mark.parametrize(("counted", "state"), [(0, "ruled-out"), (1, "open"), (None, "open")])
def test_a_machine_that_killed_nobody_rules_it_out_without_the_kernel_log(counted: int | None, state: str) -> None:
    document = killed(timeline=timeline(GIB), room=Room(oom_kills_machine=counted), gaps=(NO_LOG,))
    assert because(document)[0] == state


@pytest.mark.parametrize(
    ("sender", "kind"), [("/usr/bin/earlyoom -r 3600", "oom-kill"), ("bash earlyoom.sh", "terminated")]
)
def test_a_daemon_whose_trade_it_is_kills_for_memory(sender: str, kind: str) -> None:
    kills = (sent("SIGTERM", 55, sender),)
    verdict = judge(run_evidence("", TERMINATED, kills=kills, timeline=timeline(GIB))).verdict
    assert (verdict.kind, verdict.status) == (kind, "established")


def test_sigterm_with_a_journal_that_could_not_be_read_leaves_it_open() -> None:
    document = judge(run_evidence("", TERMINATED, gaps=(Gap("OOM daemons", "no journal"),), timeline=timeline(GIB)))
    assert document.verdict.kind == "terminated" and because(document)[0] == "open"
    document = judge(run_evidence("", TERMINATED, timeline=timeline(GIB)))
    assert because(document)[0] == "ruled-out"


def test_a_memory_error_that_was_caught_is_nothing() -> None:
    document = judge(run_evidence("MemoryError\nsurvived\n", Ending(exit_code=0), timeline=timeline(GIB)))
    assert document.verdict.kind == "clean"


MEMORYSTATUS = """\
{"eventMessage":"memorystatus: killing largest compressed process Python [4242] 20479 MB","subsystem":"com.apple.xnu"}
{"eventMessage":"something else","subsystem":"com.apple.xnu"}
not JSON
{"count":2,"finished":1}
"""
JETSAM = """{"bug_type": "298", "os_version": "macOS 26.0.1 (25A362)"}
{"memoryStatus": {"pageSize": 16384}, "largestProcess": "Python", "processes": [
 {"pid": 4242, "name": "Python", "rpages": 1310720, "reason": "vm-compressor-space-shortage"},
 {"pid": 400, "name": "Finder", "rpages": 1000}]}
"""


@pytest.mark.parametrize(("pid", "kind"), [(4242, "oom-kill"), (400, "killed")])
def test_what_macos_says(pid: int, kind: str) -> None:
    for lines in (tuple(parse_memorystatus(MEMORYSTATUS)), tuple(parse_jetsam(JETSAM, "JetsamEvent.ips"))):
        assert len(lines) == 1
        evidence = run_evidence("", KILLED, kernel=lines, oom_kills=())
        process = replace(evidence.processes[0], pid=pid)
        assert judge(replace(evidence, pid=pid, processes=(process,))).verdict.kind == kind


@pytest.mark.parametrize(
    "text", ["", "{}", '{"bug_type": "309"}\n{"processes": []}', '{"bug_type": "298"}\n[1]', JETSAM[:90]]
)
def test_other_reports_are_no_jetsam_events(text: str) -> None:
    assert list(parse_jetsam(text, "x.ips")) == []
