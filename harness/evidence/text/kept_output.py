"""The copies of the output in a case, after the last byte: what must not be kept is overwritten where it stands.

Every byte stays where it was, so that lines, times and numbers remain true. Nothing more is copied afterwards. They are
read only then, by whoever judges the command and by whoever comes back to its case: both see the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from harness.evidence.run import Part, Transcript
from harness.evidence.text.redaction import Redactor, redact_raw
from harness.evidence.text.transcript import read_transcript

_ORDER = (".log", ".tail.old", ".tail")


class _Sealable(Protocol):
    name: str

    def seal(self) -> None: ...


def redact_output(case: Path, channels: Iterable[_Sealable]) -> None:
    for channel in channels:
        channel.seal()
        _redact_channel([case / f"{channel.name}{suffix}" for suffix in _ORDER])


def _redact_channel(paths: list[Path]) -> None:
    """As one text, for a secret may begin in one file and end in the next. Again if a last chunk came meanwhile."""
    done = None
    while (held := [path.read_bytes() if path.exists() else b"" for path in paths]) != done:
        at, whole = 0, redact_raw(b"".join(held))
        done = []
        for path, data in zip(paths, held, strict=True):
            done.append(whole[at : at + len(data)])
            at += len(data)
            if done[-1] != data:
                with path.open("r+b") as file:
                    file.write(done[-1])


def read_output(case: Path, names: Iterable[str], started_ns: int, *, is_redacted: bool) -> tuple[Transcript, ...]:
    """As lines. Unreadable, or OSError: a file is something else than what was copied there.

    `is_redacted`: what was overwritten is gone; by its shape a line may still name a secret that never was one.
    """
    redactor = Redactor(is_redacted)
    return tuple(_redact_lines(read_transcript(case, name, started_ns), redactor) for name in names)


def _redact_lines(transcript: Transcript, redactor: Redactor) -> Transcript:
    return replace(transcript, parts=tuple(_redact_part(part, redactor) for part in transcript.parts))


def _redact_part(part: Part, redactor: Redactor) -> Part:
    return replace(part, lines=tuple(map(redactor.text, part.lines)))
