"""Python stacks read from memory, without a tool and without a stop: the program tells its own lines and numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.capture.stacks.cpython.own_reader import read_own, tell_gil
from tests.builders.lanes import INTERPRETERS, version_of
from tests.live.processes import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux and its /proc")

TOLD = {lane: python for lane, python in INTERPRETERS.items() if int(version_of(lane).rstrip("t").split(".")[1]) >= 13}
SOURCE = """
import os, sys, threading

def descend(depth):
    if depth:
        return descend(depth - 1)
    say(sys._getframe()); os.read(0, 1)

class Zähler:
    def zählen(self, small=7, negative=-40000, large=1 << 45, huge=1 << 80, 名前='x'):
        @(lambda function: function)
        def inner():
            return [
                descend(2)
                for _ in (1,)
            ]
        return inner()

def say(frame):
    told = []
    while frame:
        told.append((frame.f_code.co_qualname, frame.f_lineno))
        frame = frame.f_back
    sys.stdout.write(repr((threading.get_native_id(), told)) + '\\n'); sys.stdout.flush()

def work():
    count = 1_000_000
    Zähler().zählen(negative=-1 - count)

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.fixture
def job(python: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path / "job.py"
    script.write_text(SOURCE, encoding="utf-8")
    command = [python, "-X", "utf8", str(script)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
    with subprocess.Popen(command, **pipes) as process:
        yield process
        process.kill()


def read(pid: int) -> dict[int, list[dict[str, Any]]]:
    output, why = read_own(pid, 10, {}, with_locals=True)
    assert why is None
    return {thread["os_thread_id"]: thread["frames"] for thread in json.loads(output)}


@pytest.mark.parametrize("python", TOLD.values(), ids=TOLD.keys())
def test_frames_lines_and_integers_are_the_programs_own(job: subprocess.Popen[str], python: str) -> None:
    assert job.stdout
    tid, told = eval(job.stdout.readline())
    until(lambda: read(job.pid)[tid][0]["name"] == "descend", "it has said where it is")
    frames = read(job.pid)[tid]
    assert [(frame["name"], frame["line"]) for frame in frames] == told
    numbers = {one["name"]: int(one["repr"]) for frame in frames for one in frame["locals"]}
    counts = {"depth": 2, "_": 1, "count": 1_000_000}
    assert numbers == {**counts, "small": 7, "negative": -1_000_001, "large": 1 << 45}
    assert [frame["name"] for frame in read(job.pid)[job.pid]][-1] == "<module>"


@pytest.mark.parametrize("python", TOLD.values(), ids=TOLD.keys())
def test_whether_the_gil_is_off_is_what_the_interpreter_says(python: str) -> None:
    source = "import os, sys; print(sys._is_gil_enabled(), sys.flags.gil, flush=True); os.read(0, 1)"
    for option in ([], ["-X", "gil=1"]) if tell_build(python) else ([],):
        command = [python, *option, "-c", source]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            enabled = process.stdout.readline().split()[0] == "True"
            told = tell_gil(process.pid)
            process.kill()
        expected = f"free-threaded, the GIL is {'on' if enabled else 'off'}" if tell_build(python) else None
        assert told == expected


def tell_build(python: str) -> bool:
    command = [python, "-c", "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED'))"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "1"


@pytest.mark.parametrize("lane", sorted(INTERPRETERS.keys() - TOLD.keys()))
def test_an_older_one_is_not_read(lane: str) -> None:
    command = [INTERPRETERS[lane], "-c", "print('.', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.read(1) == b"."
        answer = read_own(process.pid, 10, {})
        process.kill()
    assert answer == (b"", "no CPython from 3.13 to 3.15 was found in its memory")


def test_what_is_no_python_is_not_read() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        assert read_own(process.pid, 10, {})[1] and tell_gil(process.pid) is None
        process.kill()
