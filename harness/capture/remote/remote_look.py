"""A look at processes of another host, as the same evidence that a look at our own gives.

What had arrived when the connection broke is kept, and what is missing is a gap. Decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from harness.capture.remote.connection import LinkBroken
from harness.capture.remote.py_spy_wheel import load_py_spy
from harness.capture.remote.session import Session
from harness.capture.remote.shell import take_shell_look
from harness.capture.stacks.quiet_ladder import Native
from harness.errors import HarnessError
from harness.evidence.gap import Gap
from harness.evidence.living.look import Look

_MOST_SLOW = 3  # as long as a look may take when the tools are slow, in times of what was asked for
_BESIDES_S = 60.0
_SEND_S = 60.0


def prepare(session: Session, *, needs_tool: bool = True) -> None:
    """The agent, and a tool that reads stacks where there is none."""
    deadline = time.monotonic() + _SEND_S
    session.start_agent(deadline)
    if session.facts.has_spy or not needs_tool:
        return
    try:
        session.send_tool(load_py_spy(session.facts.machine), deadline)
    except LinkBroken:
        raise
    except TimeoutError as error:
        raise LinkBroken(f"{session.name} has not taken py-spy within {_SEND_S:.0f} s.", hint="harness ps") from error
    except HarnessError as error:
        session.gaps.append(Gap("Python and native stacks", str(error), error.hint))


def take_remote_look(
    session: Session,
    pids: Sequence[int],
    for_s: float,
    on_sample: Callable[[Look], object] | None = None,
    native: Native = "auto",
) -> Look:
    """HarnessError: nothing could be seen. The session is prepared already, if there is a Python."""
    if session.is_mac:
        from harness.capture.remote.sample_look import take_sample_look

        return session.check(take_sample_look(session, pids, for_s))
    if not session.takes_agent:
        return session.check(take_shell_look(session, pids, for_s))
    parts: list[Look] = []

    def keep(look: Look) -> None:
        parts[:] = [look]
        if on_sample is not None:
            on_sample(look)

    question = {"pids": list(pids), "for_s": for_s, "native": native}
    try:
        look = session.call("look", question, Look, _MOST_SLOW * for_s + _BESIDES_S, keep)
    except (LinkBroken, TimeoutError) as error:
        if not parts:
            raise
        why = f"{error or 'no answer'}; this is what had arrived after {parts[0].looked_s:.1f} s"
        look = msgspec.structs.replace(parts[0], gaps=(*parts[0].gaps, Gap("the rest of the look", why)))
    return msgspec.structs.replace(look, gaps=(*look.gaps, *session.gaps))
