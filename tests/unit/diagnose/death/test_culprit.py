"""Which process is the cause: by births, ends and order, never by a number or a word in a text."""

from __future__ import annotations

import signal

import msgspec
import pytest
from msgspec import structs

from harness.diagnose.death.judge import judge
from harness.evidence.memory import Kill
from harness.evidence.run import Ending, Exit, Process, Uncaught
from tests.builders.evidence import run_evidence, told

SEGFAULT, KILLED, TERMINATED = (Ending(signo=int(n)) for n in (signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM))
FAILED = Ending(exit_code=1)
HEAD = 'Traceback (most recent call last):\n  File "/job/train.py", line 9, in main\n    run()\n'
POOL = HEAD + "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly\n"
VALUE = HEAD + "ValueError: expected 10100 rows, 101 were there\n"


def child(pid: int, ending: Ending | None, ended_s: float | None, *, born_s: float = 1.0, **facts: object) -> Process:
    values: dict[str, object] = {"argv": ("python", "train.py"), "executable": "/usr/bin/python3.11", "rank": None}
    values |= {"ppid": 100} | facts
    return Process(
        pid, values["ppid"], "python", values["argv"], values["executable"], born_s, values["rank"], ended_s, ending
    )  # type: ignore[arg-type]


def culprit_of(text: str, ending: Ending, *others: Process, **facts: object) -> tuple[str, str, int | None]:
    verdict = judge(run_evidence(text, ending, others=others, **facts)).verdict
    return verdict.kind, verdict.status, verdict.process.pid


@pytest.mark.parametrize("ended_s", [0.5, 9.5])
def test_a_pool_that_broke_lost_the_worker_that_died_however_long_ago(ended_s: float) -> None:
    raised = told("BrokenProcessPool", at_s=500.0)
    dead = child(101, SEGFAULT, ended_s, born_s=0.1)
    assert culprit_of(POOL, FAILED, dead, ended_s=501.0, **raised) == ("segfault", "established", 101)


def test_an_earlier_loss_was_got_over() -> None:
    """Where it is told that the command did not end the second one itself."""
    first, second = child(101, SEGFAULT, 2.0), child(102, KILLED, 8.0, born_s=3.0)
    raised, sent = told("BrokenProcessPool"), (Kill("SIGKILL", 102, 7.9, 4711, 0, "watchdog", "kernel"),)
    assert culprit_of(POOL, FAILED, first, second, kills=sent, **raised) == ("killed", "established", 102)
    assert culprit_of(POOL, FAILED, first, second, **raised) == ("killed", "supported", 102)
    assert culprit_of(VALUE, FAILED, first, second, **told("ValueError"))[::2] == ("python-exception", 100)


def test_those_that_a_broken_pool_still_had_are_told_to_leave_by_it() -> None:
    """Also where nobody says who sent SIGTERM. One after another, that was replaced, fell by itself."""
    lost, left = child(101, SEGFAULT, 8.0), child(102, TERMINATED, 8.2)
    assert culprit_of(POOL, FAILED, lost, left, **told("BrokenProcessPool"))[::2] == ("segfault", 101)
    late = child(102, TERMINATED, 9.0, born_s=8.5)
    assert culprit_of(POOL, FAILED, lost, late, **told("BrokenProcessPool"))[::2] == ("terminated", 102)


def test_a_worker_that_the_parent_ended_itself_is_not_the_one_it_lost() -> None:
    sent = (Kill("SIGKILL", 102, 9.0, 100, 0, "python train.py", "kernel"),)
    lost, ended = child(101, SEGFAULT, 8.0), child(102, KILLED, 9.1)
    assert culprit_of(POOL, FAILED, lost, ended, kills=sent, **told("BrokenProcessPool"))[2] == 101
    own = (Kill("SIGKILL", 102, 9.0, 102, 0, "python train.py", "kernel"),)
    assert culprit_of(POOL, FAILED, lost, ended, kills=own, **told("BrokenProcessPool"))[2] == 102


def test_a_number_in_a_message_names_no_process() -> None:
    dead = child(101, KILLED, 5.0)
    assert culprit_of(VALUE, FAILED, dead, **told("ValueError")) == ("python-exception", "established", 100)


@pytest.mark.parametrize(("argv", "pid"), [(("sudo", "python", "train.py"), 101), (("python", "train.py"), 100)])
def test_sudo_ends_itself_as_its_command_ended(argv: tuple[str, ...], pid: int) -> None:
    evidence = run_evidence("", SEGFAULT, others=(child(101, SEGFAULT, 9.0),))
    main, *others = evidence.processes
    processes = (structs.replace(main, argv=argv, executable=f"/usr/bin/{argv[0]}"), *others)
    assert judge(structs.replace(evidence, argv=argv, processes=processes)).verdict.process.pid == pid


