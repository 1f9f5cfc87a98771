"""The document of a look at several processes: one verdict for all. Types only."""

from __future__ import annotations

from msgspec import Struct

from harness.documents.verdict import Document, Node, Outlier
from harness.evidence.gap import Gap


class Group(Struct, frozen=True):
    """`tree` has every Python process that was looked at, those below the targets too. `gaps`: of the whole look."""

    harness: str
    targets: tuple[Document, ...]
    tree: Node
    outlier: Outlier | None
    gaps: tuple[Gap, ...] = ()
    schema: str = "harness.group/1"
    case: str | None = None
