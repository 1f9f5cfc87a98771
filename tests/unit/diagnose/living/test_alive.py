"""What a look at the living means: every kind from facts as the hang zoo describes them, and its near misses."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harness.diagnose.living.kinds import ALIVE_NAMES, exit_code_of
from harness.diagnose.living.line import stirs_beside
from harness.diagnose.living.no_fault import estimate_next
from harness.diagnose.living.thread_waits import describe_threads, name_thread
from harness.diagnose.living.verdict import judge_look
from harness.documents.verdict import Document
from harness.evidence.crash import CrashFrame
from harness.evidence.gap import Gap
from harness.evidence.living.look import (
    FAILED,
    SLEEPS_AGAIN,
    Counter,
    LivingProcess,
    LivingThread,
    Output,
    Peer,
    Rest,
    Wait,
)
from harness.report.text import render
from tests.builders.crashes import LIBC, PYTHON, native, python
from tests.builders.looks import (
    ASLEEP,
    CONDITION,
    EVALUATE,
    FUTEX_SHARED,
    FUTEX_TIMED,
    GOMP,
    JOIN,
    SEM_TIMED,
    SEM_WAIT,
    SITE,
    STDLIB,
    TORCH_CPU,
    busy,
    census,
    counter,
    held,
    hot,
    judge,
    line,
    log_file,
    look,
    process,
    thread,
    wanted,
    words,
)

DESIGN_ORDER = (
    "stopped deadlock-openmp deadlock-fork deadlock-lock blocked-collective blocked-device blocked-child swapping "
    "blocked-io progressing busy-python busy-native waiting"
)
NANOSLEEP = Wait("clock_nanosleep")
WORKS = counter("io", "bytes written", 100, 180, 260, 340, 420)


def kind(document: Document) -> tuple[str, str]:
    return document.verdict.kind, document.verdict.status


def place(document: Document) -> tuple[int | None, str | None, str | None]:
    frame = document.verdict.user_frame
    return document.verdict.process.pid, document.verdict.process.thread, frame.function if frame else None


def test_kinds_are_tried_in_the_order_of_the_design() -> None:
    assert tuple(DESIGN_ORDER.split()) == ALIVE_NAMES


# stopped


def test_sigstop_is_stopped() -> None:
    found = judge(process(thread(100, line("train", 60), state="T")))
    assert kind(found) == ("stopped", "established")
    assert "SIGSTOP" in words(found) and place(found) == (100, "MainThread", "train")


def test_a_tracer_that_stops_it_is_named() -> None:
    found = judge(process(thread(100, line("train", 60), state="t"), tracer_pid=77))
    assert kind(found) == ("stopped", "established")
    assert "tracer, process 77" in words(found)


def test_a_frozen_control_group_is_stopped() -> None:
    assert judge(process(thread(100, line("train", 60)), frozen=True)).verdict.kind == "stopped"


def test_traced_but_running_is_not_stopped() -> None:
    found = judge(process(thread(100, line("train", 60), wait=NANOSLEEP), tracer_pid=77, counters=(WORKS,)))
    assert found.verdict.kind == "progressing"


def test_a_stopped_child_of_a_process_that_works_is_no_fault() -> None:
    child = process(thread(101, line("rest", 9), state="T"), ppid=100, role="child")
    main = thread(100, line("train", 60), changed=True)
    assert judge(process(main, counters=(WORKS,)), child).verdict.kind == "progressing"
    assert judge(process(main), child).verdict.process.pid == 101


# deadlock-openmp

OMP_A, OMP_B = f"{SITE}/torch/lib/libomp.so", f"{SITE}/faiss/libomp.so"
IN_A = native("__kmp_suspend_64", OMP_A, "0x7f0000001000", "0x1000")
IN_B = native("__kmp_fork_barrier", OMP_B, "0x7f1000002000", "0x2000")
SEARCH = native("faiss::IndexFlat::search", f"{SITE}/faiss/libfaiss.so", "0x7f2000000000", "0x0")


def test_a_stack_that_crosses_two_runtimes_is_a_deadlock_on_any_thread() -> None:
    main = thread(100, *SEM_WAIT, line("search", 20))
    worker = thread(105, IN_A, IN_B, SEARCH, name="omp")
    found = judge(
        process(main, worker, openmp=census((OMP_A, "llvm", "0x7f0000000000"), (OMP_B, "llvm", "0x7f1000000000")))
    )
    assert kind(found) == ("deadlock-openmp", "established")
    assert OMP_A in words(found) and OMP_B in words(found)
    assert found.verdict.process.tid == 105 and found.verdict.component and found.verdict.component.image == OMP_A
    assert found.verdict.context_frame and found.verdict.context_frame.function == "search"
    assert [remedy.safe for remedy in found.verdict.remedies][-1] is False


def test_two_runtimes_are_told_apart_by_base_even_in_one_file() -> None:
    again = native("__kmp_fork_barrier", OMP_A, "0x7f1000002000", "0x2000")
    assert judge(process(thread(100, IN_A, again, line("search", 20)))).verdict.kind == "deadlock-openmp"
    same = native("__kmp_fork_barrier", OMP_A, "0x7f0000002000", "0x2000")
    assert judge(process(thread(100, IN_A, same, line("search", 20)))).verdict.kind == "waiting"


def test_nested_regions_and_stacks_that_change_are_no_crossing() -> None:
    assert judge(process(thread(100, IN_A, SEARCH, IN_B, line("search", 20)))).verdict.kind == "waiting"
    assert judge(process(thread(100, IN_A, IN_B, line("search", 20), changed=True))).verdict.kind == "waiting"


# deadlock-fork

POOL_WAIT = native("futex_wait", GOMP), native("GOMP_parallel", GOMP)
SQRT = native("at::native::sqrt_kernel", TORCH_CPU)


def forked(child: LivingThread, **facts: object) -> LivingProcess:
    values = {"ppid": 100, "role": "worker", "forked": True, "parent_threads": 5, **facts}
    return process(child, **values)


PARENT = process(
    thread(
        100,
        native("wait4", LIBC),
        python("poll", f"{STDLIB}/multiprocessing/popen_fork.py", 27),
        python("join", f"{STDLIB}/multiprocessing/process.py", 149),
        line("train", 55),
        wait=Wait("wait4", target="process 101", peer_pids=(101,)),
    )
)


def test_libgomp_after_fork() -> None:
    found = judge(PARENT, forked(thread(101, *POOL_WAIT, SQRT, line("score_rows", 36))))
    assert kind(found) == ("deadlock-fork", "established")
    assert place(found) == (101, "MainThread", "score_rows") and "libgomp" in words(found)
    assert found.verdict.process.role == "worker"


def test_libgomp_without_names_is_known_by_the_census() -> None:
    image = f"{SITE}/torch.libs/renamed.so.1"
    child = forked(
        thread(101, native(None, image), SQRT, line("score_rows", 36)), openmp=census((image, "gnu", "0x7f0"))
    )
    assert judge(PARENT, child).verdict.kind == "deadlock-fork"


@pytest.mark.parametrize("facts", [{"forked": False}, {"parent_threads": 1}, {"forked": None}])
def test_without_a_fork_of_a_threaded_parent_it_is_no_fork_deadlock(facts: dict[str, object]) -> None:
    child = forked(thread(101, *POOL_WAIT, SQRT, line("score_rows", 36)), **facts)
    assert judge(PARENT, child).verdict.kind == "waiting"


def test_a_child_in_libgomp_that_computes_is_well() -> None:
    child = forked(busy(101, SQRT, line("score_rows", 36), changed=True), counters=(WORKS,))
    assert judge(PARENT, child).verdict.kind == "progressing"


OPENBLAS = thread(102, native("blas_thread_server", f"{SITE}/numpy.libs/libopenblas.so"))


def in_two(stack: tuple[CrashFrame, ...], other: LivingThread, **facts: object) -> LivingProcess:
    child = forked(thread(101, *stack, line("score_rows", 36)), **facts)
    return replace(child, threads=(*child.threads, other))


def test_a_child_whose_openblas_has_made_its_threads_anew() -> None:
    found = judge(PARENT, in_two((*POOL_WAIT, SQRT), OPENBLAS, rest=ASLEEP))
    assert kind(found) == ("deadlock-fork", "established")
    assert "libgomp" in found.verdict.headline and "2 threads" in words(found)
    awake = thread(102, *OPENBLAS.stack, wait=FUTEX_TIMED)
    assert kind(judge(PARENT, in_two((*POOL_WAIT, SQRT), awake, rest=ASLEEP))) == ("deadlock-fork", "supported")


@pytest.mark.parametrize("stack", [POOL_WAIT, ()])
def test_a_child_whose_own_pool_serves_it(stack: tuple[CrashFrame, ...]) -> None:
    """Or one of whose threads could not be read: it may be one of the pool's."""
    child = in_two((*POOL_WAIT, SQRT), thread(102, *stack, wait=FUTEX_TIMED), rest=ASLEEP)
    assert judge(PARENT, child).verdict.kind == "waiting"


def test_a_worker_of_a_pool_that_rests_is_not_left_behind() -> None:
    main = forked(thread(101, line("sleep_long", 3), wait=NANOSLEEP))
    assert judge(PARENT, replace(main, threads=(*main.threads, thread(102, *POOL_WAIT)))).verdict.kind == "waiting"


POLARS = f"{SITE}/_polars_runtime_32/_polars_runtime.abi3.so"


@pytest.mark.parametrize(
    ("function", "pool"),
    [
        ("<tokio[32b4c230a619cc51]::runtime::park::Inner>::park", "tokio"),
        ("_RNvMs_NtNtCs4lUfJ5g3poj_5tokio7runtime4parkNtB4_5Inner4park", "tokio"),
        ("_ZN10rayon_core8registry8Registry14in_worker_cold17h0123456789abcdefE", "rayon"),
    ],
)
def test_a_pool_of_rusts_after_fork(function: str, pool: str) -> None:
    stack = native("syscall", LIBC), native(function, POLARS), line("score_rows", 36)
    found = judge(PARENT, forked(thread(101, *stack), rest=ASLEEP))
    assert kind(found) == ("deadlock-fork", "established") and f"{pool} (in _polars" in found.verdict.headline


def test_an_unnamed_library_after_fork_is_supported_where_nobody_is_left() -> None:
    stack = native("pthread_cond_wait", LIBC), native("wait_for_workers", "/job/libfast.so"), line("score_rows", 36)
    found = judge(PARENT, forked(thread(101, *stack), rest=ASLEEP))
    assert kind(found) == ("deadlock-fork", "supported") and "libfast.so" in found.verdict.headline
    assert judge(PARENT, forked(thread(101, *stack))).verdict.kind == "waiting"
    spawned = judge(PARENT, forked(thread(101, *stack), rest=ASLEEP, forked=False))
    assert kind(spawned) == ("deadlock-lock", "established")


def test_malloc_and_import_lock_after_fork() -> None:
    malloc = native("__lll_lock_wait_private", LIBC), native("malloc", LIBC), line("load", 3)
    assert kind(judge(PARENT, forked(thread(101, *malloc)))) == ("deadlock-fork", "established")
    imports = *SEM_WAIT, python("acquire", "<frozen importlib._bootstrap>", 123), line("load", 3)
    assert kind(judge(PARENT, forked(thread(101, *imports)))) == ("deadlock-fork", "supported")


