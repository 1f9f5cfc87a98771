"""Prints a command's one answer on stdout: as JSON, or as its report renders it."""

from __future__ import annotations

import os
from typing import Protocol, TypeVar

import msgspec

from harness.evidence.text.redaction import redact
from harness.evidence.text.undecoded import encode_document
from harness.report.terminal import look_of

_Document = TypeVar("_Document", bound=msgspec.Struct, contravariant=True)


class Render(Protocol[_Document]):
    def __call__(self, document: _Document, /, *, width: int, color: bool) -> str: ...


def print_answer(document: _Document, render: Render[_Document], as_json: bool) -> None:
    if as_json:
        print_document(document)
    else:
        _print(render(redact(document), **look_of(1)).encode())


def print_document(document: msgspec.Struct) -> None:
    _print(encode_document(redact(document)) + b"\n")


def _print(answer: bytes) -> None:
    try:
        while answer:
            answer = answer[os.write(1, answer) :]
    except OSError:
        pass  # nobody reads stdout; the exit status still tells
