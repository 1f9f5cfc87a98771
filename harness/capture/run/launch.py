"""Starts the command as it would have started without us, but for its output channels and two variables.

Same process group, session, stdin, signal dispositions, mask and alarm; does not wait for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness import native
from harness.capture.run.arrivals import Given
from harness.capture.run.channels import Channel
from harness.capture.run.what_to_type import tell_what_to_type
from harness.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, CouldNotStart, UsageError

# faulthandler's text is a source of Python frames; unbuffered output means the last words are not lost.
# That it was us who asked for faulthandler is known by its value (native/interpose.c); any value will do for Python.
ADDED_VARIABLES = {"PYTHONFAULTHANDLER": "harness", "PYTHONUNBUFFERED": "1"}
# Set when the watch really began: the link in the process stands back then (native/interpose.c).
WATCHED = "HARNESS_WATCHED"
# Asks the link to tell who sends SIGTERM and its like (native/leave.c).
TELL = "HARNESS_TELL"
# CPython ignores these for itself; the command must start with what harness was given.
_IGNORED_BY_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})

# What execve says of the program; anything else is the machine's refusal.
_ABOUT_THE_PROGRAM = frozenset(
    {errno.ENOENT, errno.ENOEXEC, errno.EACCES, errno.ENOTDIR, errno.ELOOP, errno.ELIBBAD, errno.EPERM}
)
_SET_BY_PYTHON = ("C.UTF-8", "C.utf8", "UTF-8")


def open_processes() -> int | None:
    """A descriptor that tells of births and deaths of processes, where the kernel allows it; adopts orphans."""
    _, lib = native.load()
    lib.harness_adopt_orphans(1)
    fd = int(lib.harness_processes_open())
    return fd if fd >= 0 else None


def find_command(argv: list[str]) -> str:
    """The path to execute, or a refusal with the status a shell would give."""
    if not argv or not argv[0]:
        raise UsageError("There is no command to run.", hint="harness run python train.py")
    word = argv[0]
    meant = f"harness run python {shlex.join(argv)}"
    found = word if "/" in word else shutil.which(word)
    if found is None or not Path(found).exists():
        what = "no such file" if "/" in word or word.endswith(".py") else "command not found"
        raise CouldNotStart(f"{word}: {what}.", hint=_what_was_meant(word, meant), exit_code=EXIT_NOT_FOUND)
    if Path(found).is_dir():
        raise CouldNotStart(f"{word} is a directory.", hint=f"ls {shlex.quote(word)}", exit_code=EXIT_NOT_EXECUTABLE)
    if not os.access(found, os.X_OK):
        hint = tell_what_to_type(found, argv[1:]) or f"chmod +x {shlex.quote(found)}"
        raise CouldNotStart(f"{word} is not executable.", hint=hint, exit_code=EXIT_NOT_EXECUTABLE)
    return found


def _what_was_meant(word: str, with_python: str) -> str:
    if Path(word).is_file() and "/" not in word:
        return with_python if word.endswith(".py") else f"harness run ./{shlex.quote(word)}"
    if word.endswith(".py"):
        return f"harness run python /path/to/{Path(word).name}"
    if " " in word.strip():
        return f"harness run {word}"
    return f"ls {shlex.quote(str(Path(word).parent))}" if "/" in word else f"command -v {word}"


def spawn(path: str, argv: list[str], channels: list[Channel], variables: dict[str, str], given: Given) -> int:
    link = variables.get("HARNESS_LINK")
    environment = {**ADDED_VARIABLES, **_given_environment(), **variables}
    try:
        with _watched_from_outside(link) as watched:
            if watched:
                environment[WATCHED] = "1"
            elif link is not None:  # what is left is an outer harness's, and speaks of its link
                environment.pop(WATCHED, None)
            return _start(path, argv, channels, environment, given)
    except OSError as error:
        if error.errno in _ABOUT_THE_PROGRAM:
            raise _explain(error, path, argv) from error
        raise
    finally:
        for channel in channels:
            channel.close_write_end()


def _start(path: str, argv: list[str], channels: list[Channel], environment: dict[str, str], given: Given) -> int:
    """As native/launch.c says."""
    ffi, lib = native.load()
    moves = [(channel.write_end, fd) for channel in channels for fd in channel.child_fds]
    texts = [os.fsencode(path), *map(os.fsencode, argv)]
    texts += [os.fsencode(f"{name}={value}") for name, value in environment.items()]
    words = [ffi.new("char[]", text) for text in texts]  # until the end of this function
    first_variable = 1 + len(argv)
    own_argv = ffi.new("char *[]", [*words[1:first_variable], ffi.NULL])
    own_environment = ffi.new("char *[]", [*words[first_variable:], ffi.NULL])
    sources = ffi.new("int32_t[]", [source for source, _ in moves])
    targets = ffi.new("int32_t[]", [target for _, target in moves])
    ignored, blocked = _mask(given.ignored - _IGNORED_BY_PYTHON), _mask(given.blocked)
    start = (words[0], own_argv, own_environment, sources, targets, ignored, blocked, len(moves), 0)
    pid = int(lib.harness_start(ffi.new("struct harness_start *", start)))
    if pid < 0:
        raise OSError(-pid, os.strerror(-pid))
    return pid


def _mask(signos: Iterable[int]) -> int:
    return sum(1 << signo - 1 for signo in signos)


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
            hint=tell_what_to_type(path, argv[1:]) or f"file {shlex.quote(path)}",
            exit_code=EXIT_NOT_EXECUTABLE,
        )
    if error.errno == errno.ENOENT:
        message = f"{path} exists, but the interpreter its #! line names does not."
        return CouldNotStart(message, hint=f"head -1 {shlex.quote(path)}", exit_code=EXIT_NOT_FOUND)
    return CouldNotStart(f"{path} could not be started: {error.strerror}.", hint="harness doctor")
