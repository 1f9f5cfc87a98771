"""File systems that another user has mounted say whose their files are, and are not believed."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.capture.machine.trust import _is_own_group, read_foreign_devices, read_safe_path

# man 5 proc_pid_mountinfo; the second is as fusermount writes it, the fourth as an automounted key ring of root's.
MOUNTS = """\
22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
41 22 0:52 / /tmp/mnt rw,nosuid,nodev,relatime shared:9 - fuse.sshfs bob@x: rw,user_id=1000,group_id=1000,allow_other
42 22 0:53 / /home/me/mnt rw,nosuid - fuse.gvfsd-fuse gvfsd-fuse rw,user_id=1001,group_id=1001
43 22 0:54 / /var/lib/lxcfs rw,nosuid - fuse.lxcfs lxcfs rw,user_id=0,group_id=0,allow_other
44 22 0:55 / /sys/fs/fuse/connections rw - fusectl fusectl rw
"""


def test_fuse_is_believed_where_root_or_we_have_mounted_it() -> None:
    assert read_foreign_devices(MOUNTS, 1001) == {os.makedev(0, 52)}
    assert read_foreign_devices(MOUNTS, 0) == {os.makedev(0, 52), os.makedev(0, 53)}
    assert read_foreign_devices("", 0) == frozenset()


class _People:
    """Stand-ins for the two databases: (name, number, primary group), (name, number, members)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, users: list[tuple[str, int, int]], groups: list[tuple]) -> None:
        people = [SimpleNamespace(pw_name=name, pw_uid=uid, pw_gid=gid) for name, uid, gid in [("root", 0, 0), *users]]
        known = {gid: SimpleNamespace(gr_name=name, gr_gid=gid, gr_mem=members) for name, gid, members in groups}
        monkeypatch.setattr("pwd.getpwall", lambda: people)
        monkeypatch.setattr("pwd.getpwuid", lambda uid: {one.pw_uid: one for one in reversed(people)}[uid])
        monkeypatch.setattr("grp.getgrgid", known.__getitem__)
        _is_own_group.cache_clear()


@pytest.mark.parametrize(
    ("users", "group", "own"),
    [
        ([("me", 1000, 1000)], ("me", 1000, []), True),
        ([("me", 1000, 1000)], ("me", 1000, ["me", "root"]), True),
        ([("me", 1000, 1000), ("alias", 1000, 1000)], ("me", 1000, ["alias"]), True),
        ([("me", 1000, 1000)], ("me", 1000, ["you"]), False),
        ([("me", 1000, 1000), ("you", 1001, 1000)], ("me", 1000, []), False),
        ([("me", 1000, 100)], ("users", 100, []), False),
        ([("me", 1000, 1000)], ("staff", 50, []), False),
        ([("you", 1001, 1000)], ("me", 1000, []), False),
    ],
    ids=["private", "and root", "two names", "a member", "begins in it", "shared", "another", "we have no name"],
)
def test_a_group_is_our_own_if_it_has_our_name_and_nobody_else_is_in_it(
    users: list[tuple[str, int, int]], group: tuple, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _People(monkeypatch, users, [group])
    try:
        assert _is_own_group(group[1], 1000) == own
    finally:
        _is_own_group.cache_clear()


def test_group_0_is_nobodys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _People(monkeypatch, [], [("root", 0, [])])
    try:
        assert not _is_own_group(0, 0)
    finally:
        _is_own_group.cache_clear()


def test_a_path_for_others_has_only_safe_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    sticky = tmp_path / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    monkeypatch.setenv("PATH", f"{shared}:{sticky}::.:/bin:relative:/bin:{sticky}/absent")
    assert read_safe_path() == "/bin"
    monkeypatch.setenv("PATH", "")
    assert read_safe_path() == os.defpath
