"""A command in a terminal: it sees a terminal where there was one, and the keys, the size and the hang-up reach it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.live.processes import DEADLINE_S, open_gate, shell_status, state_of, until
from tests.live.signalling import COUNTER


@pytest.mark.parametrize("terminals", list(itertools.product([True, False], repeat=3)))
def test_a_terminal_only_where_there_was_one(harness, terminal, tmp_path, terminals):
    plain = tmp_path / "plain"
    plain.touch()
    with plain.open("r+b") as file:
        streams = [terminal.slave if is_terminal else file for is_terminal in terminals]
        seen = tmp_path / "seen"
        source = f"import os, pathlib; pathlib.Path({str(seen)!r}).write_text(str([os.isatty(fd) for fd in (0, 1, 2)]))"
        process = terminal.start(
            harness.line(sys.executable, "-c", source),
            env=harness.env,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
        )
    assert terminal.read_to_end(process) == 0
    assert seen.read_text() == str(list(terminals))


def test_stderr_in_a_file_stays_out_of_the_terminal(harness, terminal, tmp_path):
    with (tmp_path / "errors").open("wb") as errors:
        line = harness.line("sh", "-c", "echo shown; echo logged >&2")
        assert terminal.read_to_end(terminal.start(line, env=harness.env, stderr=errors)) == 0
    assert terminal.seen == b"shown\r\n"
    assert (tmp_path / "errors").read_bytes() == b"logged\n"


def test_bytes_at_the_terminal_are_those_of_a_bare_run(harness, new_terminal):
    job = ["sh", "-c", r"printf 'a\nb\r\nc\rd\n\n\t\001\377\033[31mred\033[0m\n'; printf 'err\nor' >&2; printf end"]
    plain, supervised = new_terminal(), new_terminal()
    assert plain.read_to_end(plain.start(job)) == 0
    assert supervised.read_to_end(supervised.start(harness.line(*job), env=harness.env)) == 0
    assert supervised.seen == plain.seen
    assert plain.seen.startswith(b"a\r\nb\r\r\nc\rd\r\n")


def test_last_words_are_at_the_terminal_before_harness_ends(harness, new_terminal):
    """What comes after harness in the terminal comes after the command's output."""
    for _ in range(10):
        one = new_terminal()
        line = ["sh", "-c", '"$@"; echo next', "sh", *harness.line("sh", "-c", "printf 'last words\n'")]
        assert one.read_to_end(one.start(line, env=harness.env)) == 0
        assert one.seen == b"last words\r\nnext\r\n"


def test_stdin_is_the_very_same_terminal(harness, terminal):
    name = os.ttyname(terminal.slave)
    source = "import os; print(os.ttyname(0)); print(open('/dev/tty').isatty(), input())"
    process = terminal.start(harness.line(sys.executable, "-c", source), env=harness.env)
    terminal.read_until(name.encode())
    terminal.type(b"typed\n")
    assert terminal.read_to_end(process) == 0
    assert b"True typed" in terminal.seen


def test_window_size_and_its_changes_are_seen(harness, terminal, script):
    job = script("""
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
while (size := os.get_terminal_size(1)).columns != 133:
    print(f"size {size.columns}x{size.lines};")
    signal.sigwait([signal.SIGWINCH])
print(f"size {size.columns}x{size.lines};")
""")
    terminal.resize(71, 19)
    process = terminal.start(harness.line(*job), env=harness.env)
    terminal.read_until(b"size 71x19;")
    terminal.resize(133, 47)
    terminal.read_until(b"size 133x47;")
    assert terminal.read_to_end(process) == 0


def test_ctrl_c_reaches_the_command_exactly_once(harness, terminal, script):
    process = terminal.start(harness.line(*script(COUNTER)), env=harness.env)
    terminal.read_until(b"ready")
    terminal.type(b"\x03")
    terminal.read_until(b"got 2")
    os.kill(process.pid, signal.SIGWINCH)
    assert terminal.read_to_end(process) == 5
    assert b"counted 0 1 0 0 0" in terminal.seen


def test_ctrl_c_ends_a_command_as_bare(harness, new_terminal, gate):
    job = ["sh", "-c", f"echo ready; exec cat {gate}"]
    statuses = []
    for line in (job, harness.line(*job)):
        one = new_terminal()
        process = one.start(line, env=harness.env)
        one.read_until(b"ready")
        one.type(b"\x03")
        statuses.append(one.read_to_end(process))
    assert statuses == [130, 130]


