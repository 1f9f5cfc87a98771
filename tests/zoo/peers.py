"""What faulthandler, pystack and py-spy tell of the same death: the scenario runs bare, without harness.

Generous: a peer has named a function or an image if it stands anywhere in its text, on whichever thread.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.zoo.driver import Prepared, execute

_DEADLINE_S = 60
_KINDS = {
    "SIGSEGV": "segfault",
    "SIGBUS": "bus-error",
    "SIGABRT": "abort",
    "SIGFPE": "arithmetic",
    "SIGILL": "illegal-instruction",
    "SIGTRAP": "trap",
    "SIGSYS": "bad-syscall",
}
# Modules/faulthandler.c, faulthandler_handlers[]; the spelling of the third changed in 3.13.
_FAULTHANDLER = {
    "Segmentation fault": "segfault",
    "Bus error": "bus-error",
    "Floating point exception": "arithmetic",
    "Floating-point exception": "arithmetic",
    "Illegal instruction": "illegal-instruction",
    "Aborted": "abort",
}
_WITH_CORES = 'ulimit -c "$(ulimit -H -c)"; exec "$@"'
_WITHOUT_CORES = 'ulimit -c 0; exec "$@"'


class Told(NamedTuple):
    """`kind`: as far as a signal or a traceback says; `text`: all that there is to read."""

    kind: str | None
    text: str

    def names_function(self, name: str) -> bool:
        """In a frame of Python: faulthandler writes `line 3 in f`, a traceback and pystack `line 3, in f`."""
        frame = rf'^(\[rank\d+\]:)? *(\(Python\) )?File ".*", line \d+,? in {re.escape(name)}$'
        return bool(re.search(frame, self.text, re.MULTILINE))

    def names_component(self, image: str, function: str) -> bool:
        """In a native frame: `in f (libx.so)`, of pystack."""
        frame = rf"^ *\(C\) .* in \S*{re.escape(function)}.*\({re.escape(image)}[^/]*\)$"
        return bool(re.search(frame, self.text, re.MULTILINE))


def ask_faulthandler(run: Prepared, folder: Path) -> Told:
    """Its text, and the traceback that the interpreter itself prints of an exception."""
    status = run_bare(_WITHOUT_CORES, run, folder, {"PYTHONFAULTHANDLER": "1"})
    text = (folder / "stderr").read_text(errors="replace")
    if fatal := re.search(r"^Fatal Python error: ([^\n:]+)", text, re.MULTILINE):
        return Told(_FAULTHANDLER.get(fatal[1], "python-fatal"), text[fatal.start() :])
    if status and "Traceback (most recent call last):" in text:
        return Told("python-exception", text)
    return Told("clean" if status == 0 else None, text)


def ask_pystack(run: Prepared, folder: Path) -> Told:
    """Nothing, where there is no core: it reads living processes and cores."""
    status = run_bare(_WITH_CORES, run, folder, {})
    core = next(iter(sorted(folder.glob("core*"))), None)
    if core is None:
        return Told("clean" if status == 0 else None, "")
    words = [Path(sys.executable).with_name("pystack"), "core", "--no-color", "--native-all", core]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        return Told(None, "")
    finally:
        core.unlink()
    died = re.search(r"died due receiving signal (SIG\w+)", done.stdout)
    return Told(_KINDS.get(died[1]) if died else None, done.stdout)


def run_bare(limits: str, run: Prepared, folder: Path, further: dict[str, str]) -> int:
    folder.mkdir()
    run = run._replace(environment={**run.environment, **further})
    return execute(["sh", "-c", limits, "sh", *run.command], run, folder, lambda pid, command: pid)


def ask_py_spy_of_the_dead() -> str:
    """Its answer, once: it needs a living process. The dead one is kept by its pid until it has been asked."""
    process = subprocess.Popen([sys.executable, "-c", "import os; os.abort()"], stderr=subprocess.DEVNULL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    words = [shutil.which("py-spy", path=Path(sys.executable).parent) or "py-spy", "dump", "--pid", str(process.pid)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    process.wait()
    return (done.stderr or done.stdout).partition("\n")[0]