def test_a_python_lock_that_the_parent_had_at_the_fork() -> None:
    rotator = thread(102, line("rotate_log", 39), name="rotator", locks=(held("log_lock", "rotate_log", 37),))
    main = thread(100, line("<module>", 65), wait=Wait("wait4", peer_pids=(101,)))
    child = forked(
        thread(101, *SEM_WAIT, line("write_log", 48), locks=(wanted("log_lock", "write_log", 48),)), role="child"
    )
    found = judge(process(main, rotator), child)
    assert kind(found) == ("deadlock-fork", "established")
    assert place(found) == (101, "MainThread", "write_log")
    assert "log_lock" in found.verdict.headline and "rotator" in words(found)
    released = replace(child, rest=Rest(True, ("SIGALRM",)))  # by its handler, perhaps
    assert kind(judge(process(main, rotator), released)) == ("deadlock-fork", "supported")


def test_an_idle_pool_worker_that_waits_for_its_turn_at_the_queue_is_no_deadlock() -> None:
    """multiprocessing's lock belongs to all workers: one has it and reads, the others wait."""
    turn = python("__enter__", f"{STDLIB}/multiprocessing/synchronize.py", 95)
    get = python("get", f"{STDLIB}/multiprocessing/queues.py", 365)
    loop = python("worker", f"{STDLIB}/multiprocessing/pool.py", 114)
    idle = thread(101, *SEM_WAIT, turn, get, loop, locks=(wanted("self._rlock", "get", 365),))
    assert judge(PARENT, forked(idle)).verdict.kind == "waiting"


# deadlock-lock


def two_in_a_ring(**address: str) -> LivingProcess:
    a = {"address": address["a"]} if address else {}
    b = {"address": address["b"]} if address else {}
    main = thread(
        100, *SEM_WAIT, line("transfer", 43),
        locks=(held("accounts_lock", "transfer", 40, **a), wanted("journal_lock", "transfer", 43, **b)),
    )  # fmt: skip
    writer = thread(
        101, *SEM_WAIT, line("write_journal", 50), name="journal-writer",
        locks=(held("journal_lock", "write_journal", 48, **b), wanted("accounts_lock", "write_journal", 50, **a)),
    )  # fmt: skip
    return process(main, writer)


def test_two_locks_in_opposite_order_by_address() -> None:
    found = judge(two_in_a_ring(a="0x7f01", b="0x7f02"))
    assert kind(found) == ("deadlock-lock", "established")
    for word in ("accounts_lock", "journal_lock", "journal-writer", "train.py:43", "train.py:50"):
        assert word in words(found)
    assert place(found) == (100, "MainThread", "transfer")


@pytest.mark.parametrize("handled", ["SIGALRM", "SIGUSR1", "signal 40"])
def test_a_handler_that_runs_by_itself_may_raise_in_a_ring(handled: str) -> None:
    ring = two_in_a_ring(a="0x7f01", b="0x7f02")
    found = judge(replace(ring, rest=Rest(False, (handled, "SIGTERM"))))
    assert kind(found) == ("deadlock-lock", "supported")
    assert found.verdict.against == (f"a handler of {handled} could still end the wait of MainThread",)
    to_end_it = replace(ring, rest=Rest(False, ("SIGINT", "SIGTERM")))
    assert kind(judge(to_end_it)) == ("deadlock-lock", "established")
    others = (replace(ring.threads[0], tid=102), ring.threads[1])  # handlers run on the main thread
    beside = process(thread(100, line("serve", 4), wait=NANOSLEEP), *others, rest=Rest(False, (handled,)))
    assert kind(judge(beside)) == ("deadlock-lock", "established")


def test_a_ring_by_names_alone_says_that_it_is_inferred() -> None:
    found = judge(two_in_a_ring())
    assert kind(found) == ("deadlock-lock", "supported")
    assert "inferred from the source" in words(found) and found.verdict.against


def test_the_lock_of_two_objects_is_not_one_lock() -> None:
    parent = thread(
        100, *SEM_WAIT, line("update", 9), locks=(held("self.lock", "update", 8), wanted("self.lock", "update", 9))
    )
    other = thread(101, line("sleep_long", 3), wait=NANOSLEEP)
    assert judge(process(parent, other)).verdict.kind == "waiting"


def test_three_in_a_ring_with_the_main_thread_outside() -> None:
    ring = (("loader", "load", "cache_lock", "index_lock"), ("indexer", "index", "index_lock", "store_lock"))
    ring += (("storer", "store", "store_lock", "cache_lock"),)
    owner = {"cache_lock": 101, "index_lock": 102, "store_lock": 103}
    threads = [
        thread(
            101 + n, *SEM_WAIT, line(function, 40 + n), name=name,
            locks=(held(has, function, 30 + n), wanted(wants, function, 40 + n, owner_tid=owner[wants])),
        )
        for n, (name, function, has, wants) in enumerate(ring)
    ]  # fmt: skip
    found = judge(process(thread(100, *JOIN, line("run", 70)), *threads))
    assert kind(found) == ("deadlock-lock", "established")
    assert all(word in words(found) for word in (*owner, "loader", "indexer", "storer", "train.py:30"))
    assert found.verdict.process.thread in ("loader", "indexer", "storer")


def test_a_holder_that_sleeps_is_no_deadlock() -> None:
    main = thread(100, *SEM_WAIT, line("transfer", 43), locks=(wanted("journal_lock", "transfer", 43, owner_tid=101),))
    other = thread(101, line("write_slowly", 57), name="journal-writer", wait=NANOSLEEP)
    found = judge(process(main, other))
    assert found.verdict.kind == "waiting"
    assert "held by journal-writer" in describe_threads(process(main, other))[0]


def test_a_deadlock_is_one_even_while_another_thread_writes_its_log() -> None:
    ring = two_in_a_ring(a="0x7f01", b="0x7f02")
    logger = thread(102, line("log", 3), wait=NANOSLEEP, changed=True)
    assert judge(process(*ring.threads, logger, counters=(WORKS,))).verdict.kind == "deadlock-lock"


def test_locks_that_are_only_passing_or_timed_are_no_ring() -> None:
    ring = two_in_a_ring(a="0x7f01", b="0x7f02")
    moving = [thread(t.tid, *t.stack, locks=t.locks, changed=True) for t in ring.threads]
    assert judge(process(*moving)).verdict.kind == "waiting"
    timed = [thread(t.tid, *SEM_TIMED, t.stack[-1], locks=t.locks, wait=None) for t in ring.threads]
    assert judge(process(*timed)).verdict.kind == "waiting"
    first, second = ring.threads
    nameless = thread(second.tid, second.stack[-1], locks=second.locks, wait=FUTEX_TIMED)
    assert judge(process(first, nameless)).verdict.kind == "waiting"


def test_a_plain_lock_taken_twice_by_one_thread() -> None:
    locks = (held("lock", "outer", 5, by_with=True), wanted("lock", "inner", 9, address="0x1"))
    other = thread(101, line("sleep_long", 3), wait=NANOSLEEP)
    stack = *SEM_WAIT, line("inner", 9), line("outer", 6)
    found = judge(process(thread(100, *stack, locks=locks), other))
    assert kind(found) == ("deadlock-lock", "supported") and "holds itself" in found.verdict.headline
    asked = (held("lock", "outer", 5), locks[1])
    assert (
        judge(process(thread(100, *stack, locks=asked), other)).verdict.kind == "waiting"
    )  # who sleeps may release it
    alone = judge(process(thread(100, *stack, locks=asked), rest=ASLEEP))
    assert kind(alone) == ("deadlock-lock", "established") and "nobody is left" in words(alone)


def test_a_module_that_joins_a_thread_that_imports_it() -> None:
    load = python("_load_unlocked", "<frozen importlib._bootstrap>", 690)
    main = thread(100, *JOIN, line("set_up_plugins", 45), line("<module>", 55), load, line("<module>", 52))
    acquire = python("acquire", "<frozen importlib._bootstrap>", 123)
    loader = thread(101, *SEM_WAIT, acquire, line("load_plugin", 38), name="plugin-loader")
    found = judge(process(main, loader))
    assert kind(found) == ("deadlock-lock", "supported")
    assert "import" in words(found) and "set_up_plugins" in words(found) and "load_plugin" in words(found)
    joined = thread(
        100, *main.stack, locks=(wanted("loader.join()", "set_up_plugins", 45, kind="join", owner_tid=101),)
    )
    module = wanted("plugin", "load_plugin", 38, kind="import", owner_tid=100)
    known = thread(101, *loader.stack, name="plugin-loader", locks=(module,))
    assert kind(judge(process(joined, known))) == ("deadlock-lock", "established")
    control = thread(101, line("load_plugin", 37), name="plugin-loader", wait=NANOSLEEP)
    assert judge(process(main, control)).verdict.kind == "waiting"


def test_the_owner_of_the_lock_has_ended() -> None:
    lock = wanted("settings_lock", "read_settings", 45, owner_tid=999)
    found = judge(process(thread(100, *SEM_WAIT, line("read_settings", 45), locks=(lock,)), thread(101, IN_A)))
    assert kind(found) == ("deadlock-lock", "established")
    assert "settings_lock" in found.verdict.headline and "999" in words(found)
    alarmed = process(thread(100, *SEM_WAIT, line("read_settings", 45), locks=(lock,)), rest=Rest(True, ("SIGALRM",)))
    assert kind(judge(alarmed)) == ("deadlock-lock", "supported")
    unknown = wanted("settings_lock", "read_settings", 45, kind="rlock", owner_alive=False)
    sleeper = thread(101, line("sleep_long", 3), wait=NANOSLEEP)
    found = judge(process(thread(100, *SEM_WAIT, line("read_settings", 45), locks=(unknown,)), sleeper))
    assert kind(found) == ("deadlock-lock", "established")


def test_a_mutex_of_the_c_library_against_the_gil() -> None:
    mutex = wanted("a mutex", "", 0, kind="mutex", owner_tid=101, address="0x7f00", owner_alive=True)
    lock = native("__lll_lock_wait", LIBC), native("pthread_mutex_lock", LIBC)
    main = thread(100, *lock, line("add_row", 9), locks=(mutex,), holds_gil=True)
    gil = native("take_gil", PYTHON), native("PyEval_RestoreThread", PYTHON)
    owner = thread(101, *gil, line("visit", 20), name="visitor", wait=FUTEX_TIMED)
    found = judge(process(main, owner))
    assert kind(found) == ("deadlock-lock", "established")
    for word in ("a mutex, held by visitor", "the GIL, held by MainThread", "add_row (train.py:9)"):
        assert word in found.verdict.headline
    sleeper = thread(101, line("visit", 20), name="visitor", wait=NANOSLEEP)
    assert judge(process(main, sleeper)).verdict.kind == "waiting"


def test_a_thread_without_python_may_be_in_a_ring() -> None:
    main, other = (
        thread(one, native("__lll_lock_wait", LIBC), locks=(wanted("a mutex", "", 0, kind="mutex", owner_tid=next_),))
        for one, next_ in ((100, 101), (101, 100))
    )
    assert kind(judge(process(main, other))) == ("deadlock-lock", "established")


# Nobody is left

