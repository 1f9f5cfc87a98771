"""Is this a known bug? One table of signatures and the public threads that describe them.

A match says "this looks like that thread", and why; it is never the verdict.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from harness.diagnose.death.reading import Reading
from harness.documents.verdict import Upstream


class Signature(NamedTuple):
    """Matches when the kind is one of `kinds` and the pattern stands in the last words."""

    kinds: tuple[str, ...]
    pattern: re.Pattern[str]
    ref: str
    why: str


SIGNATURES = (
    Signature(
        ("duplicate-openmp",),
        re.compile(r"OMP: Error #15: Initializing libi?omp"),
        "faiss-wheels#40",
        "the same message, there from torch and faiss-cpu in one process",
    ),
    Signature(
        ("duplicate-openmp",),
        re.compile(r"OMP: Error #15"),
        "pytorch#78490",
        "why KMP_DUPLICATE_LIB_OK is no fix: it turned this abort into a segfault",
    ),
    Signature(
        ("abi-mismatch",),
        re.compile(r"numpy\.core\.multiarray failed to import[\s\S]*|faiss[\s\S]*_ARRAY_API not found"),
        "faiss#3526",
        "faiss built for NumPy 1.x does not import under NumPy 2",
    ),
    Signature(
        ("device-assert",),
        re.compile(r"MPSNDArray.*(?:> 2\*\*32|> 2\*\*31)"),
        "pytorch#84039",
        "Metal refuses a tensor over its size limit with this assertion",
    ),
)


def find_upstream(kind: str, reading: Reading) -> tuple[Upstream, ...]:
    return tuple(
        Upstream(signature.ref, signature.why)
        for signature in SIGNATURES
        if kind in signature.kinds and reading.mentions(signature.pattern)
    )
