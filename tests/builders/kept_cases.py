"""What a case holds is what was judged: loaded again, it gives the documents that were kept with it, to the letter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from harness.commands.job import judge_case
from harness.diagnose.living.document import judge_living
from harness.diagnose.living.group import judge_group
from harness.documents.verdict import Document
from harness.evidence.kept_case import list_kept, load_evidence, load_fact, load_look
from harness.evidence.text.undecoded import encode_document


def read_document(path: Path) -> Any:
    return json.loads(path.read_bytes())


def check_run(case: Path) -> None:
    """Of `run`, of an arm of `repro`, of `harness.enable()`; with the looks at it while it ran."""
    assert json.loads(encode_document(judge_case(load_evidence(case), case))) == read_document(case / "verdict.json")
    for look, stall in zip(list_kept(case, "look"), list_kept(case, "stall"), strict=True):
        told = load_fact(stall, Document)
        assert json.loads(encode_document(told)) == read_document(stall)
        since = [ground for ground in told.verdict.grounds if ground.source == "supervision"]
        verdict = msgspec.structs.replace(told.verdict, grounds=told.verdict.grounds[: -len(since) or None])
        again = msgspec.structs.replace(judge_living(load_look(look)), case=told.case)
        assert again == msgspec.structs.replace(told, verdict=verdict)


def check_look(case: Path) -> None:
    """Of `attach`. Who was not seen at all is in the answer only."""
    looks, kept = [load_look(path) for path in list_kept(case, "look")], read_document(case / "verdict.json")
    if kept["schema"].startswith("harness.verdict/"):
        assert load_look(case) == looks[0]
        answer: Any = judge_living(looks[0])
    else:
        answer = judge_group(*looks)
        kept["gaps"] = kept["gaps"][: len(answer.gaps)]
    assert json.loads(encode_document(answer)) == {**kept, "case": None}
