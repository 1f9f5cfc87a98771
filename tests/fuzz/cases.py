"""Readers of a case: what `run` and `attach` have kept, as somebody else may send it or a torn disk leave it."""

from __future__ import annotations

import json
from pathlib import Path

from harness.commands.job import judge_case
from harness.diagnose.living.document import judge_living
from harness.evidence.kept_case import load_evidence, load_look
from harness.evidence.living.look import Look
from harness.evidence.senders import ON_STALL_TERM
from harness.evidence.text.undecoded import decode_document, encode_document
from harness.report.text import render
from tests.fuzz.answers import tell
from tests.fuzz.registry import keep, load, target

MARKER = b'{"schema": "harness.case/1", "complete": true, "supervisor_pid": 7, "started_ns": 5, "node": "x"}\n'
(EVIDENCE,) = load("evidence.json")
(LOOK,) = load("look.json")
WORDS = b'Traceback (most recent call last):\n  File "/job/train.py", line 3, in work\nValueError: no\n'
ENDED = {"signame": "SIGTERM", "at_s": 1, "sender_pid": 7, "sender_uid": 0, "sender": ON_STALL_TERM, "passed_on": True}
STALLED = {
    **json.loads(EVIDENCE),
    "crashes": [],
    "signals": [ENDED],
    "processes": [{**json.loads(EVIDENCE)["processes"][0], "ending": {"signo": 15}}],
}


def keep_run(evidence: bytes = EVIDENCE, marker: bytes = MARKER, words: bytes = WORDS, times: bytes = b"0 9\n") -> Path:
    keep(words, "run/output.log")
    keep(times, "run/output.log.times")
    keep(marker, "run/case.json")
    return keep(evidence, "run/evidence.json").parent


def judge_again(case: Path) -> None:
    document = judge_case(load_evidence(case), case)
    json.loads(encode_document(document))
    render(document, width=100, color=False)


@target("evidence of a case", EVIDENCE, json.dumps(STALLED).encode())
def judge_evidence(data: bytes) -> None:
    judge_again(keep_run(data))


@target("marker of a case", MARKER, MARKER.replace(b'"node"', b'"redacted": false, "node"'))
def judge_marked(data: bytes) -> None:
    judge_again(keep_run(marker=data))


@target("output of a case", WORDS, b"0 9\n52 1000000005\n")
def judge_output(data: bytes) -> None:
    judge_again(keep_run(words=data, times=data))


@target("look of a case", LOOK)
def judge_kept_look(data: bytes) -> None:
    case = keep(data, "looked/look.json").parent
    tell(load_look(case))


@target("stall of a case", encode_document(judge_living(decode_document(LOOK, Look))))
def judge_stall(data: bytes) -> None:
    keep(data, "run/stall.json")
    try:
        judge_again(keep_run(json.dumps(STALLED).encode()))
    finally:
        (keep_run() / "stall.json").unlink()
