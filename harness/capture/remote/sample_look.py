"""A look at processes of another Mac: the text of its `sample`, as the evidence that a look at our own gives.

One process after the other, because what they print comes over one connection. Decides nothing. The shell's lines are
run in tests, against a `sample` that prints a recorded text; never on a Mac.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence

from msgspec.structs import replace

from harness.capture.living.sample_text import PATIENCE_S, build_command, join_processes, read_sample
from harness.capture.remote.connection import LinkBroken
from harness.capture.remote.session import Session
from harness.errors import HarnessError
from harness.evidence.crash import ToolRun
from harness.evidence.gap import Gap
from harness.evidence.living.look import LivingProcess, Look

_LONGEST_LINE = 4096  # names of C++ templates are long; what is longer was sent to keep us busy
_LONGEST_WORDS = 300
# sed ends no line that was not ended: the last echo does. In the C locale, because a name may be of no encoding.
_SCRIPT = (
    's=$(command -v sample) && ok "$s" || s=/usr/bin/sample; if ps -p {pid} >/dev/null 2>&1; then '
    '"$s" {words} </dev/null 2>&1 | LC_ALL=C sed "s/^/$t l /"; echo; else echo "$t gone"; fi'
)


def take_sample_look(session: Session, pids: Sequence[int], for_s: float) -> Look:
    """HarnessError: none of them could be sampled; its hint is what to type."""
    begun = time.monotonic()
    seen: list[LivingProcess] = []
    refused: list[HarnessError] = []
    for pid in dict.fromkeys(pids):
        try:
            seen.append(_sample(session, pid, for_s))
        except LinkBroken as error:
            if not seen:
                raise
            hint = f"harness attach {pid}"
            refused.append(HarnessError(f"Process {pid} and those after it were not sampled: {error}", hint=hint))
            break
        except HarnessError as error:
            refused.append(error)
    return join_processes(seen, refused, f"macosx-{session.facts.release}-{session.facts.machine}", begun)


def _sample(session: Session, pid: int, for_s: float) -> LivingProcess:
    begun = time.monotonic()
    script = _SCRIPT.format(pid=pid, words=shlex.join(build_command(pid, for_s)[1:]))
    told = session.run_shell(script, begun + for_s + PATIENCE_S)
    if "gone" in told:
        raise HarnessError(f"There is no process {pid}.", hint="harness ps")
    text = "\n".join(line[2:_LONGEST_LINE] for line in told if line.startswith("l "))
    try:
        (process,) = read_sample(text).processes
    except ValueError:
        raise _explain_refusal(session, pid, text) from None
    if process.pid != pid:
        raise _explain_refusal(session, pid, f"what came is about process {process.pid}")
    run = ToolRun("sample", round(time.monotonic() - begun, 4), None)
    fix = _by_hand(session, f"sudo py-spy dump --pid {pid}")
    gap = Gap("Python lines", "`sample` sees native frames only", fix)
    return replace(process, tools=(run,), gaps=(*process.gaps, gap))


def _explain_refusal(session: Session, pid: int, words: str) -> HarnessError:
    """By hand sudo can ask for its password; we never do."""
    last = next((line for line in reversed(words.splitlines()) if line.strip()), "it printed nothing")
    typed = _by_hand(session, f"sudo sample {pid} 5 -file /dev/stdout")
    hint = typed if session.reach.sudo else f"sudo harness attach {pid}; or, where it asks for a password, {typed}"
    return HarnessError(f"Process {pid} could not be sampled: {last.strip()[:_LONGEST_WORDS]}", hint=hint)


def _by_hand(session: Session, command: str) -> str:
    host = session.host
    if host.name is None:
        return f"{shlex.join(session.reach.via)} {command}"
    return f"ssh -t {f'-p {host.port} ' if host.port else ''}{host.destination} {command}"
