"""Bad days: each ends with the documented status and one clear sentence, and nothing of the command's is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live.processes import DEADLINE_S, bare, is_gone, open_gate, relays_of, until


def sentences(stderr: bytes) -> list[str]:
    """Our own lines: what failed, and the next command to type."""
    return [line for line in stderr.decode().splitlines() if line.startswith(("harness: ", "  next: "))]


def assert_refused(ended, status: int, *words: str) -> None:
    said = sentences(ended.stderr)
    assert (ended.status, ended.stdout, len(said)) == (status, b"", 2), ended.stderr.decode()
    for word in words:
        assert word in "\n".join(said)


def test_command_not_found(harness):
    assert bare("sh", "-c", "no-such-command").status == 127
    assert_refused(harness("no-such-command"), 127, "no-such-command: command not found", "next: command -v")
    assert harness.kept_cases() == []


def test_a_script_that_is_not_there(harness):
    assert_refused(harness("train.py"), 127, "train.py: no such file", "next: harness run python /path/to/train.py")


def test_path_not_found(harness, tmp_path):
    assert_refused(harness(tmp_path / "nothing"), 127, "no such file")


def test_not_executable(harness, tmp_path):
    (tmp_path / "job").write_text("#!/bin/sh\n")
    assert bare("sh", "-c", tmp_path / "job").status == 126
    assert_refused(harness(tmp_path / "job"), 126, "is not executable", f"next: chmod +x {tmp_path / 'job'}")


def test_directory(harness, tmp_path):
    assert bare("sh", "-c", tmp_path).status == 126
    assert_refused(harness(tmp_path), 126, "is a directory")


@pytest.mark.parametrize("words", [(), ("",)])
def test_empty_command(harness, words):
    assert_refused(harness(*words), 2, "no command", "next: harness run python train.py")


def test_script_without_python_in_front(harness, tmp_path):
    (tmp_path / "train.py").write_text("print('hello')\n")
    done = subprocess.run(
        [sys.executable, "-m", "harness", "run", "train.py", "--epochs", "3"],
        cwd=tmp_path,
        env=harness.env,
        capture_output=True,
        check=False,
    )
    assert done.returncode in (126, 127)
    assert sentences(done.stderr)[1] == "  next: harness run python train.py --epochs 3"


def test_script_without_interpreter_line(harness, tmp_path):
    (tmp_path / "job").write_text("echo hello\n")
    (tmp_path / "job").chmod(0o755)
    for _ in range(5):  # its relays have started by then and must not write into a case that is removed
        assert_refused(harness(tmp_path / "job"), 126, "#! line", f"next: harness run sh {tmp_path / 'job'}")
        assert harness.kept_cases() == []


def test_script_with_an_interpreter_that_is_not_there(harness, tmp_path):
    (tmp_path / "job").write_text("#!/no/such/interpreter\n")
    (tmp_path / "job").chmod(0o755)
    assert bare("sh", "-c", tmp_path / "job").status == 127
    assert_refused(harness(tmp_path / "job"), 127, "interpreter", "next: head -1")


def test_json_is_refused_with_the_way_to_get_it(harness, tmp_path):
    refused = harness("touch", tmp_path / "started", options=("--json",))
    assert_refused(refused, 2, f"next: harness run --verdict verdict.json -- touch {tmp_path / 'started'}")
    assert not (tmp_path / "started").exists()


TALKER = ["sh", "-c", "echo to stdout; echo to stderr >&2; cat; exit 3"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_lose_nothing_of_the_case(harness, closed):
    done = bare("sh", "-c", f'exec "$@" {closed}', "sh", *harness.line(*TALKER), env=harness.env)
    assert done.status == 3
    assert (harness.case / "stdout.log").read_bytes() == b"to stdout\n"
    assert (harness.case / "stderr.log").read_bytes().startswith(b"to stderr\n")
    assert done.stdout == (b"" if ">&-" in closed.split() else b"to stdout\n")
    assert done.stderr.startswith(b"" if "2>&-" in closed else b"to stderr\n")


def test_closed_stdin_is_closed_for_the_command(harness):
    job = [sys.executable, "-c", "import os; print(os.path.exists('/proc/self/fd/0'))"]
    done = bare("sh", "-c", 'exec "$@" <&-', "sh", *harness.line(*job), env=harness.env)
    assert done.stdout == bare("sh", "-c", 'exec "$@" <&-', "sh", *job).stdout == b"False\n"


# 5 MB of numbered lines, a wait, and an end that leaves a mark.
LONG_JOB = """
import os, pathlib, sys
here = pathlib.Path({here!r})
(here / "ready").touch()
for i in range(5000):
    os.write(1, b"%07d\\n" % i * 125)
