"""Keeps what a look has seen and what was made of it, as a case like any other: for later, offline, elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from harness.capture.run.channels import say
from harness.documents.group import Group
from harness.documents.verdict import Document
from harness.errors import HarnessError
from harness.evidence.case import create_case, mark_case, prune_cases, write_file
from harness.evidence.living.look import Look
from harness.evidence.text.undecoded import encode_document, mark_bytes

Answer = TypeVar("Answer", Document, Group)


def keep_look(looks: Sequence[Look], answer: Answer, chosen: str | None) -> Answer:
    """With its case, if that could be written. Only files of ours: no name in there comes from another host."""
    started_ns = time.monotonic_ns()
    try:
        case, _ = create_case(chosen, sys.argv, started_ns)
        kept = msgspec.structs.replace(answer, case=mark_bytes(str(case)))
        for number, look in enumerate(looks, 1):
            name = "look.json" if len(looks) == 1 else f"look-{number}.json"
            write_file(case / name, encode_document(look))
        write_file(case / "verdict.json", encode_document(kept))
        mark_case(case, sys.argv, started_ns, complete=True)
        prune_cases(case.parent, case)
    except (OSError, HarnessError) as error:
        say(f"The look could not be kept: {error}")
        return answer
    return kept
