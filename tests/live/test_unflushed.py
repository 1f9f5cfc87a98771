"""What a process printed and did not flush: its file and the recovered text together are all that it printed.

The program under test keeps its own record of what it printed, in another file, unbuffered: that is the ground truth.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import re
import runpy
import shutil
import signal
import subprocess
import sys
import termios
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.capture.living.unflushed import Buffers, read_unflushed
from harness.evidence.living.unflushed import Unflushed
from tests.builders.lanes import DISTRIBUTION, INTERPRETERS, TODAY
from tests.live.processes import state_of, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux and its /proc")

PROBE = Path(__file__).parents[2] / "probes" / "unflushed.py"
PRELUDE = """
import io, json, os, sys, threading, time
TOLD = open(sys.argv[1], "wb", buffering=0)
READY = int(sys.argv[2])

def say(text, stream=None, encoding="utf-8"):
    (stream or sys.stdout).write(text)
    TOLD.write(text.encode(encoding))

def wait():
    os.write(READY, b"!")
    os.read(0, 1)
"""


def list_interpreters() -> dict[str, str]:
    """Also the distribution's own: its interpreter is in the executable, a version manager's often in a library."""
    found = {lane: python for lane, python in INTERPRETERS.items() if not lane.endswith(DISTRIBUTION)}
    if system := shutil.which("python3", path="/usr/bin"):
        tell = [system, "-c", "import sys; print(sys.version_info[1])"]
        if 9 <= int(subprocess.run(tell, capture_output=True, check=True).stdout) <= 15:
            found["system"] = system
    return found


PYTHONS = list_interpreters()
every_python = pytest.mark.parametrize("python", PYTHONS.values(), ids=PYTHONS.keys())
# What is only a question of one Python more is not asked of each that is there.
NEAREST = {lane: python for lane, python in PYTHONS.items() if lane not in TODAY}
nearest_python = pytest.mark.parametrize("python", NEAREST.values(), ids=NEAREST.keys())


class Target:
    """A Python program that has printed something and waits."""

    def __init__(self, tmp_path: Path, words: list[str], source: str, stdout: int | None = None) -> None:
        self.told_path, self.out_path = tmp_path / "told", tmp_path / "out"
        script = tmp_path / "job.py"
        script.write_text(PRELUDE + source + "\nwait()\n")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        self.ready, ready = os.pipe()
        with self.out_path.open("w+b") as out, (tmp_path / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [*words, str(script), str(self.told_path), str(ready)],
                stdin=subprocess.PIPE,
                stdout=out if stdout is None else stdout,
                stderr=err,
                env=environment,
                pass_fds=[ready],
            )
        os.close(ready)

    def await_ready(self) -> None:
        assert os.read(self.ready, 1) == b"!", self.out_path.with_name("err").read_text()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin
        self.process.stdin.close()
        os.close(self.ready)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def unwritten(self) -> bytes:
        """What was printed and is not in the file yet."""
        told, written = self.told_path.read_bytes(), self.out_path.read_bytes()
        assert told.startswith(written)
        return told[len(written) :]


Start = Callable[..., Target]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Target] = []

    def make(python: str, source: str, *options: str, ready: bool = True, stdout: int | None = None) -> Target:
        started.append(Target(tmp_path, [python, *options], source, stdout))
        if ready:
            started[-1].await_ready()
        return started[-1]

    yield make
    for one in started:
        one.end()


def read(target: Target, fd: int = 1) -> list[Unflushed]:
    """All of the descriptor, with no gap."""
    streams, gap = read_unflushed(target.pid)
    assert gap is None
    return [one for one in streams if one.fd == fd]


def read_one(target: Target, fd: int = 1) -> Unflushed:
    (found,) = read(target, fd)
    assert found.name == {1: "stdout", 2: "stderr"}[fd]
    return found


# Each leaves something in the buffers of fd 1, in its own way; what it is, the program records itself.
CASES = {
    "one str": "say('abc')",
    "one bytes": "say('é')",
    "a list of both": "say('abc'); say('é'); say('def\\n')",
    "empty writes": "say(''); say('a'); say(''); say('')",
    "every kind of str": "for text in ('déjà vu ÿ\\n', 'Ωμέγα 東京\\n', '1 🚀\\n', 'a\\0\\x1b[0m\\r'): say(text * 40)",
    "300 lines": "for step in range(300): say(f'step {step} loss {1 / (step + 1)}\\n')",
    "more than the buffers hold": "for step in range(17000): say(f'step {step}\\n')",
    "just below the buffer's size": "sys.stdout.buffer.write(b'x' * 8191); TOLD.write(b'x' * 8191); say('y' * 8190)",
    "threads": """