open({gate!r}).read()
os.write(1, b"the end\\n")
os.write(2, b"errors too\\n")
(here / "done").touch()
"""
LONG_OUTPUT = b"".join(b"%07d\n" % i * 125 for i in range(5000)) + b"the end\n"


@pytest.mark.parametrize("moment", ["started", "mid-output", "waiting"])
def test_killed_harness_takes_nothing_with_it(harness, script, gate, tmp_path, moment):
    process = harness.start(*script(LONG_JOB.format(here=str(tmp_path), gate=str(gate))))
    until((tmp_path / "ready").exists, "the command did not start")
    stdout = process.stdout.read({"started": 0, "mid-output": 1_000_000, "waiting": 5_000_000}[moment])
    process.kill()
    assert process.wait(DEADLINE_S) == -signal.SIGKILL
    stdout += process.stdout.read(5_000_000 - len(stdout))
    open_gate(gate)
    stdout += process.stdout.read()
    assert stdout == LONG_OUTPUT
    assert process.stderr.read() == b"errors too\n"
    assert (tmp_path / "done").exists()
    assert json.loads((harness.case / "case.json").read_bytes())["complete"] is False
    assert (harness.case / "stdout.log").read_bytes() == LONG_OUTPUT[: 1024**2]
    assert (harness.case / "stdout.tail").read_bytes().endswith(b"the end\n")


@pytest.mark.parametrize("delay_ms", range(0, 120, 12))
def test_harness_killed_while_starting_gives_all_or_nothing(harness, delay_ms):
    """The delay is the moment under test, not a wait: the output is whole, or the command never was."""
    process = harness.start("sh", "-c", "echo one; echo two")
    time.sleep(delay_ms / 1000)
    process.kill()
    stdout, _ = process.communicate(timeout=DEADLINE_S)
    assert stdout in (b"", b"one\ntwo\n")
    for case in harness.kept_cases():
        marker = case / "case.json"
        assert not marker.exists() or json.loads(marker.read_bytes())["complete"] is False


def test_killed_relay_harms_neither_command_nor_later_output(harness, script, gate):
    job = script(f"print('before')\nopen({str(gate)!r}).read()\nprint('x' * 2_000_000)\nprint('after')")
    process = harness.start(*job, options=("--verdict", str(harness.verdict_file)))
    assert process.stdout.readline() == b"before\n"
    for relay in relays_of(process.pid):
        os.kill(relay, signal.SIGKILL)
        until(lambda dead=relay: dead not in relays_of(process.pid), "the dead relay was not collected")
    until(lambda: len(relays_of(process.pid)) == 2, "the relays were not replaced")
    open_gate(gate)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, stdout) == (0, b"x" * 2_000_000 + b"\nafter\n")
    assert len(sentences(stderr)) == 2  # one for each relay
    gaps = [gap for gap in harness.read_verdict()["gaps"] if "SIGKILL" in gap["why"]]
    assert {gap["what"].split()[-1] for gap in gaps} == {"stdout", "stderr"}


def test_relay_killed_again_and_again_never_blocks_the_command(harness, script, gate):
    job = script(f"print('before')\nopen({str(gate)!r}).read()\nprint('x' * 3_000_000)")
    process = harness.start(*job, stderr=subprocess.STDOUT)
    assert process.stdout.readline() == b"before\n"
    killed: set[int] = set()
    while len(killed) < 10:
        (relay,) = until(lambda: [pid for pid in relays_of(process.pid) if pid not in killed], "no new relay")
        os.kill(relay, signal.SIGKILL)
        killed.add(relay)
    open_gate(gate)
    stdout, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0 and b"x" * 3_000_000 + b"\n" in stdout


def test_nested_harnesses_tell_the_same_end(harness, script):
    crash = script("import os; print('working'); os.abort()")
    supervised = harness(*harness.line(*crash))
    assert (supervised.status, supervised.stdout) == (134, b"working\n")
    assert len(harness.kept_cases()) == 2
    kinds = {json.loads((case / "verdict.json").read_bytes())["verdict"]["kind"] for case in harness.kept_cases()}
    assert kinds == {"abort"}


def test_nested_harnesses_are_silent_on_success(harness, script):
    supervised = harness(*harness.line(*script("print('fine')")))
    assert (supervised.status, supervised.stdout, supervised.stderr) == (0, b"fine\n", b"")


def test_64_children_at_once_are_all_followed(harness, script):
    job = script("""
