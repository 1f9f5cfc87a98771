"""Who ended the command: what passes an end on, and what an exception says of a process, against what was seen."""

from __future__ import annotations

import signal

import pytest
from msgspec import structs

from harness.diagnose.death.judge import judge
from harness.diagnose.death.losses import is_command
from harness.evidence.memory import Kill
from harness.evidence.run import Channel, Ending, Evidence, Exit, Process, Uncaught
from tests.builders.evidence import run_evidence, told

SEGFAULT, KILLED, TERMINATED, HUNG_UP = (
    Ending(signo=int(n)) for n in (signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
)
FAILED = Ending(exit_code=1)
HEAD = 'Traceback (most recent call last):\n  File "/job/train.py", line 9, in main\n    run()\n'
POOL = HEAD + "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly\n"
VALUE = HEAD + "ValueError: row 7\n"


def child(pid: int, ending: Ending, ended_s: float, argv: str = "python train.py", **facts: object) -> Process:
    words = tuple(argv.split())
    values: dict[str, object] = {"ppid": 100, "name": "python", "first_seen_s": 1.0} | facts
    return Process(
        pid=pid, argv=words, executable=f"/bin/{words[0]}" if words else None, ended_s=ended_s, ending=ending, **values
    )  # type: ignore[arg-type]


def of_shell(evidence: Evidence, argv: str = "bash job.sh") -> Evidence:
    """The same command as a shell's."""
    main, *others = evidence.processes
    words = tuple(argv.split())
    shell = structs.replace(main, argv=words, executable=f"/bin/{words[0]}")
    return structs.replace(evidence, argv=words, processes=(shell, *others))


def short(evidence: Evidence) -> tuple[str, str, int | None]:
    verdict = judge(evidence).verdict
    return verdict.kind, verdict.status, verdict.process.pid


def raising(*falls: tuple[int, float, str]) -> dict[str, object]:
    return {
        "uncaught": tuple(Uncaught(*fall) for fall in falls),
        "exits": tuple(Exit(pid, at_s + 0.05, 1, True, name) for pid, at_s, name in falls),
    }


# Passing on


def behind_shell(*others: Process, text: str = VALUE, last_s: float | None = None, **facts: object) -> Evidence:
    channel = (Channel("stderr", "pipe", 9, last_s),) if last_s is not None else ()
    evidence = run_evidence(text, FAILED, others=others, printed_s=9.65, channels=channel, **facts)
    return of_shell(evidence)


def test_a_shell_that_did_nothing_more_passes_an_exception_on() -> None:
    evidence = behind_shell(child(101, FAILED, 9.7), last_s=9.66, **raising((101, 9.6, "ValueError")))
    assert short(evidence) == ("python-exception", "established", 101)


def test_a_shell_that_still_printed_may_have_left_for_a_reason_of_its_own() -> None:
    facts = raising((101, 9.6, "ValueError"))
    evidence = behind_shell(child(101, FAILED, 9.7), text=VALUE + "\nno config\n", last_s=9.75, **facts)
    verdict = judge(evidence).verdict
    assert (verdict.kind, verdict.status, verdict.process.pid) == ("python-exception", "supported", 101)
    assert any("no config" in sentence for sentence in verdict.against)
    notice = behind_shell(child(101, FAILED, 9.7), text=VALUE + "\njob.sh: line 3: 101 Aborted\n", last_s=9.75, **facts)
    assert short(notice) == ("python-exception", "established", 101)


def test_a_shell_that_started_another_program_may_have_left_for_a_reason_of_its_own() -> None:
    later = child(102, Ending(exit_code=0), 9.9, "rm x", first_seen_s=9.8)
    evidence = behind_shell(child(101, FAILED, 9.7), later, **raising((101, 9.6, "ValueError")))
    assert short(evidence) == ("python-exception", "supported", 101)
    assert short(behind_shell(child(101, FAILED, 9.7, "grep x"), later, text="")) == (
        "exit-nonzero",
        "established",
        100,
    )


def test_of_a_pipeline_the_one_that_lost_its_reader_is_not_the_cause() -> None:
    writer, reader = child(101, FAILED, 9.8), child(102, FAILED, 9.7)
    facts = raising((101, 9.75, "BrokenPipeError"), (102, 9.6, "ValueError"))
    assert short(behind_shell(writer, reader, **facts)) == ("python-exception", "established", 102)
    alone = behind_shell(writer, text=HEAD + "BrokenPipeError: [Errno 32]\n", **raising((101, 9.75, "BrokenPipeError")))
    assert short(alone) == ("python-exception", "established", 101)


def test_of_a_pipeline_in_which_two_failed_the_first_is_told_and_no_more_than_supported() -> None:
    facts = raising((101, 9.6, "ValueError"), (102, 9.65, "KeyError"))
    evidence = behind_shell(child(101, FAILED, 9.7), child(102, FAILED, 9.72), **facts)
    assert short(evidence) == ("python-exception", "supported", 101)


def test_a_shell_does_not_die_by_the_signal_of_its_child() -> None:
    evidence = of_shell(run_evidence("", TERMINATED, others=(child(101, TERMINATED, 5.0, "sleep 9"),)))
    assert short(evidence)[::2] == ("terminated", 100)


def test_a_status_of_minus_one_is_no_childs_signal() -> None:
    evidence = run_evidence("", Ending(exit_code=255), others=(child(101, HUNG_UP, 9.0, "sleep 9"),))
    assert short(evidence)[::2] == ("exit-nonzero", 100)


def test_a_signal_that_the_shell_got_itself_leaves_open_whose_it_passed_on() -> None:
    evidence = of_shell(run_evidence("", Ending(exit_code=143), others=(child(101, TERMINATED, 9.0, "sleep 9"),)))
    assert short(evidence) == ("terminated", "established", 101)
    sent = (Kill("SIGTERM", 100, 9.8, 4711, 0, "kill", "kernel"), Kill("SIGTERM", 101, 8.9, 100, 0, "bash", "kernel"))
    assert short(structs.replace(evidence, kills=sent)) == ("terminated", "supported", 101)


def test_a_program_that_leaves_with_the_status_of_a_child_that_raised_may_have_passed_it_on() -> None:
    evidence = run_evidence(VALUE, FAILED, others=(child(101, FAILED, 9.7),), **raising((101, 9.6, "ValueError")))
    left = structs.replace(evidence, exits=(*evidence.exits, Exit(100, 9.9, 1, True, None)))
    assert short(left) == ("python-exception", "supported", 101)
    printed = Channel("stderr", "pipe", 9, 9.8)
    went_on = run_evidence(
        VALUE + "\nmerging\n",
        FAILED,
        others=(child(101, FAILED, 9.7),),
        channels=(printed,),
        **raising((101, 9.6, "ValueError")),
    )
    went_on = structs.replace(went_on, exits=(*went_on.exits, Exit(100, 9.9, 1, True, None)))
    assert short(went_on) == ("exit-nonzero", "established", 100)


# Notices and sentences


NOTICE = "bash: line 1:   101 Segmentation fault      python probe.py\n"


def test_a_notice_of_a_crash_that_was_got_over_outranks_neither_exception_nor_status() -> None:
    shell, dead = child(102, Ending(exit_code=0), 5.2, "bash -c probe"), child(101, SEGFAULT, 5.0, ppid=102)
    raised = run_evidence(NOTICE + VALUE, FAILED, others=(shell, dead), **told("ValueError"))
    assert short(raised) == ("python-exception", "established", 100)
    later = child(102, Ending(exit_code=0), 8.0, first_seen_s=7.0)
    left = of_shell(run_evidence(NOTICE, Ending(exit_code=3), others=(child(101, SEGFAULT, 5.0), later)))
    assert short(left) == ("exit-nonzero", "established", 100)


XDIST = "worker 'gw1' crashed while running 'tests/test_a.py::test_b'\n"
GATEWAY = "python -c import_sys;exec(eval(sys.stdin.readline()))"


@pytest.mark.parametrize(
    ("argv", "code", "lost", "kind", "pid"),
    [
        ("python -m pytest", 1, GATEWAY, "segfault", 101),
        ("python report.py", 1, GATEWAY, "exit-nonzero", 100),
        ("python -m pytest", 2, GATEWAY, "exit-nonzero", 100),
        ("python -m pytest", 1, "python probe.py", "exit-nonzero", 100),
    ],
)
def test_a_sentence_counts_where_its_author_says_it_of_a_worker_of_its_own(
    argv: str, code: int, lost: str, kind: str, pid: int
) -> None:
    """Here nothing else could link the crash: the command started another process after it."""
    others = (child(101, SEGFAULT, 5.0, lost), child(102, Ending(exit_code=0), 9.0, first_seen_s=6.0))
    evidence = of_shell(run_evidence(XDIST, Ending(exit_code=code), others=others, **told(None, exit_code=code)), argv)
    assert short(evidence) == (kind, "established", pid)


# What an exception says


def called(command: str, end: str) -> str:
    return HEAD + f"subprocess.CalledProcessError: Command {command!r} {end}.\n"


def test_the_command_that_an_exception_names_is_the_one_that_failed() -> None:
    probe, stage = child(101, SEGFAULT, 8.0, "python probe.py"), child(102, FAILED, 9.0, "python stage.py 2")
    text = (
        HEAD + "subprocess.CalledProcessError: Command '['python', 'stage.py', '2']' returned non-zero exit status 1.\n"
    )
    evidence = run_evidence(text, FAILED, others=(probe, stage), **told("CalledProcessError"))
    assert short(evidence) == ("exit-nonzero", "established", 102)
    other = structs.replace(stage, ending=Ending(exit_code=2))
    evidence = run_evidence(text, FAILED, others=(probe, other), **told("CalledProcessError"))
    assert short(evidence)[::2] == ("python-exception", 100)


def test_a_child_with_that_status_and_another_command_is_only_supported() -> None:
    text = HEAD + "subprocess.CalledProcessError: Command '['grep', 'x']' returned non-zero exit status 1.\n"
    facts = told("CalledProcessError")
    evidence = run_evidence(text, FAILED, others=(child(101, FAILED, 9.0, "python probe.py"),), **facts)
    assert short(evidence) == ("exit-nonzero", "supported", 101)
    gone = child(101, FAILED, 9.0, "", name="")
    assert short(run_evidence(text, FAILED, others=(gone,), **facts))[1] == "supported"
    seen = run_evidence(text, FAILED, others=(gone,), sees_births=True, **facts)
    assert short(seen) == ("exit-nonzero", "established", 101)


@pytest.mark.parametrize(
    ("command", "argv", "same"),
    [
        ("['python', 'a.py']", ("/usr/bin/python", "a.py"), True),
        ("[PosixPath('run.sh'), 'a']", ("/bin/bash", "run.sh", "a"), True),
        ("python a.py | sort", ("/bin/sh", "-c", "python a.py | sort"), True),
        ("['env', 'python', 'a.py']", ("python", "a.py"), True),
        ("['grep', 'a.py']", ("python", "a.py"), False),
        ("['python', 'a.py'", ("python", "a.py"), False),
        ("['python', 'a.py']", (), False),
    ],
)
def test_a_process_is_what_its_command_became(command: str, argv: tuple[str, ...], same: bool) -> None:
    assert is_command(command, structs.replace(child(101, FAILED, 9.0), argv=argv)) is same


def test_a_pool_lost_a_worker_and_no_other_program() -> None:
    grep, raised = child(101, FAILED, 5.0, "grep x"), told("BrokenProcessPool")
    assert short(run_evidence(POOL, FAILED, others=(grep,), **raised)) == ("python-exception", "established", 100)
    helper, worker = child(101, KILLED, 9.5, "sleep 9"), child(102, SEGFAULT, 9.0)
    assert short(run_evidence(POOL, FAILED, others=(helper, worker), **raised)) == ("segfault", "established", 102)


def test_of_two_workers_that_fell_by_themselves_the_later_is_told_and_the_other_is_not_excluded() -> None:
    others = (child(101, SEGFAULT, 5.0), child(102, Ending(exit_code=7), 9.0))
    verdict = judge(run_evidence(POOL, FAILED, others=others, **told("BrokenProcessPool"))).verdict
    assert (verdict.kind, verdict.status, verdict.process.pid) == ("exit-nonzero", "supported", 102)
    assert any("process 101 ended with SIGSEGV" in sentence for sentence in verdict.against)


def test_a_worker_that_chose_a_status_may_be_gone_only_after_the_exception() -> None:
    late = child(102, Ending(exit_code=7), 9.82)
    raised = told("BrokenProcessPool", at_s=9.8)
    assert short(run_evidence(POOL, FAILED, others=(late,), **raised)) == ("exit-nonzero", "supported", 102)
    both = run_evidence(POOL, FAILED, others=(child(101, SEGFAULT, 5.0), late), **raised)
    assert short(both) == ("segfault", "supported", 101)


def test_a_worker_that_nobody_says_who_killed_is_no_more_than_likely_beside_another() -> None:
    others = (child(101, SEGFAULT, 9.0), child(102, KILLED, 9.5))
    assert short(run_evidence(POOL, FAILED, others=others, **told("BrokenProcessPool"))) == (
        "segfault",
        "supported",
        101,
    )


def test_a_worker_that_the_command_killed_is_the_one_it_lost_where_no_other_was_gone() -> None:
    dead, raised = child(101, KILLED, 9.0), told("BrokenProcessPool")
    sent = (Kill("SIGKILL", 101, 8.9, 100, 0, "python train.py", "kernel"),)
    verdict = judge(run_evidence(POOL, FAILED, others=(dead,), kills=sent, **raised)).verdict
    assert (verdict.kind, verdict.status, verdict.process.pid) == ("killed", "established", 101)
    assert "sent by its parent" in verdict.headline
    left = child(102, Ending(exit_code=0), 8.0)  # as a worker whose initializer raised
    evidence = run_evidence(POOL, FAILED, others=(dead, left), kills=sent, **raised)
    assert short(evidence)[::2] == ("python-exception", 100)


@pytest.mark.parametrize(
    ("said", "pid"), [("signal SIGSEGV", 102), ("exit code 3", 101), ("signal SIGABRT", 100), ("exit code 1", 100)]
)
def test_what_torchs_spawn_says_of_its_process_agrees_with_the_one_that_was_seen(said: str, pid: int) -> None:
    text = HEAD + f"torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with {said}\n"
    others = (child(101, Ending(exit_code=3), 8.0), child(102, SEGFAULT, 9.0))
    assert short(run_evidence(text, FAILED, others=others, **told("ProcessExitedException")))[2] == pid


def test_the_exit_codes_in_joblibs_exception_say_which_worker_it_means() -> None:
    text = HEAD + (
        "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process was unexpectedly terminated.\n"
        "The exit codes of the workers are {SIGSEGV(-11)}\n"
    )
    others = (child(101, SEGFAULT, 8.0), child(102, KILLED, 8.2))
    assert short(run_evidence(text, FAILED, others=others, **told("TerminatedWorkerError"))) == (
        "segfault",
        "established",
        101,
    )


def test_input_that_ended_is_no_peer_that_was_lost() -> None:
    text = HEAD + "EOFError: EOF when reading a line\n"
    evidence = run_evidence(text, FAILED, others=(child(101, SEGFAULT, 5.0),), **told("EOFError"))
    assert short(evidence) == ("python-exception", "established", 100)


# Ranks


REFUSED = HEAD + "ConnectionRefusedError: [Errno 111] Connection refused\n"


def rank(number: int, ending: Ending, ended_s: float) -> Process:
    return child(201 + number, ending, ended_s, rank=str(number))


def test_a_rank_that_lost_a_connection_first_is_the_cause_where_the_other_raised_later() -> None:
    facts = raising((201, 5.0, "ConnectionRefusedError"), (202, 7.0, "RuntimeError"))
    text = REFUSED + HEAD + "RuntimeError: rank 0 did not answer\n"
    evidence = run_evidence(text, FAILED, others=(rank(0, FAILED, 5.2), rank(1, FAILED, 7.2)), **facts)
    evidence = structs.replace(evidence, exits=(*evidence.exits, Exit(100, 9.9, 1, True, None)))
    assert short(evidence) == ("python-exception", "established", 201)


def test_a_rank_that_left_by_itself_may_have_closed_another_kind_of_connection_first() -> None:
    facts = raising((201, 5.0, "ConnectionRefusedError"), (100, 9.8, "ChildFailedError"))
    text = REFUSED + HEAD + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED\n"
    others = (rank(0, FAILED, 5.2), rank(1, Ending(exit_code=3), 5.3))
    assert short(run_evidence(text, FAILED, others=others, **facts)) == ("exit-nonzero", "supported", 202)


@pytest.mark.parametrize(
    ("born_s", "text", "status"),
    [(1.0, VALUE, "established"), (1.0, VALUE + "\nmerging\n", "supported"), (4.5, VALUE, "supported")],
)
def test_a_launcher_passes_a_rank_on_that_ran_beside_others_and_after_which_it_did_no_more(
    born_s: float, text: str, status: str
) -> None:
    others = (rank(0, Ending(exit_code=0), 4.0), structs.replace(rank(1, FAILED, 5.2), first_seen_s=born_s))
    evidence = run_evidence(text, FAILED, others=others, **raising((202, 5.0, "ValueError")))
    evidence = structs.replace(evidence, exits=(*evidence.exits, Exit(100, 9.9, 1, True, None)))
    assert short(evidence) == ("python-exception", status, 202)
