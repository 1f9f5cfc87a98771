"""What a TARGET means, and what is refused because ssh or a shell could take it for something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.capture.remote.connection import Reach, build_command, parse_via
from harness.capture.remote.target import HERE, Host, Place, by_host, name_hosts, parse_target, read_hosts
from harness.errors import UsageError


@pytest.mark.parametrize(
    ("word", "place"),
    [
        ("7", Place(HERE, 7)),
        ("gpu07:7", Place(Host("gpu07"), 7)),
        ("me@gpu07:7", Place(Host("gpu07", "me"), 7)),
        ("me@corp.example@gpu-07.x_y:7", Place(Host("gpu-07.x_y", "me@corp.example"), 7)),
        ("gpu07:", Place(Host("gpu07"), None)),
        ("[fe80::1%eth0]:7", Place(Host("fe80::1%eth0"), 7)),
        ("me@[::1]:7", Place(Host("::1", "me"), 7)),
        ("ssh://me@gpu07:2222/7", Place(Host("gpu07", "me", 2222), 7)),
        ("ssh://gpu07/7", Place(Host("gpu07"), 7)),
        ("ssh://[::1]:2222/7", Place(Host("::1", None, 2222), 7)),
        ("ssh://gpu07", Place(Host("gpu07"), None)),
    ],
)
def test_a_target_is_read_and_written_the_same(word: str, place: Place) -> None:
    assert parse_target(word) == place
    written = place.host.target(place.pid if place.pid is not None else "")
    assert parse_target(written) == place if place.host.name else written == word


@pytest.mark.parametrize(
    "word",
    [
        "-oProxyCommand=x:7",
        "-l@gpu07:7",
        "me@-oProxyCommand=x:7",
        "ssh://-oProxyCommand=x/7",
        "gpu07;reboot:7",
        "$(reboot):7",
        "`reboot`:7",
        "gpu07 x:7",
        "me;x@gpu07:7",
        "'gpu07':7",
        "gpu07\nx:7",
        "[;x]:7",
        "gpu07:7;x",
        "gpu07:-7",
        "gpu07:٧",
        "ssh://gpu07:0/7",
        "ssh://gpu07:99999/7",
        "ssh://gpu07:22x/7",
        "ssh:///7",
        ":7",
        "abc",
        "",
    ],
)
def test_what_could_be_an_option_or_a_command_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        parse_target(word)


def test_a_bare_host_is_one_only_where_a_host_is_meant() -> None:
    assert parse_target("gpu07", bare_host=True) == Place(Host("gpu07"), None)
    with pytest.raises(UsageError):
        parse_target("gpu07")


def test_hosts_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# the first rack\nme@gpu07\ngpu08:12  # rank 3\n\nssh://gpu09:2222\n")
    assert read_hosts(str(file)) == [
        Place(Host("gpu07", "me"), None),
        Place(Host("gpu08"), 12),
        Place(Host("gpu09", None, 2222), None),
    ]
    file.write_text("# none\n")
    with pytest.raises(UsageError):
        read_hosts(str(file))
    with pytest.raises(UsageError):
        read_hosts(str(tmp_path / "absent"))


def test_processes_of_one_host_are_asked_for_together() -> None:
    one, other = Host("a"), Host("b")
    assert by_host([Place(one, 1), Place(other, 2), Place(one, 3), Place(one, 1)]) == {one: [1, 3], other: [2]}


def test_names_are_short_unless_they_would_be_the_same() -> None:
    assert list(name_hosts([Host("a", "me"), Host("b")])) == ["a", "b"]
    assert list(name_hosts([Host("a", "me"), Host("a", "you")])) == ["me@a", "you@a"]


def test_the_line_that_reaches_a_host() -> None:
    command = build_command(Host("gpu07", "me", 2222), Reach(sudo=True), "echo $x")
    assert command[0] == "ssh" and command[-3:] == ["--", "gpu07", "exec sudo -n -- sh -c 'echo $x'"]
    assert "BatchMode=yes" in command and command[-7:-3] == ["-p", "2222", "-l", "me"]
    assert not any("StrictHostKeyChecking" in word or "UserKnownHostsFile" in word for word in command)
    through = build_command(HERE, Reach(via=parse_via("docker exec -i 'c 1'")), "echo $x")
    assert through == ["docker", "exec", "-i", "c 1", "sh", "-c", "echo $x"]


@pytest.mark.parametrize("text", ["", "  ", "docker 'exec"])
def test_a_prefix_that_is_none(text: str) -> None:
    with pytest.raises(UsageError):
        parse_via(text)