import os
children = []
for i in range(64):
    if (pid := os.fork()) == 0:
        os.write(1, b"%d\\n" % i)
        os.read(0, 1)
        os._exit(i + 1)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
raise SystemExit(9)
""")
    process = harness.start(*job, stdin=subprocess.PIPE)
    lines = {int(process.stdout.readline()) for _ in range(64)}
    assert lines == set(range(64))
    until(lambda: _pidfds(process.pid) >= 65, "not every child is watched")
    process.communicate(timeout=DEADLINE_S)  # closes stdin, at which all children wait
    assert process.returncode == 9
    evidence = json.loads((harness.case / "evidence.json").read_bytes())
    endings = sorted(one["ending"]["exit_code"] for one in evidence["processes"] if one["pid"] != evidence["pid"])
    assert endings == list(range(1, 65))


def _pidfds(pid: int) -> int:
    links = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(str(fd.readlink()))
    return links.count("anon_inode:[pidfd]")


def test_daemon_that_holds_stdout_does_not_hold_up_harness(harness, gate):
    process = harness.start("sh", "-c", f"(read _ <{gate}; echo from the daemon) & echo launched")
    assert process.wait(DEADLINE_S) == 0  # the daemon waits at the gate until we have come past this line
    open_gate(gate)
    assert process.stdout.read() == b"launched\nfrom the daemon\n"


def test_failing_command_with_a_daemon_does_not_hold_up_harness(harness, gate):
    process = harness.start("sh", "-c", f"(read _ <{gate}; echo from the daemon) & echo launched; exit 3")
    assert process.wait(DEADLINE_S) == 3
    open_gate(gate)
    assert process.stdout.read() == b"launched\nfrom the daemon\n"


def test_daemon_survives_harness(harness, gate, tmp_path):
    job = f"(trap '' HUP; echo $$ >/dev/null; read _ <{gate}; touch {tmp_path}/done) >/dev/null 2>&1 & echo launched"
    supervised = harness("sh", "-c", job)
    assert supervised.stdout == b"launched\n"
    open_gate(gate)
    until((tmp_path / "done").exists, "the daemon was ended with harness")


def test_flag_that_hides_the_fault_is_warned_about(harness):
    harness.env["KMP_DUPLICATE_LIB_OK"] = "TRUE"
    supervised = harness("env")
    assert b"KMP_DUPLICATE_LIB_OK=TRUE" in supervised.stdout.splitlines()
    (warning,) = supervised.stderr.splitlines()
    assert warning.startswith(b"harness: KMP_DUPLICATE_LIB_OK=TRUE is set")


def test_flag_that_hides_the_fault_is_never_set_by_us(harness):
    supervised = harness("env")
    assert b"KMP_DUPLICATE_LIB_OK" not in supervised.stdout and supervised.stderr == b""


def test_success_says_nothing_and_keeps_nothing(harness):
    process = harness.start("echo", "fine")
    assert process.communicate(timeout=DEADLINE_S) == (b"fine\n", b"")
    assert process.returncode == 0 and harness.kept_cases() == []


def test_keep_keeps_the_case_of_a_success(harness):
    supervised = harness("echo", "fine", options=("--keep",))
    assert (supervised.status, supervised.stderr) == (0, b"")
    assert json.loads((harness.case / "case.json").read_bytes())["complete"] is True
    assert json.loads((harness.case / "verdict.json").read_bytes())["verdict"]["kind"] == "clean"


def test_quiet_is_one_line(harness):
    supervised = harness("sh", "-c", "kill -SEGV $$", options=("-q",))
    (line,) = supervised.stderr.splitlines()
    assert supervised.status == 139 and line.startswith(b"harness: ")


def test_case_is_private(harness):
    previous = os.umask(0)
    try:
        harness("sh", "-c", "echo out; echo err >&2; exit 3")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(harness.case.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in harness.case.iterdir()}
    assert "evidence.json" in modes and "stdout.log" in modes
    assert all(mode & 0o077 == 0 for mode in modes.values()), modes


def test_old_cases_make_room_for_new_ones(harness):
    def make(name: str, *, complete: bool, supervisor_pid: int) -> Path:
        case = harness.cases / name
        case.mkdir(parents=True)
        document = {"schema": "harness.case/1", "complete": complete, "supervisor_pid": supervisor_pid}
        (case / "case.json").write_text(json.dumps(document))
        return case

    finished = [make(f"20200101T0000{i:02}-aaaa", complete=True, supervisor_pid=0) for i in range(60)]
    running = make("20190101T000000-bbbb", complete=False, supervisor_pid=os.getpid())
    harness("sh", "-c", "exit 3")
    kept = harness.kept_cases()
    assert running in kept
    assert len(kept) == 51 and kept[-1] not in finished and kept[1:-1] == finished[-49:]


def test_verdict_that_cannot_be_written_is_told(harness, tmp_path):
    process = harness.start("sh", "-c", "exit 3", options=("--verdict", str(tmp_path / "no" / "such.json")))
    _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 3
    assert any("could not be written" in line and "such.json" in line for line in sentences(stderr))


def test_deleted_working_directory_does_not_stop_the_command(harness, tmp_path):
    shell = 'mkdir "$0" && cd "$0" && rmdir "$0" && exec "$@"'
    job = harness.line("sh", "-c", "echo still here; exit 3")
    done = bare("sh", "-c", shell, tmp_path / "gone", *job, env={**harness.env, "PYTHONPATH": str(Path.cwd())})
    assert (done.status, done.stdout) == (3, b"still here\n")


def test_children_that_close_every_descriptor(harness, script, tmp_path):
    job = script(f"""
import os, pathlib
if os.fork() == 0:
    os.closerange(0, 256)
    pathlib.Path({str(tmp_path / "done")!r}).touch()
    os._exit(0)
os.wait()
""")
    supervised = harness(*job)
    assert (supervised.status, supervised.stderr) == (0, b"") and (tmp_path / "done").exists()


def test_nothing_of_ours_is_left_behind(harness, script):
    process = harness.start(*script("print('x'); raise SystemExit(3)"))
    assert process.stdout.read(2) == b"x\n"
    process.communicate(timeout=DEADLINE_S)
    relays = [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and not is_gone(int(entry.name)) and _holds(entry, harness.cases)
    ]
    assert relays == []


def _holds(process: Path, directory: Path) -> bool:
    try:
        return any(str(fd.readlink()).startswith(str(directory)) for fd in (process / "fd").iterdir())
    except OSError:
        return False  # it ended meanwhile