def test_a_helper_that_falls_after_the_exception_did_not_cause_it() -> None:
    late = child(101, SEGFAULT, 9.85)
    assert culprit_of(VALUE, FAILED, late, **told("ValueError", at_s=9.8))[::2] == ("python-exception", 100)
    assert culprit_of(POOL, FAILED, late, **told("BrokenProcessPool", at_s=9.8))[::2] == ("python-exception", 100)


def test_an_end_that_was_noticed_late_may_have_come_first() -> None:
    late, raised = child(101, KILLED, 9.85), told("BrokenProcessPool", at_s=9.8)
    before, after = (msgspec.structs.replace(late, alive_s=alive_s) for alive_s in (9.7, 9.82))
    assert culprit_of(POOL, FAILED, before, **raised) == ("killed", "established", 101)
    assert culprit_of(POOL, FAILED, after, **raised)[::2] == ("python-exception", 100)
    assert culprit_of(VALUE, FAILED, before, **told("ValueError", at_s=9.8))[::2] == ("python-exception", 100)


def test_a_lost_connection_may_come_from_a_child_that_crashed_and_that_is_no_more_than_supported() -> None:
    text = HEAD + "EOFError\n"
    assert culprit_of(text, FAILED, child(101, SEGFAULT, 9.0), **told("EOFError")) == ("segfault", "supported", 101)


def test_a_result_that_never_came_may_be_that_of_a_worker_that_crashed() -> None:
    dead, facts = child(101, SEGFAULT, 3.0), told("TimeoutError")
    text = HEAD + "multiprocessing.context.TimeoutError\n"
    assert culprit_of(text, FAILED, dead, **facts) == ("segfault", "supported", 101)
    assert culprit_of(HEAD + "TimeoutError: no answer\n", FAILED, dead, **facts)[::2] == ("python-exception", 100)


def test_a_shell_in_a_shell_passes_on_what_the_inner_one_passed_on() -> None:
    shell = {"argv": ("bash", "in.sh"), "executable": "/bin/bash"}
    inner, python = child(101, FAILED, 9.8, **shell), child(102, FAILED, 9.7)
    python = msgspec.structs.replace(python, ppid=101)
    evidence = run_evidence(VALUE, FAILED, others=(inner, python), **told("ValueError", pid=102, at_s=9.6))
    outer = msgspec.structs.replace(evidence.processes[0], argv=("bash",), executable="/bin/bash")
    verdict = judge(msgspec.structs.replace(evidence, processes=(outer, inner, python))).verdict
    assert (verdict.kind, verdict.status, verdict.process.pid) == ("python-exception", "established", 102)


@pytest.mark.parametrize(("word", "kind", "pid"), [("timeout", "terminated", 101), ("python", "exit-nonzero", 100)])
def test_what_timeout_ended_died_of_its_signal(word: str, kind: str, pid: int) -> None:
    ended = child(101, TERMINATED, 9.8)
    evidence = run_evidence(
        "", Ending(exit_code=124), others=(ended,), **({} if word == "timeout" else told(None, exit_code=124))
    )
    main = msgspec.structs.replace(evidence.processes[0], argv=(word, "9"), executable=f"/usr/bin/{word}")
    verdict = judge(msgspec.structs.replace(evidence, processes=(main, ended))).verdict
    assert (verdict.kind, verdict.status, verdict.process.pid) == (kind, "established", pid)


def test_a_crash_that_the_command_went_on_after_is_not_why_it_left() -> None:
    dead, next_one = child(101, SEGFAULT, 5.0), child(102, Ending(exit_code=0), 8.0, born_s=6.0)
    assert culprit_of("", FAILED, dead, **told(None)) == ("segfault", "supported", 101)
    assert culprit_of("", FAILED, dead, next_one, **told(None)) == ("exit-nonzero", "established", 100)


@pytest.mark.parametrize("code", [139, 245])
def test_a_status_that_passes_a_signal_on_names_the_last_that_died_of_it(code: int) -> None:
    others = child(101, SEGFAULT, 3.0), child(102, SEGFAULT, 8.0)
    assert culprit_of("", Ending(exit_code=code), *others) == ("segfault", "established", 102)
    assert culprit_of("", Ending(exit_code=code))[::2] == ("exit-nonzero", 100)


