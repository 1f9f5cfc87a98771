"""Whatever the machine refuses, and in whichever phase: the command's status and output are its own, and it is said.

A table of resources and phases, each refused at the call (exhausting/refuse.c), and the same with real limits. All of
it, every call of the crash path in turn: `make exhaustion`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live.processes import Ended, Harness, bare
from tests.zoo.exhaustion import CRASHED, PHASES, RESOURCES, SAYS, WANT, WHOLE, Patient, build, find_all_wrong_in_dying

PYTHON = sys.executable
# Until the number that was asked for lives, or a process is refused: then it crashes, with all of them beside it.
CROWD = """
import ctypes, os
read_end, write_end = os.pipe()
try:
    for count in range({count}):
        if os.fork() == 0:
            os.close(write_end)
            os.read(read_end, 1)
            os._exit(0)
except BlockingIOError:
    print("no more", flush=True)
print("here", flush=True)
ctypes.string_at(0)
"""


@pytest.fixture(scope="session")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Patient:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    return build(tmp_path_factory.mktemp("exhausting"))


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    running = Harness(tmp_path)
    yield running
    running.end_what_is_left()


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("end", ["crash", "7"])
def test_what_is_refused_costs_the_report_only(
    patient: Patient, tmp_path: Path, resource: str, phase: str, end: str
) -> None:
    """Also where nothing crashes: then there is nothing to tell of a crash, and the rest is as without us."""
    ended = patient.run(tmp_path, f"{phase}:{RESOURCES[resource]}", end)
    assert (ended.status, ended.stdout) == (CRASHED if end == "crash" else 7, b"out\n"), ended.stderr.decode()
    assert ended.stderr.count(b"err\n") == 1
    if resource != "writing":  # of that, stderr is a part
        assert b"\nharness: " in ended.stderr or ended.stderr.startswith(b"harness: ")
    assert b"bug in harness" not in ended.stderr
    if end == "crash" or phase == "start":
        said = " ".join(ended.stderr.decode().split())
        assert any(words in said for words in SAYS.get((resource, phase), WHOLE)), said


def test_no_call_of_the_dying_process_is_needed_for_its_end(patient: Patient, tmp_path: Path) -> None:
    """Each that the crash link makes in it is refused once."""
    count, wrong = find_all_wrong_in_dying(patient, tmp_path, WANT)
    assert count > 20 and not wrong, wrong


def told(ended: Ended) -> str:
    assert ended.verdict is not None, ended.stderr.decode()
    verdict = ended.verdict["verdict"]
    component = Path(verdict["component"]["image"]).name.partition(".")[0] if verdict["component"] else None
    return f"{verdict['kind']} {verdict['status']} {component}"


@pytest.mark.parametrize(("descriptors", "count"), [(1024, 1100), (64, 150)])
def test_more_children_than_descriptors(harness: Harness, descriptors: int, count: int) -> None:
    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    ended = harness(PYTHON, "-c", CROWD.format(count=count), preexec_fn=limit)
    assert (ended.status, ended.stdout) == (CRASHED, b"here\n")
    assert told(ended) == "segfault established _ctypes"


@pytest.fixture
def group() -> Iterator[Callable[[int], Path]]:
    """A control group in which so many processes may be."""
    root = next((root for root in map(Path, ("/sys/fs/cgroup/pids", "/sys/fs/cgroup")) if root.is_dir()), None)
    if os.getuid() != 0 or root is None:
        pytest.skip("needs root and control groups")
    made = root / f"harness-{uuid.uuid4().hex[:8]}"

    def make(most: int) -> Path:
        try:
            made.mkdir()
            (made / "pids.max").write_text(str(most))
        except OSError as error:
            pytest.skip(f"no control group of processes can be made here: {error}")
        return made / "cgroup.procs"

    yield make
    if made.exists():
        made.rmdir()


def test_no_process_is_left_for_the_look(harness: Harness, group: Callable[[int], Path]) -> None:
    """The crash is read by the supervisor itself: its own frame tables, and what faulthandler printed."""
    members = group(40)
    ended = harness(
        *(PYTHON, "-c", CROWD.format(count=1000)),
        options=("--core", "never"),
        preexec_fn=lambda: members.write_text("0") and None,
    )
    assert (ended.status, ended.stdout) == (CRASHED, b"no more\nhere\n")
    assert told(ended) == "segfault established _ctypes"
    assert ended.verdict is not None
    assert any("could not be run beside us" in gap["why"] for gap in ended.verdict["gaps"])


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 6])
def test_no_process_is_left_for_supervision(harness: Harness, group: Callable[[int], Path], most: int) -> None:
    members = group(most)
    job = ("sh", "-c", "echo out; echo err >&2; exit 7")
    ended = harness(*job, preexec_fn=lambda: members.write_text("0") and None)
    assert (ended.status, ended.stdout) == (7, b"out\n")
    assert ended.stderr.count(b"err\n") == 1
    assert ended.verdict is not None or b"The command runs without harness." in ended.stderr


def test_alone_it_starts_as_without_harness(harness: Harness, group: Callable[[int], Path]) -> None:
    """Dispositions, mask, limits, parent and variables, down to the descriptors."""
    members = group(1)
    job = (PYTHON, "-c", STATE)

    def begin() -> None:
        members.write_text("0")
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    ended = harness(*job, preexec_fn=begin)
    assert b"The command runs without harness." in ended.stderr
    assert (
        ended.stdout
        == bare(*job, env=harness.env, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)).stdout
    )


STATE = """
import os, resource, signal
status = open("/proc/self/status").read().splitlines()
print([line for line in status if line.startswith(("SigB", "SigI", "SigC", "Shd"))])
print(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_NOFILE))
print(sorted((name, value) for name, value in os.environ.items() if name not in ("_", "SHLVL")))
print([(fd, os.path.exists(f"/proc/self/fd/{fd}")) for fd in range(20)])
libc = __import__("ctypes").CDLL(None)
reaper = __import__("ctypes").c_int()
libc.prctl(37, __import__("ctypes").byref(reaper), 0, 0, 0)
print("subreaper", reaper.value)
"""


def run_in_tmpdir(harness: Harness, folder: str) -> Ended:
    harness.env["TMPDIR"] = folder
    return harness(PYTHON, "-c", CROWD.format(count=0))


@pytest.mark.parametrize("folder", ["missing", "a file", "too long"])
def test_a_tmpdir_that_cannot_be_used(harness: Harness, tmp_path: Path, folder: str) -> None:
    place = tmp_path / (folder if folder != "too long" else "x" * 120)
    if folder == "a file":
        place.write_text("")
    elif folder == "too long":
        place.mkdir()
    ended = run_in_tmpdir(harness, str(place))
    assert (ended.status, ended.stdout) == (CRASHED, b"here\n")
    assert told(ended) == "segfault established _ctypes"
    said = f"TMPDIR={place} cannot be used".encode() in ended.stderr
    assert said == (folder != "too long")  # there is nothing wrong with that one but our need of a socket
    assert folder != "too long" or list(place.iterdir()) == []


def test_nothing_anywhere_can_be_written(harness: Harness) -> None:
    """Neither case nor link: what is left is the status, and what could not be seen is said."""
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare, for mount namespaces")
    places = "/tmp /var/tmp /dev/shm"
    if any(Path(needed).is_relative_to(place) for place in places.split() for needed in (PYTHON, __file__)):
        pytest.skip("the tests are below a folder that is to be covered")
    cover = f'for at in {places}; do mount -t tmpfs -o ro none "$at" || exit 99; done; exec "$@"'
    unshared = ["unshare", "--mount", "sh", "-c", cover, "sh"]
    if subprocess.run([*unshared, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs mount namespaces, which a plain chroot has not")
    job = [PYTHON, "-c", "print('out'); import ctypes; ctypes.string_at(0)"]
    environment = {**harness.env, "HARNESS_CASES": "/dev/shm/cases"}
    ended = bare(*unshared, PYTHON, "-m", "harness", "run", "--", *job, env=environment, cwd=Path(__file__).parents[2])
    said = ended.stderr.decode()
    assert (ended.status, ended.stdout) == (CRASHED, b"out\n"), said
    assert "Cases cannot be kept in /dev/shm/cases: Read-only file system" in said
    assert "There is no place for the crash link" in said
    assert "SIGSEGV" in said and "the dying process itself" in said
