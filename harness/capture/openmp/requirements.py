"""What a requirements file asks for, with the files that it names; https://pip.pypa.io/en/stable/reference/
requirements-file-format/.

Does not judge markers and resolves nothing: that is pip's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from harness.errors import HarnessError
from harness.evidence.gap import Gap

# The other options are about installing.
_ABOUT_INDEXES = ("-i", "--index-url", "--extra-index-url", "--no-index", "--trusted-host", "--pre")
_MOST_BYTES = 16 << 20
_DEEPEST = 16  # requirements files that name others


class Requirements(NamedTuple):
    """`options`: lines that say where pip looks. `gaps`: what is on no index."""

    lines: list[str]
    options: list[str]
    gaps: list[Gap]


def read_requirements(path: Path) -> Requirements:
    found = Requirements([], [], [])
    _read_into(found, path, 0)
    if not found.lines and not found.gaps:
        raise HarnessError(f"{path} names no requirement", hint="pip freeze > requirements.txt")
    return found


def _read_into(found: Requirements, path: Path, depth: int) -> None:
    if depth > _DEEPEST:
        raise HarnessError(f"{path}: requirements files name each other", hint="pip freeze > requirements.txt")
    try:
        with path.open("rb") as file:  # which may be a pipe: --requirements <(pip freeze)
            text = file.read(_MOST_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise HarnessError(f"cannot read {path}: {error}", hint="pip freeze > requirements.txt") from None
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        line = re.sub(r"(^|\s+)#.*$", "", line).strip()
        option, _, value = line.partition(" ") if not line.startswith("--") else _split_long(line)
        if option in ("-r", "--requirement"):
            _read_into(found, path.parent / value.strip(), depth + 1)
        elif option in ("-c", "--constraint", "-f", "--find-links"):
            local = path.parent / value.strip()
            found.options.append(f"{option} {local.resolve() if local.exists() else value.strip()}")
        elif option in ("-e", "--editable") or _is_elsewhere(line):
            found.gaps.append(Gap(line, "not a release on an index", "build a wheel of it: harness openmp --wheels"))
        elif line.startswith("-"):
            found.options.extend([line] if option in _ABOUT_INDEXES else [])
        elif line:
            found.lines.append(re.split(r"\s--", line)[0].strip())  # hashes are of the files for another platform


def _split_long(line: str) -> tuple[str, str, str]:
    option, mark, value = re.sub(r"^(--[\w-]+)[= ]", r"\1 ", line).partition(" ")
    return option, mark, value


def _is_elsewhere(line: str) -> bool:
    return bool(re.match(r"[\w+.-]+://|git\+|[./~]|[A-Za-z]:\\", line) or re.search(r"\s@\s|\.whl\b|\.tar\.gz\b", line))
