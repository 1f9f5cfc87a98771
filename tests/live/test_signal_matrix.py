"""Every signal that can be caught, sent to harness: the command gets what it would have got bare, nobody dies of it.

What is compared is always the same signal sent to the bare command.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.live.processes import DEADLINE_S, open_gate, shell_status, state_of, until
from tests.live.signalling import masks, send_from_elsewhere

ALL = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
QUEUED = [signo for signo in ALL if signo >= signal.SIGRTMIN]
# Their default action ends a process, and harness itself uses or ignores none of them; SIGSEGV and its like as sent.
DEADLY = [
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGXCPU,
    signal.SIGXFSZ,
    signal.SIGPIPE,
    signal.SIGIO,
    signal.SIGPWR,
    signal.SIGSTKFLT,
    signal.SIGSEGV,
    signal.SIGABRT,
    signal.SIGSYS,
    signal.SIGTRAP,
    signal.SIGRTMIN,
    signal.SIGRTMAX,
]


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    program = tmp_path_factory.mktemp("counter") / "counter"
    subprocess.run(["cc", "-o", program, Path(__file__).with_name("signal_counter.c")], check=True)
    return str(program)


@pytest.fixture
def start(harness, counter):
    """Starts the counter in a group of its own, bare or under harness, and waits until it counts."""
    started = []

    def begin(supervised: bool, ignored: list[int] | None = None) -> subprocess.Popen[bytes]:
        def prepare() -> None:
            for signo in ignored or ():
                signal.signal(signo, signal.SIG_IGN)

        process = subprocess.Popen(
            harness.line(counter, options=("-q",)) if supervised else [counter],
            env=harness.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
            preexec_fn=prepare if ignored else None,
        )
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def end(process: subprocess.Popen[bytes]) -> list[bytes]:
    """What it told until its stdin ended; it ended as it wanted to."""
    stdout, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 5
    return stdout.split(b"\n")[:-1]


def send_each(process: subprocess.Popen[bytes], signos: list[int]) -> list[bytes]:
    """One after the other: standard signals that are pending together are one."""
    told = []
    for signo in signos:
        os.kill(process.pid, signo)
        told.append(process.stdout.readline().rstrip())
    return told + end(process)


@pytest.mark.parametrize("ignored", [[], ALL], ids=["default", "ignored-at-the-start"])
def test_each_signal_to_harness_reaches_the_command_exactly_once(start, ignored):
    plain, supervised = (send_each(start(kind, ignored), ALL) for kind in (False, True))
    assert supervised == plain == [b"%d 0 0" % signo for signo in ALL]


def test_each_signal_to_the_group_reaches_the_command_exactly_once(start):
    """`kill -- -PGID`, as timeout, schedulers and editors do it: the command has it already."""
    told = []
    for kind in (False, True):
        process = start(kind)
        lines = []
        for signo in ALL:
            os.killpg(process.pid, signo)
            lines.append(process.stdout.readline().rstrip())
        os.kill(process.pid, signal.SIGRTMAX)  # harness passes on in order: a second one would come before this
        while lines[-2:] != [b"%d 0 0" % signal.SIGRTMAX] * 2:
            lines.append(process.stdout.readline().rstrip())
        told.append(lines + end(process))
    assert told[1] == told[0]
    assert told[0] == [b"%d 0 0" % signo for signo in [*ALL, signal.SIGRTMAX]]


def test_one_word_of_the_command_line_finds_both_and_the_command_gets_it_once(start, counter):
    process = start(True)
    subprocess.run(["pkill", "-USR1", "-f", counter], check=True)
    assert process.stdout.readline() == b"%d 0 0\n" % signal.SIGUSR1
    os.kill(process.pid, signal.SIGUSR2)
    assert process.stdout.readline() == b"%d 0 0\n" % signal.SIGUSR2
    assert end(process) == []


def test_the_name_of_harness_means_harness_alone(start, counter):
    """The command's stand-in must not be found by it: what it gets counts as given to the command."""
    process = start(True)
    subprocess.run(["pkill", "-USR1", "-g", str(process.pid), "-f", "harness run"], check=True)
    assert process.stdout.readline() == b"%d 0 0\n" % signal.SIGUSR1
    assert end(process) == []


