"""What another host has sent may be told as its own words, never as a command of ours to type.

Whoever answers there may be anybody. Only commands that look again may come from there, with
nothing but numbers in them.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from harness.evidence.facility import Facility
from harness.evidence.gap import Gap

_Fact = TypeVar("_Fact")
_OURS = re.compile(r"harness ps|(?:sudo )?harness (?:attach|openmp) [0-9]{1,10}")


def is_ours(hint: str | None) -> bool:
    return hint is not None and bool(_OURS.fullmatch(hint))


def quote_advice(fact: _Fact, name: str) -> _Fact:
    """Each fix in it, however deep, as what `name` says."""
    return _walk(fact, name)  # type: ignore[no-any-return]


def _walk(value: Any, name: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_walk(item, name) for item in value)
    if not isinstance(value, msgspec.Struct):
        return value
    changed = {
        field: new
        for field in value.__struct_fields__
        if (new := _walk(old := getattr(value, field), name)) is not old and new != old
    }
    if isinstance(value, Gap | Facility) and value.fix and not is_ours(value.fix):
        changed |= {"fix": None, "why": f"{value.why or 'it cannot'}; {name} suggests: {value.fix}"}
    return msgspec.structs.replace(value, **changed) if changed else value
