"""Which limit refused, and who sent the signal: each with its near-miss."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness.capture.run.gathered.what_was_left import read_room
from harness.diagnose.death.judge import judge
from harness.documents.verdict import Document
from harness.evidence.gap import Gap
from harness.evidence.memory import FullDisk, Kill, Limit, PidsGroup, Room, Timeline
from harness.evidence.run import Ending, OomCount, PassedSignal
from tests.builders.evidence import run_evidence
from tests.builders.timelines import GIB, course, sent, timeline

FAILED, KILLED = Ending(exit_code=1), Ending(signo=int(signal.SIGKILL))
TRACEBACK = 'Traceback (most recent call last):\n  File "/job/train.py", line 9, in load\n    x()\n'
NUMPY = "numpy._core._exceptions._ArrayMemoryError: Unable to allocate {} for an array with shape (1,)\n"


def refused(last: str, room: Room | None = None, ending: Ending = FAILED, seen: Timeline | None = None) -> Document:
    return judge(run_evidence(TRACEBACK + last, ending, room=room or Room(), timeline=seen or timeline(GIB)))


def test_the_address_space_limit_is_named_with_its_number() -> None:
    seen = timeline(GIB, limits=(Limit("RLIMIT_AS", 2 * GIB, None),), peak_vsize_bytes=GIB)
    verdict = refused("MemoryError\n", seen=seen).verdict
    assert verdict.kind == "allocation-failure"
    assert "address space is limited to 2.00 GiB (ulimit -v)" in verdict.headline
    assert any(ground.source == "RLIMIT_AS" for ground in verdict.grounds)
    assert verdict.remedies[0].do.endswith("ulimit -v unlimited") and verdict.remedies[0].safe


def test_a_limit_that_had_room_for_what_was_asked_is_not_the_one() -> None:
    seen = timeline(GIB, limits=(Limit("RLIMIT_AS", 900 * GIB, None),), peak_vsize_bytes=GIB)
    verdict = refused(NUMPY.format("8.00 GiB"), seen=seen).verdict
    assert verdict.kind == "allocation-failure" and "ulimit" not in verdict.headline
    (told,) = [ground.fact for ground in verdict.grounds if ground.source == "limits"]
    assert told.startswith(
        "no limit that was seen explains it: the address space is limited to 900.0 GiB (ulimit -v), "
    )
    assert "1.00 GiB of it had been in use when last seen, 10.0 s before the end, 8.00 GiB more was asked for" in told
    assert not any("unlimited" in remedy.do for remedy in verdict.remedies)


def test_a_limit_that_was_almost_met_when_it_was_last_seen_is_named_and_it_is_not_called_proven() -> None:
    seen = timeline(GIB, limits=(Limit("RLIMIT_AS", 2 * GIB, None),), peak_vsize_bytes=2 * GIB - (8 << 20))
    verdict = refused(NUMPY.format("1.00 MiB"), seen=seen).verdict
    assert "limited to 2.00 GiB (ulimit -v)" in verdict.headline
    assert verdict.remedies[0].why == "no other limit was seen that could refuse"
    proven = refused(NUMPY.format("9.00 MiB"), seen=seen).verdict
    assert proven.remedies[0].why == "it is what refused"


def test_limits_that_nobody_read_are_not_called_unlimited() -> None:
    (told,) = [ground.fact for ground in refused("MemoryError\n").verdict.grounds if ground.source == "limits"]
    assert told.startswith("its limits could not be read")
    open_files = timeline(GIB, limits=(Limit("RLIMIT_NOFILE", 64, 64),))
    grounds = refused("MemoryError\n", seen=open_files).verdict.grounds
    assert any("ulimit -v and -d are unlimited" in ground.fact for ground in grounds)


def test_more_than_the_machine_has_is_refused_by_the_kernels_heuristic() -> None:
    verdict = refused(NUMPY.format("8.00 TiB"), Room(overcommit=0)).verdict
    assert "this machine has 24.0 GiB with swap" in verdict.headline
    assert "this machine" not in refused(NUMPY.format("8.00 TiB"), Room(overcommit=1)).verdict.headline
    strict = Room(overcommit=2, commit_limit_bytes=12 * GIB, committed_bytes=11 * GIB)
    assert "vm.overcommit_memory=2" in refused("MemoryError\n", strict).verdict.headline


def test_data_limits_are_named_and_device_memory_has_no_ulimit() -> None:
    seen = timeline(GIB, limits=(Limit("RLIMIT_DATA", GIB, None),), data_bytes=GIB)
    assert "ulimit -d" in refused("MemoryError\n", seen=seen).verdict.headline
    cuda = refused("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB\n", seen=seen).verdict
    assert cuda.kind == "allocation-failure" and "ulimit" not in cuda.headline


THREADS = "RuntimeError: can't start new thread\n"


def test_threads_are_refused_by_the_pids_group_that_counted_it() -> None:
    group = PidsGroup("/sys/fs/cgroup/pids/job", 20, 3)
    verdict = refused(THREADS, Room(pids_groups=(group,))).verdict
    assert verdict.kind == "resource-limit" and "allows 20 processes and threads (pids.max)" in verdict.headline
    innocent = PidsGroup("/sys/fs/cgroup/pids/job", 20, 0)
    assert "pids.max" not in refused(THREADS, Room(pids_groups=(innocent,))).verdict.headline


def test_threads_whose_stacks_fill_the_address_space() -> None:
    limits = (Limit("RLIMIT_AS", GIB, None), Limit("RLIMIT_STACK", 64 << 20, None))
    verdict = refused(THREADS, seen=timeline(GIB, limits=limits, threads=course(1, 14))).verdict
    assert "each thread's stack takes 64 MiB of an address space of 1.00 GiB" in verdict.headline
    assert any("14 threads" in ground.fact for ground in verdict.grounds)


@pytest.mark.parametrize(("threads", "named"), [(99, True), (50, False)])
def test_the_users_limit_is_named_only_when_the_command_is_near_it(threads: int, named: bool) -> None:
    seen = timeline(GIB, limits=(Limit("RLIMIT_NPROC", 100, 100),), threads=course(threads))
    assert ("ulimit -u" in refused(THREADS, seen=seen).verdict.headline) == named


def test_open_files_file_size_and_cpu_time() -> None:
    seen = timeline(GIB, limits=(Limit("RLIMIT_NOFILE", 64, 64), Limit("RLIMIT_FSIZE", 4096, None)), fds=course(64))
    assert (
        "64 open files are allowed" in refused("OSError: [Errno 24] Too many open files\n", seen=seen).verdict.headline
    )
    assert "4 KiB (ulimit -f)" in refused("OSError: [Errno 27] File too large\n", seen=seen).verdict.headline
    for soft in (1, 2):  # read before and after the signal: the kernel raises it by a second
        seen = timeline(GIB, limits=(Limit("RLIMIT_CPU", soft, 9),), cpu_s=1.01)
        verdict = judge(run_evidence("", Ending(signo=int(signal.SIGXCPU)), timeline=seen)).verdict
        assert "1 s of CPU time are allowed" in verdict.headline


@pytest.mark.parametrize(
    ("soft", "used_s", "sender", "kind", "status"),
    [
        (2, 1.01, None, "resource-limit", "supported"),
        (2, 1.01, 0, "resource-limit", "established"),
        (2, 1.01, 77, "terminated", "established"),
        (60, 1.01, None, "terminated", "established"),
        (None, 1.01, None, "terminated", "established"),
    ],
)
def test_sigxcpu_is_a_limit_only_where_the_kernel_sent_it_or_the_limit_was_met(
    soft: int | None, used_s: float, sender: int | None, kind: str, status: str
) -> None:
    seen = timeline(GIB, limits=(Limit("RLIMIT_CPU", soft, None),), cpu_s=used_s)
    kills = () if sender is None else (sent("SIGXCPU", sender or None, "sh" if sender else None),)
    verdict = judge(run_evidence("", Ending(signo=int(signal.SIGXCPU)), timeline=seen, kills=kills)).verdict
    assert (verdict.kind, verdict.status) == (kind, status)


@pytest.mark.parametrize(
    ("used_s", "sender", "kind"), [(1.02, None, "resource-limit"), (0.5, None, "killed"), (1.02, 77, "killed")]
)
def test_sigkill_at_the_hard_cpu_limit(used_s: float, sender: int | None, kind: str) -> None:
    seen = timeline(GIB, limits=(Limit("RLIMIT_CPU", 1, 1),), cpu_s=used_s)
    kills = () if sender is None else (sent("SIGKILL", sender, "bash"),)
    verdict = judge(run_evidence("", KILLED, timeline=seen, kills=kills)).verdict
    assert verdict.kind == kind
    assert ("ulimit -t" in verdict.headline) == (kind == "resource-limit")


FULL = FullDisk("/data", "ext4", 0, GIB)


@pytest.mark.parametrize(
    ("message", "disks", "named"),
    [
        ("OSError: [Errno 28] No space left on device: '/data/run/x.pt'\n", (FULL,), True),
        ("OSError: [Errno 28] No space left on device\n", (FULL,), True),
        ("OSError: [Errno 28] No space left on device: '/elsewhere/x.pt'\n", (FULL,), False),
        ("OSError: [Errno 28] No space left on device: '/database/x.pt'\n", (FULL,), False),
        ("OSError: [Errno 28] No space left on device: '/data/x.pt'\n", (), False),
    ],
)
def test_the_disk_that_is_full_is_the_one_that_was_written_to(
    message: str, disks: tuple[FullDisk, ...], named: bool
) -> None:
    verdict = refused(message, Room(full_disks=disks)).verdict
    assert verdict.kind == "resource-limit"
    assert ("/data (ext4, 1.00 GiB) is full" in verdict.headline) == named


def test_no_room_is_found_only_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mounts").write_text(f"x {tmp_path} ext4 rw 0 0\nserver:/x /nfs nfs rw 0 0\n")
    assert read_room({}, None, tmp_path).full_disks == ()


@pytest.mark.parametrize(
    ("kill", "words"),
    [
        (sent("SIGTERM", 77, "slurmstepd: [1]"), "sent by process 77 (slurmstepd: [1])"),
        (sent("SIGTERM", 1, "python -m launcher"), "sent by its parent, process 1 (python -m launcher)"),
        (sent("SIGTERM", 100, "python"), "sent by itself"),
        (sent("SIGTERM", None), "sent by the kernel"),
        (sent("SIGTERM", 77, None), "sent by process 77, which was gone"),
    ],
)
def test_the_sender_is_named(kill: object, words: str) -> None:
    document = judge(run_evidence("", Ending(signo=15), kills=(kill,), timeline=timeline(GIB)))
    assert document.verdict.kind == "terminated" and words in document.verdict.headline


def test_what_harness_passed_on_is_told_by_its_first_sender() -> None:
    passed = (PassedSignal("SIGTERM", 9.0, 77, 0, "slurmstepd", True),)
    kills = (sent("SIGTERM", 1, "harness run"),)  # 1 is the parent of the command: harness
    headline = judge(run_evidence("", Ending(signo=15), signals=passed, kills=kills)).verdict.headline
    assert "sent to harness by process 77 (slurmstepd) and passed on" in headline


@pytest.mark.parametrize(
    ("kills", "words"),
    [
        ((sent("SIGINT", 100, "python"),), None),
        ((sent("SIGINT", 77, "bash", "kernel"), sent("SIGINT", 100, "python")), "sent by process 77 (bash)"),
        ((sent("SIGINT", None, None, "kernel"), sent("SIGINT", 100, "python")), None),
    ],
)
def test_the_interpreter_that_ends_itself_after_ctrl_c_is_not_the_sender(
    kills: tuple[Kill, ...], words: str | None
) -> None:
    text = TRACEBACK + "KeyboardInterrupt\n"
    headline = judge(run_evidence(text, Ending(signo=2), kills=kills)).verdict.headline
    assert ("sent by" in headline) == (words is not None) and (words or "SIGINT") in headline


def test_a_signal_to_another_process_or_of_another_kind_names_nobody() -> None:
    document = judge(run_evidence("", KILLED, kills=(sent("SIGTERM", 77, "bash"),), timeline=timeline(GIB)))
    assert "nothing that was seen says who sent it" in document.verdict.headline


def test_an_unknown_killer_comes_with_the_list_of_what_was_looked_at() -> None:
    gaps = (Gap("senders of SIGKILL", "the kernel tells this to root only"),)
    counted = (OomCount("/g", 0), OomCount("/", 0))
    document = judge(run_evidence("", KILLED, timeline=timeline(GIB), oom_kills=counted, gaps=gaps))
    (looked,) = [ground.fact for ground in document.verdict.grounds if ground.source == "looked at"]
    assert "the kernel log" in looked and "oom_kill counters of 2 control groups" in looked
    assert "who sends signals" not in looked
