"""What puts the crash link into a command, for each platform; and whom a connection of the link speaks for."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

import pytest

from harness import native
from harness.capture.crash import peer
from harness.capture.run import launch
from harness.capture.run.arrivals import Given
from harness.capture.run.injection import link_variables, why_not
from harness.native import LIBRARY


@pytest.fixture
def link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "link"


@pytest.mark.parametrize("inject", ["auto", "preload", "shim"])
def test_macos_always_gets_both_ways(inject: str, link: Path) -> None:
    variables = link_variables(link, inject, "darwin")
    assert variables["DYLD_INSERT_LIBRARIES"] == str(LIBRARY)
    assert variables["PYTHONPATH"].endswith("probes/shim")
    assert variables["HARNESS_LINK"] == str(link)
    assert set(variables) == {"DYLD_INSERT_LIBRARIES", "PYTHONPATH", "HARNESS_LINK"}


@pytest.mark.parametrize(
    ("inject", "added"), [("auto", "LD_PRELOAD"), ("preload", "LD_PRELOAD"), ("shim", "PYTHONPATH")]
)
def test_linux_gets_the_way_that_was_asked_for(inject: str, added: str, link: Path) -> None:
    assert set(link_variables(link, inject, "linux")) == {added, "HARNESS_LINK"}


def test_the_users_own_libraries_come_first(link: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """dyld separates with colons only, ld.so at spaces too; ours is named once."""
    monkeypatch.setenv("DYLD_INSERT_LIBRARIES", f"/my libs/one.dylib:{LIBRARY}:/two.dylib")
    monkeypatch.setenv("LD_PRELOAD", f"/one.so {LIBRARY}:/two.so")
    inserted = link_variables(link, "auto", "darwin")["DYLD_INSERT_LIBRARIES"]
    assert inserted == f"/my libs/one.dylib:/two.dylib:{LIBRARY}"
    assert link_variables(link, "auto", "linux")["LD_PRELOAD"] == f"/one.so:/two.so:{LIBRARY}"


def test_every_program_of_macos_can_have_the_link(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\xcf\xfa\xed\xfe")
    assert why_not(str(program), "darwin") is None
    assert why_not(str(program), "linux") is not None


class MacConnection:
    """Answers getsockopt as macOS does; the bytes come through a real pair of sockets."""

    def __init__(self, pid: int, sent: bytes) -> None:
        self._ours, theirs = socket.socketpair()
        theirs.sendall(sent)
        theirs.close()
        self._answers = {2: struct.pack("i", pid), 1: struct.pack("IIhxx16I", 0, 501, 1, 20, *[0] * 15)}
        self.settimeout = self._ours.settimeout
        self.recv = self._ours.recv

    def getsockopt(self, level: int, option: int, length: int) -> bytes:
        assert level == 0
        answer = self._answers[option]
        assert len(answer) == length
        return answer


def record_of(pid: int) -> bytes:
    ffi, _ = native.load()
    record = ffi.new("struct harness_crash *")
    record.pid = pid
    return bytes(ffi.buffer(record))


def test_a_dying_process_of_macos_speaks_for_itself() -> None:
    assert peer.read_peer(MacConnection(4321, b""), "darwin") == (4321, 501)  # type: ignore[arg-type]


def test_our_own_thread_speaks_for_the_process_in_its_record() -> None:
    connection = MacConnection(os.getpid(), record_of(77))
    assert peer.read_peer(connection, "darwin") == (77, 501)  # type: ignore[arg-type]
    assert connection.recv(65536) == record_of(77)  # it was only peeked at


@pytest.mark.parametrize("sent", [b"", b"harness"])
def test_our_own_thread_that_says_nothing_is_nobody(sent: bytes) -> None:
    assert peer.read_peer(MacConnection(os.getpid(), sent), "darwin") is None  # type: ignore[arg-type]


class FakeLibrary:
    def __init__(self, answer: int) -> None:
        self.answer = answer
        self.calls: list[object] = []

    def harness_watch_begin(self, path: bytes) -> int:
        self.calls.append(path)
        return self.answer

    def harness_watch_end(self) -> None:
        self.calls.append("end")


@pytest.mark.parametrize(
    ("link", "answer", "calls"),
    [("/s/link", 0, [b"/s/link", "end"]), ("/s/link", -38, [b"/s/link"]), (None, 0, [])],
)
def test_the_port_is_worn_while_the_command_starts(
    link: str | None, answer: int, calls: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = FakeLibrary(answer)
    monkeypatch.setattr(native, "load", lambda: (None, library))
    with pytest.raises(FileNotFoundError), launch._watched_from_outside(link) as watched:
        assert "end" not in library.calls
        assert watched == ("end" in calls)
        raise FileNotFoundError
    assert library.calls == calls


@pytest.mark.parametrize(
    ("variables", "answer", "told"),
    [
        ({"HARNESS_LINK": "/s/link"}, 0, "1"),
        ({"HARNESS_LINK": "/s/link"}, -38, None),  # and what an outer harness said is taken back
        ({}, 0, "outer"),
    ],
)
def test_the_command_knows_whether_it_is_watched(
    variables: dict[str, str], answer: int, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, str] = {}

    def start(path: str, argv: list[str], channels: object, environment: dict[str, str], signals: object) -> int:
        given.update(environment)
        return 77

    monkeypatch.setattr(native, "load", lambda: (None, FakeLibrary(answer)))
    monkeypatch.setattr(launch, "_start", start)
    monkeypatch.setenv("HARNESS_WATCHED", "outer")
    assert launch.spawn("/bin/true", ["true"], [], variables, Given(frozenset(), frozenset())) == 77
    assert given.get("HARNESS_WATCHED") == told