def queue(pid: int, signo: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.sigqueue(pid, signo, ctypes.c_void_p(value)) == -1:
        raise OSError(ctypes.get_errno(), "sigqueue")


def test_values_that_were_queued_arrive_in_their_order(start):
    plain, supervised = start(False), start(True)
    for process in (plain, supervised):
        for value in range(3):
            for signo in QUEUED:
                queue(process.pid, signo, signo * 100 + value)
    told = [sorted(process.stdout.readline() for _ in range(3 * len(QUEUED))) for process in (plain, supervised)]
    assert told[0] == told[1]
    assert [end(process) for process in (plain, supervised)] == [[], []]


def test_ten_thousand_queued_signals_while_harness_stands_still(start):
    """More than its pipe holds: the rest waits in the kernel, and none is lost or overtaken."""
    process = start(True)
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: state_of(process.pid) == "T", "harness did not stop")
    for value in range(10_000):
        queue(process.pid, signal.SIGRTMIN, value)
    os.kill(process.pid, signal.SIGCONT)
    lines = [process.stdout.readline() for _ in range(10_001)]
    lines.remove(b"%d 0 0\n" % signal.SIGCONT)
    assert lines == [b"%d 1 %d\n" % (signal.SIGRTMIN, value) for value in range(10_000)]
    assert end(process) == []


