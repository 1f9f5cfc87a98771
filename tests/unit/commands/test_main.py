"""The command line's top: what becomes of words nobody knows, and of a bug of ours."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable

import pytest

commands = importlib.import_module("harness.commands.main")  # `harness.commands.main` is the function in it


def break_down(status: int | None) -> Callable[[argparse.Namespace], int]:
    def command(arguments: argparse.Namespace) -> int:
        if status is not None:
            arguments.status = status
        raise LookupError("a bug")

    return command


@pytest.mark.parametrize(("status", "expected"), [(None, 70), (0, 0), (139, 139)])
def test_a_bug_after_the_command_has_ended_does_not_change_its_status(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], status: int | None, expected: int
) -> None:
    monkeypatch.setattr(commands, "find_command", lambda name: break_down(status))
    assert commands.main(["run", "--", "true"]) == expected
    told = capfd.readouterr().err
    assert "LookupError: a bug" in told and "this is a bug in harness" in told


@pytest.mark.parametrize(
    ("words", "next_command"),
    [
        (["run", "--frob", "true"], "harness run --help"),
        (["doctor", "--frob"], "harness doctor --help"),
        (["--frob"], "harness --help"),
    ],
)
def test_an_unknown_option_points_to_the_help_of_its_command(
    capsys: pytest.CaptureFixture[str], words: list[str], next_command: str
) -> None:
    with pytest.raises(SystemExit) as left:
        commands.main(words)
    told = capsys.readouterr().err
    assert left.value.code == 2 and "--frob" in told and told.endswith(f"next: {next_command}\n")