PUT = *CONDITION, python("put", f"{STDLIB}/queue.py", 140), line("feed", 47)
GET = *CONDITION, python("get", f"{STDLIB}/queue.py", 171), line("take_job", 32)
IN_GET = thread(100, *GET, locks=(wanted("jobs.get()", "take_job", 32, kind="queue"),))
IN_EVENT = thread(
    101, *CONDITION, line("work", 30), name="worker", locks=(wanted("done.wait()", "work", 30, kind="condition"),)
)
BLAS = thread(102, native("blas_thread_server", f"{SITE}/numpy.libs/libopenblas.so"))


def test_every_thread_waits_for_another_one() -> None:
    found = judge(process(IN_GET, IN_EVENT, BLAS, rest=ASLEEP))
    assert kind(found) == ("deadlock-lock", "established") and exit_code_of(found) == 10
    for word in ("nobody is left", "MainThread waits in jobs.get() at take_job", "worker waits in done.wait() at work"):
        assert word in found.verdict.headline


@pytest.mark.parametrize("stack", [PUT, GET, (*SEM_WAIT, line("read_cache", 46)), JOIN])
def test_one_thread_alone_in_a_wait_of_its_own(stack: tuple[CrashFrame, ...]) -> None:
    found = judge(process(thread(100, *stack), rest=ASLEEP))
    assert kind(found) == ("deadlock-lock", "established") and "nobody is left" in found.verdict.headline


@pytest.mark.parametrize(
    "other",
    [
        thread(102, native("zoo_later", "/job/lib.so"), wait=NANOSLEEP),  # it may call back
        thread(102, *CONDITION, line("poll_queue", 3), wait=FUTEX_TIMED),
        thread(102, *SEM_WAIT, line("put_result", 3), wait=FUTEX_SHARED),  # another process has it, too
        thread(102, line("serve", 3), wait=Wait("epoll_wait", ("0x3", "0x0", "0x0", "0xffffffff"))),
        thread(102, line("wait", 3), wait=Wait(None)),
        thread(102, *GET, changed=True),
        busy(102, line("compute", 3)),
    ],
)
def test_a_thread_that_may_act_is_somebody_left(other: LivingThread) -> None:
    assert judge(process(IN_GET, IN_EVENT, other, rest=ASLEEP)).verdict.kind != "deadlock-lock"


@pytest.mark.parametrize("rest", [None, Rest(False, ()), Rest(True, None), Rest(True, ("SIGALRM",))])
def test_a_handler_of_a_signal_or_what_was_not_seen_is_no_proof(rest: Rest | None) -> None:
    found = judge(process(IN_GET, IN_EVENT, rest=rest))
    assert found.verdict.kind == "waiting" and "take_job" in found.verdict.headline
    if rest is not None and rest.handled_signals:
        assert "a handler of SIGALRM" in words(found)


def test_a_wait_for_the_end_of_a_native_thread_is_one_of_the_process() -> None:
    ending = native("__pthread_clockjoin_ex", LIBC), native("join_all", "/job/lib.so")
    main = thread(100, *ending, line("stop", 5), wait=FUTEX_SHARED)
    assert judge(process(main, IN_EVENT, rest=ASLEEP)).verdict.kind == "deadlock-lock"


# A pool that waits for itself

IN_POOL = (
    *CONDITION,
    python("result", f"{STDLIB}/concurrent/futures/_base.py", 451),
    line("prepare", 33),
    python("run", f"{STDLIB}/concurrent/futures/thread.py", 58),
    python("_worker", f"{STDLIB}/concurrent/futures/thread.py", 83),
)
SLEEPS = thread(100, line("supervise", 38), wait=NANOSLEEP)


SUBMITS = wanted("pool.submit(load).result()", "prepare", 33)


def test_a_task_that_waits_for_its_own_pool() -> None:
    workers = [thread(101 + n, *IN_POOL, name=f"steps_{n}", locks=(SUBMITS,)) for n in range(2)]
    found = judge(process(SLEEPS, *workers))
    assert kind(found) == ("deadlock-lock", "supported")
    assert "all 2 workers" in found.verdict.headline and "prepare (train.py:33)" in found.verdict.headline


@pytest.mark.parametrize(
    "other",
    [
        thread(102, line("load", 3), *IN_POOL[-2:], name="steps_1", wait=NANOSLEEP),  # it may be the one
        thread(102, *SEM_WAIT, IN_POOL[-1], name="steps_1"),  # idle: it would take the task
        thread(102, line("load", 3), *IN_POOL[-2:], name="others_0", wait=NANOSLEEP),
        thread(102, python("run_forever", f"{STDLIB}/asyncio/base_events.py", 607), wait=Wait("epoll_wait")),
    ],
)
def test_somebody_else_may_fulfil_the_future(other: LivingThread) -> None:
    assert judge(process(SLEEPS, thread(101, *IN_POOL, name="steps_0"), other)).verdict.kind == "waiting"


def test_a_future_that_no_task_fulfils_may_be_set_by_a_thread_beside_the_pool() -> None:
    beside = thread(102, line("serve", 7), wait=Wait("accept4"))
    assert judge(process(SLEEPS, thread(101, *IN_POOL, name="steps_0"), beside)).verdict.kind == "waiting"
    worker = thread(101, *IN_POOL, name="steps_0", locks=(SUBMITS,))
    assert kind(judge(process(SLEEPS, worker, beside))) == ("deadlock-lock", "supported")


@pytest.mark.parametrize(
    ("main", "handled", "expected"),
    [
        (SLEEPS, (), "waiting"),  # it may set the future when it wakes up
        (thread(100, line("ask", 9), wait=Wait("recvfrom", fd=3, target="socket 10.0.0.9:80")), (), "waiting"),
        (thread(100, *SEM_TIMED, line("ask", 9), wait=FUTEX_TIMED), (), "waiting"),
        (thread(100, *JOIN, line("main", 20)), (), "deadlock-lock"),
        (thread(100, *JOIN, line("main", 20)), ("SIGUSR1",), "waiting"),
    ],
)
def test_a_future_that_no_task_fulfils_may_be_set_by_the_main_thread(
    main: LivingThread, handled: tuple[str, ...], expected: str
) -> None:
    bare = thread(101, *IN_POOL, name="steps_0", locks=(wanted("answer.result()", "prepare", 33),))
    assert judge(process(main, bare, rest=Rest(True, handled))).verdict.kind == expected


# blocked-collective

ALL_REDUCE = (
    native("pthread_cond_wait", LIBC),
    native("c10d::ProcessGroupGloo::AsyncWork::wait(std::chrono::duration<long>)", TORCH_CPU),
    python("all_reduce", f"{SITE}/torch/distributed/distributed_c10d.py", 2810),
)
BARRIER = *ALL_REDUCE[:2], python("barrier", f"{SITE}/torch/distributed/distributed_c10d.py", 4500)
GLOO_LOOP = native("epoll_wait", LIBC), native("gloo::transport::tcp::Loop::run()", TORCH_CPU)


def rank(number: int, *stack: CrashFrame, **facts: object) -> LivingProcess:
    main = thread(200 + 10 * number, *stack)
    loop = thread(201 + 10 * number, *GLOO_LOOP)
    return process(main, loop, ppid=100, rank=str(number), role="worker", **facts)


LAUNCHER = process(
    thread(
        100, python("wait", f"{STDLIB}/subprocess.py", 1260), line("launch", 84), wait=Wait("wait4", peer_pids=(200,))
    )
)
IN_SYNC = *ALL_REDUCE, line("sync_gradients", 43)


def test_one_rank_has_not_arrived() -> None:
    data = rank(1, native("read", LIBC), line("wait_for_data", 47))
    found = judge(LAUNCHER, rank(0, *IN_SYNC), data)
    assert kind(found) == ("blocked-collective", "established")
    assert place(found) == (210, "MainThread", "wait_for_data")
    assert "gloo" in words(found) and "rank 1 has not arrived" in found.verdict.headline
    assert "sync_gradients" in found.verdict.headline


def test_of_four_ranks_the_one_in_another_collective_is_named() -> None:
    others = [rank(number, *IN_SYNC) for number in (0, 1, 3)]
    found = judge(LAUNCHER, *others, rank(2, *BARRIER, line("end_epoch", 47)))
    assert place(found) == (220, "MainThread", "end_epoch")
    assert "rank 2" in found.verdict.headline and "rank 0-1,3" in words(found) and "gloo" in words(found)


def test_two_ranks_in_different_collectives() -> None:
    found = judge(LAUNCHER, rank(0, *IN_SYNC), rank(1, *ALL_REDUCE, line("share_weights", 47)))
    assert found.verdict.kind == "blocked-collective"
    assert "sync_gradients" in words(found) and "share_weights" in words(found)


def test_one_rank_alone_waits_for_ranks_that_were_not_looked_at() -> None:
    found = judge(rank(0, *IN_SYNC))
    assert kind(found) == ("blocked-collective", "established") and "not looked at" in found.verdict.headline


def test_workers_whose_ranks_are_not_told_are_named_by_their_pids() -> None:
    """torch.multiprocessing.spawn passes the rank as an argument."""
    waiting = [replace(rank(number, *IN_SYNC), rank=None) for number in (0, 1)]
    late = process(thread(220, line("refill", 9), wait=NANOSLEEP), ppid=100, role="worker")
    argv = ("python", "-c", "from multiprocessing.resource_tracker import main;main(9)")
    helper = process(thread(199, line("main", 1), wait=Wait("read")), ppid=100, role="worker", argv=argv)
    found = judge(LAUNCHER, helper, *waiting, late)
    assert kind(found) == ("blocked-collective", "established")
    assert place(found) == (220, "MainThread", "refill") and "worker 220 is not in it" in found.verdict.headline
    found = judge(LAUNCHER, *waiting, replace(late, counters=(WORKS,)))
    assert found.verdict.kind == "blocked-collective" and exit_code_of(found) == 11


def test_ranks_that_work_between_collectives_are_well() -> None:
    found = judge(LAUNCHER, rank(0, *IN_SYNC, counters=(WORKS,)), rank(1, *IN_SYNC, counters=(WORKS,)))
    assert found.verdict.kind == "progressing"


def test_the_service_threads_of_gloo_alone_are_no_collective() -> None:
    sleeper = process(thread(100, line("train", 9), wait=NANOSLEEP), thread(101, *GLOO_LOOP), rank="0")
    assert judge(sleeper).verdict.kind == "waiting"


# blocked-device

CUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


def test_a_device_that_sleeps_and_one_that_spins() -> None:
    sleeps = native("poll", LIBC), native("cuStreamSynchronize", CUDA), line("copy_batch", 36)
    found = judge(process(thread(100, *sleeps, wait=Wait("poll"))))
    assert kind(found) == ("blocked-device", "established")
    assert "cuStreamSynchronize" in words(found) and "libcuda.so.1" in words(found)
    spins = native("cuCtxSynchronize", CUDA), line("finish_step", 36)
    found = judge(process(busy(100, *spins)))
    assert found.verdict.kind == "blocked-device" and "spins" in found.verdict.headline
    assert found.verdict.component and found.verdict.component.image == CUDA


