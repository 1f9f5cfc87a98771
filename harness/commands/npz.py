"""`harness npz`: read the headers of array files, weigh them against memory, print one answer on stdout.

Only --to-npy writes anything, and only into the directory it is given.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.capture.arrays.archive import read_array_file
from harness.capture.arrays.available_memory import read_room
from harness.commands.output import print_answer
from harness.diagnose.environment.npz import judge_npz
from harness.documents.npz_conversion import ConversionDocument
from harness.errors import HarnessError, UsageError
from harness.evidence.arrays import ArrayFile, Measured, Room
from harness.report.npz import render, render_conversion
from harness.version import __version__


def npz_command(arguments: argparse.Namespace) -> int:
    if arguments.to_npy is not None:
        return _convert(arguments)
    if arguments.python and not arguments.measure:
        raise UsageError("--python belongs to --measure.", hint="harness npz FILE --measure --python PY")
    files, unread = _read(arguments.files)
    room = read_room()
    python, measured = _measure(arguments, files, room) if arguments.measure else (None, ())
    document = judge_npz(__version__, files, room, measured, python, unread)
    print_answer(document, render, arguments.json)
    return document.exit_code


def _read(paths: list[str]) -> tuple[tuple[ArrayFile, ...], tuple[str, ...]]:
    """One that cannot be read is named; only when none can, that is the answer."""
    files, unread = [], []
    for path in paths:
        try:
            files.append(read_array_file(Path(path)))
        except HarnessError as error:
            if len(paths) == 1:
                raise
            unread.append(str(error))
    if not files:
        raise HarnessError(f"None of these files could be read: {' '.join(unread)}", hint=f"ls -l {paths[0]}")
    return tuple(files), tuple(unread)


def _measure(
    arguments: argparse.Namespace, files: tuple[ArrayFile, ...], room: Room
) -> tuple[str, tuple[Measured, ...]]:
    from harness.capture.arrays.measuring import measure_arrays
    from harness.capture.files.interpreter import find_python

    python = find_python(arguments.python, imports=True)
    return python, tuple(row for file in files for row in measure_arrays(python, file, room))


def _convert(arguments: argparse.Namespace) -> int:
    from harness.remedy.npz import convert

    if len(arguments.files) != 1 or arguments.measure or arguments.python:
        raise UsageError("--to-npy takes one file, and nothing else.", hint="harness npz FILE --to-npy DIR")
    done = convert(read_array_file(Path(arguments.files[0])), Path(arguments.to_npy))
    print_answer(ConversionDocument(__version__, arguments.files[0], done), render_conversion, arguments.json)
    return 0