def work(name):
    for step in range(50):
        with lock:
            say(f'{name} {step}\\n')
lock = threading.Lock()
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
""",
    "reconfigured": "sys.stdout.reconfigure(line_buffering=False, newline=''); say('a\\nb\\n')",
    "a subclass of str": "class Text(str): pass\nsay(Text('own ' * 20)); say('x')",
    "a subclass of TextIOWrapper": """
class Wrapper(io.TextIOWrapper): pass
class Deeper(Wrapper): pass
sys.stdout = sys.__stdout__ = Deeper(sys.stdout.detach(), encoding='utf-8')
say('deeper\\n')
""",
    "detached": "out = sys.stdout.detach(); out.write(b'bytes\\n'); TOLD.write(b'bytes\\n')",
    "a wrapper on a FileIO": "sys.stdout = io.TextIOWrapper(io.FileIO(1, 'w', closefd=False)); say('raw')",
    "a BufferedRandom": "sys.stdout = open(1, 'w+', closefd=False); sys.__stdout__ = None; say('random')",
    "replaced": "say('old\\n'); sys.stdout = open(os.devnull, 'w'); print('new')",
    "closed copies": "say('kept\\n')\nfor n in range(50):\n    with open(1, 'w', closefd=False): pass",
    "after dup2": "os.dup2(1, 1); say('a'); os.dup2(os.dup(1), 1); say('b')",
}


# Where the fields of every object are that is read on the way.
LAYOUT = {"a list of both", "every kind of str", "more than the buffers hold", "a subclass of str"}
LAYOUT |= {"a subclass of TextIOWrapper", "a wrapper on a FileIO", "a BufferedRandom"}


@pytest.mark.parametrize(
    ("case", "python"),
    [
        pytest.param(case, python, id=f"{case}-{lane}")
        for case, (lane, python) in itertools.product(CASES, PYTHONS.items())
        if lane in NEAREST or case in LAYOUT
    ],
)
def test_file_and_recovered_text_are_all_that_was_printed(case: str, python: str, start: Start) -> None:
    target = start(python, CASES[case])
    unwritten = target.unwritten
    assert unwritten
    assert read_one(target) == Unflushed(1, "stdout", len(unwritten), unwritten.decode(), False)
    assert state_of(target.pid) == "S"


@every_python
def test_a_pipe_and_the_partial_line_on_stderr(python: str, start: Start) -> None:
    end, stdout = os.pipe()
    source = "say('to a pipe\\n'); sys.stderr.write('line\\n'); sys.stderr.write('partial')"
    target = start(python, source, stdout=stdout)
    os.close(stdout)
    assert read_one(target).text == "to a pipe\n"
    assert read_one(target, 2).text == "partial"
    os.close(end)


@nearest_python
def test_a_terminal_has_nothing_pending(python: str, start: Start) -> None:
    ours, theirs = pty.openpty()
    target = start(python, "say('line\\n')", stdout=theirs)
    assert read_one(target) == Unflushed(1, "stdout", 0, "", False)
    os.close(theirs)
    os.close(ours)


@nearest_python
def test_unbuffered_has_nothing_pending(python: str, start: Start) -> None:
    target = start(python, "say('line'); say('é')", "-u")
    assert target.unwritten == b""
    assert read_one(target) == Unflushed(1, "stdout", 0, "", False)


@nearest_python
def test_closed_streams(python: str, start: Start) -> None:
    target = start(python, "say('flushed by close'); sys.stdout.close(); sys.stderr.write('x')")
    assert target.unwritten == b"" and read(target) == []
    assert read_one(target, 2).text == "x"


def test_no_open_stream_at_all_is_a_gap(start: Start) -> None:
    streams, gap = read_unflushed(start(sys.executable, "sys.stdout.close(); sys.stderr.close()").pid)
    assert streams == () and gap and "no open stream" in gap.why


@nearest_python
@pytest.mark.parametrize("malloc", ["malloc", "debug"])
def test_other_allocators(malloc: str, python: str, start: Start) -> None:
    assert read_one(start("env", "say('a'); say('é')", f"PYTHONMALLOC={malloc}", python)).text == "aé"


@every_python
@pytest.mark.parametrize("below", ["open(1, 'wb', closefd=False)", "sys.stdout.buffer"])
def test_two_wrappers_are_two_streams_where_their_order_is_not_known(below: str, python: str, start: Start) -> None:
    target = start(python, f"say('first'); other = io.TextIOWrapper({below}, encoding='utf-8'); say('second', other)")
    assert Counter(one.text for one in read(target)) == Counter(["first", "second"])


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-be", "cp1252", "shift_jis", "ascii"])
def test_text_is_decoded_as_it_was_encoded(encoding: str, start: Start) -> None:
    text = {"shift_jis": "東京", "ascii": "plain"}.get(encoding, "déjà") + " vu\n"
    target = start(sys.executable, f"sys.stdout.reconfigure(encoding={encoding!r}); say({text!r}, None, {encoding!r})")
    assert read_one(target) == Unflushed(1, "stdout", len(target.unwritten), text, False)


def test_bytes_that_are_no_text_are_shown_as_escapes(start: Start) -> None:
    target = start(sys.executable, "sys.stdout.buffer.write(b'a\\xff\\x00b'); TOLD.write(b'a\\xff\\x00b')")
    assert read_one(target) == Unflushed(1, "stdout", 4, "a\\xff\0b", False)


@nearest_python
def test_of_much_the_end_is_shown_and_all_is_counted(python: str, start: Start) -> None:
    source = "sys.stdout = open(1, 'w', buffering=1 << 20, closefd=False)\nfor n in range(40000): say(f'é {n}\\n')"
    target = start(python, source)
    found, unwritten = read_one(target), target.unwritten
    assert len(unwritten) > 300_000
    assert found.bytes == len(unwritten) and found.truncated
    assert unwritten.decode().endswith(found.text) and "\\x" not in found.text
    assert (64 << 10) - 4 < len(found.text.encode()) <= 64 << 10


@every_python
def test_a_write_under_way_is_a_gap_never_half_a_text(python: str, start: Start) -> None:
    """What it carries is in no buffer, and how much of it is out already only the kernel knows."""
    end, stdout = os.pipe()
    target = start(python, "print('x' * 300_000)", ready=False, stdout=stdout)
    os.close(stdout)
    until(lambda: is_full(end) and state_of(target.pid) == "S", "blocked")
    streams, gap = read_unflushed(target.pid)
    assert [one.fd for one in streams] == [2]
    assert gap and "a write is under way" in gap.why
    os.close(end)


def is_full(pipe: int) -> bool:
    waiting = int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
    return waiting == fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


@every_python
def test_a_target_that_never_stops_printing_gives_consecutive_lines_or_none(python: str, start: Start) -> None:
    target = start(python, "os.write(READY, b'!')\nfor n in range(10 ** 9): print('%09d' % n)")
    streams, gap = read_unflushed(target.pid)
    for text in (one.text for one in streams if one.fd == 1):
        assert re.fullmatch(r"(\d{0,9}\n)?(\d{9}\n)*(\d{9})?", text)
        numbers = [int(one) for one in re.findall(r"(?<!\d)\d{9}", text)]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    assert gap or any(one.fd == 1 for one in streams)


@every_python
def test_a_target_that_prints_now_and_then_is_read_between_two_lines(python: str, start: Start) -> None:
    target = start(python, "os.write(READY, b'!')\nfor n in range(10 ** 4): say('%09d\\n' % n); time.sleep(0.05)")
    until(lambda: target.told_path.stat().st_size > 30, "a few lines")
    before = target.told_path.read_bytes()
    found = read_one(target)
    after = target.told_path.read_bytes()
    assert len(before) <= found.bytes <= len(after) + 10  # the record is written just after the line
    assert found.text.encode()[: len(after)] == after[: found.bytes]


@every_python
def test_a_second_reading_begins_where_the_streams_were_found(python: str, start: Start) -> None:
    target = start(python, "os.write(READY, b'!')\nfor n in range(10 ** 4): say('%09d\\n' % n); time.sleep(0.02)")
    buffers = Buffers(target.pid)
    first = next(one for one in buffers.collect().streams if one.fd == 1)
    until(lambda: target.told_path.stat().st_size > first.bytes + 30, "a few more lines")
    second = next(one for one in buffers.collect().streams if one.fd == 1)
    assert second.bytes > first.bytes and second.text.startswith(first.text)


@every_python
def test_places_that_hold_no_stream_are_not_believed(python: str, start: Start) -> None:
    target = start(python, "say('first\\n')")
    places = ask_probe(str(target.pid))["places"]
    wrong = [str(place + 16) for place in places]
    assert ask_probe(str(target.pid), *wrong)["streams"] == ask_probe(str(target.pid))["streams"]


@every_python
def test_a_stopped_process_can_be_read(python: str, start: Start) -> None:
    target = start(python, "say('before it was stopped')")
    os.kill(target.pid, signal.SIGSTOP)
    until(lambda: state_of(target.pid) == "T", "stopped")
    assert read_one(target).text == "before it was stopped"
    assert state_of(target.pid) == "T"


# Memory full of what the search looks for: names, pointers to the types, whole objects copied with their heads.
HOSTILE = """
import ctypes, random, struct
say('the truth\\n'); say('é\\n')
names = [b'_io.TextIOWrapper\\0', b'_io.BufferedWriter\\0', b'_io.FileIO\\0', b'cpython-39\\0', b'.cpython-313t-x\\0']
kept = [random.choice(names) * random.randrange(1, 50) for _ in range(5000)]
types = [io.TextIOWrapper, io.BufferedWriter] * 10000
raw = struct.pack('<2Q', id(io.TextIOWrapper), id(io.BufferedWriter)) * 10000
def copy(thing, size=None):
    return ctypes.string_at(id(thing) - 16, (size or type(thing).__basicsize__) + 16)
