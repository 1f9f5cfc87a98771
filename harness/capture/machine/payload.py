"""Where the files are that run inside a foreign interpreter. Harness executes them, it never imports them."""

from __future__ import annotations

from pathlib import Path

CARRIED: dict[str, str] = {}  # on another host: those that were sent along, and where


def payload(name: str) -> Path:
    """A probe or reproducer: beside the package in a source tree, inside it when installed."""
    if name in CARRIED:
        return Path(CARRIED[name])
    installed = Path(__file__).parents[2] / "payloads" / name
    return installed if installed.exists() else Path(__file__).parents[3] / name
