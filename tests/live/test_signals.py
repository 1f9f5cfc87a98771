"""Signals sent to harness, and what the command inherits: exactly what it would have without us."""

from __future__ import annotations

import os
import resource
import signal
import sys

import pytest

from harness.capture.machine.killers import Killers
from harness.capture.run.launch import TELL
from tests.live.processes import DEADLINE_S, Ended, bare, open_gate, until
from tests.live.signalling import COUNTER, masks, send_from_elsewhere

COUNTED = [signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM]


@pytest.mark.parametrize("signo", COUNTED)
def test_signal_to_harness_alone_reaches_the_command_once(harness, script, signo):
    process = harness.start(*script(COUNTER))
    assert process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signo)
    assert process.stdout.readline() == b"got %d\n" % signo
    os.kill(process.pid, signal.SIGWINCH)
    stdout, _ = process.communicate(timeout=DEADLINE_S)
    assert stdout.split() == [b"counted", *(b"%d" % (signo == counted) for counted in COUNTED)]
    assert process.returncode == 5


def test_signal_by_a_member_to_its_own_group_is_not_doubled(harness, script):
    """`kill 0` in a script: the command has it already, and harness, in the same group, gets it too."""
    source = COUNTER.replace("while ", "os.kill(0, signal.SIGINT)\nwhile ")
    process = harness.start(*script(source), process_group=0)
    assert [process.stdout.readline() for _ in range(2)] == [b"ready\n", b"got 2\n"]
    os.kill(process.pid, signal.SIGWINCH)
    stdout, _ = process.communicate(timeout=DEADLINE_S)
    assert stdout == b"counted 0 1 0 0 0\n"


def test_sigterm_ends_the_command_and_the_verdict_names_the_sender(harness, script):
    process = harness.start(
        *script("import signal\nprint('ready')\nsignal.pause()"), options=("--verdict", str(harness.verdict_file))
    )
    assert process.stdout.readline() == b"ready\n"
    sender = send_from_elsewhere(signal.SIGTERM, process.pid)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    document = harness.read_verdict()
    assert process.returncode == 143
    assert (document["verdict"]["kind"], document["outcome"]["signal"]) == ("terminated", "SIGTERM")
    told = [document["verdict"]["headline"], *(ground["fact"] for ground in document["verdict"]["grounds"])]
    assert any(f"process {sender}" in text for text in told)
    assert stderr.startswith(b"harness: ")


def told_senders(document: dict) -> list[str]:
    return [ground["fact"] for ground in document["verdict"]["grounds"] if " was sent to " in ground["fact"]]


@pytest.mark.parametrize("to", ["harness", "group"])
@pytest.mark.parametrize("signame", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_an_exception_made_of_a_signal_names_who_sent_it(harness, script, to, signame):
    """By a handler of the job's own; the report of one line says so too."""
    job = script(
        f"import signal\ndef leave(*_): raise RuntimeError('told')\nsignal.signal(signal.{signame}, leave)\n"
        "print('ready')\nsignal.pause()"
    )
    process = harness.start(*job, options=("--verdict", str(harness.verdict_file)), process_group=0)
    assert process.stdout.readline() == b"ready\n"
    sender = send_from_elsewhere(signal.Signals[signame], process.pid if to == "harness" else -process.pid)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    document = harness.read_verdict()
    assert (process.returncode, document["verdict"]["kind"]) == (1, "python-exception")
    (told,) = told_senders(document)
    assert told.startswith(f"{signame} was sent to ") and f"process {sender}" in told
    assert f"{signame} was sent to ".encode() in stderr


@pytest.mark.parametrize("end", ["raise RuntimeError('told')", "raise SystemExit(9)"])
@pytest.mark.parametrize("signame", [None, "SIGUSR1"])
def test_an_end_without_a_signal_that_asks_for_it_names_nobody(harness, script, end, signame):
    sends = f"os.kill(os.getpid(), signal.{signame})" if signame else ""
    done = harness(*script(f"import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: 0)\n{sends}\n{end}"))
    assert done.verdict["verdict"]["kind"] == ("python-exception" if "Error" in end else "exit-nonzero")
    assert told_senders(done.verdict) == []


def test_a_chosen_status_after_sigterm_names_who_sent_it(harness, script):
    job = script("import signal\nsignal.signal(signal.SIGTERM, lambda *_: exit(9))\nprint('ready')\nsignal.pause()")
    process = harness.start(*job, options=("--verdict", str(harness.verdict_file)))
    assert process.stdout.readline() == b"ready\n"
    sender = send_from_elsewhere(signal.SIGTERM, process.pid)
    process.communicate(timeout=DEADLINE_S)
    document = harness.read_verdict()
    assert (process.returncode, document["verdict"]["kind"]) == (9, "exit-nonzero")
    (told,) = told_senders(document)
    assert told.startswith("SIGTERM was sent to ") and f"process {sender}" in told


def test_ignored_sigterm_is_told_once_and_the_command_goes_on_to_its_end(harness, script, gate):
    job = script(
        "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(os.getpid())\n"
        f"open({str(gate)!r}).read()\nprint('natural end')"
    )
    process = harness.start(*job)
    pid = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGTERM)
    sentence = process.stderr.readline()
    assert sentence.startswith(b"harness: ") and sentence.endswith(b"kill -KILL %d\n" % pid)
    open_gate(gate)
    stdout, rest = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, stdout, rest) == (0, b"natural end\n", b"")


def prepare_signals() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGALRM})


def ignore_all() -> None:
    """But what CPython ignores for itself."""
    for signo in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        signal.signal(signo, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signo})


