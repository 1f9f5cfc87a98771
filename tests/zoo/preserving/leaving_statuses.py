"""Children leave by SIGTERM, SIGINT, SIGHUP and SIGXCPU: asleep, busy, in a thread, behind a shell's trap, blocked.
Each ends as the kernel says: by that signal where it has the default action, else as its handler decides."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading

BARE = {"exit": 0}
VERSIONS = ["3.11", "3.13"]
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU)


def in_child(body, signo):
    """Forks, waits until the child is ready, sends it the signal; its status."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            body(signo, lambda: os.write(tell, b"x"))
        finally:
            os._exit(3)
    os.read(ready, 1)
    if signo:
        os.kill(pid, signo)
    status = os.waitpid(pid, 0)[1]
    os.close(ready)
    os.close(tell)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"


def asleep(signo, tell):
    tell()
    while True:
        signal.pause()


def busy_with_threads(signo, tell):
    for _ in range(4):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    tell()
    while True:
        sum(range(1000))


def mask_ends_with_the_call(signo, tell):
    """Blocked but for the time of ppoll: the default action must be taken all the same."""
    libc = ctypes.CDLL(None, use_errno=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signo])
    tell()
    empty = ctypes.create_string_buffer(128)
    libc.ppoll(None, 0, None, empty)
    os._exit(4)


def waited_for(signo, tell):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signo])
    tell()
    os._exit(10 + int(signal.sigwait([signo]) == signo))


def read_from_a_descriptor(signo, tell):
    libc = ctypes.CDLL(None, use_errno=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signo])
    mask = ctypes.c_uint64(1 << (signo - 1))
    fd = libc.signalfd(-1, ctypes.byref(mask), 0)
    tell()
    select.select([fd], [], [])
    os._exit(20 + int(os.read(fd, 128)[0] == signo))


def handled(signo, tell):
    signal.signal(signo, lambda *_: os._exit(30))
    tell()
    while True:
        signal.pause()


def raised(signo, tell):
    tell()
    signal.raise_signal(signo)
    os._exit(5)


for body in (asleep, busy_with_threads, mask_ends_with_the_call, waited_for, read_from_a_descriptor, handled):
    for signo in SIGNALS:
        print(body.__name__, signo.name, in_child(body, signo), flush=True)
for signo in SIGNALS:
    print("raised", signo.name, in_child(raised, signo), flush=True)
SCRIPTS = (
    "kill -TERM $$",
    "trap 'echo trapped; exit 7' TERM; kill -TERM $$; echo after",
    "trap '' HUP; kill -HUP $$; echo ignored",
    "trap '' HUP; exec {python} -c 'import os, signal; os.kill(os.getpid(), signal.SIGHUP); print(\"still here\")'",
    "{python} -c 'import os, signal; os.kill(os.getpid(), signal.SIGXCPU)'; echo $?",
    "trap 'echo first' TERM; trap - TERM; kill -TERM $$; echo after",
)
for shell in ("sh", "bash"):
    for script in SCRIPTS:
        done = subprocess.run([shell, "-c", script.replace("{python}", sys.executable)], capture_output=True, text=True)
        print(shell, script.partition("{")[0], done.returncode, done.stdout.split())
