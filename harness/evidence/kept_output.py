"""The copies of the output in a case, after the last byte: what must not be kept is overwritten where it stands.

Every byte stays where it was, so that lines, times and numbers remain true. Nothing more is copied afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from harness.evidence.redaction import redact_raw

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
