"""The JSON Schemas of every document, generated from its type. `python -m harness.report.schemas` rewrites the files.

They ship in harness/schemas; a test compares them with what this module generates.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from harness.diagnose.death import kinds
from harness.diagnose.living.kinds import ALIVE_NAMES
from harness.documents.doctor import Doctor
from harness.documents.failure import Failure
from harness.documents.group import Group
from harness.documents.npz import NpzDocument
from harness.documents.npz_conversion import ConversionDocument
from harness.documents.openmp import OpenmpDocument
from harness.documents.openmp_fix import FixDocument
from harness.documents.repro import ReproDocument
from harness.documents.verdict import Document
from harness.documents.watch import WatchEvent
from harness.evidence.living.processes import ProcessTable
from harness.evidence.run import Evidence

DIRECTORY = Path(__file__).parents[1] / "schemas"
_TYPES = {
    "verdict": Document,
    "evidence": Evidence,
    "doctor": Doctor,
    "openmp": OpenmpDocument,
    "openmp-fix": FixDocument,
    "npz": NpzDocument,
    "npz-conversion": ConversionDocument,
    "ps": ProcessTable,
    "group": Group,
    "failure": Failure,
    "watch": WatchEvent,
    "repro": ReproDocument,
}


def build_schemas() -> dict[str, str]:
    """File name and text of each schema."""
    return {f"{name}-1.json": json.dumps(_build(name), indent=1, sort_keys=True) + "\n" for name in _TYPES}


def _build(name: str) -> dict[str, Any]:
    schema = msgspec.json.schema(_TYPES[name])
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"harness.{name}/1"
    if "Verdict" in schema["$defs"]:  # the list of kinds is closed; its place is the two tables
        schema["$defs"]["Verdict"]["properties"]["kind"]["enum"] = [*kinds.NAMES, *ALIVE_NAMES]
    return schema


if __name__ == "__main__":
    for file, text in build_schemas().items():
        (DIRECTORY / file).write_text(text)