@pytest.mark.parametrize("line", ["Terminated early at epoch 3", "Killed 3 stale workers", "Aborted the run", "Killed"])
def test_words_that_look_like_a_notice_are_no_death_where_every_process_was_seen(line: str) -> None:
    assert culprit_of(f"{line}\n", FAILED, sees_births=True, **told(None)) == ("exit-nonzero", "established", 100)


def test_a_notice_counts_where_processes_can_be_missed() -> None:
    text = "bash: line 1: 4242 Killed                  python train.py\n"
    assert culprit_of(text, FAILED)[:2] == ("killed", "supported")
    assert culprit_of(text, FAILED, sees_births=True)[:2] == ("exit-nonzero", "established")


LOST = "RuntimeError: [/gloo/transport/tcp/pair.cc:525] Connection closed by peer [127.0.0.1]:31713"
CHILD_FAILED = HEAD + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED\n"


def of_rank(rank: str, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in (HEAD + text).splitlines())


def ranks(first: tuple[Ending, float], second: tuple[Ending, float]) -> tuple[Process, Process]:
    made = [child(201 + n, ending, at_s, rank=str(n)) for n, (ending, at_s) in enumerate((first, second))]
    return made[0], made[1]


def leaving(*falls: tuple[int, float, str | None]) -> dict[str, object]:
    uncaught = tuple(Uncaught(pid, at_s, name) for pid, at_s, name in falls if name)
    exits = tuple(Exit(pid, at_s + 0.05, 1, True, name) for pid, at_s, name in falls)
    return {"uncaught": uncaught, "exits": exits}


def test_the_rank_that_raised_first_is_the_cause_and_the_one_that_lost_its_peer_is_not() -> None:
    text = of_rank("0", LOST) + of_rank("1", "ValueError: shard 7 is empty") + CHILD_FAILED
    facts = leaving((201, 5.1, "RuntimeError"), (202, 5.0, "ValueError"), (100, 6.0, "ChildFailedError"))
    verdict = judge(run_evidence(text, FAILED, others=ranks((FAILED, 5.3), (FAILED, 5.4)), **facts)).verdict
    assert (verdict.kind, verdict.status, verdict.process.rank) == ("python-exception", "established", "1")
    assert "ValueError: shard 7 is empty" in verdict.headline and "rank 1" in verdict.headline


def test_a_rank_that_leaves_by_itself_may_be_gone_later_than_those_that_lost_it() -> None:
    text = of_rank("0", LOST) + CHILD_FAILED
    facts = leaving((201, 5.0, "RuntimeError"), (100, 6.0, "ChildFailedError"))
    facts["exits"] = (*facts["exits"], Exit(202, 5.25, 3, True, None))  # type: ignore[misc]
    evidence = run_evidence(text, FAILED, others=ranks((FAILED, 5.2), (Ending(exit_code=3), 5.3)), **facts)
    verdict = judge(evidence).verdict
    assert (verdict.kind, verdict.status, verdict.process.rank) == ("exit-nonzero", "established", "1")


def test_tracebacks_of_ranks_that_print_at_once_are_read_apart() -> None:
    both = zip(of_rank("0", LOST).splitlines(), of_rank("1", "KeyError: 'x'").splitlines(), strict=True)
    text = "".join(f"{one}\n{other}\n" for one, other in both) + CHILD_FAILED
    facts = leaving((201, 5.1, "RuntimeError"), (202, 5.0, "KeyError"), (100, 6.0, "ChildFailedError"))
    verdict = judge(run_evidence(text, FAILED, others=ranks((FAILED, 5.3), (FAILED, 5.4)), **facts)).verdict
    assert verdict.user_frame is not None and "KeyError: 'x'" in verdict.headline


def test_a_rank_that_was_started_again_is_judged_by_its_last_start() -> None:
    old = child(301, SEGFAULT, 2.0, rank="0")
    new = child(302, FAILED, 5.0, born_s=3.0, rank="0")
    facts = leaving((302, 4.9, "ValueError"), (100, 6.0, "ChildFailedError"))
    verdict = judge(
        run_evidence(of_rank("0", "ValueError: x") + CHILD_FAILED, FAILED, others=(old, new), **facts)
    ).verdict
    assert (verdict.kind, verdict.process.pid) == ("python-exception", 302)


def test_a_rank_that_the_launcher_ended_is_not_the_first_that_failed() -> None:
    sent = (Kill("SIGTERM", 201, 4.9, 100, 0, "torchrun", "kernel"),)
    facts = leaving((202, 5.0, "ValueError"), (100, 6.0, "ChildFailedError"))
    text = of_rank("1", "ValueError: x") + CHILD_FAILED
    evidence = run_evidence(text, FAILED, others=ranks((TERMINATED, 4.95), (FAILED, 5.1)), kills=sent, **facts)
    assert judge(evidence).verdict.process.rank == "1"