def test_a_spinning_driver_may_be_at_another_instruction_each_time() -> None:
    spin = native("cuCtxSynchronize", CUDA)
    main = busy(100, spin, line("finish_step", 36), changed=True)
    assert judge(process(main, hot=(hot(line("finish_step", 36), 5),))).verdict.kind == "blocked-device"
    assert judge(process(main, hot=(hot(line("finish_step", 36), 2),))).verdict.kind == "busy-python"


def test_an_ioctl_of_the_driver_is_a_device_wait() -> None:
    wait = Wait("ioctl", fd=9, target="/dev/nvidia0")
    assert judge(process(thread(100, line("step", 3), wait=wait))).verdict.kind == "blocked-device"


def test_a_device_that_answers_is_no_fault() -> None:
    main = thread(100, native("cuStreamSynchronize", CUDA), line("copy_batch", 36))
    assert judge(process(main, counters=(WORKS,))).verdict.kind == "progressing"
    service = process(
        thread(100, line("nap", 3), wait=NANOSLEEP), thread(101, native("poll", LIBC), native(None, CUDA))
    )
    assert judge(service).verdict.kind == "waiting"


# blocked-child

TRY_GET = (
    native("poll", LIBC),
    python("select", f"{STDLIB}/selectors.py", 415),
    python("wait", f"{STDLIB}/multiprocessing/connection.py", 947),
    python("get", f"{STDLIB}/multiprocessing/queues.py", 113),
    python("_try_get_data", f"{SITE}/torch/utils/data/dataloader.py", 1251),
    line("train_epoch", 56),
)
LOADER = process(thread(100, *TRY_GET, wait=Wait("poll", fd=7, target="pipe:[1]"), changed=True))
LOOP = (
    python("_worker_loop", f"{SITE}/torch/utils/data/_utils/worker.py", 349),
    python("run", f"{STDLIB}/multiprocessing/process.py", 108),
    python("_bootstrap", f"{STDLIB}/multiprocessing/process.py", 314),
    line("train_epoch", 56),
)
FETCH = python("fetch", f"{SITE}/torch/utils/data/_utils/fetch.py", 52)
IDLE = (
    native("poll", LIBC),
    python("wait", f"{STDLIB}/multiprocessing/connection.py", 947),
    python("get", f"{STDLIB}/multiprocessing/queues.py", 113),
)


def worker(main: LivingThread, **facts: object) -> LivingProcess:
    return process(main, ppid=100, role="worker", **facts)


IDLE_WORKER = worker(thread(101, *IDLE, *LOOP, wait=Wait("poll")))


def test_a_loader_waits_for_a_worker_that_sleeps() -> None:
    stuck = worker(thread(102, native("clock_nanosleep", LIBC), line("fetch_image", 32), FETCH, *LOOP, wait=NANOSLEEP))
    found = judge(LOADER, IDLE_WORKER, stuck)
    assert kind(found) == ("blocked-child", "hypothesis")
    assert place(found) == (102, "MainThread", "fetch_image") and found.verdict.process.role == "worker"
    assert "fetch_image" in found.verdict.headline and "train_epoch" in words(found)
    assert found.verdict.next == "harness attach 102 --for 2m"


def test_a_loader_waits_for_a_worker_that_spins() -> None:
    stuck = worker(busy(102, EVALUATE, line("decode_image", 33), FETCH, *LOOP))
    found = judge(LOADER, IDLE_WORKER, stuck)
    assert kind(found) == ("blocked-child", "hypothesis")
    assert place(found) == (102, "MainThread", "decode_image") and "may only be slow" in found.verdict.against[0]


def test_a_loader_whose_workers_work_is_well() -> None:
    slow = worker(thread(102, line("__getitem__", 47), FETCH, *LOOP, wait=NANOSLEEP, changed=True), counters=(WORKS,))
    assert judge(LOADER, IDLE_WORKER, slow).verdict.kind == "progressing"


def test_the_worker_of_a_worker_is_the_one_really_stuck() -> None:
    middle = worker(thread(102, *TRY_GET[:-1], line("merge", 20), FETCH, *LOOP, wait=Wait("poll")))
    last = process(thread(103, line("decode", 9), FETCH, *LOOP, wait=NANOSLEEP), ppid=102, role="worker")
    assert place(judge(LOADER, IDLE_WORKER, middle, last)) == (103, "MainThread", "decode")


def test_half_a_message_from_a_worker_that_was_killed() -> None:
    read = Wait("read", fd=7, target="pipe:[33]", peer_pids=(100,))
    receive = python("_recv", f"{STDLIB}/multiprocessing/connection.py", 395)
    main = thread(100, native("read", LIBC), receive, line("train_epoch", 62), wait=read)
    dead = process(pid=101, ppid=100, state="Z", role="worker")
    found = judge(process(main), dead)
    assert kind(found) == ("blocked-child", "established")
    assert place(found) == (100, "MainThread", "train_epoch")
    assert "zombie" in words(found) and "101" in words(found)


def test_a_dead_child_that_nobody_collects() -> None:
    main = thread(100, line("read_answer", 37), wait=Wait("read", fd=3, target="pipe:[9]", peer_pids=(100,)))
    found = judge(process(main), process(pid=101, ppid=100, state="Z", role="child"))
    assert found.verdict.kind == "blocked-child" and "zombie" in words(found)
    asks = thread(100, line("read_answer", 37), wait=Wait("read", fd=3, target="pipe:[9]", peer_pids=(100, 101)))
    alive = (
        process(asks, children=(101,)),
        process(thread(101, line("answer", 33), wait=NANOSLEEP), ppid=100, counters=(WORKS,)),
    )
    assert judge(*alive).verdict.kind == "waiting"


def test_a_zombie_is_not_to_blame_when_somebody_else_has_the_pipe() -> None:
    main = thread(100, line("read_answer", 37), wait=Wait("read", fd=3, target="pipe:[9]", peer_pids=(100, 555)))
    found = judge(process(main), process(pid=101, ppid=100, state="Z", role="child"))
    assert found.verdict.kind == "waiting" and "555" in found.verdict.headline


POOL_MAP = (
    *CONDITION,
    python("wait", f"{STDLIB}/multiprocessing/pool.py", 765),
    python("get", f"{STDLIB}/multiprocessing/pool.py", 768),
    python("map", f"{STDLIB}/multiprocessing/pool.py", 367),
    line("resize_all", 48),
)
POOL_LOOP = (python("worker", f"{STDLIB}/multiprocessing/pool.py", 114), *LOOP[1:3], line("resize_all", 47))


def test_a_pool_whose_task_was_lost() -> None:
    idle = [worker(thread(pid, *IDLE, *POOL_LOOP), age_s=age) for pid, age in ((101, 60.0), (103, 58.5))]
    found = judge(process(thread(100, *POOL_MAP)), *idle)
    assert kind(found) == ("blocked-child", "supported")
    assert (
        place(found) == (100, "MainThread", "resize_all") and "Pool" in words(found) and "1.5 s younger" in words(found)
    )


def test_a_pool_whose_workers_work_is_not_lost() -> None:
    working = worker(thread(101, line("resize", 41), *POOL_LOOP, wait=NANOSLEEP, changed=True), counters=(WORKS,))
    assert judge(process(thread(100, *POOL_MAP)), working).verdict.kind == "progressing"


WAITS = thread(
    100,
    native("wait4", LIBC),
    python("_wait", f"{STDLIB}/subprocess.py", 1959),
    python("wait", f"{STDLIB}/subprocess.py", 1264),
    line("run_report", 55),
    wait=Wait("wait4", target="process 101", peer_pids=(101,)),
)


def test_a_child_writes_to_a_pipe_that_its_waiting_parent_does_not_read() -> None:
    full = Wait("write", fd=1, target="pipe:[7]", peer_pids=(100,))
    child = process(thread(101, native("write", LIBC), line("write_report", 37), wait=full), ppid=100, role="child")
    found = judge(process(WAITS), child)
    assert kind(found) == ("blocked-child", "established")
    assert place(found) == (101, "MainThread", "write_report") and "full pipe" in found.verdict.headline


def test_waiting_for_the_end_of_a_child_is_no_fault_whatever_the_child_does() -> None:
    sleeps = process(thread(101, line("nap", 3), wait=NANOSLEEP), ppid=100, role="child")
    assert judge(process(WAITS), sleeps).verdict.kind == "waiting"
    spins = process(busy(101, EVALUATE, line("spin", 3)), ppid=100, role="child")
    found = judge(process(WAITS), spins)
    assert found.verdict.kind == "busy-python" and found.verdict.process.pid == 101
    serves = process(thread(101, line("serve", 3), wait=Wait("accept4", fd=3, target="127.0.0.1:80")), ppid=100)
    assert judge(process(WAITS), serves).verdict.process.pid == 101


def test_a_worker_that_waits_for_the_word_of_its_parent_is_idle() -> None:
    parent = process(thread(100, line("supervise", 9), wait=Wait("epoll_wait", fd=5, peer_pids=(101,))))
    idle = worker(thread(101, line("next_task", 4), wait=Wait("read", fd=3, target="pipe:[4]", peer_pids=(100,))))
    assert judge(parent, idle).verdict.kind == "waiting"
    asks = worker(thread(101, line("fetch", 4), wait=Wait("recvfrom", fd=3, target="10.0.0.9:80")))
    found = judge(parent, asks)
    assert found.verdict.kind == "waiting" and place(found) == (101, "MainThread", "fetch")
    stuck = worker(thread(101, line("fetch", 4), wait=Wait("openat", target="the FIFO /tmp/x", alone=True)))
    assert kind(judge(parent, stuck)) == ("blocked-child", "established")


# blocked-io


OUTSIDE = [
    (Wait("recvfrom", fd=4, target="socket 127.0.0.1:5050 → 127.0.0.1:41000"), "127.0.0.1:5050"),
    (Wait("openat", target="FIFO /tmp/commands.fifo"), "commands.fifo"),
    (Wait("read", fd=3, target="FIFO /tmp/signals.fifo"), "signals.fifo"),
    (Wait("flock", fd=3, target="/tmp/index.lock", peer_pids=(4242,)), "held by process 4242"),
    (Wait("fcntl", fd=3, target="/tmp/ledger.db, held by process 4242", peer_pids=(4242,)), "ledger.db"),
    (Wait("connect", fd=3, target="socket 10.0.0.9:80"), "10.0.0.9:80"),
]


@pytest.mark.parametrize(("wait", "fact"), OUTSIDE)
def test_that_nobody_has_answered_yet_is_no_fault(wait: Wait, fact: str) -> None:
    found = judge(process(thread(100, line("ask", 48), wait=wait)))
    assert kind(found) == ("waiting", "supported") and exit_code_of(found) == 11
    assert fact in found.verdict.headline and "whether somebody answers cannot be known" in found.verdict.headline
    assert place(found) == (100, "MainThread", "ask") and found.verdict.remedies
    moving = process(thread(100, line("ask", 48), wait=wait, changed=True), counters=(WORKS,))
    assert judge(moving).verdict.kind == "progressing"


