"""Answers questions about this host's processes: one JSON line in, JSON lines out. The far end of `session.py`.

Runs the same code as a look at one's own machine. Ends by itself, and leaves nothing, when whoever asked is silent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import PathFinder
from typing import IO, Any

import msgspec

from harness.capture.machine import payload
from harness.capture.remote.agent.tools import find_pystack, find_tool, keep_tool
from harness.capture.stacks import ladder
from harness.errors import HarnessError

_SILENCE_S = 20.0  # the other side is heard every few seconds, or it is gone
_Answer = Callable[[Any], None]


def serve(stdin: IO[bytes], token: str, payloads: dict[str, str]) -> None:
    """Until the other side says so, falls silent, or its connection ends."""
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whatever prints must not end up in the answers
    for name, text in payloads.items():
        payload.CARRIED[name] = _carry(name, text)
    agent = _Agent(stdin, out, token)
    for signo in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(signo, lambda *_: agent.end())
    agent.run()


def _carry(name: str, text: str) -> str:
    """A file that has no name in any directory, and ends with us."""
    file = os.memfd_create(name)
    os.write(file, text.encode())
    return f"/proc/{os.getpid()}/fd/{file}"


class _Agent:
    def __init__(self, stdin: IO[bytes], out: int, token: str) -> None:
        self._stdin, self._out, self._token = stdin, out, token
        self._heard = time.monotonic()
        self._writing = threading.Lock()
        self._stopping: dict[int, threading.Event] = {}

    def run(self) -> None:
        threading.Thread(target=self._notice_silence, daemon=True).start()
        while line := self._stdin.readline():
            self._heard = time.monotonic()
            request = json.loads(line)
            if request["call"] == "tool":
                self._take_tool(request)
            elif request["call"] == "stop":
                self._stopping.pop(request["which"], threading.Event()).set()
            elif request["call"] == "bye":
                break
            elif request["call"] != "beat":
                threading.Thread(target=self._answer, args=(request,), daemon=True).start()
        self.end()

    def _notice_silence(self) -> None:
        while time.monotonic() - self._heard < _SILENCE_S:
            time.sleep(_SILENCE_S / 10)
        self.end()

    def end(self) -> None:
        """At once: threads may be waiting for a process that never answers. Tools let go by themselves."""
        os._exit(0)

    def _take_tool(self, request: dict[str, Any]) -> None:
        kept = keep_tool(self._stdin, request)
        self._heard = time.monotonic()
        if kept.path:
            ladder.CARRIED["py-spy"] = kept.path
        self._say(request["id"], "done", {"why": kept.why, "left": kept.left})

    def _say(self, number: int, kind: str, body: Any) -> None:
        line = f"{self._token} ".encode() + msgspec.json.encode({"id": number, "kind": kind, "body": body}) + b"\n"
        try:
            with self._writing:
                while line:
                    line = line[os.write(self._out, line) :]
        except OSError:
            self.end()  # nobody listens any more

    def _answer(self, request: dict[str, Any]) -> None:
        number = request["id"]
        try:
            answer = _CALLS[request["call"]](self, request, lambda body: self._say(number, "part", body))
            self._say(number, "done", answer)
        except HarnessError as error:
            self._say(number, "error", {"message": str(error), "hint": error.hint})
        except BaseException:  # noqa: BLE001 (a thread's last words would be lost otherwise)
            self._say(number, "bug", traceback.format_exc())

    def look(self, request: dict[str, Any], tell: _Answer) -> Any:
        from harness.capture.living.look import take_look

        _use_tools(request["pids"])
        return take_look(request["pids"], request["for_s"], tell, request["native"])

    def list(self, request: dict[str, Any], tell: _Answer) -> Any:
        from harness.capture.living.processes import leave_out_descendants, list_python_processes

        rows = list_python_processes(request["match"], request["look_s"])
        return {"rows": rows, "roots": leave_out_descendants([row.pid for row in rows])}

    def census(self, request: dict[str, Any], tell: _Answer) -> Any:
        from harness.capture.openmp.live_census import take_census

        return take_census(request["pid"])

    def facilities(self, request: dict[str, Any], tell: _Answer) -> Any:
        from harness.capture.doctor.facilities import look_at_facilities

        return {
            "python": sys.version.split()[0],
            "facilities": look_at_facilities("linux elsewhere" if sys.platform == "linux" else sys.platform),
        }

    def watch(self, request: dict[str, Any], tell: _Answer) -> Any:
        from harness.capture.living.watching import Watching

        watching = Watching(request["pids"], request["fastest_s"], request["slowest_s"])
        stop = self._stopping[request["id"]] = threading.Event()
        _use_tools(request["pids"])
        try:
            for told in _follow(watching, stop):
                tell(told)
        finally:
            watching.close()


def _follow(watching: Any, stop: threading.Event) -> Iterator[dict[str, Any]]:
    yield {
        "begun": [{"pid": one.pid, "argv": one.argv, "output_s": one.last_output_s()} for one in watching.living()],
        "interval_s": watching.interval_s,
    }
    while watching.living() and not stop.is_set():
        watching.sample()
        sights = [{"sight": one.describe(), "moving": one.moving} for one in watching.living()]
        yield {"at_s": watching.now_s(), "interval_s": watching.interval_s, "seen": sights}
        if ended := watching.wait(watching.interval_s):
            yield {"ended": [_describe_end(watching, one) for one in ended]}


def _describe_end(watching: Any, one: Any) -> dict[str, Any]:
    kernel = watching.kernel_lines(one.pid)[-1:]
    status = one.wait_status
    killed = status is not None and os.WIFSIGNALED(status)
    return {
        "pid": one.pid,
        "wait_status": status,
        "how_seen": one.how_seen,
        "kernel": kernel,
        "timeline": one.timeline(),
        "sender": watching.sender_of(one.pid, os.WTERMSIG(status)) if killed else None,
    }


def _use_tools(pids: Sequence[int]) -> None:
    """What was sent comes first; else those of the targets' own environment, then what is on PATH."""
    if "py-spy" not in ladder.CARRIED and (path := find_tool("py-spy", pids)):
        ladder.CARRIED["py-spy"] = path
    if folder := next(filter(None, map(find_pystack, pids)), None):
        sys.meta_path.append(_OnlyPystack(folder))


class _OnlyPystack:
    """Of the folder that it was found in nothing else is imported: only its own files have been looked at."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return PathFinder.find_spec(name, [self._folder]) if name == "pystack" else None


_CALLS = {
    "look": _Agent.look,
    "list": _Agent.list,
    "census": _Agent.census,
    "facilities": _Agent.facilities,
    "watch": _Agent.watch,
}
