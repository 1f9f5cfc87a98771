"""Who sent the signal that ended the culprit, in words; "unknown" with the list of what was looked at is an answer.

Pure: reads evidence only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.diagnose.death.reading import Reading
from harness.documents.verdict import Ground
from harness.evidence.memory import Kill
from harness.evidence.run import PassedSignal
from harness.evidence.senders import ON_STALL_TERM

_FROM_LINK = "crash link"
_ON_STALL = "harness, as --on-stall term says"
_LONGEST = 120
_ASKS_TO_LEAVE = frozenset({"SIGTERM", "SIGINT", "SIGHUP"})
_WAS_SENT_TO = " was sent to "
# Daemons that kill for memory; each says so in its own name.
_OOM_DAEMONS = re.compile(r"(?:^|/)(earlyoom|systemd-oomd|nohang|oomd|bustd)\b")


def find_kill(reading: Reading) -> Kill | None:
    """The signal that ended the culprit, as it was sent.

    A process tells of a signal only when it dies of it, and then queues it to itself once more, which the kernel tells
    too. Of several SIGKILLs the first one killed; of others, which may have been handled before, the last one.
    """
    own = [
        kill for kill in reading.evidence.kills if (kill.pid, kill.signame) == (reading.culprit.pid, reading.signame)
    ]
    told = [kill for kill in own if kill.source == _FROM_LINK]
    if reading.signame == "SIGINT" and reading.final is not None:  # CPython's own, after the traceback
        return next((kill for kill in reversed(own) if kill.sender_pid != kill.pid), None)
    if told:
        return _name_sender(told[-1], own)
    if not own:
        return None
    if reading.signame == "SIGKILL":
        return own[0]
    return ([kill for kill in own if kill.sender_pid != kill.pid] or own)[-1]


def _name_sender(kill: Kill, own: list[Kill]) -> Kill:
    """A sender that was gone when the process looked may still have been there when the kernel told."""
    if kill.sender is not None:
        return kill
    same = (other for other in own if other.sender_pid == kill.sender_pid and other.sender is not None)
    return next(same, kill)


def was_interrupted(reading: Reading) -> bool | None:
    """Whether a SIGINT had come when KeyboardInterrupt ended the culprit. Null: nobody was there to see.

    The last one is CPython's own, by which it tells its parent; where the kernel tells of that one and of no other,
    none had come.
    """
    told = reading.uncaught
    sent = [kill for kill in reading.evidence.kills if (kill.pid, kill.signame) == (reading.culprit.pid, "SIGINT")]
    others = sent[:-1] if sent and sent[-1].sender_pid == reading.culprit.pid else sent
    came = [kill.at_s for kill in others if kill.source != _FROM_LINK]
    came += [signal.at_s for signal in reading.evidence.signals if signal.signame == "SIGINT"]
    if any(told is None or at_s <= told.at_s for at_s in came):
        return True
    return False if any(kill.source != _FROM_LINK for kill in sent) else None


def is_sent_by_process(reading: Reading) -> bool:
    kill, passed = find_kill(reading), _passed_on(reading)
    if kill is None:
        return passed is not None and passed.sender_pid != 0
    return kill.sender_pid is not None and not is_oom_daemon(kill)


def is_oom_daemon(kill: Kill | None) -> bool:
    return kill is not None and kill.sender is not None and bool(_OOM_DAEMONS.search(kill.sender.split(" ")[0]))


def tell_sender(reading: Reading) -> str:
    """ ", sent by …", or nothing where nobody can be named."""
    kill = find_kill(reading)
    passed = _passed_on(reading)
    if passed is not None and (kill is None or _is_harness(kill.sender_pid, reading)):
        if passed.sender == ON_STALL_TERM:
            return f", sent by {_ON_STALL}"
        command = f" ({passed.sender})" if passed.sender else ""
        who = f"process {passed.sender_pid}{command}" if passed.sender_pid else "the kernel (its terminal is gone)"
        return f", sent to harness by {who} and passed on"
    if kill is None or (kill.signame, kill.sender_pid) == ("SIGINT", None):  # the headline says Ctrl-C
        return ""
    return f", sent by {describe_sender(kill, reading)}"


def _is_harness(pid: int | None, reading: Reading) -> bool:
    return reading.main is not None and pid == reading.main.ppid and reading.culprit.pid == reading.main.pid


def _passed_on(reading: Reading) -> PassedSignal | None:
    if reading.culprit.role != "main":
        return None
    signals = (signal for signal in reversed(reading.evidence.signals) if signal.passed_on)
    return next((signal for signal in signals if signal.signame == reading.signame), None)


def describe_sender(kill: Kill, reading: Reading) -> str:
    if kill.sender_pid is None:
        return "the kernel" if kill.signame != "SIGINT" else "the terminal (Ctrl-C)"
    if kill.sender_pid == kill.pid:
        return "itself"
    if kill.sender_pid == 0:
        return "a process outside this container"
    if _is_harness(kill.sender_pid, reading) and (passed := _passed_on(reading)) is not None:
        return _ON_STALL if passed.sender == ON_STALL_TERM else "harness, which passed it on"
    processes = {process.pid: process for process in reading.evidence.processes}
    victim, sender = processes.get(kill.pid), processes.get(kill.sender_pid)
    what = "its parent, process" if victim is not None and victim.ppid == kill.sender_pid else "process"
    return _name_process(f"{what} {kill.sender_pid}", kill.sender or (" ".join(sender.argv) if sender else None))


def _name_process(process: str, command: str | None) -> str:
    if not command:
        return f"{process}, which was gone before its command line could be read"
    short = command if len(command) <= _LONGEST else command[: _LONGEST - 1] + "…"
    return f"{process} ({short})"


def ground_sender(reading: Reading) -> tuple[Ground, ...]:
    kill = find_kill(reading)
    if kill is None:
        return ()
    uid = "" if kill.sender_uid is None else f", uid {kill.sender_uid}"
    return (Ground(f"{kill.signame} was sent by {describe_sender(kill, reading)}{uid}", kill.source),)


def told_to_leave(reading: Reading) -> Ground | None:
    """Of a process that left by itself, with an exception or a status: the last signal before that which asked it to.

    A fact beside the verdict, not its cause: whether a handler turned the signal into that end is not seen.
    """
    ended_s = reading.culprit.ended_s
    if reading.signame is not None or reading.exit_code == 0 or ended_s is None:
        return None
    asked = [one for one in (*_asked_directly(reading), *_asked_by_harness(reading)) if one[0] <= ended_s]
    if not asked:
        return None
    at_s, ground = max(asked, key=lambda one: one[0])
    return Ground(f"{ground.fact}, {ended_s - at_s:.1f} s before its end", ground.source)


def is_told_to_leave(ground: Ground) -> bool:
    """Whether this is what `told_to_leave` says: a report of one line shows it too."""
    return _WAS_SENT_TO in ground.fact and ground.fact.partition(_WAS_SENT_TO)[0] in _ASKS_TO_LEAVE


def _asked_directly(reading: Reading) -> Iterator[tuple[float, Ground]]:
    for kill in reading.evidence.kills:
        is_its = kill.pid == reading.culprit.pid != kill.sender_pid and kill.signame in _ASKS_TO_LEAVE
        if is_its and not _is_harness(kill.sender_pid, reading):
            fact = f"{kill.signame}{_WAS_SENT_TO}it by {describe_sender(kill, reading)}"
            yield kill.at_s, Ground(fact, kill.source)


def _asked_by_harness(reading: Reading) -> Iterator[tuple[float, Ground]]:
    """What arrived at harness; of what was not passed on, what came from outside the tree went to the whole group."""
    if reading.culprit.role != "main":
        return
    known = {(kill.signame, kill.sender_pid) for kill in reading.evidence.kills if kill.pid == reading.culprit.pid}
    own = {process.pid for process in reading.evidence.processes}
    for sent in reading.evidence.signals:
        if sent.signame not in _ASKS_TO_LEAVE or sent.sender_pid in own or (sent.signame, sent.sender_pid) in known:
            continue
        yield sent.at_s, Ground(_tell_way(sent), "signals of harness")


def _tell_way(sent: PassedSignal) -> str:
    if sent.sender == ON_STALL_TERM:
        return f"{sent.signame}{_WAS_SENT_TO}it by {_ON_STALL}"
    who = _name_process(f"process {sent.sender_pid}", sent.sender) if sent.sender_pid else "the terminal"
    if sent.signame == "SIGINT" and not sent.sender_pid:
        who += " (Ctrl-C)"
    if sent.passed_on:
        return f"{sent.signame}{_WAS_SENT_TO}harness, which passed it on, by {who}"
    return f"{sent.signame}{_WAS_SENT_TO}its process group by {who}"


def list_looked_at(reading: Reading) -> tuple[str, ...]:
    """What was read in search of the killer, without finding one."""
    evidence = reading.evidence
    blind = {gap.what for gap in evidence.gaps}
    groups = len(evidence.oom_kills or ())
    counted = evidence.room is not None and evidence.room.oom_kills_machine is not None
    looked = {
        "the kernel log": "kernel log" not in blind,
        f"the oom_kill counters of {groups} control groups": groups > 0,
        "the machine's count of OOM kills": counted,
        "the journal of OOM daemons": "OOM daemons" not in blind,
        "the kernel's record of who sends signals": "senders of SIGKILL" not in blind,
        "its CPU limit": evidence.timeline is not None,
    }
    return tuple(words for words, seen in looked.items() if seen)
