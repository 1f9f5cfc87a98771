"""Builders of evidence for the unit tests: a supervised run or somebody's log, in memory."""

from __future__ import annotations

import re
from pathlib import Path

from harness.evidence.run import Ending, Evidence, Exit, KernelLine, Process, Transcript, Uncaught
from harness.evidence.text.transcript import part_from_text

LOGS = Path(__file__).parents[1] / "data" / "logs"
_STATUS = re.compile(r"\[exit status (\d+)\]\n?\Z")


def log_evidence(text: str, exit_status: int | None) -> Evidence:
    """What a log tells when all that is known besides is the status of the shell that wrote it."""
    ended = Process(
        pid=1,
        ppid=0,
        name="sh",
        argv=("sh",),
        executable="/bin/sh",
        first_seen_s=0.0,
        ending=Ending(exit_code=exit_status),
    )
    return Evidence(
        harness="0",
        origin="log",
        argv=(),
        cwd="/",
        pid=1,
        platform="linux-x86_64",
        started="",
        duration_s=0.0,
        processes=() if exit_status is None else (ended,),
        transcripts=(Transcript("log", (part_from_text("log", text),)),),
    )


def read_log(name: str) -> tuple[str, int | None]:
    """The text without the line the recorder added, and the status from that line."""
    text = (LOGS / name).read_text()
    status = _STATUS.search(text)
    return (text[: status.start()], int(status[1])) if status else (text, None)


def kernel_evidence(lines: list[str]) -> Evidence:
    return Evidence(
        harness="0",
        origin="log",
        argv=(),
        cwd="/",
        pid=None,
        platform="linux-x86_64",
        started="",
        duration_s=0.0,
        kernel=tuple(KernelLine(line, "dmesg.txt") for line in lines),
    )


def told(exception: str | None, *, pid: int = 100, at_s: float = 9.8, exit_code: int = 1) -> dict[str, object]:
    """What a Python process tells as it leaves: of an exception that nothing caught, or of its sys.exit()."""
    uncaught = () if exception is None else (Uncaught(pid, at_s, exception),)
    return {"uncaught": uncaught, "exits": (Exit(pid, at_s + 0.1, exit_code, True, exception),)}


def run_evidence(
    output: str,
    ending: Ending,
    *,
    ended_s: float = 10.0,
    printed_s: float | None = 9.9,
    others: tuple[Process, ...] = (),
    **facts: object,
) -> Evidence:
    """A supervised Python process that printed `output` at `printed_s` and ended at `ended_s`."""
    part = part_from_text("stderr.log", output)
    timed = type(part)(part.file, part.lines, (printed_s,) * len(part.lines), part.redrawn, part.unfinished)
    main = Process(
        pid=100,
        ppid=1,
        name="python",
        argv=("python", "train.py"),
        executable="/usr/bin/python3.11",
        first_seen_s=0.0,
        ended_s=ended_s,
        ending=ending,
        source="wait status",
    )
    values: dict[str, object] = {
        "harness": "0",
        "origin": "run",
        "argv": ("python", "train.py"),
        "cwd": "/job",
        "pid": 100,
        "platform": "linux-x86_64",
        "started": "",
        "duration_s": ended_s,
        "processes": (main, *others),
        "transcripts": (Transcript("stderr", (timed,)),),
        **facts,
    }
    return Evidence(**values)  # type: ignore[arg-type]
