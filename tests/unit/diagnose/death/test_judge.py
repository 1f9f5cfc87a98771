"""The rules of judgement, each with a positive, a negative and a near-miss."""

from __future__ import annotations

import signal

import pytest

from harness.diagnose.death.details.differential import late_settings
from harness.diagnose.death.judge import judge
from harness.evidence.crash import Crash
from harness.evidence.run import (
    Channel,
    Ending,
    Exit,
    Gap,
    OomCount,
    Part,
    PassedSignal,
    Process,
    Statement,
    Transcript,
)
from harness.report.text import render
from tests.builders.crashes import ABRT, FAISS, FFI, GOMP, LIBC, PYTHON, TKILL, crash, native, thread
from tests.builders.evidence import run_evidence, told

OMP_15 = "OMP: Error #15: Initializing libomp.so.5, but found libiomp5.so already initialized.\n"
ABORTED, SEGFAULT, KILLED = (Ending(signo=int(number)) for number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL))
DUMP = """Fatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x00007f02 (most recent call first):
  File "/job/.venv/lib/python3.11/site-packages/faiss/class_wrappers.py", line 329 in replacement_search
  File "/job/train.py", line 211 in mine_hard_negatives
  File "/job/train.py", line 300 in <module>
"""
NO_PYTHON_FRAME = """Fatal Python error: Segmentation fault

Current thread 0x00007f02 (most recent call first):
  <no Python frame>

Thread 0x00007f01 (most recent call first):
  File "/job/train.py", line 211 in mine_hard_negatives
"""
TRACEBACK = """Traceback (most recent call last):
  File "/job/train.py", line 12, in <module>
    main()
  File "/job/train.py", line 9, in main
    load()
  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode
    raise JSONDecodeError
json.decoder.JSONDecodeError: Expecting value: line 1
"""


def worker(pid: int, ending: Ending, ended_s: float) -> Process:
    argv = ("python", "train.py")
    return Process(pid, 100, "python", argv, "/usr/bin/python3.11", 1.0, None, ended_s, ending, "pidfd")


def aborted_by(image: str) -> Crash:
    frames = (native("raise", LIBC), native("abort", LIBC), native(None, image), native("main", PYTHON))
    return crash(thread(100, *frames), signo=ABRT, si_code=TKILL, at_s=9.9)


def test_error_15_of_a_library_that_aborted_is_established_and_names_both_copies() -> None:
    verdict = judge(run_evidence(OMP_15, ABORTED, crashes=(aborted_by(GOMP),))).verdict
    assert (verdict.kind, verdict.status) == ("duplicate-openmp", "established")
    assert "libomp.so.5" in verdict.headline and "libiomp5.so" in verdict.headline
    unread = judge(run_evidence(OMP_15, ABORTED)).verdict
    assert (unread.kind, unread.status) == ("duplicate-openmp", "supported") and unread.against


def test_the_flag_is_never_a_safe_remedy() -> None:
    remedies = judge(run_evidence(OMP_15, ABORTED)).verdict.remedies
    assert [remedy.safe for remedy in remedies if "KMP_DUPLICATE_LIB_OK" in remedy.do] == [False]
    assert any(remedy.safe for remedy in remedies)


@pytest.mark.parametrize("ending", [SEGFAULT, KILLED, Ending(exit_code=1), Ending(exit_code=0)])
def test_error_15_explains_no_other_death_than_an_abort(ending: Ending) -> None:
    assert judge(run_evidence(OMP_15, ending)).verdict.kind != "duplicate-openmp"


@pytest.mark.parametrize("image", [FFI, FAISS])
def test_error_15_before_the_abort_of_a_library_that_holds_no_openmp_is_quoted(image: str) -> None:
    verdict = judge(run_evidence(OMP_15, ABORTED, crashes=(aborted_by(image),))).verdict
    assert (verdict.kind, verdict.status) == ("abort", "established")


@pytest.mark.parametrize(
    ("caller", "kind", "status"),
    [
        (GOMP, "resource-limit", "established"),
        (FFI, "exit-nonzero", "established"),
        (None, "resource-limit", "supported"),
    ],
)
def test_the_library_that_prints_is_the_one_that_calls_exit(caller: str | None, kind: str, status: str) -> None:
    exits = (Exit(100, 9.9, 1, False, None, caller),)
    text = "libgomp: Thread creation failed: Resource temporarily unavailable\n"
    verdict = judge(run_evidence(text, Ending(exit_code=1), exits=exits)).verdict
    assert (verdict.kind, verdict.status) == (kind, status)


