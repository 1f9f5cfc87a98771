"""File systems that another user has mounted say whose their files are, and are not believed."""

from __future__ import annotations

import os

from harness.capture.trust import read_foreign_devices

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
