"""A checkpoint, written at once and synced, to a disk that has stopped to answer.

In the control the disk is only slow, two MiB a second: a healthy program, and no fault. Nothing tells them apart for
sure, so both are waits; how often the thread got the CPU in between is told. The disk is a loop device that a block
control group of version 1 throttles, for which it takes root; both are taken away by a process that waits until this
one has ended, or is to be killed: that becomes possible only when the disk answers. Seen: state D in fsync, in the
control 2 to 5 voluntary context switches a second.
"""

import fcntl
import os
import signal
import sys
import time

from stage import say_ready

EXPECT = {
    "kind": "waiting",
    "status": "supported",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "save",
    "python_line_text": "os.fsync(disk)",
    "facts": ["fsync", "uninterruptible sleep", "did not get the CPU once"],
}
CONTROL = {"kind": "waiting"}
LIMIT_S = 110
SIZE, SLOW, STILL = 96 << 20, 2 << 20, 1
THROTTLE = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device"
LOOP_SET_FD, LOOP_CLR_FD, LOOP_CTL_GET_FREE = 0x4C00, 0x4C01, 0x4C82  # linux/loop.h


def give_up(why):
    sys.stderr.write(why + "\n")
    sys.exit(77)


def set_limit(number, bytes_per_s):
    with open(THROTTLE, "w") as file:
        file.write(f"{number} {bytes_per_s}\n")


def make_disk():
    """A free loop device: (its path, its number as the kernel writes it)."""
    backing = os.path.join(os.environ["TMPDIR"], "disk")
    file = os.open(backing, os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, SIZE)
    with open("/dev/loop-control", "rb") as control:
        path = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
    device = os.open(path, os.O_RDWR)
    fcntl.ioctl(device, LOOP_SET_FD, file)
    os.unlink(backing)
    about = os.fstat(device)
    os.close(file)
    os.close(device)
    return path, f"{os.major(about.st_rdev)}:{os.minor(about.st_rdev)}"


def is_to_end(pid):
    """It has ended, or a signal that ends it waits for the disk."""
    try:
        with open(f"/proc/{pid}/status") as file:
            lines = dict(line.split(":", 1) for line in file)
    except OSError:
        return True
    return lines["State"].split()[0] in "ZX" or bool(int(lines["ShdPnd"], 16) | int(lines["SigPnd"], 16))


def clean_up_after(pid, path, number):
    """In a session of its own, so that what ends the other one does not end it."""
    if os.fork():
        return
    os.setsid()
    while not is_to_end(pid):
        time.sleep(0.02)
    set_limit(number, 0)
    device = os.open(path, os.O_RDWR)
    fcntl.ioctl(device, LOOP_CLR_FD)  # takes effect when the last one has closed it
    os._exit(0)


def save(disk, state):
    os.write(disk, state)
    say_ready()
    os.fsync(disk)


def main():
    if os.geteuid():
        give_up("needs root, for a loop device and a block control group")
    if not os.path.exists(THROTTLE) or not os.path.exists("/dev/loop-control"):
        give_up("needs loop devices and a block control group of version 1")
    try:
        path, number = make_disk()
    except OSError as error:
        give_up(f"no loop device: {error}")
    clean_up_after(os.getpid(), path, number)
    set_limit(number, SLOW if "--control" in sys.argv else STILL)
    save(os.open(path, os.O_RDWR), bytes(SIZE))


signal.alarm(LIMIT_S)
main()