def kernel_tells() -> bool:
    killers = Killers(0)
    killers.open()
    killers.close()
    return killers.why_not is None


# What the crash link catches in the command, and nothing else; the second only where the kernel does not tell who sends
# them, and of these only what is not ignored.
LINKED = sum(1 << getattr(signal, f"SIG{name}") - 1 for name in ("SEGV", "BUS", "ILL", "FPE", "ABRT", "TRAP", "SYS"))
LEAVING = sum(1 << getattr(signal, f"SIG{name}") - 1 for name in ("TERM", "INT", "HUP", "XCPU"))


@pytest.mark.parametrize(
    ("inject", "tells", "caught"),
    [
        ("none", {}, 0),
        ("auto", {}, LINKED | (0 if kernel_tells() else LEAVING)),
        ("auto", {TELL: "1"}, LINKED | LEAVING),
    ],
    ids=["alone", "linked", "telling"],
)
@pytest.mark.parametrize("prepare", [None, prepare_signals, ignore_all], ids=["usual", "nohup-like", "all"])
def test_signal_masks_and_dispositions_are_those_of_a_bare_run(harness, prepare, inject, tells, caught):
    harness.env |= tells
    job = ("cat", "/proc/self/status")
    plain = masks(bare(*job, preexec_fn=prepare).stdout)
    supervised = masks(harness(*job, preexec_fn=prepare, options=("--inject", inject)).stdout)
    assert supervised == {**plain, "SigCgt": caught & ~plain["SigIgn"]}
    assert plain["SigCgt"] == 0
    if prepare:
        ignored = plain["SigIgn"]
        assert all(ignored >> signo - 1 & 1 for signo in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1))


@pytest.mark.xfail(
    reason="CPython ignores SIGPIPE before any of our code runs and does not say what it found", strict=True
)
def test_inherited_ignored_sigpipe_is_that_of_a_bare_run(harness):
    job = ("cat", "/proc/self/status")
    plain, supervised = bare(*job, restore_signals=False), harness(*job, restore_signals=False)
    assert masks(supervised.stdout)["SigIgn"] == masks(plain.stdout)["SigIgn"]


def prepare_limits() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
    os.umask(0o027)
    os.chdir("/usr")


def test_limits_directory_and_umask_are_those_of_a_bare_run(harness):
    job = ("sh", "-c", "cat /proc/self/limits; pwd; umask")
    plain, supervised = bare(*job, preexec_fn=prepare_limits), harness(*job, preexec_fn=prepare_limits)
    assert supervised.stdout == plain.stdout
    assert plain.stdout.endswith(b"/usr\n0027\n")


def test_process_group_and_session_are_those_of_a_bare_run(harness):
    job = (sys.executable, "-c", "import os; print(os.getpgid(0), os.getsid(0))")
    assert harness(*job).stdout == bare(*job).stdout == b"%d %d\n" % (os.getpgid(0), os.getsid(0))


def test_open_descriptors_are_those_of_a_bare_run(harness, tmp_path):
    (tmp_path / "extra").touch()
    with (tmp_path / "extra").open() as extra:
        fd = extra.fileno()
        source = (
            f"import os; print(os.listdir('/proc/self/fd'), [os.readlink(f'/proc/self/fd/{{n}}') for n in (0, {fd})])"
        )
        job = (sys.executable, "-c", source)
        plain, supervised = bare(*job, pass_fds=(fd,)), harness(*job, pass_fds=(fd,))
    assert supervised.stdout == plain.stdout
    assert str(tmp_path / "extra").encode() in plain.stdout


ADDED = {"PYTHONFAULTHANDLER": "harness", "PYTHONUNBUFFERED": "1"}


def read_variables(ended: Ended) -> dict[str, str]:
    text = os.fsdecode(ended.stdout)
    return dict(variable.split("=", 1) for variable in text.removesuffix("\0").split("\0"))


@pytest.mark.parametrize("inject", ["none", "auto"])
@pytest.mark.parametrize("locale", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}, {"LANG": "C.UTF-8"}])
def test_environment_is_that_of_a_bare_run_and_what_is_documented(harness, locale, inject):
    given = {"PATH": os.environ["PATH"], "HARNESS_CASES": str(harness.cases), "ODD": "a=b\nc \udcff", **locale}
    supervised = read_variables(harness("env", "-0", env=given, options=("--inject", inject)))
    link = {name: supervised.pop(name) for name in ("LD_PRELOAD", "HARNESS_LINK") if name in supervised}
    assert supervised == {**read_variables(bare("env", "-0", env=given)), **ADDED}
    assert len(link) == (2 if inject == "auto" else 0)


def test_what_the_user_has_set_is_not_changed(harness):
    harness.env |= {"PYTHONFAULTHANDLER": "0", "PYTHONUNBUFFERED": ""}
    variables = read_variables(harness("env", "-0"))
    assert (variables["PYTHONFAULTHANDLER"], variables["PYTHONUNBUFFERED"]) == ("0", "")


def test_nice_value_is_inherited(harness):
    job = (sys.executable, "-c", "import os; print(os.nice(0))")
    assert harness(*job, preexec_fn=lambda: os.nice(3)).stdout == bare(*job, preexec_fn=lambda: os.nice(3)).stdout


def test_stopped_supervisor_does_not_stop_the_output(harness, script, gate):
    process = harness.start(*script(f"print('before')\nopen({str(gate)!r}).read()\nprint('after')"))
    assert process.stdout.readline() == b"before\n"
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT), "harness did not stop")
    open_gate(gate)
    assert process.stdout.readline() == b"after\n"
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(DEADLINE_S) == 0
