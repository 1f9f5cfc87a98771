"""What is asked of pip and what its words mean; pip itself is a script that says what the real one has said."""

from __future__ import annotations

import stat
import sys
import time
from pathlib import Path

import pytest
from packaging.tags import mac_platforms

from harness.capture.openmp.platform_tags import Target, check_target, list_tags, marker_environment
from harness.capture.openmp.requirements import read_requirements
from harness.capture.openmp.wheel_download import fetch_wheels
from harness.errors import HarnessError, UsageError

TARGET = Target("macosx_14_0_arm64", "3.13")
NO_WHEEL = """ERROR: Could not find a version that satisfies the requirement numpy==2.0.2 \
(from versions: 2.1.0, 2.1.1, 2.3.0rc1)
ERROR: No matching distribution found for numpy==2.0.2"""
NO_PROJECT = """ERROR: Could not find a version that satisfies the requirement nosuch==1 (from versions: none)
ERROR: No matching distribution found for nosuch==1"""
NO_NETWORK = """WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after\
 connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPConnection object at 0x7f2eec904950>:\
 Failed to establish a new connection: [Errno 111] Connection refused')': /simple/numpy/
ERROR: Could not find a version that satisfies the requirement numpy==2.0.2 (from versions: none)
ERROR: No matching distribution found for numpy==2.0.2"""


class Pip:
    """A stand-in for `python`: writes down its words, puts a wheel where it is told, or says what pip said."""

    def __init__(self, where: Path) -> None:
        self.words = where / "words"
        self.python = where / "python"
        self.cache = where / "cache"
        self.requirements = where / "requirements.txt"
        self.answer('touch "$dest/torch-2.7.1-cp313-none-macosx_11_0_arm64.whl"')

    def answer(self, script: str) -> None:
        dest = 'while [ $# -gt 0 ]; do [ "$1" = --dest ] && dest=$2; shift; done'
        self.python.write_text(f'#!/bin/sh\necho "$@" >> {self.words}\n{dest}\n{script}\n')
        self.python.chmod(self.python.stat().st_mode | stat.S_IXUSR)

    def fail(self, text: str) -> None:
        self.answer(f"cat >&2 <<'END'\n{text}\nEND\nexit 1")

    def fetch(self, lines: str):
        self.requirements.write_text(lines)
        return fetch_wheels(self.requirements, TARGET, cache=self.cache, python=str(self.python))

    def calls(self) -> list[str]:
        return self.words.read_text().splitlines()


@pytest.fixture
def pip(tmp_path: Path) -> Pip:
    return Pip(tmp_path)


def test_pip_is_asked_for_wheels_of_that_platform_only(pip: Pip) -> None:
    found = pip.fetch("torch==2.7.1\n")
    (call,) = pip.calls()
    for words in ("-m pip download", "--no-deps", "--only-binary=:all:", "--abi cp313 --abi abi3 --abi none"):
        assert words in call
    assert "--platform macosx_14_0_arm64" in call
    assert "--platform macosx_11_0_arm64" in call
    assert "--python-version 3.13 --implementation cp" in call
    assert [path.name for path in found.wheels] == ["torch-2.7.1-cp313-none-macosx_11_0_arm64.whl"]
    assert stat.S_IMODE(pip.cache.stat().st_mode) == 0o700


def test_a_second_call_asks_nobody(pip: Pip) -> None:
    first = pip.fetch("torch==2.7.1\n")
    assert pip.fetch("torch==2.7.1\n") == first
    assert len(pip.calls()) == 1


def test_what_a_new_release_can_change_is_asked_again_after_a_day(pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    pip.fetch("torch==2.7.1\ntorch>=2\n")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 25 * 3600)
    pip.fetch("torch==2.7.1\ntorch>=2\n")
    assert len(pip.calls()) == 3


def test_a_version_without_a_wheel_is_said_with_those_that_have_one(pip: Pip) -> None:
    pip.fail(NO_WHEEL)
    found = pip.fetch("numpy==2.0.2\n")
    assert found.wheels == []
    assert found.absent == (
        "numpy==2.0.2: no wheel for Python 3.13 (cp313) on macosx_14_0_arm64; other versions have one: 2.1.0 to 2.1.1",
    )
    assert pip.fetch("numpy==2.0.2\n") == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NO_PROJECT, r"nosuch==1 cannot be fetched: No matching distribution found for nosuch==1"),
        (NO_NETWORK, "an index was not reachable"),
        ("/usr/bin/python: No module named pip", "has no pip"),
        ("", "pip said nothing"),
    ],
)
def test_what_does_not_resolve_is_one_sentence_with_pips_last_words(pip: Pip, text: str, message: str) -> None:
    pip.fail(text)
    with pytest.raises(HarnessError, match=message) as caught:
        pip.fetch("nosuch==1\n")
    assert caught.value.exit_code == 3
    assert caught.value.hint
    assert list(pip.cache.iterdir()) == []


