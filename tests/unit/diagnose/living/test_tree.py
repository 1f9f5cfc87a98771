"""Many stacks as one tree: counts, ranges of ranks, the few first, the odd one named; and fast."""

from __future__ import annotations

import time

import pytest

from harness.diagnose.living.stack_tree import Stack, collect_stacks, find_outlier, merge, outline, tell_ranks
from harness.evidence.crash import CrashFrame
from tests.builders.crashes import LIBC, PYTHON, native, python
from tests.builders.looks import SITE, line, process, thread

MAIN = line("main", 90)
SYNC = line("sync_gradients", 43), line("train", 60), MAIN
END = line("end_epoch", 47), line("train", 58), MAIN


def stacks(ranks: list[int], frames: tuple[CrashFrame, ...], host: str | None = None) -> list[Stack]:
    return [Stack(frames, f"pid {1000 + rank}", rank, host) for rank in ranks]


@pytest.mark.parametrize(
    ("ranks", "told"),
    [([0], "rank 0"), ([3, 1, 0], "rank 0-1,3"), ([*range(62), 63], "rank 0-61,63"), ([5, 5, 7], "rank 5,7")],
)
def test_ranks_are_told_as_ranges(ranks: list[int], told: str) -> None:
    assert tell_ranks(ranks) == told


def test_sixty_three_here_one_there() -> None:
    all_of_them = [*stacks([*range(62), 63], SYNC), *stacks([62], END)]
    root = merge(all_of_them)
    assert (root.frames, root.count, root.who) == (("main (train.py:90)",), 64, "rank 0-63")
    assert [(node.count, node.who) for node in root.children] == [(1, "rank 62"), (63, "rank 0-61,63")]
    assert root.children[0].frames == ("train (train.py:58)", "end_epoch (train.py:47)")
    outlier = find_outlier(all_of_them)
    assert outlier is not None
    assert (outlier.who, outlier.place, outlier.others) == ("rank 62", "end_epoch (train.py:47)", 63)
    assert outlier.others_place == "sync_gradients (train.py:43)"


def test_hosts_are_named_around_their_ranks() -> None:
    root = merge([*stacks([12, 13, 14, 15], SYNC, "gpu07"), *stacks([16, 17], SYNC, "gpu08")])
    assert root.who == "gpu07[rank 12-15], gpu08[rank 16-17]" and root.children == ()


def test_without_ranks_pids_are_named_and_not_all_of_them() -> None:
    root = merge([Stack(SYNC, f"pid {pid}") for pid in range(7, 13)])
    assert root.who == "pid 7, pid 8, pid 9, pid 10 and 2 more"


def test_two_against_two_have_no_odd_one() -> None:
    assert find_outlier([*stacks([0, 1], SYNC), *stacks([2, 3], END)]) is None
    assert find_outlier(stacks([0, 1], SYNC)) is None


def test_native_frames_count_above_the_innermost_python_frame_only() -> None:
    evaluate = native("_PyEval_EvalFrameDefault", PYTHON)
    start = native("__libc_start_main", LIBC)
    frames = (native("poll", LIBC), evaluate, line("ask", 3), evaluate, MAIN, evaluate, start)
    assert merge([Stack(frames, "pid 1")]).frames == ("main (train.py:90)", "ask (train.py:3)", "poll [libc.so.6]")


def test_addresses_do_not_keep_equal_stacks_apart() -> None:
    one, other = native("poll", LIBC, "0x7f01", "0x1"), native("poll", LIBC, "0x7e01", "0x1")
    assert merge([Stack((one, MAIN), "pid 1"), Stack((other, MAIN), "pid 2")]).children == ()


def test_a_stack_that_ends_where_others_go_on_stays_in_the_count() -> None:
    root = merge([Stack((MAIN,), "pid 1"), Stack(SYNC, "pid 2")])
    assert root.count == 2 and [node.count for node in root.children] == [1]


def test_nothing_is_a_tree_too() -> None:
    assert merge([]).count == 0


def test_a_look_gives_the_main_stack_of_each_process() -> None:
    ranks = [
        process(thread(pid, *SYNC), thread(pid + 1, MAIN), rank=str(n), host="gpu07")
        for n, pid in enumerate((100, 200))
    ]
    found = collect_stacks([*ranks, process(pid=300, state="Z")])
    assert merge(found).who == "gpu07[rank 0-1]" and len(found) == 2


def test_the_outline_shows_each_frame_once() -> None:
    lines = outline(merge([*stacks([0, 1, 3], SYNC), *stacks([2], END)]))
    assert lines[:3] == ["4 × rank 0-3", "  main (train.py:90)", "  1 × rank 2"]
    assert sum("sync_gradients" in line for line in lines) == 1


def test_a_short_outline_keeps_the_inner_python_lines_and_what_they_have_called() -> None:
    frames = native("poll", LIBC), native("wait", "/job/lib.so"), *(line(f"level_{n}", n) for n in range(8))
    assert outline(merge([Stack(frames, "pid 1")]), 3) == [
        "1 × pid 1",
        "  … 5 frames …",
        "  level_2 (train.py:2)",
        "  level_1 (train.py:1)",
        "  level_0 (train.py:0)",
        "  wait [lib.so]",
    ]


def test_the_history_of_a_forked_worker_is_not_its_own() -> None:
    start = python("_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314)
    forked = process(thread(100, line("load", 9), start, line("start", 5), MAIN))
    assert merge(collect_stacks([forked])).frames == ("_bootstrap (process.py:314)", "load (train.py:9)")


def test_the_odd_one_needs_a_majority_that_it_differs_from() -> None:
    three = [*stacks([0], SYNC), *stacks([1], END), *stacks([2], (MAIN,))]
    assert find_outlier(three) is None
    natives = [Stack((native(f"poll_{n}", LIBC), *SYNC), f"pid {n}", n) for n in range(3)]
    outlier = find_outlier([*natives, *stacks([3], END)])
    assert outlier is not None and (outlier.who, outlier.others) == ("rank 3", 3), "native frames keep nobody apart"


def test_the_odd_one_is_named_by_the_users_line_and_what_it_called() -> None:
    inside = python("all_reduce", f"{SITE}/torch/distributed/distributed_c10d.py", 5)
    outlier = find_outlier(
        [Stack((inside, *SYNC), "pid 1"), Stack((inside, *SYNC), "pid 2"), Stack(END, "pid 3", pid=3)]
    )
    assert outlier is not None and (outlier.others_place, outlier.others_inside) == (
        "sync_gradients (train.py:43)",
        "all_reduce",
    )
    assert (outlier.place, outlier.inside, outlier.pids) == ("end_epoch (train.py:47)", None, (3,))


def test_a_thousand_stacks_of_sixty_frames_in_under_a_second() -> None:
    """The bound is ten times what it takes: it fails on a quadratic merge, not on a slow machine."""
    many = []
    for rank in range(1000):
        own = [python(f"step_{rank % 7}", "/job/train.py", rank % 13)]
        natives = [native(f"at::call_{n}(int)", "/job/libtorch.so", hex(rank * 64 + n)) for n in range(20)]
        common = [python(f"level_{n}", "/job/train.py", n) for n in range(39)]
        many.append(Stack(tuple(natives + own + common), f"pid {rank}", rank))
    begin = time.perf_counter()
    root = merge(many)
    lines = outline(root)
    assert time.perf_counter() - begin < 1
    assert root.count == 1000 and len(root.children) == 91 and len(lines) < 91 * 30
