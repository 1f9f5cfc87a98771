"""The command line: reads the words, calls one command, turns failures into one sentence and a status.

Each command's module is imported only when it is called, so that `harness --version` stays cheap.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Callable

from harness.commands.alone import run_alone
from harness.commands.parser import build_parser
from harness.errors import EXIT_INTERRUPTED, EXIT_OUR_BUG, EXIT_USAGE, CouldNotStart, HarnessError, NotSupervised
from harness.version import __version__

_BUGS = "please report this with the traceback above"


def find_command(name: str) -> Callable[[argparse.Namespace], int]:
    room = f"harness.commands.{name}"
    module = importlib.import_module(f"{room}.command" if name == "repro" else room)
    command: Callable[[argparse.Namespace], int] = getattr(module, f"{name}_command")
    return command


def _call(arguments: argparse.Namespace) -> int:
    return find_command(arguments.command)(arguments)


def _run_or_do_without(arguments: argparse.Namespace) -> int:
    """Until the command has been started, nothing that the machine refuses us keeps it from running."""
    try:
        return _call(arguments)
    except (NotSupervised, OSError, MemoryError, ImportError) as error:
        if hasattr(arguments, "started"):
            raise
        words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
        try:
            run_alone(words, str(error) if isinstance(error, NotSupervised) else f"{type(error).__name__}: {error}.")
        except OSError as refused:
            hint = f"command -v {words[0]}"
            raise CouldNotStart(f"{words[0]} could not be started: {refused.strerror}.", hint=hint) from error


def _tell(text: str) -> None:
    """Not print: with stderr closed it would write to stdout, which belongs to the answer."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())


def _print_bug() -> None:
    """Where the machine refuses even the module that would print the traceback, that is the answer."""
    error = sys.exc_info()[1]
    try:
        import traceback

        traceback.print_exc()
        _tell(f"harness: this is a bug in harness; {_BUGS}.")
    except (OSError, MemoryError, ImportError):
        _tell(f"harness: the machine refuses what is needed to say more: {type(error).__name__}: {error}")


def _print_failure(error: HarnessError) -> None:
    from harness.commands.output import print_document
    from harness.documents.failure import Failure

    print_document(Failure(__version__, str(error), error.hint, error.exit_code))


def main(words: list[str] | None = None) -> int:
    parser = build_parser()
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        parser.prog += f" {arguments.command}" if arguments.command else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    if getattr(arguments, "no_redact", False):
        from harness.evidence.text.redaction import switch_off

        switch_off()
    try:
        return _run_or_do_without(arguments) if arguments.command == "run" else _call(arguments)
    except HarnessError as error:
        from harness.evidence.text.redaction import redact_text
        from harness.evidence.text.transcript import clean_for_terminal

        told = (f"harness: {error}", f"  next: {error.hint}")
        _tell("\n".join(clean_for_terminal(redact_text(line)) for line in told))
        if getattr(arguments, "json", False) and arguments.command != "run":  # whose stdout is the command's
            _print_failure(error)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception:  # noqa: BLE001 (the one place that turns a bug of ours into status 70)
        _print_bug()
        return int(getattr(arguments, "status", EXIT_OUR_BUG))  # of a command that has ended, its own
