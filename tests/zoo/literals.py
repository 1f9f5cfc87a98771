"""Reads what a scenario declares about itself, without importing it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

SCENARIOS = Path(__file__).with_name("scenarios")


def read_literals(path: Path) -> dict[str, Any]:
    literals = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(name := node.targets[0], ast.Name) and name.id.isupper():
            try:
                literals[name.id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return literals