def test_error_15_that_the_interpreter_or_nobody_aborted_after_is_quoted() -> None:
    assert judge(run_evidence(OMP_15, ABORTED, crashes=(aborted_by(PYTHON),))).verdict.kind == "abort"
    assert judge(run_evidence(OMP_15 + "epoch 3\nepoch 4\n", ABORTED)).verdict.kind == "abort"


@pytest.mark.parametrize("image", [PYTHON, GOMP])
def test_a_message_of_glibc_is_glibcs_only_where_glibc_aborts(image: str) -> None:
    text = "free(): invalid pointer\n"
    assert judge(run_evidence(text, ABORTED, crashes=(aborted_by(image),))).verdict.kind == "abort"
    verdict = judge(run_evidence(text, ABORTED, crashes=(aborted_by(LIBC),))).verdict
    assert (verdict.kind, verdict.status) == ("memory-corruption", "established")
    quoted = judge(run_evidence(f"it said {text}", ABORTED, crashes=(aborted_by(LIBC),))).verdict
    assert quoted.kind == "abort"


def test_error_15_that_another_living_process_may_have_printed_is_only_supported() -> None:
    sibling = Process(101, 100, "python", ("python", "other.py"), "/usr/bin/python3", 0.5)
    verdict = judge(run_evidence(OMP_15, ABORTED, others=(sibling,))).verdict
    assert (verdict.kind, verdict.status) == ("duplicate-openmp", "supported")
    assert verdict.against


def test_a_segfault_names_the_innermost_user_frame_not_the_library_wrapper() -> None:
    verdict = judge(run_evidence(DUMP, SEGFAULT)).verdict
    assert (verdict.kind, verdict.status) == ("segfault", "established")
    assert verdict.python_frame is not None and verdict.python_frame.function == "replacement_search"
    assert verdict.user_frame is not None and (verdict.user_frame.function, verdict.user_frame.line) == (
        "mine_hard_negatives",
        211,
    )
    assert "mine_hard_negatives (train.py:211)" in verdict.headline


def test_a_thread_without_python_gets_a_context_never_a_caller() -> None:
    verdict = judge(run_evidence(NO_PYTHON_FRAME, SEGFAULT)).verdict
    assert verdict.user_frame is None and verdict.python_frame is None
    assert verdict.context_frame is not None and verdict.context_frame.function == "mine_hard_negatives"
    assert "while the main thread was in" in verdict.headline and "called" not in verdict.headline


def test_a_native_stack_that_was_not_taken_is_a_gap() -> None:
    assert "native stack" in [gap.what for gap in judge(run_evidence(DUMP, SEGFAULT)).gaps]


def sent(si_code: int, sender: int | None) -> Crash:
    return Crash(
        100, 100, int(signal.SIGSEGV), si_code, "0x4d", "0x1000", "0x2000", {}, (), 9.9, 0.2, "none", sender_pid=sender
    )


def test_a_signal_somebody_sent_is_no_librarys_fault() -> None:
    verdict = judge(run_evidence("", SEGFAULT, crashes=(sent(0, 77),))).verdict
    assert "process 77 sent" in verdict.headline
    assert verdict.component is None and verdict.faulting_image is None and verdict.remedies == ()
    itself = judge(run_evidence("", SEGFAULT, crashes=(sent(-6, 100),))).verdict
    assert "sent to itself" in itself.headline
    unknown = judge(run_evidence("", SEGFAULT, crashes=(sent(0, None),))).verdict
    assert "that somebody sent to it" in unknown.headline and "None" not in unknown.headline
    fault = judge(run_evidence("", SEGFAULT, crashes=(sent(1, None),))).verdict
    assert "sent" not in fault.headline


def test_an_uncaught_exception_names_the_user_frame() -> None:
    verdict = judge(run_evidence(TRACEBACK, Ending(exit_code=1), **told("JSONDecodeError"))).verdict
    assert (verdict.kind, verdict.status) == ("python-exception", "established")
    assert verdict.user_frame is not None and verdict.user_frame.function == "main"
    assert "JSONDecodeError" in verdict.headline


def test_a_traceback_in_logurus_form_is_read() -> None:
    text = (
        "2026-01-02 03:04:05 | CRITICAL | __main__:<module>:9 - uncaught\nTraceback (most recent call last):\n\n"
        '> File "/job/train.py", line 9, in <module>\n    fit()\n    └ <function fit at 0x7f>\n\n'
        '  File "/job/train.py", line 6, in fit\n    return [][7]\n\nIndexError: list index out of range\n'
    )
    verdict = judge(run_evidence(text, Ending(exit_code=1), **told("IndexError"))).verdict
    assert verdict.headline == "IndexError: list index out of range, in fit (train.py:6)"