def test_what_ends_the_bare_command_ends_it_below_harness(harness):
    """Nothing is caught here. All at once, because each run takes its time to tell of the death."""
    job = ["sh", "-c", "ulimit -c 0; echo ready; exec sleep 60"]
    lines = {"bare": job, "supervised": harness.line(*job, options=("-q",))}
    running = {
        (name, signo): subprocess.Popen(line, env=harness.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for name, line in lines.items()
        for signo in DEADLY
    }
    ends: dict[str, list[int]] = {"bare": [], "supervised": []}
    try:
        for (_, signo), process in running.items():
            assert process.stdout.readline() == b"ready\n"
            os.kill(process.pid, signo)
        for (name, _), process in running.items():
            ends[name].append(shell_status(process.wait(DEADLINE_S)))
    finally:
        for process in running.values():
            process.kill()
            process.wait()
            process.stdout.close()
    assert ends["supervised"] == ends["bare"] == [128 + signo for signo in DEADLY]


def test_those_of_the_c_library_do_not_end_harness(start):
    process = start(True)
    for signo in (32, 33):
        subprocess.run(["sh", "-c", f"kill -{signo} {process.pid}"], check=True)
    os.kill(process.pid, signal.SIGUSR1)
    assert process.stdout.readline() == b"%d 0 0\n" % signal.SIGUSR1
    assert end(process) == []


def test_relays_and_stand_in_outlive_every_signal_that_can_be_caught(harness, start):
    """They lose nothing of the output and end with harness."""
    process = start(True)
    children = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    own = [pid for pid in children if Path(f"/proc/{pid}/comm").read_text() != "counter\n"]
    names = sorted(Path(f"/proc/{pid}/comm").read_text().strip() for pid in own)
    assert names == ["output-holder", "output-relay", "output-relay", "signals-of"]
    for pid in own:
        for signo in ALL:
            os.kill(pid, signo)
    send_from_elsewhere(signal.SIGUSR1, process.pid)  # from here it was sent to the stand-in as well
    assert process.stdout.readline() == b"%d 0 0\n" % signal.SIGUSR1
    assert {state_of(pid) for pid in own} <= {"S", "R"}
    assert end(process) == []
    until(lambda: all(state_of(pid) in (None, "Z") for pid in own), "a process of harness outlives it")


def test_everything_that_was_ignored_is_ignored_by_both(harness, gate):
    """Also by a command that says nothing of it; SIGPIPE and SIGXFSZ: see test_signals."""
    ignored = sorted(set(ALL) - {signal.SIGPIPE, signal.SIGXFSZ})

    def prepare() -> None:
        for signo in ignored:
            signal.signal(signo, signal.SIG_IGN)

    job = ["sh", "-c", f"cat /proc/self/status; cat {gate}; exit 5"]
    seen = []
    for line in (job, harness.line(*job, options=("-q", "--inject", "none"))):
        process = subprocess.Popen(
            line, env=harness.env, stdout=subprocess.PIPE, preexec_fn=prepare, start_new_session=True
        )
        lines = []
        while not lines or not lines[-1].startswith(b"nonvoluntary"):
            lines.append(process.stdout.readline())
        for signo in ignored:
            os.kill(process.pid, signo)
        open_gate(gate)
        process.communicate(timeout=DEADLINE_S)
        seen.append((masks(b"".join(lines))["SigIgn"], process.returncode))
    assert seen[0] == seen[1]
    assert seen[0][1] == 5


def test_a_background_command_of_sh_that_sets_a_handler_gets_it(harness, script):
    """`harness run … &` in a script: SIGINT is ignored at the start, and a handler of the job's own comes later."""
    job = script(
        "import signal\nsignal.signal(signal.SIGINT, lambda *_: (print('handled'), exit(6)))\nprint('ready')\n"
        "while True: signal.pause()"
    )
    shell = ["sh", "-c", '"$@" & echo $!; wait $!; exit $?', "sh", *harness.line(*job, options=("-q",))]
    process = subprocess.Popen(shell, env=harness.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    pid = int(process.stdout.readline())
    assert process.stdout.readline() == b"ready\n"
    send_from_elsewhere(signal.SIGINT, pid)
    stdout, _ = process.communicate(timeout=DEADLINE_S)
    assert (stdout, process.returncode) == (b"handled\n", 6)


def test_an_alarm_set_before_exec_is_the_commands(harness):
    """`perl -e 'alarm 60; exec @ARGV'`: the command has the clock, and can stop it."""
    source = "import os, signal; print(signal.getitimer(signal.ITIMER_REAL)[0] > 1000, signal.alarm(0) > 1000)"
    job = ["python3", "-c", source]
    for line in (job, harness.line(*job)):
        done = subprocess.run(
            line, env=harness.env, capture_output=True, preexec_fn=lambda: signal.alarm(5000), timeout=DEADLINE_S
        )
        assert (done.returncode, done.stdout) == (0, b"True True\n")


def test_stopping_harness_stops_the_command_and_continuing_it_continues(harness, script, gate, tmp_path):
    """`kill -TSTP`, sent to harness alone: the shell sees that the command has stopped, and only then.

    In a group of its own, as a shell starts it: the kernel stops nobody of a group that is orphaned (setsid).
    """
    job = script(f"import os\nprint(os.getpid())\nopen({str(gate)!r}).read()\nraise SystemExit(5)")
    process = harness.start(*job, options=("-q",), preexec_fn=os.setpgrp)
    pid = int(process.stdout.readline())
    for signo in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        os.kill(process.pid, signo)
        stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert (stopped.si_status, state_of(pid)) == (signo, "T")
        os.kill(process.pid, signal.SIGCONT)
        until(lambda: "T" not in (state_of(process.pid), state_of(pid)), "harness and command did not both go on")
    open_gate(gate)
    assert process.wait(DEADLINE_S) == 5


def test_a_command_that_ignores_the_stop_is_not_left_alone(harness, script):
    """Ctrl-Z on a program that does not want to stop stops nothing, bare or below harness."""
    job = script(
        "import signal\nsignal.signal(signal.SIGTSTP, lambda *_: print('no'))\nprint('ready')\nsignal.pause()\n"
        "signal.pause()\nraise SystemExit(5)"
    )
    process = harness.start(*job, options=("-q",))
    assert process.stdout.readline() == b"ready\n"
    for _ in range(2):
        os.kill(process.pid, signal.SIGTSTP)
        assert process.stdout.readline() == b"no\n"
    assert process.wait(DEADLINE_S) == 5


def test_a_fault_of_harness_itself_ends_it(harness, script, gate, tmp_path):
    """It is not passed on, and not swallowed: abort() in the supervisor, by a debugger's hand, is its own."""
    job = script(f"print('ready')\nopen({str(gate)!r}).read()\nprint('natural end')")
    process = harness.start(*job, options=("-q",))
    assert process.stdout.readline() == b"ready\n"
    source = "import os, signal; from harness import native; _, lib = native.load(); lib.harness_signals_open(); "
    for fault, status in (("os.abort()", signal.SIGABRT), ("import ctypes; ctypes.string_at(0)", signal.SIGSEGV)):
        done = subprocess.run([*harness.line()[:1], "-c", source + fault], capture_output=True, timeout=DEADLINE_S)
        assert done.returncode == -status
    open_gate(gate)
    assert process.communicate(timeout=DEADLINE_S)[0] == b"natural end\n"