@pytest.mark.parametrize(("wait", "fact"), OUTSIDE)
def test_what_nobody_is_left_to_answer_is_named(wait: Wait, fact: str) -> None:
    stuck = replace(wait, alone=True)
    found = judge(process(thread(100, line("ask", 48), wait=stuck)))
    assert kind(found) == ("blocked-io", "established") and fact in found.verdict.headline
    assert place(found) == (100, "MainThread", "ask") and exit_code_of(found) == 10
    woken = process(thread(100, line("ask", 48), wait=stuck), rest=Rest(True, ("SIGTERM",)))  # a pipe to itself
    assert judge(woken).verdict.kind == "waiting"
    sleeper = thread(101, line("write_later", 4), wait=NANOSLEEP)
    assert judge(process(thread(100, line("ask", 48), wait=stuck), sleeper)).verdict.kind == "waiting"
    idle = thread(101, native("blas_thread_server", f"{SITE}/numpy.libs/libopenblas.so"))
    assert judge(process(thread(100, line("ask", 48), wait=stuck), idle)).verdict.kind == "blocked-io"


@pytest.mark.parametrize("facts", [{"alone": True}, {"peer_pids": (7,), "peers": (Peer(7, "T", still=True),)}])
def test_whoever_knows_the_name_of_a_fifo_may_still_come(facts: dict[str, object]) -> None:
    wait = Wait("read", fd=3, target="the FIFO /tmp/commands", **facts)  # type: ignore[arg-type]
    assert judge(process(thread(100, line("serve", 8), wait=wait))).verdict.kind == "blocked-io"
    found = judge(process(thread(100, line("serve", 8), wait=replace(wait, named=True))))
    assert kind(found) == ("waiting", "supported") and exit_code_of(found) == 11
    assert "/tmp/commands" in found.verdict.headline and found.verdict.remedies


@pytest.mark.parametrize(
    ("peers", "kind_"),
    [
        ((Peer(7, "T", still=True),), "blocked-io"),
        ((Peer(7, "T", still=False),), "waiting"),
        ((Peer(7, "T"),), "waiting"),
        ((Peer(7, "S"),), "waiting"),
        ((Peer(7),), "waiting"),
        ((), "waiting"),
        ((Peer(7, "S", awaits=(100,)),), "blocked-io"),
        ((Peer(7, "S", awaits=(100, 9)),), "waiting"),
        ((Peer(7, "S", awaits=(8,)), Peer(8, "S", awaits=(100,))), "blocked-io"),
        ((Peer(7, "S", awaits=(8,)), Peer(8, "S")), "waiting"),
    ],
)
def test_the_other_side_decides_whether_a_wait_can_end(peers: tuple[Peer, ...], kind_: str) -> None:
    pids = tuple(peer.pid for peer in peers) or (7,)
    wait = Wait("read", fd=3, target="pipe:[33]", peer_pids=pids, peers=peers)
    assert judge(process(thread(100, line("ask", 48), wait=wait))).verdict.kind == kind_


@pytest.mark.parametrize(
    ("wait", "word", "following"),
    [
        (Wait("recvfrom", fd=4, target="TCP 127.0.0.1:5050 to 127.0.0.1:41000"), "settimeout", "100 --for 2m"),
        (Wait("flock", fd=3, target="/tmp/index.lock", peer_pids=(4242,)), "LOCK_NB", "4242"),
        (Wait("read", fd=3, target="pipe:[33]", peer_pids=(100, 77)), "other end of the pipe", "77"),
        (Wait("read", fd=3, target="the FIFO /tmp/x, whose only writer is itself", peer_pids=(100,)), "pipe", "100"),
    ],
)
def test_the_advice_fits_what_is_waited_for(wait: Wait, word: str, following: str) -> None:
    verdict = judge(process(thread(100, line("ask", 48), wait=wait))).verdict
    (remedy,) = verdict.remedies
    assert word in remedy.do and ("settimeout" in remedy.do) is (word == "settimeout")
    assert verdict.next is not None and verdict.next.startswith(f"harness attach {following}")


def test_a_sleep_ends_by_itself_and_one_of_a_loop_may_not() -> None:
    once = Wait("clock_nanosleep", target="sleeps, 3599 s are left", until_s=3600.0)
    again = Wait("clock_nanosleep", target="sleeps again and again")
    assert judge(process(thread(100, line("rest", 4), wait=once))).verdict.next is None
    assert judge(process(thread(100, line("rest", 4), wait=again))).verdict.next == "harness attach 100 --for 2m"


@pytest.mark.parametrize(("runs", "told"), [(0, "did not get the CPU once"), (9, "got the CPU 9 times"), (None, "")])
def test_whether_a_disk_or_a_file_server_answers_is_told_and_never_called_a_fault(runs: int | None, told: str) -> None:
    wait = Wait(None, wchan="nfs_wait_bit_killable")
    found = judge(process(thread(100, line("load", 3), state="D", wait=wait, runs=runs)))
    assert kind(found) == ("waiting", "supported") and exit_code_of(found) == 11
    assert "nfs_wait_bit_killable" in found.verdict.headline and "whether somebody answers" in found.verdict.headline
    assert told in words(found) and ("uninterruptible" in words(found)) is (runs is not None)
    child = process(thread(101, line("load", 3), state="D", wait=wait, runs=runs), ppid=100, role="worker")
    assert judge(process(thread(100, line("main", 1), wait=Wait("wait4", peer_pids=(101,)))), child).verdict.kind == (
        "waiting"
    )


def test_the_thread_that_is_joined_is_looked_at_too() -> None:
    asks = Wait("recvfrom", fd=4, target="socket 10.0.0.9:80")
    reader = thread(101, line("fetch", 9), name="reader", wait=asks)
    found = judge(process(thread(100, *JOIN, line("main", 20)), reader))
    assert found.verdict.kind == "waiting" and place(found) == (100, "reader", "fetch")


@pytest.mark.parametrize(
    "wait",
    [
        Wait("accept4", fd=3, target="listening on 127.0.0.1:8000"),
        Wait("epoll_wait", fd=5, target="anon_inode:[eventpoll]"),
        Wait("poll"),
        Wait("clock_nanosleep"),
        Wait("read", fd=0, target="/dev/pts/3"),
        Wait("read", fd=6, target="anon_inode:[eventfd]"),
        Wait("futex"),
        None,
    ],
)
def test_where_servers_and_prompts_sleep_is_waiting(wait: Wait | None) -> None:
    found = judge(process(thread(100, line("serve", 44), wait=wait)))
    assert found.verdict.kind == "waiting" and "serve" in found.verdict.headline
    assert found.verdict.next == "harness attach 100 --for 2m"


def test_a_socket_with_a_timeout_is_polled() -> None:
    above = native("poll", LIBC), native("sock_recv_guts", f"{STDLIB}/lib-dynload/_socket.so")
    wait = Wait("poll", fd=4, target="socket 10.0.0.9:80")
    found = judge(process(thread(100, *above, line("ask", 48), wait=wait)))
    assert found.verdict.kind == "waiting" and "whether somebody answers" in found.verdict.headline


# swapping


def test_pages_from_disk_and_little_cpu_is_swapping() -> None:
    main = thread(100, line("train", 3), state="D", cpu_s=0.3, changed=True)
    found = judge(process(main, major_faults=4000, swap_bytes=2**30))
    assert kind(found) == ("swapping", "established") and "800 pages a second" in found.verdict.headline
    assert kind(judge(process(main, major_faults=4000))) == ("swapping", "supported")


def test_a_slow_swap_brings_few_pages_and_whoever_waits_for_one_stands_in_no_system_call() -> None:
    waits = thread(100, line("train", 3), state="D", wait=Wait(None))
    assert kind(judge(process(waits, major_faults=60, swap_bytes=2**30))) == ("swapping", "established")
    assert judge(process(waits, major_faults=0, swap_bytes=2**30)).verdict.kind == "waiting"  # a mapped file, say
    assert judge(process(waits, major_faults=60)).verdict.kind == "waiting"
    writes = thread(100, line("train", 3), state="D", wait=Wait("fsync", fd=3))
    assert judge(process(writes, major_faults=60, swap_bytes=2**30)).verdict.kind == "waiting"


def test_a_kernel_that_is_busy_with_fetching_pages_is_swapping_too() -> None:
    main = thread(100, line("train", 3), cpu_s=4.8, changed=True)
    assert kind(judge(process(main, major_faults=40000, swap_bytes=2**30, kernel_s=4.1))) == ("swapping", "established")
    assert judge(process(main, major_faults=40000, swap_bytes=2**30, kernel_s=1.0)).verdict.kind == "busy-python"
    assert judge(process(main, major_faults=20, swap_bytes=2**30, kernel_s=4.1)).verdict.kind == "busy-python"


def test_reading_a_mapped_file_while_something_moves_is_not_swapping() -> None:
    main = thread(100, line("train", 3), cpu_s=0.3, changed=True)
    step = counter("local", "step", 1, 2, 3, frame=line("train", 3), consumes=True)
    assert judge(process(main, major_faults=4000, counters=(step,))).verdict.kind == "progressing"
    assert judge(process(busy(100, line("train", 3)), major_faults=4000)).verdict.kind == "busy-python"
    assert judge(process(main, major_faults=20)).verdict.kind == "waiting"


# progressing

ENCODE = busy(100, EVALUATE, line("encode", 37), line("train", 58), changed=True)


def test_a_rising_local_of_the_outer_loop_is_progress_but_only_supported() -> None:
    step = counter("local", "step", 3, 3, 4, 4, 5, frame=line("train", 57), consumes=True)
    inner = counter("local", "token", 10, 20, 30, 40, 50, frame=line("encode", 35), consumes=True)
    found = judge(process(ENCODE, counters=(inner, step)))
    assert kind(found) == ("progressing", "supported")
    assert found.progress and found.progress.moving and "step in train" in (found.progress.counter or "")
    assert place(found) == (100, "MainThread", "encode") and "one in 2 s" in found.verdict.headline
    assert exit_code_of(found) == 0 and found.verdict.against


def test_one_increment_gives_no_rate() -> None:
    """A step of 20 s that ends during a look of 5 s does not take 5 s."""
    step = counter("local", "step", 3, 3, 3, 4, 4, frame=line("train", 57), consumes=True)
    found = judge(process(ENCODE, counters=(step,)))
    assert "rises, by 1 in 4 s" in found.verdict.headline and "one in" not in found.verdict.headline


@pytest.mark.parametrize("values", [(3, 4), (3, 4, 2, 5), (3, 3, 3, 3)])
def test_two_samples_a_fall_or_a_standstill_are_no_progress(values: tuple[int, ...]) -> None:
    step = counter("local", "step", *values, frame=line("train", 57), consumes=True)
    found = judge(process(ENCODE, counters=(step,)))
    assert found.verdict.kind == "busy-python" and found.progress and found.progress.moving is False
    assert ("does not only rise" in words(found)) == (values == (3, 4, 2, 5))


@pytest.mark.parametrize(("consumes", "why"), [(False, "in a `while` loop"), (None, "could not be read")])
def test_a_counter_that_uses_nothing_up_is_told_and_proves_nothing(consumes: bool | None, why: str) -> None:
    frame = line("poll", 57)
    tries = counter("local", "n in poll (train.py:57)", 10, 20, 30, 40, 50, frame=frame, consumes=consumes)
    spinning = judge(process(ENCODE, counters=(tries,)))
    assert kind(spinning) == ("busy-python", "established") and exit_code_of(spinning) == 11
    asleep = judge(process(thread(100, frame, wait=NANOSLEEP), counters=(tries,)))
    assert asleep.verdict.kind == "waiting"
    for found in (spinning, asleep):
        assert "n in poll (train.py:57) rises (10 a second)" in words(found) and why in words(found)
        assert "that proves no progress" in words(found) and "no counter moved" not in words(found)
        assert found.progress and found.progress.moving is False


