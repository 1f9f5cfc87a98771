"""A tool that reads another process: run in a child with a deadline, its own words kept, never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

from harness.evidence.crash import ToolRun
from harness.evidence.run import name_signal

_NO_ANSWER, _DIED = "no answer within", "died of"
_OVERSLEPT = f"{_DIED} SIGALRM"  # which pystack's copy of us sets itself, as its deadline
# A tool that was killed may leave a child of its own that holds the pipe.
_AFTERMATH_S = 0.2
_ASK_S = 0.001  # how often a tool that is a copy of us is asked whether it is done


class Said(NamedTuple):
    """What a tool printed; `error` null when it ended well. `cut_short`: it did not end by itself.

    `stopped_ms`, `interrupted`: by its own account.
    """

    output: bytes
    error: str | None
    pid: int | None = None
    overdue: bool = False
    cut_short: bool = False
    stopped_ms: float | None = None
    interrupted: tuple[str, ...] = ()


def _nothing() -> None:
    pass


def run_tool(command: list[str], deadline_s: float) -> Said:
    """In a process group of its own, and started beside the package: nothing of the user's directory is imported.

    Whoever calls has asked trust.py. gdb brings a Python of its own, which reads no packages of a HOME either.
    """
    try:
        tool = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "RUST_BACKTRACE": "0", "PYTHONNOUSERSITE": "1"},
            cwd=Path(__file__).parents[3],
            start_new_session=True,
        )
    except OSError as error:
        return Said(b"", f"{command[0]}: {error.strerror}")
    try:
        output, words = tool.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        words = _kill(tool)
        return Said(b"", _add_words(f"{_NO_ANSWER} {deadline_s:.2f} s, killed", words), tool.pid, True, True)
    return Said(output, _describe_exit(tool.returncode, words), tool.pid, cut_short=tool.returncode < 0)


def gdb_command(path: str) -> list[str]:
    """gdb that asks nobody: no init file, no questions, no downloads, no scripts of the libraries."""
    settings = ("set debuginfod enabled off", "set auto-load no")
    return [path, "-nx", "-batch", *(word for line in settings for word in ("-iex", line))]


def fork_tool(work: Callable[[], None], deadline_s: float, meanwhile: Callable[[], None] = _nothing) -> Said:
    """A tool that is Python too: a copy of us has its imports behind it, and the target stands still for less long."""
    end = time.monotonic() + deadline_s
    with contextlib.ExitStack() as held:
        try:
            out, err = (held.enter_context(_open_memory(name)) for name in ("out", "err"))
            pid = os.fork()
        except OSError as error:
            return Said(b"", f"it could not be run beside us: {error.strerror}")
        if pid == 0:
            _work_as_tool(work, out.fileno(), err.fileno())
        status = None
        try:
            meanwhile()
            status = _wait_until(end, pid)
        finally:
            overdue = status is None
            if status is None:
                os.kill(pid, signal.SIGKILL)
                status = os.waitpid(pid, 0)[1]
        status = os.waitstatus_to_exitcode(status)
        output, words = _read_all(out), _read_all(err)
    if overdue:
        return Said(b"", _add_words(f"{_NO_ANSWER} {deadline_s:.2f} s, killed", words), pid, True, True)
    return Said(output, _describe_exit(status, words), pid, cut_short=status < 0)


def broke_down(tool: ToolRun) -> bool:
    """It died, as over an endless recursion. One that was only late, on a machine under load, may manage with time."""
    return tool.error is not None and tool.error.startswith(_DIED) and not tool.error.startswith(_OVERSLEPT)


def _open_memory(name: str) -> IO[bytes]:
    return os.fdopen(os.memfd_create(name), "w+b")


def _read_all(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _work_as_tool(work: Callable[[], None], out: int, err: int) -> NoReturn:
    """In a session of its own, with nothing of the supervisor's signal handling."""
    status = 1
    try:
        os.setsid()
        for signo in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):  # those the C library keeps for itself
                signal.signal(signo, signal.SIG_DFL)
        os.dup2(out, 1)
        os.dup2(err, 2)
        work()
        status = 0
    except BaseException:  # noqa: BLE001 (whatever it is, this copy must not go on as the supervisor)
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(status)


def _wait_until(end: float, pid: int) -> int | None:
    """The wait status of a child; null: it is not over by then. Needs no descriptor, of which there may be none."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() >= end:
            return None
        time.sleep(_ASK_S)


def _kill(tool: subprocess.Popen[bytes]) -> bytes:
    if tool.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(tool.pid, signal.SIGKILL)  # the group holds nothing but the tool
    try:
        return tool.communicate(timeout=_AFTERMATH_S)[1]
    except subprocess.TimeoutExpired:
        return b""
    finally:
        for pipe in (tool.stdout, tool.stderr):
            if pipe is not None:
                pipe.close()


def _describe_exit(status: int, words: bytes) -> str | None:
    if status == 0:
        return None
    if status < 0:
        return _add_words(f"{_DIED} {name_signal(-status)}", words)
    return words.decode("utf-8", "replace").strip() or f"exit status {status}"


def _add_words(sentence: str, words: bytes) -> str:
    said = words.decode("utf-8", "replace").strip()
    return f"{sentence}: {said}" if said else sentence
