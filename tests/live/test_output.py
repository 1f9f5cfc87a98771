"""The command's output under `harness run` is, byte for byte and in order, what it is without it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.processes import DEADLINE_S, bare, open_gate, relays_of, until

BINARY = """
import os
os.write(1, bytes(range(256)) * 300 + b"\\xff\\xfe\\x00 no newline")
os.write(2, b"\\x00\\xc3\\x28 \\x1b[31m\\r\\n\\x80")
"""


def test_bytes_of_both_channels_are_those_of_a_bare_run(harness, script):
    job = script(BINARY)
    plain, supervised = bare(*job), harness(*job)
    assert (supervised.status, supervised.stdout, supervised.stderr) == (0, plain.stdout, plain.stderr)
    assert plain.stdout.startswith(bytes(range(256)))


def test_kept_copy_has_the_bytes_of_each_channel_apart(harness, script):
    harness(*script(BINARY), options=("--keep",))
    plain = bare(*script(BINARY))
    assert (harness.case / "stdout.log").read_bytes() == plain.stdout
    assert (harness.case / "stderr.log").read_bytes() == plain.stderr


def test_alternating_writes_keep_their_order_where_both_go_to_one_place(harness, script):
    job = script("import os\nfor i in range(3000): os.write(1 + i % 2, b'%d\\n' % i)")
    supervised = harness(*job, stderr=subprocess.STDOUT)
    assert supervised.stdout == b"".join(b"%d\n" % i for i in range(3000))


def test_one_file_for_both_channels_is_written_as_bare(harness, script, tmp_path):
    job = script("import os\nfor i in range(300): os.write(1 + i % 2, b'%d\\n' % i)")
    with (tmp_path / "log").open("wb") as log:
        harness(*job, stdout=log, stderr=log)
    assert (tmp_path / "log").read_bytes() == b"".join(b"%d\n" % i for i in range(300))


def test_regular_file_is_appended_to_where_it_stood(harness, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    with log.open("ab") as stdout:
        harness("echo", "after", stdout=stdout)
    assert log.read_bytes() == b"before\nafter\n"


def test_200_mb_arrive_whole_and_the_case_stays_small(harness, script):
    job = script("import os\nfor i in range(200): os.write(1, (b'%07d\\n' % i) * 131072)")
    with harness.start(*job, options=("--keep",)) as process:
        digest = hashlib.sha256()
        while chunk := process.stdout.read(1 << 20):
            digest.update(chunk)
        assert process.wait(DEADLINE_S) == 0
    expected = hashlib.sha256()
    for i in range(200):
        expected.update((b"%07d\n" % i) * 131072)
    assert digest.digest() == expected.digest()
    assert sum(file.stat().st_size for file in harness.case.iterdir()) < 5 * 1024**2
    assert (harness.case / "stdout.log").read_bytes().startswith(b"0000000\n")
    assert (harness.case / "stdout.tail").read_bytes().endswith(b"0000199\n")


def test_megabytes_without_a_newline_do_not_delay_the_report(harness, script):
    job = script("import os\nfor _ in range(48): os.write(1, b'x' * 65536)\nraise SystemExit(3)")
    supervised = harness(*job)
    assert (supervised.status, supervised.stdout) == (3, b"x" * 48 * 65536)


@pytest.mark.parametrize("redirection", ["", "2>&1"])
def test_gone_reader_ends_the_command_as_bare(harness, redirection, tmp_path):
    statuses = {}
    for name, line in (("bare", ["yes"]), ("harness", harness.line("yes"))):
        shell = f'"$@" {redirection} | head -1; echo ${{PIPESTATUS[0]}} >{tmp_path}/{name}'
        done = bare("bash", "-c", shell, "bash", *line, env=harness.env)
        assert done.stdout == b"y\n"
        statuses[name] = int((tmp_path / name).read_text())
    assert statuses == {"bare": 141, "harness": 141}


def test_gone_reader_of_stderr_does_not_end_a_command_that_talks_on_stdout(harness, script):
    reader, writer = os.pipe()
    job = script("import os\nfor i in range(50): os.write(2, b'noise\\n'); os.write(1, b'%d\\n' % i)")
    process = harness.start(*job, stderr=writer)
    os.close(writer)
    os.close(reader)
    stdout, _ = process.communicate(timeout=DEADLINE_S)
    assert stdout == b"".join(b"%d\n" % i for i in range(50))


def test_a_line_can_be_read_while_the_command_still_runs(harness, script, gate):
    process = harness.start(*script(f"print('now')\nopen({str(gate)!r}).read()\nprint('later')"))
    assert process.stdout.readline() == b"now\n"
    assert process.poll() is None
    open_gate(gate)
    assert process.communicate(timeout=DEADLINE_S)[0] == b"later\n"


def test_end_of_stdout_is_passed_on_while_the_command_still_runs(harness, gate):
    process = harness.start("sh", "-c", f"echo x; exec >&-; read _ <{gate}; exit 4")
    assert process.stdout.read() == b"x\n"  # returns at the end of file only
    assert process.poll() is None
    open_gate(gate)
    assert process.wait(DEADLINE_S) == 4


def test_progress_bar_is_not_taken_for_the_last_line(harness, script):
    job = script("print('epoch 1 done'); print('\\r10%', end=''); print('\\r20%', end=''); raise SystemExit(3)")
    progress = harness(*job).verdict["progress"]
    assert (progress["last_line"], progress["unfinished_line"]) == ("epoch 1 done", "20%")


def test_command_reads_our_stdin(harness):
    given = os.urandom(300_000)
    supervised = subprocess.run(
        harness.line("cat"), input=given, capture_output=True, env=harness.env, timeout=DEADLINE_S, check=True
    )
    assert supervised.stdout == given


def test_output_of_a_replaced_relay_is_kept_in_order(harness, script, gate):
    """The head is full when the first relay dies: what comes later belongs in the tail."""
    job = script(f"import os\nfor i in range(25): os.write(1, b'%07d\\n' % i * 8192)\n"
                 f"open({str(gate)!r}).read()\nprint('after'); raise SystemExit(3)")  # fmt: skip
    process = harness.start(*job)
    before = process.stdout.read(25 * 8192 * 8)
    tail = harness.case / "stdout.tail"
    until(lambda: tail.exists() and tail.stat().st_size == len(before) - 1024**2, "the copy is not complete")
    (stdout_relay,) = [pid for pid in relays_of(process.pid) if _has_open(pid, tail)]
    os.kill(stdout_relay, 9)
    until(lambda: stdout_relay not in relays_of(process.pid) and len(relays_of(process.pid)) == 2, "no new relay")
    open_gate(gate)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)
    assert before.endswith(b"0000024\n") and stdout == b"after\n" and process.returncode == 3
    assert b"relay of stdout was killed and replaced" in stderr
    assert (harness.case / "stdout.log").read_bytes().startswith(b"0000000\n")
    assert b"after" not in (harness.case / "stdout.log").read_bytes()
    assert tail.read_bytes().endswith(b"0000024\nafter\n")


def _has_open(pid: int, file: Path) -> bool:
    return any(fd.readlink() == file for fd in Path(f"/proc/{pid}/fd").iterdir())


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system with no room to speak of."""
    if os.getuid() != 0:
        pytest.skip("mounting a tiny file system needs root")
    place = tmp_path / "tiny"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.parametrize("status", [0, 3])