@pytest.mark.parametrize("kind_", ["io", "file", "buffer", "beat", "child", "device"])
def test_what_others_can_see_is_proof(kind_: str) -> None:
    found = judge(process(ENCODE, counters=(counter(kind_, "stdout", 0, 25),)))
    assert kind(found) == ("progressing", "established") and "stdout" in found.verdict.headline


def test_cpu_time_and_changing_stacks_are_no_progress() -> None:
    assert judge(process(ENCODE)).verdict.kind == "busy-python"
    assert judge(process(ENCODE)).progress.moving is None  # type: ignore[union-attr]


def test_the_next_output_is_estimated_from_two_increments_only() -> None:
    times = (0.0, 50.0, 100.0, 150.0, 200.0, 240.0)
    grown = Counter("buffer", "unflushed stdout", times, (22, 29, 29, 36, 36, 36))
    assert estimate_next(grown, 240.0) == "unflushed stdout grew 2 times, every 100.0 s; next output in about 10 s"
    once = Counter("buffer", "unflushed stdout", times, (22, 29, 29, 29, 29, 29))
    assert estimate_next(once, 240.0) is None
    found = judge(process(ENCODE, counters=(grown,)), looked_s=240.0)
    assert "next output in about 10 s" in words(found)


def test_a_child_that_moves_moves_its_parent() -> None:
    child = process(thread(101, line("answer", 33), wait=NANOSLEEP), ppid=100, counters=(WORKS,))
    found = judge(process(WAITS), child)
    assert found.verdict.kind == "progressing" and found.verdict.process.pid == 101


# busy


def test_busy_in_python_names_line_share_and_command() -> None:
    main = busy(100, EVALUATE, line("wait_for_flag", 34))
    found = judge(process(main, hot=(hot(line("wait_for_flag", 34), 5), hot(EVALUATE, 5))))
    assert kind(found) == ("busy-python", "established")
    assert "slow or endless: nothing outside changed for 5 s" in found.verdict.headline
    assert "100%" in words(found) and place(found) == (100, "MainThread", "wait_for_flag")
    assert found.verdict.next == "harness attach 100 --for 2m" and exit_code_of(found) == 11
    assert judge(process(main), looked_s=120.0).verdict.next == "harness attach 100 --for 10m"


def test_busy_in_native_code_on_a_thread() -> None:
    spin = native("zoo_spin", "/tmp/native_waits.so")
    call = (
        native("ffi_call", "/usr/lib/libffi.so.8"),
        native("_call_function_pointer", f"{STDLIB}/lib-dynload/_ctypes.so"),
    )
    scorer = busy(101, spin, *call, line("score", 37), name="scorer")
    main = thread(100, *JOIN, line("<module>", 50))
    for facts in ({}, {"hot": (hot(spin, 5, 101), hot(call[1], 5, 101))}):
        found = judge(process(main, scorer, **facts))
        assert kind(found) == ("busy-native", "established")
        assert place(found) == (100, "scorer", "score")
        assert "zoo_spin" in words(found) and "native_waits" in words(found)


def test_a_regular_expression_is_native_by_the_samples_alone() -> None:
    match = native("sre_ucs1_match", PYTHON)
    main = busy(100, match, native("pattern_match", PYTHON), line("parse_header", 33), changed=True)
    found = judge(process(main, hot=(hot(match, 5), hot(line("parse_header", 33), 5))))
    assert found.verdict.kind == "busy-native" and place(found)[2] == "parse_header"
    found = judge(process(main))
    assert found.verdict.kind == "busy-python" and "sre_ucs1_match" in words(found)


def test_of_the_interpreters_functions_the_one_that_python_called_is_named() -> None:
    power = native("k_mul", PYTHON), native("long_pow", PYTHON), native("PyNumber_Power", PYTHON)
    main = busy(100, native("x_mul", PYTHON), *power, line("count_keys", 25), changed=True)
    found = judge(process(main, hot=(*(hot(frame, 5) for frame in power), hot(line("count_keys", 25), 5))))
    assert found.verdict.kind == "busy-native" and place(found)[2] == "count_keys"
    assert "integer arithmetic (long_pow), called from count_keys" in found.verdict.headline
    assert "PyNumber_Power" not in words(found)


def test_a_program_that_is_no_python_is_never_busy_in_python() -> None:
    dash = native(None, "/usr/bin/dash")
    main = thread(100, line("build", 3), wait=Wait("wait4", ("0xffffffff",)))
    for stack in ((dash,), ()):
        child = process(
            busy(101, *stack, changed=True), ppid=100, role="child", python=None, argv=("/bin/sh", "-c", "x")
        )
        found = judge(process(main, children=(101,)), child)
        assert kind(found) == ("busy-native", "established") and exit_code_of(found) == 11
        text = render(found, width=110, color=False)
        assert "its command: /bin/sh -c x" in text and "called from" not in text
        assert text.count("Python 3.11.7") == 0


def test_a_child_or_target_that_is_no_python_is_told_by_its_command() -> None:
    sleeps = {"python": None, "argv": ("/bin/sleep", "100"), "name": "sleep"}
    alone = judge(process(thread(101, wait=NANOSLEEP), **sleeps))
    below = judge(
        process(thread(100, line("build", 3), wait=Wait("wait4", ("0xffffffff",))), children=(101,)),
        process(thread(101, native(None, "/usr/bin/sleep"), wait=NANOSLEEP), ppid=100, role="child", **sleeps),
    )
    for found in (alone, below):
        text = render(found, width=110, color=False)
        assert "pid 101" in text and "its command: /bin/sleep 100" in text and "3.11.7" not in text


def test_what_only_carries_a_call_is_no_native_code() -> None:
    calls = native("PyObject_Vectorcall", PYTHON), native("slot_tp_call", PYTHON), native("_Py_Dealloc", PYTHON)
    main = busy(100, *calls, line("settle", 25), changed=True)
    assert judge(process(main, hot=tuple(hot(frame, 5) for frame in calls))).verdict.kind == "busy-python"


def test_a_native_call_that_moves_under_one_line_is_native() -> None:
    main = busy(100, native("zoo_spin", "/tmp/native_waits.so"), line("score", 37), changed=True)
    assert judge(process(main, hot=(hot(line("score", 37), 5),))).verdict.kind == "busy-native"
    assert judge(process(main, hot=(hot(line("score", 37), 3),))).verdict.kind == "busy-python"


def test_short_native_calls_from_a_python_loop_are_python() -> None:
    add = native("DOUBLE_add", f"{SITE}/numpy/_multiarray_umath.so")
    main = busy(100, add, line("sum_up", 9), changed=True)
    assert judge(process(main, hot=(hot(add, 2), hot(line("sum_up", 9), 5)))).verdict.kind == "busy-python"


TAKE_GIL = native("take_gil", PYTHON), native("PyEval_RestoreThread", PYTHON)


def test_the_gil_is_held_by_a_call_that_spins() -> None:
    main = busy(100, native("zoo_spin", "/tmp/native_waits.so"), line("run_decoder", 45), holds_gil=True)
    reporter = thread(101, *TAKE_GIL, line("report", 41), name="reporter", holds_gil=False)
    found = judge(process(main, reporter))
    assert found.verdict.kind == "busy-native" and place(found) == (100, "MainThread", "run_decoder")
    assert "holds the GIL in zoo_spin" in words(found) and "reporter" in words(found)


# waiting


def test_the_gil_is_held_by_a_call_that_sleeps() -> None:
    sleep = native("clock_nanosleep", LIBC), native("zoo_sleep", "/tmp/native_waits.so")
    main = thread(100, *sleep, line("pause_decoder", 46), holds_gil=True, wait=NANOSLEEP)
    reporter = thread(101, *TAKE_GIL, line("report", 42), name="reporter", holds_gil=False)
    found = judge(process(main, reporter))
    assert found.verdict.kind == "waiting" and place(found) == (100, "MainThread", "pause_decoder")
    assert "GIL" in found.verdict.headline and "zoo_sleep" in words(found) and exit_code_of(found) == 11


def test_an_asyncio_task_that_is_never_done() -> None:
    main = thread(
        100, native("epoll_wait", LIBC), python("select", f"{STDLIB}/selectors.py", 468), line("run_client", 40),
        wait=Wait("epoll_wait", fd=3),
    )  # fmt: skip
    found = judge(process(main))
    assert found.verdict.kind == "waiting" and "run_client" in found.verdict.headline


def test_without_any_stack_nothing_is_claimed() -> None:
    found = judge(process(thread(100, wait=None), gaps=(Gap("stacks", "not permitted", "sudo harness attach 100"),)))
    assert kind(found) == ("waiting", "unknown") and found.gaps and exit_code_of(found) == 11


# what may move unseen


def unseen(found: Document) -> list[str]:
    return [gap.what for gap in found.gaps]


AT_MODULE_LEVEL = busy(100, EVALUATE, line("<module>", 3), changed=True)
LOG = counter("file", "/job/log.txt", 0, 0, 0)


def test_a_loop_at_module_level_may_count_unseen() -> None:
    (gap,) = judge(process(AT_MODULE_LEVEL)).gaps
    assert gap.what == "variables at module level" and gap.fix and "harness.beat(step=" in gap.fix
    assert unseen(judge(process(thread(100, line("<module>", 3), wait=Wait("clock_nanosleep"))))) == [gap.what]


def test_where_something_is_seen_or_a_function_runs_module_level_is_no_gap() -> None:
    assert unseen(judge(process(busy(100, EVALUATE, line("spin", 3), line("<module>", 9), changed=True)))) == []
    assert unseen(judge(process(AT_MODULE_LEVEL, counters=(WORKS,)))) == []
    ring = two_in_a_ring(a="0x1", b="0x2").threads
    assert unseen(judge(process(thread(99, *JOIN, line("<module>", 9)), *ring))) == []


def test_what_is_buffered_for_other_files_may_grow_unseen() -> None:
    names = [counter("file", f"/job/{name}", size, size) for name, size in (("a", 7), ("b", 8), ("c", 9))]
    (gap,) = judge(process(ENCODE, counters=(LOG,))).gaps
    assert gap.what == "what is still in the buffers of log.txt (0 bytes)"
    assert gap.fix and gap.fix.endswith("harness attach 100 --for 2m")
    (gap,) = judge(process(ENCODE, counters=(*names, LOG))).gaps
    assert gap.what == "what is still in the buffers of a (7 bytes), b (8 bytes), c (9 bytes) and 1 more"


def test_stdout_an_unlinked_file_and_one_that_grows_are_no_such_gap() -> None:
    stdout = counter("file", "/job/train.log", 0, 0)
    assert unseen(judge(process(ENCODE, counters=(stdout,), **log_file()))) == []
    assert unseen(judge(process(ENCODE, counters=(counter("file", "/tmp/x (deleted)", 0, 0),)))) == []
    assert unseen(judge(process(ENCODE, counters=(LOG, counter("file", "/job/model.pt", 1, 2))))) == []


# the document


