"""The command line and its commands."""

from __future__ import annotations

from harness.commands.main import main as main
