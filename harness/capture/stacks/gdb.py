"""Native stacks by gdb, with file and line where debug information has them: of what is not Python, and of cores.

A rung for `stacks.take_stacks`. In gdb's machine interface, so that a name with blanks or braces needs no guessing.
Reads no debug information from the network and nothing of the user's settings. Arguments are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.capture.machine.trust import find_program
from harness.capture.stacks.frames import SIGNAL_FRAME, NativeFrame, Places, place_native
from harness.capture.stacks.ladder import Rung
from harness.capture.stacks.tools import Said, gdb_command, run_tool
from harness.evidence.crash import CrashFrame, CrashThread, ToolRun
from harness.evidence.text.numbers import read_number

NOT_INSTALLED = "gdb is not installed"
INSTALL = "sudo apt-get install gdb"
_MOST_FRAMES = 64
_ASK = f'thread apply all -c interpreter-exec mi "-stack-list-frames 0 {_MOST_FRAMES - 1}"'
_THREAD = re.compile(
    r'^Thread \d+ \((?:Thread 0x[0-9a-f]+ )?\(?(?:LWP|process) (?P<tid>[0-9]{1,10})\)?(?: "(?P<name>.*)")?\):$',
    re.MULTILINE,
)
_STRING = r'"(?:[^"\\]|\\.)*"'
_FRAME = re.compile(rf"frame=\{{((?:\w+={_STRING},?)+)\}}")
_FIELD = re.compile(rf"(\w+)=({_STRING})")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_IN_A_HANDLER = "<signal handler called>"


def find_gdb() -> str | None:
    return find_program("gdb")


def ask_gdb(target: list[str], deadline_s: float) -> Said:
    """`target`: `-p PID`, or a program and its core."""
    gdb = find_gdb()
    if gdb is None:
        return Said(b"", NOT_INSTALLED)
    return run_tool([*gdb_command(gdb), "-iex", "set width 0", *target, "-ex", _ASK], deadline_s)


def _ask(pid: int, mode: str, deadline_s: float) -> Said:
    return ask_gdb(["-p", str(pid)], deadline_s)


def read_gdb(output: bytes, places: Places, source: str) -> Iterator[tuple[CrashThread, str | None]]:
    """Innermost frame first, as gdb has them; those that were inlined stand at their caller's address.

    Unreadable: a number in it is none.
    """
    heads = list(_THREAD.finditer(text := output.decode(errors="replace")))
    for index, head in enumerate(heads):
        end = heads[index + 1].start() if index + 1 < len(heads) else len(text)
        frames = tuple(_read_frame(found[1], places) for found in _FRAME.finditer(text, head.end(), end))
        yield CrashThread(int(head["tid"]), head["name"], False, frames, source), None


def _read_frame(told: str, places: Places) -> CrashFrame:
    fields = {name: _unquote(value) for name, value in _FIELD.findall(told)}
    symbol, full = fields.get("func", ""), fields.get("fullname", "")
    frame = NativeFrame(
        address=read_number(fields.get("addr", "0"), 16),
        symbol=SIGNAL_FRAME if symbol == _IN_A_HANDLER else "" if symbol == "??" else symbol,
        file=full if full.startswith("/") else fields.get("file", ""),
        line=read_number(fields.get("line", "0")),
        image=fields.get("from", ""),
    )
    return place_native(frame, places)


def _unquote(quoted: str) -> str:
    """Of a byte that is not ASCII gdb gives the octal number."""
    data = _ESCAPE.sub(_unescape, quoted[1:-1].encode())
    return data.decode(errors="replace")


def _unescape(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8) & 0xFF]) if len(found[1]) == 3 else found[1]


def lacks_gdb(tools: tuple[ToolRun, ...]) -> bool:
    return any(run.error == NOT_INSTALLED for run in tools)


GDB = Rung("gdb", "", "native-all", _ask, read_gdb)