def test_an_empty_log_has_its_reason_its_text_and_its_remedy() -> None:
    found = judge(process(busy(100, EVALUATE, line("settle", 50), changed=True), **log_file()))
    progress = found.progress
    assert progress and progress.unflushed_stdout == "epoch 1: 1024 clusters\ntolerance 0.001, settling\n"
    assert progress.unflushed_stdout_bytes == 49 and progress.last_output_age_s == 371.0
    assert (progress.looked_s, progress.samples) == (5.0, 5)
    assert "49 bytes" in words(found) and "block-buffered file /job/train.log" in words(found)
    assert any("python -u" in remedy.do for remedy in found.verdict.remedies)


def test_a_stream_that_is_empty_or_a_terminal_needs_no_remedy() -> None:
    assert "block-buffered" not in words(judge(process(ENCODE)))
    terminal = log_file(outputs=())["unflushed"]
    assert "no terminal" in words(judge(process(ENCODE, unflushed=terminal)))


@pytest.mark.parametrize(
    ("ended", "expected", "code"),
    [
        ("exit status 0", ("clean", "established"), 0),
        ("exit status 3", ("exit-nonzero", "established"), 10),
        ("SIGKILL", ("killed", "established"), 10),
        ("killed by SIGABRT", ("abort", "established"), 10),
        ("killed by SIGUSR1", ("terminated", "established"), 10),
        ("its status is not visible to us", ("exit-nonzero", "unknown"), 11),
        ("it became another program after 1.0 s: kill SIGTERM", ("exit-nonzero", "unknown"), 11),
        (
            "it is a zombie, exit status 0; its parent, process 7 (SIGNAL exit status 3), waits",
            ("clean", "established"),
            0,
        ),
    ],
)
def test_one_that_has_ended_is_gone(ended: str, expected: tuple[str, str], code: int) -> None:
    found = judge(process(thread(100, line("train", 3)), ended=ended))
    assert found.outcome.state == "gone" and kind(found) == expected and exit_code_of(found) == code


def test_a_zombie_is_gone() -> None:
    found = judge(process(pid=100, state="Z", ppid=7))
    assert found.outcome.state == "gone" and "process 7" in found.verdict.headline and exit_code_of(found) == 11
    assert found.verdict.next == "harness attach 7"
    assert judge(process(pid=100, state="S", ppid=7, ended="exit status 0")).verdict.next is None


def test_how_it_ended_is_in_the_outcome() -> None:
    left = judge(process(pid=100, ended="it ended after 1.0 s, exit status 3")).outcome
    killed = judge(process(pid=100, ended="it ended after 1.0 s, killed by SIGSEGV")).outcome
    assert (left.exit_code, left.signal, killed.exit_code, killed.signal) == (3, None, None, "SIGSEGV")


def test_exit_codes() -> None:
    assert exit_code_of(judge(process(thread(100, line("train", 3), state="T")))) == 10
    assert (
        exit_code_of(judge(process(thread(100, line("ask", 3), wait=Wait("read", target="pipe:[3]", alone=True)))))
        == 10
    )
    assert exit_code_of(judge(process(thread(100, line("ask", 3), wait=Wait("read", target="pipe:[3]"))))) == 11


def test_one_of_several_targets_is_judged_by_its_own_tree() -> None:
    well = process(thread(100, line("train", 3), changed=True), counters=(WORKS,))
    stopped = process(thread(200, line("train", 3), state="T"))
    both = look(well, stopped, targets=(100, 200))
    assert judge_look(both, 100).verdict.kind == "progressing"
    assert judge_look(both, 200).verdict.kind == "stopped"


def test_threads_are_described_one_line_each_and_the_equal_ones_together() -> None:
    pool = [thread(110 + n, native("gomp_thread_start", GOMP)) for n in range(7)]
    lines = describe_threads(process(*two_in_a_ring(a="0x1", b="0x2").threads, *pool))
    assert len(lines) == 3
    assert lines[0].startswith("MainThread (100): asleep in transfer (train.py:43)")
    assert "lock word" not in lines[0] and lines[0].endswith("waits for journal_lock, held by journal-writer")
    assert "lock word 0x7f00 (futex)" in lines[2]
    assert lines[2].startswith("7 threads without Python: asleep in gomp_thread_start")


# Whose progress

GET = python("get", f"{STDLIB}/multiprocessing/queues.py", 103)


def test_children_that_a_thread_beside_has_started_are_no_progress() -> None:
    finished = counter("child", "children finished", 1, 2, 3, 4)
    beside = thread(101, line("watch_gpu", 8), name="gpu", wait=NANOSLEEP)
    stuck = judge(process(thread(100, *CONDITION, line("train", 13)), beside, counters=(finished,)))
    assert stuck.verdict.kind == "waiting" and "children finished +3" in words(stuck)
    for main in (
        thread(100, line("build", 5), wait=Wait("wait4", target="child 200")),
        thread(100, line("build", 5), changed=True),
    ):
        assert judge(process(main, beside, counters=(finished,))).verdict.kind == "progressing"


def test_what_a_thread_beside_writes_is_told_and_not_credited() -> None:
    wrote = Counter("io", "bytes written", (0.0, 1.0, 2.0), (0, 60, 120), tid=101)
    stats = thread(101, line("stats", 8), name="stats", wait=NANOSLEEP)
    waits = judge(process(thread(100, *CONDITION, line("train", 13)), stats, counters=(wrote,)))
    assert waits.verdict.kind == "waiting" and "thread stats moves (bytes written +120)" in words(waits)
    joined = thread(100, *JOIN, line("train", 13))
    assert judge(process(joined, stats, counters=(wrote,))).verdict.status == "established"
    assert judge(process(joined, stats, counters=(wrote,))).verdict.kind == "progressing"


def test_what_threads_wrote_that_have_ended_counts_where_somebody_waits_for_threads() -> None:
    ended = Counter("io", "bytes written by threads that have ended", (0.0, 1.0, 2.0), (0, 60, 120))
    one = Counter("io", "bytes written", (0.0, 1.0, 2.0), (0, 60, 120), tid=109)
    for wrote in (ended, one):
        found = judge(process(thread(100, *CONDITION, line("train", 13)), counters=(wrote,)))
        assert found.verdict.kind == "waiting" and "beside the line of work" in words(found)
        joins = judge(process(thread(100, *JOIN, line("train", 13), moved=True), counters=(wrote,)))
        assert kind(joins) == ("progressing", "supported")
        stands = process(thread(100, *JOIN, line("train", 13), moved=False), counters=(wrote,))
        asks = process(thread(100, *JOIN, line("train", 13), moved=True, wait=FUTEX_TIMED), counters=(wrote,))
        assert judge(stands).verdict.kind == judge(asks).verdict.kind == "waiting"


def test_of_a_pool_whose_tasks_do_not_all_move_it_may_wait_for_the_one_that_stands() -> None:
    asks = thread(100, *CONDITION, python("result", f"{STDLIB}/concurrent/futures/_base.py", 451), line("train", 13))
    tasks = python("run", f"{STDLIB}/concurrent/futures/thread.py", 58)
    first, second = (thread(tid, line("load", 8), tasks, wait=NANOSLEEP) for tid in (101, 102))
    wrote = [Counter("io", "bytes written", (0.0, 1.0, 2.0), (0, 60, 120), tid=tid) for tid in (101, 102)]
    assert judge(process(asks, first, second, counters=tuple(wrote[:1]))).verdict.kind == "waiting"
    assert kind(judge(process(asks, first, second, counters=tuple(wrote)))) == ("progressing", "supported")
    assert kind(judge(process(asks, first, counters=tuple(wrote[:1])))) == ("progressing", "established")


def test_who_only_starts_again_what_fails_does_not_move() -> None:
    wrote = Counter("io", "bytes written", (0.0, 1.0, 2.0), (0, 60, 120), tid=100)
    failed, well = (counter(kind, name, 0, 1, 2) for kind, name in (("ended", FAILED), ("child", "children finished")))
    rests = thread(100, line("serve", 9), wait=NANOSLEEP)
    again = judge(process(rests, counters=(wrote, failed)))
    assert again.verdict.kind == "waiting" and "handler" not in words(again)
    assert judge(process(rests, counters=(wrote, failed, well))).verdict.kind == "progressing"
    assert judge(process(busy(100, line("train", 9)), counters=(wrote, failed))).verdict.kind == "progressing"


def test_who_reads_a_childs_answers_moves_by_itself_who_passes_on_its_output_does_not() -> None:
    wrote = Counter("io", "bytes written", (0.0, 1.0, 2.0), (0, 60, 120), tid=100)
    server = process(thread(101, line("serve", 3), wait=NANOSLEEP), ppid=100, role="child")
    reads = thread(100, line("fetch", 5), wait=Wait("recvfrom", fd=3, target="127.0.0.1:80", peer_pids=(101,)))
    assert kind(judge(process(reads, counters=(wrote,)), server)) == ("progressing", "established")
    wait = Wait("read", fd=3, target="reads from pipe:[9], which is empty", peer_pids=(101,))
    relays = thread(100, line("print_output", 5), wait=wait)
    assert judge(process(relays, counters=(wrote,)), server).verdict.kind == "waiting"


def test_a_child_that_has_not_the_other_end_is_not_awaited() -> None:
    wrote = Counter("io", "bytes written", (0.0, 1.0, 2.0), (0, 60, 120), tid=101)
    beats = process(thread(101, line("beat", 3), wait=NANOSLEEP), ppid=100, role="worker", counters=(wrote,))
    for alone, expected in ((True, "blocked-io"), (False, "waiting")):
        wait = Wait("read", fd=4, target="pipe:[7]", peer_pids=() if alone else (101,), alone=alone)
        assert judge(process(thread(100, GET, line("train", 5), wait=wait)), beats).verdict.kind == expected


def test_who_has_the_writing_end_of_a_queue_may_have_inherited_it() -> None:
    wrote = counter("io", "bytes written", 0, 60, 120, tid=101)
    wait = Wait("read", fd=4, target="reads from pipe:[7], which is empty", peer_pids=(101,))
    gets, reads = (thread(100, *above, line("train", 5), wait=wait) for above in ((GET,), ()))
    pool = python("worker", f"{STDLIB}/multiprocessing/pool.py", 125)
    at_work, beats = thread(101, line("beat", 3), pool, wait=NANOSLEEP), thread(101, line("beat", 3), wait=NANOSLEEP)
    piped = {"outputs": (Output(1, "pipe", "pipe:[7]"),)}
    for main, child, facts, expected in (
        (gets, beats, {}, ("waiting", "supported")),
        (gets, at_work, {}, ("progressing", "established")),
        (reads, beats, {}, ("waiting", "supported")),
        (reads, beats, piped, ("progressing", "established")),
    ):
        below = process(child, ppid=100, role="worker", counters=(wrote,), **facts)
        found = judge(process(main), below)
        assert kind(found) == expected and exit_code_of(found) == (0 if expected[0] == "progressing" else 11)
    second = process(thread(102, line("load", 3), pool, wait=NANOSLEEP), ppid=100, role="worker")
    busy_one = process(at_work, ppid=100, role="worker", counters=(wrote,))
    wait = Wait("read", fd=4, target="reads from pipe:[7], which is empty", peer_pids=(101, 102))
    gets = thread(100, GET, line("train", 5), wait=wait)
    assert kind(judge(process(gets), busy_one, second)) == ("blocked-child", "hypothesis"), "it may wait for the other"
    works = replace(second, threads=(replace(second.threads[0], changed=True),))
    assert kind(judge(process(gets), busy_one, works)) == ("progressing", "supported")