def test_a_traceback_that_nobody_told_of_is_supported_and_both_readings_are_told() -> None:
    verdict = judge(run_evidence(TRACEBACK, Ending(exit_code=1))).verdict
    assert (verdict.kind, verdict.status) == ("python-exception", "supported")
    assert any("sys.exit(1)" in sentence for sentence in verdict.against)


def test_a_traceback_before_a_chosen_exit_was_caught() -> None:
    verdict = judge(run_evidence(TRACEBACK, Ending(exit_code=1), **told(None))).verdict
    assert (verdict.kind, verdict.status) == ("exit-nonzero", "established")


GO_PANIC = """panic: batch 7 is empty
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x481018]

goroutine 18 [running]:
main.step(...)
\t/job/step.go:3
created by main.main
\t/job/step.go:4 +0x76
"""


@pytest.mark.parametrize(("after", "told"), [("", True), ("retrying\n", False)])
def test_a_panic_of_gos_is_told_where_it_was_the_end(after: str, told: bool) -> None:
    verdict = judge(run_evidence(GO_PANIC + after, Ending(exit_code=2))).verdict
    assert verdict.kind == "exit-nonzero"
    assert ("panic: batch 7 is empty" in verdict.headline) is told


def test_an_exception_is_the_cause_however_long_its_teardown_takes_and_whatever_that_prints() -> None:
    text = TRACEBACK + "uploading 12 files\ndone\n"
    evidence = run_evidence(text, Ending(exit_code=1), ended_s=500.0, **told("JSONDecodeError"))
    verdict = judge(evidence).verdict
    assert (verdict.kind, verdict.status) == ("python-exception", "established")


def test_an_exception_that_was_printed_in_another_form_is_named_all_the_same() -> None:
    verdict = judge(run_evidence("boom!\n", Ending(exit_code=1), **told("ValueError"))).verdict
    assert (verdict.kind, verdict.status, verdict.user_frame) == ("python-exception", "established", None)
    assert "ValueError" in verdict.headline


def test_an_exception_at_a_prompt_is_not_the_end() -> None:
    went_on = {"uncaught": told("JSONDecodeError")["uncaught"], "exits": told(None)["exits"]}
    assert judge(run_evidence(TRACEBACK, Ending(exit_code=1), **went_on)).verdict.kind == "exit-nonzero"


@pytest.mark.parametrize(("code", "kind"), [(3, "exit-nonzero"), (0, "clean")])
def test_a_printed_traceback_with_another_status_was_caught(code: int, kind: str) -> None:
    assert judge(run_evidence(TRACEBACK, Ending(exit_code=code))).verdict.kind == kind


def test_a_traceback_with_other_output_after_it_leaves_open_what_ended_it() -> None:
    verdict = judge(run_evidence(TRACEBACK + "\nretrying\ngiving up\n", Ending(exit_code=1))).verdict
    assert (verdict.kind, verdict.status) == ("exit-nonzero", "supported")
    assert verdict.against


def test_a_workers_death_outranks_its_parents_exception() -> None:
    last = "json.decoder.JSONDecodeError: Expecting value: line 1"
    text = TRACEBACK.replace(last, "RuntimeError: DataLoader worker (pid 101) is killed by signal: Killed. ")
    verdict = judge(run_evidence(text, Ending(exit_code=1), others=(worker(101, KILLED, 9.0),))).verdict
    assert (verdict.kind, verdict.status, verdict.process.role, verdict.process.pid) == (
        "killed",
        "established",
        "worker",
        101,
    )


def test_a_worker_the_parent_killed_itself_is_not_the_cause_of_the_parents_exception() -> None:
    verdict = judge(run_evidence(TRACEBACK, Ending(exit_code=1), others=(worker(101, KILLED, 9.95),))).verdict
    assert (verdict.kind, verdict.process.role) == ("python-exception", "main")


def test_the_first_of_several_deaths_is_the_cause() -> None:
    others = (worker(103, ABORTED, 9.5), worker(102, SEGFAULT, 9.2), worker(101, Ending(signo=15), 9.6))
    verdict = judge(run_evidence("", Ending(exit_code=1), others=others)).verdict
    assert (verdict.kind, verdict.process.pid) == ("segfault", 102)


def test_a_worker_that_died_long_before_is_not_the_cause() -> None:
    evidence = run_evidence(
        TRACEBACK, Ending(exit_code=1), ended_s=500.0, printed_s=499.9, others=(worker(101, SEGFAULT, 9.0),)
    )
    assert judge(evidence).verdict.kind == "python-exception"