objects = [copy(sys.stdout), copy(sys.stdout.buffer), copy(sys.stdout.buffer.raw),
           copy(io.TextIOWrapper, 900), copy(io.BufferedWriter, 900)]
"""
COPIES = HOSTILE + "kept += [ctypes.create_string_buffer(bytes(p) + o) for o in objects for p in range(0, 64, 8)]\n"
MUTANTS = """
random.seed(2)
for _ in range(COUNT):
    mutant = bytearray(random.choice(objects))
    for _ in range(random.randrange(1, 4)):
        where = random.randrange(0, len(mutant) - 8, 8)
        mutant[where:where + 8] = random.choice([random.randbytes(8) if hasattr(random, 'randbytes') else b'12345678',
            struct.pack('<q', random.randrange(-2, 9000)), random.choice(objects)[where:where + 8].ljust(8, b'x')])
    kept.append(ctypes.create_string_buffer(bytes(mutant)))
"""


@every_python
def test_copies_of_streams_in_memory_are_not_streams(python: str, start: Start) -> None:
    target = start(python, COPIES)
    assert read_one(target).text == "the truth\né\n"


@every_python
@pytest.mark.parametrize("count", [10, 400])
def test_mutated_copies_of_streams_never_give_garbage(count: int, python: str, start: Start) -> None:
    """Few of them leave the truth to be found; among many is one that cannot be told from a stream in a collection."""
    streams, gap = read_unflushed(start(python, HOSTILE + MUTANTS.replace("COUNT", str(count))).pid)
    found = [one.text for one in streams if one.fd == 1]
    assert found == ["the truth\né\n"] or (found == [] and gap)
    assert [one.text for one in streams if one.fd == 2] in ([""], [])


def test_four_gigabytes_of_heap_are_not_all_searched(start: Start) -> None:
    if os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 8 << 30:
        pytest.skip("needs 8 GiB of free memory")
    source = "say('early\\n'); heap = bytearray(b'x') * (4 << 30); more = list(range(10 ** 6)); say('late\\n')"
    streams, gap = read_unflushed(start(sys.executable, source).pid)
    assert [one.text for one in streams if one.fd == 1] == ["early\nlate\n"]
    assert gap and "only the older part of its memory was searched" in gap.why


def test_untouched_memory_costs_nothing_and_stays_untouched(start: Start) -> None:
    private_anonymous_noreserve = 0x4022
    target = start(sys.executable, f"import mmap; say('x'); m = mmap.mmap(-1, 1 << 36, {private_anonymous_noreserve})")
    before = table_bytes(target.pid)
    assert read_one(target).text == "x"
    assert table_bytes(target.pid) == before


def table_bytes(pid: int) -> str:
    return next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmPTE"))


class Talker:
    """A target that prints what it is told to, one JSON list of texts a line, and flushes before each."""

    SOURCE = """
