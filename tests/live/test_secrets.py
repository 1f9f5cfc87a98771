"""Secrets that a job is given, prints, raises and has in its paths: nowhere in the case, the verdict or the report.

What the command itself gets and prints is its own, and passes as it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.kept_cases import check_run
from tests.live.processes import DEADLINE_S

GITHUB = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
ARGUMENT, VARIABLE, COOKIE = "open-7-sesame", "quite-9-ordinary", "c00kie-c00kie"
KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
SECRETS = [GITHUB, ARGUMENT, VARIABLE, COOKIE, KEY]
INNOCENT = "commit 3f786850e387550fdab836ed7e6dc881de23001b --tokenizer gpt2"
JOB = f"""
import ctypes, os, sys
print({INNOCENT!r})
print("pushing with {GITHUB}")
print("-----BEGIN PRIVATE KEY-----\\n{KEY}\\n-----END PRIVATE KEY-----")
print("variable", os.environ["TORCH_PASSWORD"], flush=True)
print("Cookie: session={COOKIE}", file=sys.stderr)
how = sys.argv[sys.argv.index("--end") + 1]
if how == "crash":
    ctypes.string_at(0)
if how == "exit":
    sys.exit("refused: " + sys.argv[2])
raise ValueError("cannot log in with " + sys.argv[2])
"""


def run(folder: Path, end: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    place = folder / GITHUB
    place.mkdir()
    (place / "train.py").write_text(JOB)
    words = [sys.executable, str(place / "train.py"), "--password", ARGUMENT, "--end", end]
    command = [
        "run",
        "--cases",
        str(folder / "cases"),
        "--verdict",
        str(folder / "verdict.json"),
        *options,
        "--",
        *words,
    ]
    environment = {**os.environ, "TORCH_PASSWORD": VARIABLE, "NCCL_TOKEN": VARIABLE}
    return subprocess.run(
        [sys.executable, "-m", "harness", *command],
        env=environment,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )


def read_all(folder: Path) -> bytes:
    files = [path for path in (folder / "cases").rglob("*") if path.is_file() and not path.name.startswith("core")]
    assert {path.name for path in files} >= {"case.json", "evidence.json", "verdict.json", "report.txt", "stdout.log"}
    return b"\n".join(path.read_bytes() for path in [folder / "verdict.json", *files])


@pytest.mark.parametrize(("end", "status"), [("crash", 139), ("exit", 1), ("raise", 1)])
def test_no_secret_survives_anywhere(tmp_path: Path, end: str, status: int) -> None:
    done = run(tmp_path, end)
    assert done.returncode == status
    assert all(secret.encode() in done.stdout for secret in (GITHUB, VARIABLE, KEY)), "the command's own output"
    report = done.stderr[done.stderr.rindex(b"harness: ") :]
    kept = read_all(tmp_path)
    check_run(*(tmp_path / "cases").iterdir())
    for secret in SECRETS:
        assert secret.encode() not in kept and secret.encode() not in report, secret
    assert INNOCENT.encode() in kept
    (evidence,) = (tmp_path / "cases").glob("*/evidence.json")
    assert json.loads(evidence.read_bytes())["argv"][-4:] == ["--password", "[redacted]", "--end", end]


def test_no_redact_keeps_it_all(tmp_path: Path) -> None:
    run(tmp_path, "raise", "--no-redact")
    kept = read_all(tmp_path)
    assert all(secret.encode() in kept for secret in SECRETS)
    check_run(*(tmp_path / "cases").iterdir())


def test_the_table_and_a_look_show_no_password(tmp_path: Path) -> None:
    source = "import sys; print('ready', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", source, "--api-key", ARGUMENT]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout is not None and job.stdout.readline() == b"ready\n"
        told = {}
        for command in (
            ["ps", "--json", "--match", ARGUMENT],
            ["ps", "--match", ARGUMENT],
            ["attach", str(job.pid), "--for", "1", "--json", "--cases", str(tmp_path)],
        ):
            done = subprocess.run(
                [sys.executable, "-m", "harness", *command], capture_output=True, timeout=DEADLINE_S, check=False
            )
            told[" ".join(command)] = done.stdout + done.stderr
        job.kill()
    for command, answer in told.items():
        assert str(job.pid).encode() in answer and ARGUMENT.encode() not in answer, command
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*.json"))
    assert b"[redacted]" in kept and ARGUMENT.encode() not in kept


def test_a_secret_is_not_cut_in_two_by_the_end_of_a_kept_file(tmp_path: Path) -> None:
    """The first MiB of a channel is one file, the rest another: it lies across the two."""
    job = tmp_path / "job.py"
    job.write_text(f"print('x' * ((1 << 20) - 11), '{GITHUB}')\nraise SystemExit(3)")
    command = ["run", "--cases", str(tmp_path / "cases"), "--", sys.executable, str(job)]
    subprocess.run([sys.executable, "-m", "harness", *command], capture_output=True, timeout=DEADLINE_S, check=False)
    (case,) = (tmp_path / "cases").iterdir()
    whole = (case / "stdout.log").read_bytes() + (case / "stdout.tail").read_bytes()
    assert len(whole) == (1 << 20) - 11 + 1 + len(GITHUB) + 1
    assert whole.endswith(b" " + b"*" * len(GITHUB) + b"\n")
    check_run(case)


def test_bytes_that_are_no_text_are_no_hindrance(tmp_path: Path) -> None:
    """In arguments, in the paths of the script, of the working directory and of the cases, and in what is printed."""
    strange, cases = (Path(os.fsdecode(os.fsencode(tmp_path) + name)) for name in (b"/caf\xe9", b"/c\xe9ses"))
    strange.mkdir()
    script, word = strange / os.fsdecode(b"tr\xffain.py"), os.fsdecode(b"\xff\xfe=")
    script.write_text("import ctypes, sys\nsys.stdout.buffer.write(b'\\xfe\\n')\nctypes.string_at(0)\n")
    command = ["run", "--cases", str(cases), "--", sys.executable, str(script), word]
    done = subprocess.run(
        [sys.executable, "-m", "harness", *command], cwd=strange, capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 139 and done.stdout == b"\xfe\n"
    assert b"Traceback" not in done.stderr and b"harness: Segmentation fault" in done.stderr, done.stderr
    (case,) = cases.iterdir()
    for name in ("evidence.json", "case.json"):
        assert json.loads((case / name).read_bytes())["argv"] == [sys.executable, str(script), word]
    assert json.loads((case / "verdict.json").read_bytes())["verdict"]["kind"] == "segfault"
    check_run(case)