def test_a_crash_nothing_links_to_the_failure_is_only_supported_and_says_so() -> None:
    verdict = judge(run_evidence("", Ending(exit_code=1), others=(worker(101, SEGFAULT, 9.5),))).verdict
    assert (verdict.kind, verdict.status) == ("segfault", "supported")
    assert verdict.against


def test_a_crashed_worker_under_a_command_that_ended_well_is_clean_but_mentioned() -> None:
    verdict = judge(run_evidence("", Ending(exit_code=0), others=(worker(101, SEGFAULT, 9.5),))).verdict
    assert verdict.kind == "clean"
    assert "101" in verdict.against[0]
    assert "but worker process 101 died of SIGSEGV" in verdict.headline


@pytest.mark.parametrize(("address", "status"), [("0x18", "established"), ("0x7fffe0000000", "supported")])
def test_where_nothing_was_read_of_its_memory_an_address_may_be_of_another_kind(address: str, status: str) -> None:
    gone = crash(fault_address=address, images=(), mappings=())
    verdict = judge(run_evidence("", SEGFAULT, crashes=(gone,))).verdict
    assert (verdict.kind, verdict.status) == ("segfault", status)
    held = crash(fault_address=address)
    assert judge(run_evidence("", SEGFAULT, crashes=(held,))).verdict.status == "established"


def test_oom_is_ruled_out_only_where_one_could_look() -> None:
    def state(**facts: object) -> str:
        rows = judge(run_evidence("", KILLED, **facts)).differential
        return next(row.state for row in rows if row.hypothesis == "oom-kill")

    assert state(oom_kills=(OomCount("/g", 0),)) == "ruled-out"
    assert state(oom_kills=(OomCount("/g", 0),), gaps=(Gap("kernel log", "denied"),)) == "open"
    assert state(oom_kills=None) == "open"


def test_the_sender_of_a_passed_on_signal_is_named() -> None:
    passed = (PassedSignal("SIGTERM", 9.0, 77, 0, "slurmstepd", True),)
    verdict = judge(run_evidence("", Ending(signo=15), signals=passed)).verdict
    assert verdict.kind == "terminated"
    assert "77" in verdict.headline and "slurmstepd" in verdict.headline


def test_the_resource_trackers_warning_is_a_consequence() -> None:
    text = DUMP + "resource_tracker: There appear to be 4 leaked semaphore objects to clean up at shutdown\n"
    document = judge(run_evidence(text, SEGFAULT))
    assert document.verdict.kind == "segfault"
    assert ("leaked semaphores", "ruled-out") in [(row.hypothesis, row.state) for row in document.differential]


def test_the_flag_keeps_the_openmp_suspicion_open() -> None:
    document = judge(run_evidence(DUMP, SEGFAULT, environment={"KMP_DUPLICATE_LIB_OK": "TRUE"}))
    row = next(row for row in document.differential if row.hypothesis == "duplicate-openmp")
    assert row.state == "open" and "KMP_DUPLICATE_LIB_OK" in row.because
    assert any("KMP_DUPLICATE_LIB_OK" in ground.fact for ground in document.verdict.grounds)


def test_thread_variables_set_after_the_import_are_late_and_those_before_are_not() -> None:
    before, load, after = (
        Statement("t.py", 1, sets="OMP_NUM_THREADS", value="1"),
        Statement("t.py", 2, imports="torch"),
        Statement("t.py", 3, sets="MKL_NUM_THREADS", value="1"),
    )
    assert late_settings((before, load, after)) == [(after, load)]
    assert late_settings((before, Statement("t.py", 2, imports="json"), after)) == []
    assert late_settings((load, Statement("t.py", 3, sets="HOME", value="/"))) == []


def test_the_last_real_line_is_not_the_progress_bar() -> None:
    text = "epoch 1 done\n 21%\r 22%" + "\n" + DUMP
    progress = judge(run_evidence(text, SEGFAULT)).progress
    assert progress is not None
    assert (progress.last_line, progress.unfinished_line) == ("epoch 1 done", "22%")


def test_a_traceback_that_did_not_end_it_is_printed_like_any_other_line() -> None:
    progress = judge(run_evidence("epoch 1 done\n" + TRACEBACK, Ending(exit_code=1), **told(None))).progress
    assert progress is not None and progress.last_line == TRACEBACK.splitlines()[-1]


def test_what_it_got_over_does_not_hide_what_it_printed_later() -> None:
    text = TRACEBACK + "that did not work, going on\nepoch 2 done\n" + DUMP
    progress = judge(run_evidence(text, SEGFAULT)).progress
    assert progress is not None and progress.last_line == "epoch 2 done"


