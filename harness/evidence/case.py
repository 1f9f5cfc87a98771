"""The case directory: raw files, evidence.json, verdict.json, report.txt; private, bounded in number and size.

Knows nothing of what is in them beyond their types.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from harness.errors import BadCase, CouldNotStart

MOST_CASES = 50
MOST_BYTES = 2 * 1024**3
# A core that is there only because of us must leave room for other cases.
MOST_CORE_BYTES = MOST_BYTES // 2


def default_cases_dir() -> Path:
    if chosen := os.environ.get("HARNESS_CASES"):
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_state_dir("harness")) / "cases"


def create_case(chosen: str | None, argv: list[str], started_ns: int) -> tuple[Path, str | None]:
    """Makes a private directory and marks it incomplete. Returns it and, if it is not where expected, why.

    A directory the user named must work; the default one gives way to a temporary one, so that a read-only home
    does not keep a training job from starting.
    """
    wanted = Path(chosen) if chosen else default_cases_dir()
    try:
        return _create_in(wanted, argv, started_ns), None
    except OSError as error:
        trouble = f"Cases cannot be kept in {wanted}: {error.strerror}"
        if chosen or "HARNESS_CASES" in os.environ:
            hint = f"harness run --cases /tmp/cases -- {' '.join(argv)}"
            raise CouldNotStart(f"{trouble}.", hint=hint) from error
        elsewhere = make_private_directory("harness-cases")
        return _create_in(elsewhere, argv, started_ns), f"{trouble}; this one is kept in {elsewhere}."


def make_private_directory(prefix: str) -> Path:
    """In the temporary directory, for this user only. tempfile does the same for 10 ms of imports."""
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"{prefix}-{os.urandom(4).hex()}"
    path.mkdir(mode=0o700)
    return path


def _create_in(cases_dir: Path, argv: list[str], started_ns: int) -> Path:
    cases_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%S")
    case = (cases_dir / f"{stamp}-{os.urandom(2).hex()}").absolute()
    case.mkdir(mode=0o700)
    mark_case(case, argv, started_ns, complete=False)
    return case


def mark_case(case: Path, argv: list[str], started_ns: int, *, complete: bool) -> None:
    """Written first with complete false: a supervisor that is killed leaves exactly that behind."""
    document = {
        "schema": "harness.case/1",
        "complete": complete,
        "supervisor_pid": os.getpid(),
        "started_ns": started_ns,
        "argv": [argument.encode("utf-8", "replace").decode() for argument in argv],
    }
    write_file(case / "case.json", json.dumps(document).encode() + b"\n")


def write_file(path: Path, data: bytes) -> None:
    """Whole or not at all."""
    partial = path.with_name(path.name + ".part")
    try:
        partial.touch(mode=0o600)
        partial.write_bytes(data)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def is_complete(case: Path) -> bool:
    try:
        return bool(json.loads((case / "case.json").read_bytes())["complete"])
    except (OSError, ValueError, KeyError) as error:
        raise BadCase(f"{case} is not a case: {error}", hint=f"ls {case}") from error


def is_being_written(case: Path) -> bool:
    return not is_complete(case) and _is_alive(json.loads((case / "case.json").read_bytes())["supervisor_pid"])


def remove_case(case: Path) -> None:
    import shutil

    shutil.rmtree(case, ignore_errors=True)


def prune_cases(cases_dir: Path) -> None:
    """Keeps the newest complete cases within the bounds. One that is still being written is never touched."""
    kept_bytes = 0
    for kept, case in enumerate(sorted(_finished_cases(cases_dir), reverse=True), start=1):
        kept_bytes += sum(file.lstat().st_size for file in case.iterdir())
        if kept > MOST_CASES or (kept > 1 and kept_bytes > MOST_BYTES):
            remove_case(case)


def _finished_cases(cases_dir: Path) -> Iterator[Path]:
    for marker in cases_dir.glob("*/case.json"):
        try:
            if not is_being_written(marker.parent):
                yield marker.parent
        except BadCase:
            continue


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