def test_full_disk_costs_the_case_never_the_output(harness, script, tiny_disk, status):
    harness.env["HARNESS_CASES"] = str(tiny_disk / "cases")
    job = script(f"import os\nfor i in range(100): os.write(1, b'%07d\\n' % i * 8192)\nraise SystemExit({status})")
    supervised = harness(*job)
    assert supervised.status == status
    assert supervised.stdout == b"".join(b"%07d\n" % i * 8192 for i in range(100))
    said = [line for line in supervised.stderr.splitlines() if b"The case could not be kept" in line]
    assert len(said) == 1 and b"No space left" in said[0]
    assert (b"stdout could not be kept to the end" in supervised.stderr) == bool(status)
    assert any("No space left" in gap["why"] for gap in supervised.verdict["gaps"])
    assert not list(tiny_disk.glob("cases/*/*.part"))


def test_unwritable_cases_directory_is_refused_before_the_command_starts(harness, tmp_path):
    (tmp_path / "file").write_text("")
    where = str(tmp_path / "file" / "cases")
    supervised = harness("touch", tmp_path / "started", options=("--cases", where))
    assert supervised.status == 125 and not (tmp_path / "started").exists()
    assert where.encode() in supervised.stderr and b"next: harness run --cases " in supervised.stderr


def test_a_disk_that_became_read_only_keeps_no_command_from_starting(harness, tmp_path, tiny_disk):
    subprocess.run(["mount", "-o", "remount,ro", tiny_disk], check=True)
    harness.env["HARNESS_CASES"] = str(tiny_disk / "cases")
    supervised = harness("sh", "-c", f"touch {tmp_path}/started; exit 3")
    assert supervised.status == 3 and (tmp_path / "started").exists()
    (said,) = [line for line in supervised.stderr.decode().splitlines() if "Read-only file system" in line]
    elsewhere = Path(said.rpartition(" this one is kept in ")[2].removesuffix("."))
    assert list(elsewhere.glob("*/verdict.json"))
    shutil.rmtree(elsewhere)


@pytest.mark.parametrize("status", [0, 1, 3, 255])
def test_exit_status_is_that_of_a_bare_run(harness, status):
    job = (sys.executable, "-c", f"raise SystemExit({status})")
    assert harness(*job).status == bare(*job).status == status


@pytest.mark.parametrize("signo", [1, 2, 6, 9, 11, 13, 15])
def test_death_by_signal_is_the_shells_status(harness, signo):
    job = ("sh", "-c", f"kill -{signo} $$")
    assert harness(*job).status == bare(*job).status == 128 + signo