def test_a_pip_that_is_not_there_is_one_sentence(pip: Pip) -> None:
    pip.python.unlink()
    with pytest.raises(HarnessError, match="cannot run pip"):
        pip.fetch("torch==2.7.1\n")


def test_nothing_fetched_is_not_nothing_found(pip: Pip) -> None:
    pip.answer("exit 0")
    with pytest.raises(HarnessError, match="fetched nothing"):
        pip.fetch("torch==2.7.1\n")


def test_markers_are_judged_for_the_other_platform(pip: Pip) -> None:
    pip.requirements.write_text('a==1; sys_platform == "darwin"\nb==1; sys_platform == "linux"\nc==1\n')
    pip.answer('case "$words" in *download*) touch "$dest/x-1-py3-none-any.whl";; esac')
    pip.python.write_text(
        f'#!/bin/sh\ncase "$*" in *download*) exec {pip.python}2 "$@";; esac\nexec {sys.executable} "$@"\n'
    )
    second = Path(f"{pip.python}2")
    second.write_text(
        f'#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = --dest ] && d=$2; [ "$1" = --requirement ] && r=$2; shift; done\n'
        f'cat "$r" >> {pip.words}\ntouch "$d/x-1-py3-none-any.whl"\n'
    )
    second.chmod(0o755)
    fetch_wheels(pip.requirements, TARGET, cache=pip.cache, python=str(pip.python))
    assert pip.calls() == ["a==1", "c==1"]


@pytest.mark.parametrize(
    ("version", "machine"), [((14, 0), "arm64"), ((15, 0), "arm64"), ((13, 0), "x86_64"), ((10, 9), "x86_64")]
)
def test_mac_tags_are_those_that_pip_takes(version: tuple[int, int], machine: str) -> None:
    """Without those of the last century: ppc, fat32."""
    tags = [tag for tag in mac_platforms(version, machine) if tag.endswith((machine, "universal2"))]
    assert list_tags(f"macosx_{version[0]}_{version[1]}_{machine}") == tags


def test_linux_tags_go_down_to_the_oldest() -> None:
    tags = list_tags("manylinux_2_28_x86_64")
    assert tags[0] == "manylinux_2_28_x86_64"
    assert {"manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64"} <= set(tags)
    assert "manylinux_2_12_aarch64" not in list_tags("manylinux_2_28_aarch64")
    assert list_tags("win_amd64") == ["win_amd64"]


def test_bad_targets_are_usage_errors() -> None:
    assert check_target("macosx_14_0_arm64", "3.13.7") == TARGET
    for platform, python in (("mac os", "3.13"), ("macosx_14_0_arm64", "2.7"), ("--index-url=x", "3.13")):
        with pytest.raises(UsageError):
            check_target(platform, python)


def test_markers_of_each_system() -> None:
    systems = [
        marker_environment(Target(tag, "3.13"))["sys_platform"]
        for tag in ("macosx_14_0_arm64", "win_amd64", "linux_x86_64")
    ]
    assert systems == ["darwin", "win32", "linux"]


def test_a_requirements_file_is_read_as_pip_reads_it(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("numpy>=2 # why\n-r more/again.txt\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more/again.txt").write_text("scipy\n")
    (tmp_path / "c.txt").write_text("")
    path = tmp_path / "requirements.txt"
    path.write_text(
        "\ufeff# a comment\n--index-url=https://index.example/simple\n--require-hashes\n-c c.txt\n-r more.txt\n"
        "torch==2.7.1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n-e .\n./local\ngit+https://x.example/y\nz @ file:///z\n"
    )
    found = read_requirements(path)
    assert found.lines == ["numpy>=2", "scipy", "torch==2.7.1"]
    assert found.options == ["--index-url=https://index.example/simple", f"-c {tmp_path / 'c.txt'}"]
    assert len(found.gaps) == 4


@pytest.mark.parametrize("text", ["", "# nothing\n", "-r requirements.txt\n", "-r missing.txt\n"])
def test_a_requirements_file_that_leads_nowhere_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    with pytest.raises(HarnessError):
        read_requirements(path)
