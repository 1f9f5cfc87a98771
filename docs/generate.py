"""Writes the pages that are made of the program's own tables: docs/pages/kinds.md and docs/pages/fields.md.

`make docs` runs it; a contract test compares what it would write with what is there. Next: python -m docs.generate
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.diagnose.death.kinds import KINDS
from harness.diagnose.death.matching import Kind
from harness.diagnose.living.kinds import ALIVE, AliveKind
from harness.documents.verdict import Remedy
from harness.report.schemas import build_schemas

PAGES = Path(__file__).with_name("pages")

_KINDS = """\
# The kinds of verdict

<!-- made by docs/generate.py of the program's own tables: edit those, not this page -->

The kind is the *cause*. The signal a process died of stays in `outcome` of the [verdict document](documents.md). Two
tables, one for the dead and one for the living; each is tried from top to bottom, and the first row that matches is
the verdict. How sure a verdict is, is a [word of its own](documents.md#how-sure-it-is).

"""
_DEATH = """\
## The kinds of death

What [`harness run`](commands/run.md) says when a command has ended.

"""
_LIVING = """\
## The kinds of the living

What [`harness attach`](commands/attach.md) and [`harness watch`](commands/watch.md) say of a process that runs. What
counts as movement is told on the page of [`attach`](commands/attach.md#what-counts-as-movement).

"""
_ADVICE = """\
## What is advised

What a report proposes for each kind, safe steps first. A verdict may know better (which limit, which package) and
then says that instead. Words in capitals stand for what the report fills in. Where a kind is not listed, the advice
follows from the stack: which call to look at, or what to run to learn more.

"""
_FIELDS = """\
# Fields of the documents

<!-- made by docs/generate.py of the schemas in harness/schemas: edit the types, not this page -->

The first level of each JSON document, and all of the verdict. The whole of each is the JSON Schema of that name,
which is part of the installed package (`harness/schemas`). What the documents are for is told [here](documents.md).

"""
_WHOLE = "harness.verdict/1"


def list_pages() -> dict[Path, str]:
    return {PAGES / "kinds.md": write_kinds(), PAGES / "fields.md": write_fields()}


def write_kinds() -> str:
    parts = [_KINDS, _DEATH, *_tabulate(KINDS), "\n", _LIVING, *_tabulate(ALIVE), "\n", _ADVICE]
    for kind in (*KINDS, *ALIVE):
        remedies = [remedy for remedy in kind.remedies if not re.fullmatch(r"\{\w+\}", remedy.do)]
        if remedies:
            parts += [f"**{kind.name}**\n\n", *map(_advise, remedies), "\n"]
    return "".join(parts).rstrip("\n") + "\n"


def _tabulate(kinds: Sequence[Kind | AliveKind]) -> Iterable[str]:
    yield "| kind | what it means |\n|---|---|\n"
    yield from (f"| `{kind.name}` | {kind.meaning} |\n" for kind in kinds)


def _advise(remedy: Remedy) -> str:
    unsafe = "" if remedy.safe else "*Not a fix:* "
    return f"- {unsafe}{_fill(remedy.do)} ({_fill(remedy.why)})\n"


def _fill(text: str) -> str:
    """`{python}` is PYTHON here; what HTML or markdown would take for its own stays text."""
    text = re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), text)
    return text.replace("<", "&lt;").replace("_", r"\_").replace("*", r"\*")


def write_fields() -> str:
    parts = [_FIELDS]
    for text in build_schemas().values():
        schema = json.loads(text)
        name = schema.get("$ref", "").rpartition("/")[2]
        record = schema["$defs"][name] if name else schema
        parts.append(f"## {schema['title']}\n\n")
        parts += [*_list_fields(record), "\n"]
        if schema["title"] == _WHOLE:
            parts += [line for other in sorted(schema["$defs"]) if other != name for line in _tell(other, schema)]
    return "".join(parts).rstrip("\n") + "\n"


def _tell(name: str, schema: dict[str, Any]) -> Iterable[str]:
    """One of the records that a document is made of, with what its type says of itself."""
    record = schema["$defs"][name]
    yield f"### {name}\n\n"
    if told := record.get("description"):
        yield " ".join(told.split()).replace("<", "&lt;") + "\n\n"
    yield from (*_list_fields(record), "\n")


def _list_fields(record: dict[str, Any]) -> Iterable[str]:
    yield "| field | type |\n|---|---|\n"
    required = record.get("required", [])
    for field, about in record["properties"].items():
        optional = "" if field in required or field == "schema" else ", may be missing"
        yield f"| `{field}` | {_name(about)}{optional} |\n"


def _name(about: dict[str, Any]) -> str:
    """The type of one field in words: `list of Crash`, `string or null`, `one of …`."""
    if "anyOf" in about:
        return " or ".join(_name(part) for part in about["anyOf"])
    if "$ref" in about:
        return str(about["$ref"].rpartition("/")[2])
    if "enum" in about:
        return "one of " + ", ".join(f"`{value}`" for value in about["enum"])
    if about.get("type") == "array":
        return f"list of {_name(about['items'])}"
    if about.get("type") == "object":
        return "object"
    return str(about.get("type", "anything"))


def main() -> None:
    for path, text in list_pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
