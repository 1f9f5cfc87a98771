"""The wheels that a requirements file means on another platform, fetched by pip into a cache and never installed.

One call of pip for each requirement, so that one that has no wheel there does not hide the others. Resolves nothing
beyond what the file names: `pip freeze` names everything. What is in the wheels is the business of wheels.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from harness.capture.machine.trust import read_safe_path
from harness.capture.openmp.platform_tags import Target, list_tags, marker_environment
from harness.capture.openmp.requirements import read_requirements
from harness.errors import HarnessError, Unreadable
from harness.evidence.gap import Gap
from harness.evidence.text.answers import decode_json

_DEADLINE_S = 1800  # a build of torch for CUDA has 900 MB
_STALE_S = 24 * 3600  # of an answer that a later release can change


_ABSENT = "absent.txt"
# pip's own words, 23.2 and 25.0: "… the requirement numpy==2.0.2 (from versions: 2.1.0, 2.1.1)".
_VERSIONS = re.compile(r"^ERROR: Could not find a version .*\(from versions: (.*)\)$", re.M)
_UNREACHABLE = re.compile(r"Retrying \(Retry\(|NewConnectionError|Max retries exceeded|Temporary failure in name")
_NO_PIP = re.compile(r"No module named '?pip'?")
_MARKERS = """
import json, sys
from pip._vendor.packaging.requirements import Requirement
lines, environment = json.load(sys.stdin)
answer = []
for line in lines:
    requirement = Requirement(line)
    applies = requirement.marker is None or requirement.marker.evaluate({**environment, "extra": ""})
    requirement.marker = None
    answer.append([str(requirement), applies])