for line in sys.stdin.buffer:
    sys.stdout.flush(); TOLD.seek(0); TOLD.truncate(); os.ftruncate(1, 0); os.lseek(1, 0, 0)
    for text in json.loads(line):
        say(text)
    os.write(READY, b'!')
"""

    def __init__(self, tmp_path: Path, python: str) -> None:
        self.target = Target(tmp_path, [python], self.SOURCE)

    def tell(self, texts: list[str]) -> None:
        assert self.target.process.stdin
        self.target.process.stdin.write(json.dumps(texts).encode() + b"\n")
        self.target.process.stdin.flush()
        self.target.await_ready()


@pytest.fixture(scope="module", params=PYTHONS.values(), ids=PYTHONS.keys())
def talker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talker]:
    made = Talker(tmp_path_factory.mktemp("talker"), request.param)
    yield made
    made.target.end()


characters = st.characters(exclude_categories=["Cs"])
texts = st.text(characters, max_size=80) | st.text("ab\n", max_size=300) | st.text("é東🚀", min_size=1, max_size=20)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(printed=st.lists(texts, max_size=40))
def test_any_texts(talker: Talker, printed: list[str]) -> None:
    talker.tell(printed)
    unwritten = talker.target.unwritten
    found = read_one(talker.target)
    assert (found.bytes, found.text) == (len(unwritten), unwritten.decode())


def run_probe(*words: str, python: str = sys.executable, **options: Any) -> subprocess.CompletedProcess[str]:
    """From standard input, as on a remote host."""
    command = [python, "-I", "-S", "-", *words]
    return subprocess.run(command, input=PROBE.read_text(), capture_output=True, text=True, timeout=30, **options)


def ask_probe(*words: str, **options: Any) -> dict[str, Any]:
    child = run_probe(*words, **options)
    assert child.returncode == 0 and not child.stderr
    return json.loads(child.stdout)


def test_every_interpreter_can_be_the_one_that_reads(start: Start) -> None:
    target = start(sys.executable, "say('é')")
    stream = {"fd": 1, "name": "stdout", "bytes": 2, "text": "é", "truncated": False}
    for python in [*PYTHONS.values(), *old_interpreters()[:1]]:
        assert ask_probe(str(target.pid), python=python)["streams"][0] == stream


def old_interpreters() -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return sorted(map(str, root.glob("3.[678].*/bin/python3")), reverse=True)


@pytest.mark.parametrize("python", old_interpreters(), ids=lambda path: Path(path).parts[-3])
def test_older_interpreters_are_refused(python: str, start: Start) -> None:
    answer = ask_probe(str(start(python, "say('x')").pid))
    assert answer["streams"] == [] and "only 3.9 to 3.15" in answer["why"]


@pytest.mark.parametrize(
    ("strings", "why"),
    [
        (b"cpython-313\0.cpython-313td-x86_64-linux-gnu.so\0", "debug"),
        (b"cpython-311\0.cpython-311d-x86_64-linux-gnu.so\0", "debug"),
        (b"cpython-316\0.cpython-316-x86_64-linux-gnu.so\0", "only 3.9 to 3.15"),
    ],
)
def test_builds_whose_layout_was_not_verified_are_refused(strings: bytes, why: str) -> None:
    probe = runpy.run_path(str(PROBE))
    data = b"\x7fELF\x02\x01" + strings
    memory = SimpleNamespace(mappings=[(0, len(data), b"r--p", 1, b"python")], peek=lambda start, size: data)
    image = probe["Image"](memory, b"python")
    with pytest.raises(probe["CouldNot"], match=why):
        probe["check_build"](image)


def test_what_is_not_python_is_an_answer() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        answer = ask_probe(str(other.pid))
        other.kill()
    assert answer == {"streams": [], "why": "no CPython was found in the process"}


def test_a_process_that_ended_is_an_answer() -> None:
    child = subprocess.Popen(["true"])
    until(lambda: state_of(child.pid) == "Z", "ended")
    assert ask_probe(str(child.pid)) == {"streams": [], "why": f"process {child.pid} has ended"}
    child.wait()
    assert ask_probe(str(child.pid)) == {"streams": [], "why": f"there is no process {child.pid}"}


def test_someone_elses_process_is_an_answer(start: Start) -> None:
    if os.getuid() != 0 or "system" not in PYTHONS:
        pytest.skip("needs root, and an interpreter that other users may run")
    answer = ask_probe(str(start(sys.executable, "say('x')").pid), python=PYTHONS["system"], user=65534, cwd="/")
    assert answer["streams"] == [] and "not permitted" in answer["why"]


@pytest.mark.parametrize("words", [["x"], ["-1"], ["1", "x"]])
def test_a_usage_error_is_status_two(words: list[str]) -> None:
    child = run_probe(*words)
    assert child.returncode == 2 and child.stderr.startswith("usage:") and not child.stdout


def test_a_probe_that_fails_is_a_gap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "probe.py"
    broken.write_text("print('{}')")
    monkeypatch.setattr("harness.capture.living.unflushed.payload", lambda name: broken)
    streams, gap = read_unflushed(os.getpid())
    assert streams == () and gap and gap.what == "output not flushed"