def test_ctrl_z_stops_harness_and_command_and_fg_resumes_both(harness, terminal, script, tmp_path, gate):
    job = script(f"""
import json, os, pathlib
pathlib.Path({str(tmp_path / "pids.part")!r}).write_text(json.dumps([os.getppid(), os.getpid()]))
os.rename({str(tmp_path / "pids.part")!r}, {str(tmp_path / "pids")!r})
print("ready")
open({str(gate)!r}).read()
raise SystemExit(5)
""")
    shell = '"$@"; echo "stopped $?"; read -r _; fg >/dev/null; echo "ended $?"'
    process = terminal.start(["bash", "-mc", shell, "bash", *harness.line(*job)], env=harness.env)
    terminal.read_until(b"ready")
    pids = json.loads((tmp_path / "pids").read_text())
    terminal.type(b"\x1a")
    terminal.read_until(b"stopped 148")
    until(lambda: [state_of(pid) for pid in pids] == ["T", "T"], "harness and command did not both stop")
    terminal.type(b"\n")
    until(lambda: "T" not in [state_of(pid) for pid in pids], "harness and command did not both go on")
    open_gate(gate)
    assert terminal.read_to_end(process) == 0
    assert b"ended 5" in terminal.seen


def test_a_closed_terminal_loses_nothing_of_the_case_under_nohup(harness, terminal, script, gate):
    job = script(f"print('before')\nopen({str(gate)!r}).read()\nprint('after ' * 5000)\nraise SystemExit(3)")
    process = terminal.start(harness.line(*job), env=harness.env, ignore=(signal.SIGHUP,))
    terminal.read_until(b"before")
    terminal.hang_up()
    open_gate(gate)
    assert process.wait(DEADLINE_S) == 3
    assert (harness.case / "output.log").read_bytes() == b"before\n" + b"after " * 5000 + b"\n"
    assert json.loads((harness.case / "case.json").read_bytes())["complete"] is True


def test_a_closed_terminal_ends_the_command_as_bare(harness, new_terminal, script):
    """Only the leader of the session is told; without harness that is the command."""
    job = script("import signal\nprint('ready')\nsignal.pause()")
    statuses = []
    for line in (job, harness.line(*job)):
        one = new_terminal()
        process = one.start(line, env={**harness.env, "PYTHONUNBUFFERED": "1"})
        one.read_until(b"ready")
        one.hang_up()
        statuses.append(shell_status(process.wait(DEADLINE_S)))
    assert statuses == [129, 129]
    verdict = json.loads((harness.case / "verdict.json").read_bytes())
    assert (verdict["verdict"]["kind"], verdict["outcome"]["signal"]) == ("terminated", "SIGHUP")


def test_a_closed_terminal_behind_a_shell_ends_the_command(harness, terminal, script, tmp_path):
    job = script("import os, signal\nprint('pid', os.getpid(), '.')\nsignal.pause()")
    terminal.start(["bash", "-mc", '"$@"; echo', "bash", *harness.line(*job)], env=harness.env)
    terminal.read_until(b" .")
    pid = int(terminal.seen.split(b"pid ")[1].split()[0])
    terminal.hang_up()
    until(lambda: state_of(pid) is None, "the command outlived its terminal")
    verdict = harness.case / "verdict.json"
    until(verdict.exists, "no verdict")
    assert json.loads(verdict.read_bytes())["outcome"]["signal"] == "SIGHUP"


def test_report_at_a_terminal_fits_its_width(harness, terminal):
    terminal.resize(60, 24)
    process = terminal.start(harness.line("sh", "-c", "kill -SEGV $$"), env={**harness.env, "NO_COLOR": "1"})
    assert terminal.read_to_end(process) == 139
    words = [line for line in terminal.seen.decode().split("\r\n") if " " in line.strip()]
    assert words and "\x1b" not in terminal.seen.decode()
    breakable = [line for line in words if max(map(len, line.split())) < 40]  # a path is never cut
    assert breakable and max(map(len, breakable)) <= 60


def test_no_terminal_means_no_colour(harness):
    done = subprocess.run(harness.line("sh", "-c", "kill -SEGV $$"), env=harness.env, capture_output=True, check=False)
    assert done.returncode == 139 and b"\x1b" not in done.stderr and b"\r" not in done.stderr