def test_the_last_line_is_the_latest_of_all_channels_and_a_bar_only_if_nothing_came_after_it() -> None:
    def channel(name: str, text: str, *times_s: float, unfinished: bool = False) -> Transcript:
        lines = tuple(text.splitlines())
        return Transcript(name, (Part(f"{name}.log", lines, times_s, unfinished=unfinished),))

    late_bar = channel("stderr", "loading\n 22%", 1.0, 9.0, unfinished=True)
    early_bar = channel("stderr", "loading\n 22%", 1.0, 4.0, unfinished=True)
    out = channel("stdout", "epoch 1\nepoch 2", 2.0, 8.0)
    for transcripts, bar in (((late_bar, out), "22%"), ((out, late_bar), "22%"), ((early_bar, out), None)):
        progress = judge(run_evidence("", KILLED, transcripts=transcripts)).progress
        assert progress is not None and (progress.last_line, progress.last_output_age_s) == ("epoch 2", 2.0)
        assert progress.unfinished_line == bar


def test_of_a_copy_that_is_cut_off_nobody_knows_the_last_line() -> None:
    full = Channel("stderr", "pipe", 999, 9.9, case_error="No space left on device")
    for ending in (KILLED, Ending(exit_code=3), Ending(exit_code=1)):
        document = judge(run_evidence("epoch 1 done\n", ending, channels=(full,)))
        assert document.progress is not None and document.progress.last_line is None
        assert document.progress.cut_off == ("stderr",)
        told = " ".join(render(document, width=110, color=False).split())
        assert "stderr could not be kept to the end: what came last there is not known" in told
    out = Transcript("stdout", (Part("stdout.log", ("epoch 2",), (8.0,)),))
    other = judge(run_evidence("", KILLED, transcripts=(out,), channels=(full,))).progress
    assert other is not None and (other.last_line, other.cut_off) == ("epoch 2", ("stderr",))


def test_a_child_that_is_no_python_has_no_python_version_and_its_own_command() -> None:
    child = Process(101, 100, "sleep", ("sleep", "60"), "/usr/bin/sleep", 1.0, None, 9.5, SEGFAULT, "pidfd")
    evidence = run_evidence("", Ending(exit_code=1), others=(child,), python="3.11.7")
    document = judge(evidence)
    assert (document.verdict.process.argv, document.verdict.process.python) == (("sleep", "60"), None)
    text = render(document, width=110, color=False)
    assert "its command: sleep 60" in text and "3.11.7" not in text
    fork = Process(102, 100, "python", ("python", "train.py"), "/usr/bin/python3.11", 1.0, None, 9.5, SEGFAULT, "pidfd")
    worker_of_python = judge(run_evidence("", Ending(exit_code=1), others=(fork,), python="3.11.7"))
    assert worker_of_python.verdict.process.python == "3.11.7"


def test_a_signature_does_not_depend_on_lines_or_directories() -> None:
    moved = DUMP.replace("/job/", "/home/other/").replace("line 211", "line 999")
    one, other = (judge(run_evidence(text, SEGFAULT)).verdict.signature for text in (DUMP, moved))
    assert one == other is not None
    assert judge(run_evidence(DUMP.replace("mine_hard", "mine_soft"), SEGFAULT)).verdict.signature != one


def test_a_process_that_left_no_trace_but_its_status_was_a_fork_unless_a_shell_started_it() -> None:
    unseen = Process(101, 100, "", (), None, 9.0, None, 9.0, SEGFAULT, "process connector")
    assert judge(run_evidence("", Ending(exit_code=1), others=(unseen,))).verdict.process.role == "worker"
    shell = Process(102, 100, "sh", ("sh", "-c", "x"), "/bin/dash", 1.0)
    below = Process(103, 102, "", (), None, 9.0, None, 9.0, SEGFAULT, "process connector")
    assert judge(run_evidence("", Ending(exit_code=1), others=(shell, below))).verdict.process.role == "child"


def test_a_crash_that_the_command_got_over_is_worth_a_run_of_its_own() -> None:
    child = Process(
        101, 100, "python", ("python", "a b.py"), "/usr/bin/python3", 1.0, None, 9.0, SEGFAULT, "wait status"
    )
    found = judge(run_evidence("", Ending(exit_code=0), others=(child,))).verdict
    assert (found.kind, found.next) == ("clean", "harness run -- python 'a b.py'")
    assert judge(run_evidence("", Ending(exit_code=0))).verdict.next is None
