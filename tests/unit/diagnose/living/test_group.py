"""Several targets in one document: verdicts in common, the tree, the odd one and what it does; and the words for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harness.diagnose.living.document import judge_living, tell_outlier
from harness.diagnose.living.group import exit_code_of_group, judge_group, share_verdicts
from harness.evidence.gap import Gap
from harness.evidence.living.look import LivingProcess, Look, Wait
from harness.evidence.living.unflushed import Unflushed
from harness.report.group import render_group, render_group_line
from harness.report.text import render
from tests.builders.crashes import LIBC, native, python
from tests.builders.looks import SITE, STDLIB, TORCH_CPU, busy, counter, line, log_file, look, process, thread

ALL_REDUCE = (
    native("c10d::Work::wait(std::chrono::duration<long>)", TORCH_CPU),
    python("all_reduce", f"{SITE}/torch/distributed/distributed_c10d.py", 3000),
    line("sync_gradients", 43),
    line("train", 60),
)
REFILL = line("refill", 88), line("train", 55)
POOL = f"{STDLIB}/multiprocessing/pool.py"
BELOW = {"ppid": 100, "role": "worker"}
QUEUES = f"{STDLIB}/multiprocessing/queues.py"


def rank(number: int, *stack: object, spins: bool = False) -> LivingProcess:
    pid = 1000 + number
    return process((busy if spins else thread)(pid, *stack), rank=str(number))  # type: ignore[arg-type]


def ranks(count: int, late: int) -> list[LivingProcess]:
    return [rank(n, *REFILL, spins=True) if n == late else rank(n, *ALL_REDUCE) for n in range(count)]


def idle_worker(pid: int, reads: bool) -> LivingProcess:
    inner = python("_recv", f"{STDLIB}/multiprocessing/connection.py", 378) if reads else None
    stack = [native("read", LIBC), *([inner] if inner else []), python("get", QUEUES, 365 if reads else 364)]
    start = python("_bootstrap", f"{STDLIB}/multiprocessing/process.py", 314)
    return process(thread(pid, *stack, python("worker", POOL, 114), start), **BELOW)


def pids_of(processes: list[LivingProcess]) -> tuple[int, ...]:
    return tuple(one.pid for one in processes)


def on_host(host: str, numbers: range, late: int) -> Look:
    """Ranks of one host; the pids are the same on every host."""
    some = [
        replace(one, pid=100 + at, host=host, threads=tuple(replace(each, tid=100 + at) for each in one.threads))
        for at, one in enumerate(ranks(numbers.stop, late)[numbers.start :])
    ]
    seen = look(*some, targets=pids_of(some))
    started = f"2026-11-{1 + numbers.start:02}T00:00:00+0000"
    return replace(seen, host=host, address=f"me@{host}:{{pid}}", started=started)


def test_the_late_rank_of_another_host_is_named_with_its_host() -> None:
    """Pids and clocks of two hosts have nothing to do with each other."""
    looks = on_host("gpu07", range(4), late=6), on_host("gpu08", range(4, 8), late=6)
    gap = Gap("host gpu09", "No route to host", "ssh gpu09 true")
    group = judge_group(*looks, unseen=[gap])
    assert group.outlier is not None and group.tree.count == 8 and group.gaps[-1] == gap
    assert tell_outlier(group.outlier) == (
        "7 ranks wait in all_reduce at sync_gradients (train.py:43); "
        "rank 6 on gpu08 is in refill (train.py:88), busy-python"
    )
    headline = group.targets[0].verdict.headline
    assert "rank 6 on gpu08 has not arrived" in headline and "rank 0-3 on gpu07, rank 4-5,7 on gpu08" in headline
    assert (group.targets[0].verdict.process.host, group.targets[0].target.host) == ("gpu08", "gpu07")
    assert group.targets[0].living is not None and group.targets[0].living.pid is None
    text = render_group(group, width=110, color=False)
    assert "8 × gpu07[rank 0-3], gpu08[rank 4-7]" in text and "host gpu09: No route to host" in text
    assert text.endswith("next       harness attach me@gpu08:102\n") and exit_code_of_group(group) == 10


def test_hosts_that_all_wait_together_have_no_odd_one() -> None:
    looks = on_host("gpu07", range(4), late=99), on_host("gpu08", range(4, 8), late=99)
    group = judge_group(*looks)
    assert group.outlier is None and {one.verdict.kind for one in group.targets} == {"blocked-collective"}
    assert "each other" in group.targets[0].verdict.headline


def test_who_is_meant_on_many_hosts() -> None:
    looks = [on_host(f"gpu{n:02}", range(2 * n, 2 * n + 2), late=99) for n in range(6)]
    assert judge_group(*looks).tree.who == "rank 0-11 on 6 hosts"
    assert judge_group(*looks[:2]).tree.who == "gpu00[rank 0-1], gpu01[rank 2-3]"


def test_the_late_rank_is_named_with_its_line_and_what_it_does() -> None:
    some = ranks(64, late=12)
    group = judge_group(look(*some, targets=pids_of(some)))
    assert group.outlier is not None and group.tree.count == 64
    assert tell_outlier(group.outlier) == (
        "63 ranks wait in all_reduce at sync_gradients (train.py:43); rank 12 is in refill (train.py:88), busy-python"
    )
    text = render_group(group, width=110, color=False)
    assert text.index("1 × rank 12") < text.index("63 × rank 0-11,13-63") < text.index("verdicts")
    assert text.startswith("harness: 63 ranks wait in all_reduce") and text.endswith("next       harness attach 1012\n")
    assert render_group_line(group, width=110, color=False).startswith("harness: 63 ranks")
    assert len(text.splitlines()) < 25
    assert exit_code_of_group(group) == 10


def test_a_launcher_is_not_the_odd_one_and_its_report_has_the_tree() -> None:
    launcher = process(thread(1, python("wait", f"{STDLIB}/subprocess.py", 1264), line("launch", 3)), pid=1)
    below = [process(*one.threads, rank=one.rank, ppid=1, role="worker") for one in ranks(4, late=2)]
    document = judge_living(look(launcher, *below))
    assert document.living is not None and document.living.outlier is not None and document.living.tree is not None
    assert document.living.outlier.who == "rank 2" and document.living.tree.count == 5
    assert "1 × rank 2" in render(document, width=110, color=False)


def test_data_loader_workers_of_a_rank_do_not_count_as_ranks() -> None:
    some = ranks(3, late=1)
    worker = process(thread(7, line("load", 9)), ppid=1000, rank="0", role="worker")
    group = judge_group(look(*some, worker, targets=pids_of(some)))
    assert group.outlier is not None and (group.outlier.who, group.outlier.others) == ("rank 1", 2)


def test_idle_workers_of_a_pool_stand_in_one_place() -> None:
    workers = [idle_worker(200 + n, reads=n == 5) for n in range(12)]
    group = judge_group(look(*workers, targets=pids_of(workers)))
    assert (group.tree.count, group.tree.children, group.outlier) == (12, (), None)
    assert group.tree.frames[-1] == "worker (pool.py:114)"


def test_a_worker_that_reads_its_next_task_is_not_blocked() -> None:
    idle = idle_worker(200, reads=True)
    reads = replace(idle, threads=(replace(idle.threads[0], wait=Wait("read", fd=3, target="pipe [7]")),))
    assert judge_living(look(reads)).verdict.kind == "waiting"


def test_a_busy_worker_among_idle_ones_is_the_odd_one() -> None:
    workers = [*(idle_worker(200 + n, reads=n == 0) for n in range(3)), process(busy(300, line("work", 4)), **BELOW)]
    group = judge_group(look(*workers, targets=pids_of(workers)))
    assert group.outlier is not None and (group.outlier.who, group.outlier.kind) == ("pid 300", "busy-python")


def test_where_all_get_on_nobody_is_the_odd_one() -> None:
    moving = {"counters": (counter("io", "bytes written", 0, 5, 9),)}
    some = [process(busy(pid, line("step", pid // 200)), **moving) for pid in (100, 110, 200)]
    group = judge_group(look(*some, targets=pids_of(some)))
    assert group.outlier is None and exit_code_of_group(group) == 0
    assert "all: 3 × pid 100, pid 110, pid 200: Not stuck" in render_group(group, width=400, color=False)


@pytest.mark.parametrize("helper", ["multiprocessing.resource_tracker", "multiprocessing.forkserver"])
def test_helpers_of_multiprocessing_are_not_in_the_tree(helper: str) -> None:
    odd = process(thread(9, line("main", 1)), argv=("python", "-c", f"from {helper} import main;main(5)"))
    assert judge_group(look(*ranks(3, late=9), odd)).tree.count == 3


def test_the_worst_verdict_first_and_each_once() -> None:
    sleeping = [process(thread(pid, line("serve", 5))) for pid in (11, 12, 13)]
    stopped = process(thread(14, line("serve", 5), state="T"))
    group = judge_group(look(*sleeping, stopped, targets=(11, 12, 13, 14)))
    assert [(one.who, one.times) for one in share_verdicts(group)] == [("pid 14", 1), ("pid 11, pid 12, pid 13", 3)]
    assert exit_code_of_group(group) == 10


def test_one_that_could_not_be_looked_at_is_worse_than_one_that_waits() -> None:
    gap = Gap("process 7", "There is no process 7.", "harness ps")
    group = judge_group(look(process(thread(1, line("serve", 5))), gaps=(gap,)))
    assert exit_code_of_group(group) == 3
    assert "process 7: There is no process 7." in render_group(group, width=110, color=False)


def test_the_report_on_one_says_threads_unflushed_text_and_its_cost() -> None:
    same = [thread(200 + n, line("serve", 5), name=f"io-{n}") for n in range(20)]
    others = [thread(300 + n, line(f"wait_{n}", n), name=f"w-{n}") for n in range(20)]
    document = judge_living(look(process(thread(100, line("main", 1)), *same, *others, stopped_ms=43.0, **log_file())))
    text = render(document, width=160, color=False)
    assert "20 threads, the first io-0 (200): asleep in serve (train.py:5)" in text
    assert "… 10 more lines; --json has all" in text and document.living and len(document.living.threads) == 22
    assert "unflushed  49 bytes of stdout, printed and not written yet:" in text
    assert "             > tolerance 0.001, settling\n" in text
    assert "stopped    for 43 ms in all by this look of 5.0 s, 5 samples" in text


def test_a_system_call_that_a_stop_of_ours_may_have_cut_short_is_in_the_report() -> None:
    calls = tuple(f"recvfrom of thread {tid}, by pystack" for tid in range(4))
    sleeps = thread(100, line("main", 1))
    document = judge_living(look(process(sleeps, stopped_ms=43.0, interrupted=calls)))
    assert document.living and document.living.interrupted == calls
    text = render(document, width=200, color=False)
    assert "may have cut short: recvfrom of thread 0, by pystack; recvfrom of thread 1" in text
    assert "1 more, --json has all" in text
    assert "cut short" not in render(judge_living(look(process(sleeps, stopped_ms=43.0))), width=200, color=False)


def test_what_was_printed_is_text_and_not_a_command_to_the_terminal() -> None:
    printed = log_file(unflushed=(Unflushed(1, "stdout", 900, "\x1b[31mloss\n" * 9, True),))
    text = render(judge_living(look(process(thread(100, line("main", 1)), **printed))), width=110, color=False)
    assert "900 bytes of stdout, printed and not written yet, the last 6 lines:" in text
    assert text.count("             > loss\n") == 6 and "\x1b" not in text


def test_what_rises_beside_a_deadlock_is_told() -> None:
    stopped = process(thread(1, line("serve", 5), state="T"), counters=(counter("io", "bytes written", 0, 50),))
    assert "moving     bytes written: 0 → 50, 50 a second" in render(
        judge_living(look(stopped)), width=110, color=False
    )
