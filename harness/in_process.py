"""`harness.enable()`: the crash link in the calling process, for those who cannot change how it is started.

Starts a helper process that looks when the caller crashes, and reports on the caller's stderr. Nothing is interposed
here: a handler that is installed later for the same signal replaces ours (torch does that in DataLoader workers, which
are therefore not covered), native threads have no alternate stack, and output is not kept. `harness run` has none of
these limits.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness import native
from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.capture.crash.crash_link import Link

_started = False
# Not `-m`: the working directory, which others may be able to write, would come before the standard library.
_HELPER = (
    "import sys; sys.path[:] = [*filter(None, sys.path), sys.argv[1]]; from harness.in_process import watch; "
    "watch(int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)"
)


def enable(cases: str | None = None) -> None:
    """Call it once, early; a second call does nothing."""
    global _started
    if _started:
        return
    if not hasattr(os, "pidfd_open"):
        raise HarnessError("harness.enable() needs Linux.", hint="harness run python train.py")
    _, lib = native.load()
    if not faulthandler.is_enabled():
        faulthandler.enable()
    helper = subprocess.Popen(
        [sys.executable, "-c", _HELPER, str(Path(__file__).parents[1]), str(os.getpid()), *([cases] if cases else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert helper.stdout is not None
    with helper.stdout:
        path = helper.stdout.readline().strip()
    failed = lib.harness_link_start(path) if path else -1
    if failed:
        raise HarnessError("The crash link could not be started.", hint="harness doctor")
    helper.returncode = 0  # it outlives us: nobody here waits for it
    _started = True


def watch(pid: int, cases: str | None) -> None:
    """The helper: waits for a crash or the end of `pid`, whichever comes first, then reports and is gone."""
    from harness.capture.crash.crash_link import Link
    from harness.capture.proc import read_argv

    started_ns, argv = time.monotonic_ns(), read_argv(pid)
    link, pidfd = Link(), os.pidfd_open(pid)
    print(link.path, flush=True)
    sys.stdout.close()
    ended = False
    while not ended:
        ready = select.select([link.fileno(), pidfd], [], [])[0]
        while link.fileno() in ready and (accepted := link.accept()):
            connection, peer = accepted
            if peer == pid:
                link.take_report(connection, peer, started_ns)
            connection.close()
        ended = pidfd in ready
    link.close()
    if link.reports:
        _report(pid, pidfd, link, argv, cases, started_ns)


def _report(pid: int, pidfd: int, link: Link, argv: tuple[str, ...], cases: str | None, started_ns: int) -> None:
    from harness.capture.run.channels import say
    from harness.capture.run.gathered.evidence import gather_caller
    from harness.commands.job import judge_case, keep_case
    from harness.evidence.case import create_case
    from harness.evidence.text.redaction import redact
    from harness.report.text import look_of, render

    evidence = redact(gather_caller(pid, argv, link, pidfd, started_ns))
    case, moved = create_case(cases, list(argv), started_ns)
    if moved:
        say(moved)
    document = judge_case(evidence, case)
    keep_case(case, evidence, document, list(argv), started_ns)
    with contextlib.suppress(OSError):
        os.write(2, render(document, **look_of(2)).encode())