@pytest.mark.parametrize(
    ("handled", "moved", "expected"),
    [
        ((), False, ("progressing", "established")),
        (("SIGTERM",), True, ("progressing", "established")),
        (("SIGTERM",), False, ("progressing", "supported")),
        (("SIGTERM",), None, ("progressing", "supported")),
        (None, False, ("waiting", "supported")),
        (("SIGUSR1",), False, ("waiting", "supported")),
        (("SIGUSR1",), True, ("progressing", "established")),
        (("SIGALRM",), True, ("progressing", "supported")),
        (("SIGALRM", "SIGTERM"), None, ("waiting", "supported")),
        (("SIGALRM", "SIGTERM"), False, ("waiting", "supported")),
    ],
)
@pytest.mark.parametrize("which", ["io", "buffer"])
def test_what_a_handler_of_a_signal_may_have_written_is_not_proven_to_be_the_main_threads(
    which: str, handled: tuple[str, ...] | None, moved: bool | None, expected: tuple[str, str]
) -> None:
    wrote = counter(which, "bytes written", 0, 60, 120, tid=100 if which == "io" else None)
    main = thread(100, *CONDITION, line("train", 13), moved=moved)
    found = judge(process(main, counters=(wrote,), rest=Rest(False, handled)))
    assert kind(found) == expected
    if expected[0] == "waiting":
        assert "bytes written +120" in words(found) and "no counter moved" not in words(found)
    slept = Wait("clock_nanosleep", target=SLEEPS_AGAIN)
    by_itself = handled is None or "SIGALRM" in handled
    for sleeps in (
        thread(100, line("train", 13), moved=moved, wait=slept),
        thread(100, *CONDITION, line("train", 13), moved=True, wait=FUTEX_TIMED),
    ):
        found = judge(process(sleeps, counters=(wrote,), rest=Rest(False, handled)))
        assert found.verdict.kind == ("waiting" if by_itself else "progressing"), "it may only ask again and again"


def test_a_thread_beside_has_no_handlers() -> None:
    wrote = counter("io", "bytes written", 0, 60, 120, tid=101)
    loads = thread(101, line("load", 8), name="loader", wait=NANOSLEEP, moved=False)
    joins = process(thread(100, *JOIN, line("train", 13)), loads, counters=(wrote,), rest=Rest(False, ("SIGALRM",)))
    assert kind(judge(joins)) == ("progressing", "established")


def test_a_buffer_that_threads_may_have_filled_which_came_and_went_is_not_the_lines() -> None:
    grew = counter("buffer", "unflushed stdout", 0, 60, 120)
    waits = thread(100, *CONDITION, line("train", 13))
    assert kind(judge(process(waits, counters=(grew,)))) == ("progressing", "established")
    for main, expected in (
        (waits, "waiting"),
        (thread(100, *CONDITION, line("train", 13), moved=True), "progressing"),
        (thread(100, *CONDITION, line("train", 13), moved=True, wait=FUTEX_TIMED), "waiting"),
        (thread(100, *JOIN, line("train", 13)), "waiting"),
        (thread(100, *JOIN, line("train", 13), moved=True), "progressing"),
    ):
        found = judge(process(main, counters=(grew,), fleeting_threads=4))
        assert kind(found) == (expected, "supported")
    timer = thread(101, line("wait", 8), name="Thread-9", wait=NANOSLEEP)
    assert judge(process(waits, timer, counters=(grew,))).verdict.kind == "waiting"
    idle = thread(101, *CONDITION, line("wait", 8), name="idle", moved=False)
    assert kind(judge(process(waits, idle, counters=(grew,)))) == ("progressing", "established")
    assert judge(process(waits, replace(idle, wait=FUTEX_TIMED), counters=(grew,))).verdict.kind == "waiting"


ANY_CHILD = Wait("wait4", ("0xffffffffffffffff", "0x7ffc", "0x0", "0x0"), target="waits for any child")
SHELL = {"python": None, "argv": ("sh", "-c", "…")}


def below(tid: int, *stack: CrashFrame, **facts: object) -> LivingProcess:
    about = {key: facts.pop(key) for key in ("wait", "changed", "state", "cpu_s") if key in facts}
    return process(thread(tid, *stack, **about), ppid=100, role="child", **facts)


def test_who_waits_for_any_child_may_wait_for_the_one_that_stands() -> None:
    wrote = counter("io", "bytes written", 0, 60, 120)
    silent = Wait("recvfrom", fd=3, target="10.0.0.9:80 (ESTABLISHED, nothing received)")
    stuck, beats = below(101, line("fetch", 3), wait=silent), below(102, wait=NANOSLEEP, counters=(wrote,), **SHELL)
    for main in (process(thread(100, wait=ANY_CHILD), **SHELL), process(thread(100, line("run", 4), wait=ANY_CHILD))):
        for children in ((stuck, beats), (beats, stuck)):
            found = judge(main, *children)
            assert kind(found) == ("waiting", "supported") and place(found) == (101, "MainThread", "fetch")
            assert "process 102 moves (bytes written +120)" in words(found)
        for other in (
            replace(stuck, counters=(wrote,)),
            below(101, line("fetch", 3), changed=True),
            below(101, line("fetch", 3), state="R", cpu_s=4.8),
        ):
            assert kind(judge(main, other, beats)) == ("progressing", "supported")
    finished = counter("child", "children finished", 1, 2, 3)
    shell = process(thread(100, wait=ANY_CHILD), counters=(finished,), **SHELL)
    assert judge(shell, stuck, beats).verdict.kind == "waiting"
    assert judge(shell, beats).verdict.kind == judge(shell).verdict.kind == "progressing"
    named = Wait("wait4", ("0x66", "0x7ffc", "0x0", "0x0"), target="child 102", peer_pids=(102,))
    assert kind(judge(process(thread(100, wait=named), **SHELL), stuck, beats)) == ("progressing", "established")


def test_who_waits_for_one_that_moves_does_not_stand() -> None:
    """Of two children that any may be waited for, the one waits for the end of the other."""
    wrote = counter("io", "bytes written", 0, 60, 120)
    shell = below(101, wait=Wait("wait4", target="child 103", peer_pids=(103,)), children=(103,), **SHELL)
    beats = below(102, wait=NANOSLEEP, counters=(wrote,), **SHELL)
    grandchild = replace(below(103, line("train", 4), wait=NANOSLEEP, counters=(wrote,)), ppid=101)
    main = process(thread(100, wait=ANY_CHILD), **SHELL)
    assert judge(main, shell, beats, grandchild).verdict.kind == "progressing"
    assert judge(main, shell, beats, replace(grandchild, counters=())).verdict.kind == "waiting"


def test_of_a_pipe_the_one_that_writes_is_waited_for_and_not_the_one_that_passes_it_on() -> None:
    wrote, beat = counter("io", "bytes written", 0, 60, 120), counter("io", "bytes written", 0, 60, 120, tid=111)
    shell = process(thread(100, wait=ANY_CHILD), **SHELL)
    reads = Wait("read", fd=0, target="reads from pipe:[7], which is empty", peer_pids=(101,))
    beside = thread(111, line("beat", 3), name="beat", wait=NANOSLEEP)
    stuck = process(
        thread(101, *CONDITION, line("train", 5)), beside, ppid=100, role="child", counters=(beat,), outputs=()
    )
    well = below(101, line("train", 5), wait=NANOSLEEP, counters=(replace(beat, tid=101),))
    for wait in (reads, Wait("write", fd=3, target="file t.log")):
        tee = below(102, wait=wait, counters=(wrote,), **SHELL)
        found = judge(shell, stuck, tee)
        assert found.verdict.kind == "waiting" and place(found) == (101, "MainThread", "train")
        assert judge(shell, well, tee).verdict.kind == "progressing"


def test_a_logger_beside_the_only_worker_is_no_answer() -> None:
    wrote = counter("io", "bytes written", 0, 60, 120, tid=102)
    wait = Wait("read", fd=4, target="reads from pipe:[7], which is empty", peer_pids=(101, 102))
    asks = process(thread(100, GET, line("train", 5), wait=wait))
    worker = below(101, line("work", 3), wait=NANOSLEEP)
    logger = below(102, line("log", 9), wait=NANOSLEEP, counters=(wrote,))
    found = judge(asks, worker, logger)
    assert kind(found) == ("blocked-child", "hypothesis") and place(found) == (101, "MainThread", "work")


def test_a_thread_without_python_is_the_line_only_where_it_is_joined() -> None:
    """faulthandler's own, or a library's heartbeat, writes beside a main thread in a call of a library."""
    wrote = counter("io", "bytes written", 0, 60, 120, tid=111)
    in_library = native("lib_wait", "/job/n.so"), line("train", 5)
    beats = thread(111, native("beat", "/job/n.so"), wait=NANOSLEEP)
    found = judge(process(thread(100, *in_library), beats, counters=(wrote,)))
    assert found.verdict.kind == "waiting" and "beside the line of work" in words(found)
    for value, operation, expected in (
        ("0x6f", "0x109", "progressing"),
        ("0x6f", "0x189", "waiting"),
        ("0x2", "0x109", "waiting"),
    ):
        wait = Wait("futex", ("0x7f00", operation, value, "0x0", "0x0", "0xffffffff"), target="lock word 0x7f00")
        joins = process(thread(100, *in_library, wait=wait), beats, counters=(wrote,))
        assert judge(joins).verdict.kind == expected


def test_a_program_that_has_ended_is_told_to_have_ended_also_where_a_thread_of_it_moves() -> None:
    shutdown = python("_shutdown", f"{STDLIB}/threading.py", 1590)
    wrote = counter("io", "bytes written", 0, 60, 120, tid=101)
    beat = thread(101, line("beat", 3), name="heart", wait=NANOSLEEP)
    found = judge(process(thread(100, shutdown), beat, counters=(wrote,)))
    said = "the program has ended; the interpreter waits for the non-daemon thread heart, bytes written rises"
    assert kind(found) == ("progressing", "established") and said in found.verdict.headline


@pytest.mark.parametrize(("written", "beside"), [((0, 60, 120), True), ((60, 60, 60), False)])
def test_who_beats_beside_the_line_is_seen_to(written: tuple[int, ...], beside: bool) -> None:
    wrote = Counter("io", "bytes written", (0.0, 1.0, 2.0), written, tid=101)
    beats = process(thread(101, line("beat", 3), wait=NANOSLEEP), ppid=100, role="worker", counters=(wrote,))
    stuck, waits = process(thread(100, *CONDITION, line("train", 5))), process(WAITS)
    assert stirs_beside(look(stuck, beats)) is beside
    assert not stirs_beside(look(waits, beats)), "it is the line"


@pytest.mark.parametrize("name", ["python3.13t", "python3.11", "python3", None])
def test_a_thread_that_inherited_the_programs_name_is_told_by_its_number(name: str | None) -> None:
    threads = thread(100), thread(101, name=name), thread(102, name="loader")
    assert [name_thread(process(*threads), one) for one in threads] == ["MainThread", "thread 101", "loader"]
