"""Starts the command as it would have started without us, but for its output channels and two variables.

Same process group, session, stdin, signal dispositions and mask; does not wait for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from harness import native
from harness.capture.channels import Channel
from harness.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, CouldNotStart, UsageError

# faulthandler's text is a source of Python frames; unbuffered output means the last words are not lost.
ADDED_VARIABLES = {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
# Set when the watch really began: the link in the process stands back then (native/interpose.c).
WATCHED = "HARNESS_WATCHED"
# Asks the link to tell who sends SIGTERM and its like (native/leave.c).
TELL = "HARNESS_TELL"
# CPython ignores these for itself; the command must start with what harness was given.
_IGNORED_BY_PYTHON = [signal.SIGPIPE, signal.SIGXFSZ]

_SET_BY_PYTHON = ("C.UTF-8", "C.utf8", "UTF-8")

_FOLLOWED = (
    signal.SIGCHLD,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)


def open_processes() -> int | None:
    """A descriptor that tells of births and deaths of processes, where the kernel allows it; adopts orphans."""
    _, lib = native.load()
    lib.harness_adopt_orphans()
    fd = int(lib.harness_processes_open())
    return fd if fd >= 0 else None


def open_signals() -> int:
    """A descriptor that gives the supervisor's signals with their senders."""
    ffi, lib = native.load()
    fd = int(lib.harness_signals_open(ffi.new("int32_t[]", _FOLLOWED), len(_FOLLOWED)))
    if fd < 0:
        raise CouldNotStart(f"Signals cannot be watched: {os.strerror(-fd)}.", hint="ulimit -n")
    return fd


def stop_following() -> None:
    """The command has ended: from here on a signal is meant for us."""
    for signo in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signo) != signal.SIG_IGN:
            signal.signal(signo, signal.SIG_DFL)


def find_command(argv: list[str]) -> str:
    """The path to execute, or a refusal with the status a shell would give."""
    if not argv or not argv[0]:
        raise UsageError("There is no command to run.", hint="harness run python train.py")
    word = argv[0]
    meant = f"harness run python {' '.join(argv)}"
    found = word if "/" in word else shutil.which(word)
    if found is None or not Path(found).exists():
        what = "no such file" if "/" in word or word.endswith(".py") else "command not found"
        raise CouldNotStart(f"{word}: {what}.", hint=_what_was_meant(word, meant), exit_code=EXIT_NOT_FOUND)
    if Path(found).is_dir():
        raise CouldNotStart(f"{word} is a directory.", hint=f"ls {word}", exit_code=EXIT_NOT_EXECUTABLE)
    if not os.access(found, os.X_OK):
        hint = meant if word.endswith(".py") else f"chmod +x {word}"
        raise CouldNotStart(f"{word} is not executable.", hint=hint, exit_code=EXIT_NOT_EXECUTABLE)
    return found


def _what_was_meant(word: str, with_python: str) -> str:
    if Path(word).is_file() and "/" not in word:
        return with_python if word.endswith(".py") else f"harness run ./{word}"
    if word.endswith(".py"):
        return f"harness run python /path/to/{Path(word).name}"
    if " " in word.strip():
        return f"harness run {word}"
    return f"ls {Path(word).parent}" if "/" in word else f"command -v {word}"


def spawn(path: str, argv: list[str], channels: list[Channel], variables: dict[str, str]) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, channel.write_end, fd) for channel in channels for fd in channel.child_fds]
    link = variables.get("HARNESS_LINK")
    environment = {**ADDED_VARIABLES, **_given_environment(), **variables}
    try:
        with _watched_from_outside(link) as watched:
            if watched:
                environment[WATCHED] = "1"
            elif link is not None:  # what is left is an outer harness's, and speaks of its link
                environment.pop(WATCHED, None)
            return os.posix_spawn(path, argv, environment, file_actions=actions, setsigdef=_IGNORED_BY_PYTHON)
    except OSError as error:
        failure = error
    finally:
        for channel in channels:
            channel.close_write_end()
    for channel in channels:
        channel.wait_for_relay()  # else it may still open files in the case while that is removed
    raise _explain(failure, path, argv) from failure


@contextlib.contextmanager
def _watched_from_outside(link: str | None) -> Iterator[bool]:
    """What starts meanwhile has an exception port that reports to the link (native/mach.c); only macOS has them.

    Gives whether that is so.
    """
    _, lib = native.load()
    begun = link is not None and lib.harness_watch_begin(os.fsencode(link)) == 0
    try:
        yield begun
    finally:
        if begun:
            lib.harness_watch_end()


def _given_environment() -> dict[str, str]:
    """What harness was started with. CPython sets LC_CTYPE in its own environment when the locale is C (PEP 538)."""
    environment = dict(os.environ)
    if environment.get("LC_CTYPE") in _SET_BY_PYTHON:
        import psutil

        with contextlib.suppress(psutil.Error):
            if given := psutil.Process().environ().get("LC_CTYPE"):
                environment["LC_CTYPE"] = given
            else:
                del environment["LC_CTYPE"]
    return environment


def _explain(error: OSError, path: str, argv: list[str]) -> CouldNotStart:
    if error.errno == errno.ENOEXEC:
        message = f"{path} is neither a program nor a script with a #! line."
        return CouldNotStart(
            message,
            hint=f"harness run {'python' if path.endswith('.py') else 'sh'} {' '.join(argv)}",
            exit_code=EXIT_NOT_EXECUTABLE,
        )
    if error.errno == errno.ENOENT:
        message = f"{path} exists, but the interpreter its #! line names does not."
        return CouldNotStart(message, hint=f"head -1 {path}", exit_code=EXIT_NOT_FOUND)
    return CouldNotStart(f"{path} could not be started: {error.strerror}.", hint="harness doctor")
