"""Something that could not be looked at: never the same as nothing found."""

from __future__ import annotations

from msgspec import Struct


class Gap(Struct, frozen=True):
    what: str
    why: str
    fix: str | None = None