@pytest.mark.parametrize("prefix", ["[rank1]: ", "[default1]:", "[default1]:[rank1]: "])
def test_what_a_rank_prints_is_known_by_either_prefix_and_by_both(prefix: str) -> None:
    printed = (HEAD + "ValueError: shard 7 is empty").splitlines()
    text = "".join(f"{prefix}{line}\n" for line in printed) + of_rank("0", LOST) + CHILD_FAILED
    facts = leaving((201, 5.1, "RuntimeError"), (202, 5.0, "ValueError"), (100, 6.0, "ChildFailedError"))
    verdict = judge(run_evidence(text, FAILED, others=ranks((FAILED, 5.3), (FAILED, 5.4)), **facts)).verdict
    assert verdict.process.rank == "1" and verdict.user_frame is not None
    assert "ValueError: shard 7 is empty" in verdict.headline


def test_what_the_launcher_says_of_a_rank_is_not_what_the_rank_printed() -> None:
    rule = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED\n"
    text = of_rank("1", "KeyError: 'lr'") + HEAD + rule
    facts = leaving((202, 5.0, None), (100, 6.0, "ChildFailedError"))
    verdict = judge(run_evidence(text, FAILED, others=ranks((TERMINATED, 5.3), (FAILED, 5.1)), **facts)).verdict
    said = " | ".join(ground.fact for ground in verdict.grounds)
    assert "printed before: KeyError: 'lr'" in said and "ChildFailedError had been caught" not in said
    assert "ChildFailedError: train.py FAILED" in said


def test_a_child_of_a_rank_that_ended_well_is_no_rank_that_had_ended() -> None:
    timed_out = "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 5000ms for recv operation"
    others = (*ranks((FAILED, 5.3), (TERMINATED, 5.4)), child(203, Ending(exit_code=0), 2.0, ppid=202, rank="1"))
    facts = leaving((201, 5.1, "RuntimeError"), (100, 6.0, "ChildFailedError"))
    verdict = judge(run_evidence(of_rank("0", timed_out) + CHILD_FAILED, FAILED, others=others, **facts)).verdict
    assert (verdict.kind, verdict.process.rank) == ("collective-failure", "0")
    assert not any("had ended before" in ground.fact for ground in verdict.grounds)


@pytest.mark.parametrize(
    "sent_as", ["multiprocessing.pool.RemoteTraceback", "concurrent.futures.process._RemoteTraceback"]
)
def test_the_line_of_an_exception_that_a_worker_sent_is_the_workers(sent_as: str) -> None:
    inner = 'Traceback (most recent call last):\n  File "/job/train.py", line 5, in tile\n    x\nValueError: bad tile\n'
    cause = "\nThe above exception was the direct cause of the following exception:\n\n"
    text = f'{sent_as}: \n"""\n{inner}"""\n{cause}{HEAD}ValueError: bad tile\n'
    frame = judge(run_evidence(text, FAILED, **told("ValueError"))).verdict.user_frame
    assert frame is not None and (frame.function, frame.line) == ("tile", 5)
    other = text.replace('ValueError: bad tile\n"', 'KeyError: 1\n"')
    frame = judge(run_evidence(other, FAILED, **told("ValueError"))).verdict.user_frame
    assert frame is not None and (frame.function, frame.line) == ("main", 9)


def test_what_ended_a_worker_of_torchs_spawn_is_what_its_parent_raises_again() -> None:
    sent = "\n\n-- Process 1 terminated with the following error:\n" + HEAD + "KeyError: 'lr'\n"
    facts = leaving((101, 5.0, None), (100, 6.0, "ProcessRaisedException"))
    text = HEAD + "torch.multiprocessing.spawn.ProcessRaisedException: " + sent
    verdict = judge(run_evidence(text, FAILED, others=(child(101, FAILED, 5.1),), **facts)).verdict
    assert (verdict.kind, verdict.status, verdict.process.pid) == ("python-exception", "established", 101)
    assert verdict.headline.startswith("KeyError: 'lr'")
    logged = HEAD + "KeyError: 'lr'\n" + HEAD + "torch.multiprocessing.spawn.ProcessExitedException: exit code 1\n"
    facts = leaving((101, 5.0, None), (100, 6.0, "ProcessExitedException"))
    verdict = judge(run_evidence(logged, FAILED, others=(child(101, FAILED, 5.1),), **facts)).verdict
    assert (verdict.kind, verdict.process.pid) == ("exit-nonzero", 101)
