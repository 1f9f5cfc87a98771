"""The native stacks of a process that is not Python, by gdb where there is one. A rung for `stacks.take_stacks`.

Reads no debug information from the network and nothing of the user's settings. Arguments are not looked at.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

from harness.capture.frames import Places
from harness.capture.stacks import Rung, Said, run_tool
from harness.evidence.crash import CrashFrame, CrashThread

_MOST_FRAMES = 64
_THREAD = re.compile(r'Thread \d+ \((?:Thread 0x[0-9a-f]+ )?\(?(?:LWP|process) (?P<tid>\d+)\)?(?: "(?P<name>.*)")?\):')
_FRAME = re.compile(
    r"#\d+ +(?:(?P<address>0x[0-9a-f]+) in )?(?P<function>.+?) \(.*?\)"
    r"(?: at (?P<file>.+):(?P<line>\d+)| from (?P<image>.+))?$"
)


def find_gdb() -> str | None:
    return shutil.which("gdb")


def _ask(pid: int, mode: str, deadline_s: float) -> Said:
    settings = ("set debuginfod enabled off", "set auto-load no", "set print frame-arguments none", "set width 0")
    command = [find_gdb() or "gdb", "-nx", "-batch", *(word for line in settings for word in ("-iex", line))]
    return run_tool([*command, "-p", str(pid), "-ex", f"thread apply all bt {_MOST_FRAMES}"], deadline_s)


def read_gdb(output: bytes, places: Places, source: str) -> Iterator[tuple[CrashThread, str | None]]:
    """Innermost frame first, as gdb has them. Lines that are no frame (a signal handler's mark) are left out."""
    heads = list(_THREAD.finditer(text := output.decode(errors="replace")))
    for head, end in zip(heads, [*(one.start() for one in heads[1:]), len(text)], strict=True):
        lines = text[head.end() : end].splitlines()
        frames = tuple(_read_frame(match, places) for line in lines if (match := _FRAME.match(line)))
        yield CrashThread(int(head["tid"]), head["name"], False, frames, source), None


def _read_frame(match: re.Match[str], places: Places) -> CrashFrame:
    address = match["address"]
    image = places.find(int(address, 16)) if address else None
    return CrashFrame(
        kind="native",
        function=None if match["function"] == "??" else match["function"],
        file=match["file"],
        line=int(match["line"]) if match["line"] else None,
        image=image.path if image else match["image"],
        offset=hex(int(address, 16) - int(image.base, 16)) if image else None,
        address=address,
    )


GDB = Rung("gdb", "", "native-all", _ask, read_gdb)