json.dump(answer, sys.stdout)
"""


class Fetched(NamedTuple):
    wheels: list[Path]
    absent: tuple[str, ...]
    gaps: tuple[Gap, ...]


def fetch_wheels(
    requirements: Path,
    target: Target,
    *,
    cache: Path | None = None,
    python: str = sys.executable,
    tell: Callable[[str], None] = lambda text: None,
) -> Fetched:
    """`python`: whose pip. `tell` gets the requirement before it is downloaded, which can take minutes."""
    cache = cache or _default_cache()
    asked = read_requirements(requirements)
    wheels: list[Path] = []
    absent: list[str] = []
    for line in _drop_other_platforms(asked.lines, target, python):
        entry = cache / _key(line, asked.options, target)
        if not _is_valid(entry, line):
            tell(line)
            _download(line, asked.options, target, entry, python)
        wheels += sorted(entry.glob("*.whl"))
        if (entry / _ABSENT).exists():
            absent.append((entry / _ABSENT).read_text())
    return Fetched(wheels, tuple(absent), tuple(asked.gaps))


def _drop_other_platforms(lines: list[str], target: Target, python: str) -> list[str]:
    """pip judges `; sys_platform == "darwin"` by the machine it runs on; its own packaging library can do better."""
    if not any(";" in line for line in lines):
        return lines
    question = json.dumps([lines, marker_environment(target)])
    command = [python, "-I", "-c", _MARKERS]
    try:
        done = subprocess.run(command, input=question, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HarnessError(f"cannot run pip: {error}", hint=f"{python} -m pip --version") from None
    if done.returncode:
        raise _pip_failed("the requirements cannot be read", done.stderr, python)
    try:
        return [line for line, applies in decode_json(done.stdout.encode(), list[tuple[str, bool]]) if applies]
    except Unreadable as error:
        raise HarnessError(f"cannot use pip: {error}", hint=f"{python} -m pip --version") from error


# --- the cache, and pip -----------------------------------------------------------------------------------------------


def _default_cache() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("harness")) / "wheels"


def _key(line: str, options: list[str], target: Target) -> str:
    indexes = [os.environ.get(name, "") for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")]
    text = json.dumps([line, options, *target, indexes])
    name = re.sub(r"[^\w.=-]+", "_", line)[:60]
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _is_valid(entry: Path, line: str) -> bool:
    """An exact version stays what it is. Anything else, and an absence, is asked again after a day."""
    if not entry.is_dir():
        return False
    exact = re.search(r"===?\s*[\w.+!-]+$", line) and any(entry.glob("*.whl"))
    return bool(exact) or time.time() - entry.stat().st_mtime < _STALE_S


def _download(line: str, options: list[str], target: Target, entry: Path, python: str) -> None:
    """Into a directory of its own that gets its name when it is complete."""
    with _new_directory(entry.parent) as made:
        new = Path(made)
        listing = new / "requirements.txt"
        listing.write_text("\n".join([*options, line]) + "\n")
        done = _run_pip(_pip_command(python, listing, new, target))
        listing.unlink()
        if done.returncode:
            (new / _ABSENT).write_text(_describe_absence(line, target, done, python))
        elif not any(new.glob("*.whl")):
            raise _pip_failed(f"pip has fetched nothing for {line}", done.stderr or done.stdout, python)
        _take_place(new, entry)


def _new_directory(cache: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        return tempfile.TemporaryDirectory(prefix=".new-", dir=cache, ignore_cleanup_errors=True)
    except OSError as error:
        raise HarnessError(f"cannot keep wheels in {cache}: {error.strerror}", hint="set XDG_CACHE_HOME") from None


def _take_place(new: Path, entry: Path) -> None:
    shutil.rmtree(entry, ignore_errors=True)
    try:
        new.rename(entry)
    except OSError:
        if not entry.is_dir():  # else another harness was quicker
            raise


def _pip_command(python: str, listing: Path, where: Path, target: Target) -> list[str]:
    minor = target.python.replace(".", "")
    words = [python, "-I", "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps"]
    words += ["--only-binary=:all:", "--retries", "2", "--dest", str(where), "--requirement", str(listing)]
    words += ["--python-version", target.python, "--implementation", "cp"]
    for abi in (f"cp{minor}", "abi3", "none"):
        words += ["--abi", abi]
    for tag in list_tags(target.platform):
        words += ["--platform", tag]
    return words


def _run_pip(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Isolated, because -m alone would import from the working directory first; and it asks rustc for its version."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "PATH": read_safe_path()}
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_DEADLINE_S,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HarnessError(f"cannot run pip: {error}", hint=f"{command[0]} -m pip --version") from None


def _describe_absence(line: str, target: Target, done: subprocess.CompletedProcess[str], python: str) -> str:
    """One sentence, when pip knows other versions that have a wheel for this platform; else it is an error."""
    known = _VERSIONS.search(done.stderr)
    if known is None or known[1] in ("none", "") or _UNREACHABLE.search(done.stderr):
        raise _pip_failed(f"{line} cannot be fetched", done.stderr, python)
    versions = [version for version in known[1].split(", ") if not re.search(r"a|b|rc|dev", version)]
    span = f"{versions[0]} to {versions[-1]}" if len(versions) > 1 else "".join(versions) or known[1]
    where = f"Python {target.python} (cp{target.python.replace('.', '')}) on {target.platform}"
    return f"{line}: no wheel for {where}; other versions have one: {span}"


def _pip_failed(what: str, stderr: str, python: str) -> HarnessError:
    """With pip's last words."""
    if _NO_PIP.search(stderr):
        return HarnessError(f"{python} has no pip", hint=f"{python} -m ensurepip")
    lines = [line for line in stderr.splitlines() if line.strip()]
    last = re.sub(r"^ERROR: ", "", lines[-1]) if lines else "pip said nothing"
    if _UNREACHABLE.search(stderr):
        return HarnessError(f"{what}: an index was not reachable ({last})", hint="harness openmp --wheels DIR")
    return HarnessError(f"{what}: {last}", hint="pip index versions NAME shows what there is")
