"""Jobs on other hosts, and harness asked about them from here."""

from __future__ import annotations

import json
import sys
from typing import Any

import jsonschema

from harness.report.schemas import DIRECTORY
from tests.live.processes import Ended, bare
from tests.live.sshd import Network

SYSTEM_PYTHON = "/usr/bin/python3"
READY = """
import json, os, signal, sys, time
signal.alarm(150)
def ready(**told):
    path = os.environ["ZOO_READY"]
    with open(path + ".part", "w") as file:
        json.dump(told, file)
    os.replace(path + ".part", path)
"""
SPIN = "def spin():\n    ready()\n    while True:\n        pass\nspin()\n"


def harness(net: Network, *words: object, **variables: str) -> Ended:
    return bare(sys.executable, "-m", "harness", *words, env={**net.environment, **variables})


def judge(net: Network, *words: object, **variables: str) -> tuple[int, dict[str, Any]]:
    """Exit status and the document, which keeps to its schema."""
    ended = harness(net, *words, "--json", **variables)
    assert ended.stdout, ended.stderr.decode()
    document = json.loads(ended.stdout)
    assert document["schema"] != "harness.failure/1", document
    name = document["schema"].removeprefix("harness.").replace("/", "-")
    jsonschema.validate(document, json.loads((DIRECTORY / f"{name}.json").read_text()))
    return ended.status, document
