"""What really happens when modules are imported in each order: which runtimes are loaded, bound and initialised.

Each order runs in a child of the interpreter that was asked about; probes/openmp.py imports, then uses every module for
a moment, and waits after each step until it has been looked at. A child that aborts is an answer, not a failure of
ours. Nothing is imported here, and no setting is changed, but for one further child where two copies can run side by
side (KMP_DUPLICATE_LIB_OK): only KMP_VERSION tells then how many have initialised, and it may not touch the others.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import resource
import select
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from harness.capture.files.images import read_maps
from harness.capture.files.interpreter import ask_importing
from harness.capture.machine.payload import payload
from harness.capture.machine.trust import check_imports
from harness.capture.openmp.live_census import complete
from harness.capture.openmp.live_images import RECORD, Seen, Sighting, Slot, look_while_held
from harness.capture.openmp.registration import remove_record
from harness.capture.proc import read_state
from harness.errors import HarnessError, NotOurs, Unreadable
from harness.evidence.crash import Image
from harness.evidence.gap import Gap
from harness.evidence.openmp import Census, Runtime, Step
from harness.evidence.run import name_signal
from harness.evidence.text.answers import decode_json
from harness.native import LIBRARY

DEADLINE_S = 120.0
_MOST_PERMUTED = 3
_BANNER = re.compile(rb"^(?:LLVM|Intel\(R\)) OMP version: ", re.M)
_LAST_WORDS = re.compile(rb"^(?:OMP: Error #15.*|Assertion failure .*|.*\blibgomp: .*)$", re.M)
_MOST_WORDS = 1 << 20
_MOST_LINE = 16 << 20
_POLL_S = 0.5
_REST_S = 0.5


class Raised(Struct, frozen=True):
    """What an import or a first use has ended with. `missing`: the module that there is not."""

    type: str
    text: str
    missing: str | None = None


class Listed(Struct, frozen=True):
    """What a child says of itself: images with base and size, calls with image, name, slot and value."""

    pid: int
    python: str
    platform: str
    images: tuple[tuple[str, int, int], ...]
    calls: tuple[tuple[int, str, int, int], ...]
    error: str | None = None


class Told(Struct, frozen=True):
    """One line of a child's report."""

    step: Literal["start", "import", "use"]
    module: str | None
    error: Raised | None
    seen: Listed


class Walk(NamedTuple):
    """One child, from its first import to its end. `ended` null: it did all it was asked to."""

    told: list[Told]
    looks: list[Census]
    ended: str | None
    words: str | None
    banners: int
    late: bool


def take_import_censuses(python: str, modules: Sequence[str], deadline_s: float = DEADLINE_S) -> list[Census]:
    """One for each order of the modules that exist. HarnessError: the interpreter does not start, or may not."""
    if os.geteuid() == 0:
        _check_python(python)
    censuses: dict[tuple[str, ...], Census] = {}
    missing: set[str] = set()
    for order in list_orders(modules):
        left = tuple(module for module in order if module not in missing)
        if left in censuses:
            continue
        walk = _walk(python, left, deadline_s)
        missing |= {step.module for step in walk.told if step.module and _is_missing(step)}
        left = tuple(module for module in left if module not in missing)
        censuses[left] = _assemble(python, left, walk, deadline_s)
    absent = tuple(f"There is no module {module}." for module in modules if module in missing)
    return [replace(census, absent=absent) for census in censuses.values()]


def _check_python(python: str) -> None:
    if not Path(python).exists():
        raise HarnessError(f"{python} cannot be started: there is no such file.", hint=f"{python} --version")
    try:
        ask_importing(python)
    except NotOurs:
        raise
    except HarnessError as error:
        raise HarnessError(f"{python} does not run: {error}", hint=error.hint) from error


def list_orders(modules: Sequence[str]) -> list[tuple[str, ...]]:
    """Every order of up to three modules; of more, as given and the other way round."""
    unique = tuple(dict.fromkeys(modules))
    if len(unique) <= _MOST_PERMUTED:
        return list(itertools.permutations(unique))
    return [unique, unique[::-1]]


def _assemble(python: str, order: tuple[str, ...], walk: Walk, deadline_s: float) -> Census:
    last = walk.looks[-1] if walk.looks else Census("imports", python, None, sysconfig.get_platform(), 0, (), (), ())
    census = replace(last, subject="imports", name=python, order=order)
    if walk.told:
        census = replace(census, python=walk.told[-1].seen.python, platform=walk.told[-1].seen.platform)
    if _needs_count(census):
        census = _count_initialised(census, _walk(python, order, deadline_s, KMP_VERSION="1").banners)
    gaps = (*census.gaps, *_list_gaps(walk, order, deadline_s))
    if why := _why_not_from_here():
        gaps += (Gap("modules of the working directory", f"nothing is imported from it: {why}", "cd ~"),)
    return replace(census, gaps=gaps, steps=tuple(_list_steps(walk, order)))


def _why_not_from_here() -> str | None:
    """Where we were started is first on the path of what is given by -c."""
    try:
        return check_imports([Path.cwd()], deep=False)
    except OSError as error:
        return f"it is gone: {error.strerror}"


def _walk(python: str, order: tuple[str, ...], deadline_s: float, **settings: str) -> Walk:
    """Runs one child. It is ended by us at the deadline only."""
    until = time.monotonic() + deadline_s
    told: list[Told] = []
    looks: list[Census] = []
    with tempfile.TemporaryFile() as output, _start(python, order, output.fileno(), settings) as child:
        for line in _read_lines(child, until):
            told.append(_read_step(python, line, child.process.pid))
            looks.append(complete(_look(told[-1].seen)))
            with contextlib.suppress(OSError):  # it may be dead already
                os.write(child.gate, b"\n")
        late = time.monotonic() >= until
        status = child.end(0 if late else until - time.monotonic())
        output.seek(max(0, output.seek(0, os.SEEK_END) - _MOST_WORDS))
        words = output.read()
    ended = None if late or status == 0 else _describe(status)
    if not told and not late:
        last = words.decode(errors="replace").strip().rpartition("\n")[2] or _describe(status)
        raise HarnessError(f"{python} does not run: {last}.", hint=f"{python} --version")
    return Walk(told, looks, ended, _find_words(words) if ended else None, len(_BANNER.findall(words)), late)


def _read_step(python: str, line: bytes, child: int) -> Told:
    """A module that is imported could write there as well; what then comes is not to be believed."""
    try:
        return read_report(line, child)
    except Unreadable as error:
        raise HarnessError(
            f"What {python} reports of the imports is no report, so a module may have written there: {error}.",
            hint=f"harness openmp --python {python}",
        ) from error


def read_report(line: bytes, child: int) -> Told:
    """Of `child`, or of a process that it has started. Unreadable."""
    told = decode_json(line, Told, _MOST_LINE)
    if told.seen.pid != child and not _is_below(told.seen.pid, child):
        raise Unreadable(f"it speaks of process {told.seen.pid}, which is none of its own")
    if any(not 0 <= image < len(told.seen.images) for image, *_ in told.seen.calls):
        raise Unreadable("it names an image that it has not listed")
    return told


def _is_below(pid: int, leader: int) -> bool:
    """By the session, which is the child's own."""
    try:
        return pid > 0 and os.getsid(pid) == leader
    except (OSError, OverflowError):
        return False


class _Child:
    def __init__(self, process: subprocess.Popen[bytes], report: int, gate: int) -> None:
        self.process, self.report, self.gate = process, report, gate

    def end(self, patience_s: float) -> int:
        try:
            return self.process.wait(max(patience_s, 0))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # a session of its own: nobody else is in it
            return self.process.wait()


@contextlib.contextmanager
def _start(python: str, order: tuple[str, ...], output: int, settings: dict[str, str]) -> Iterator[_Child]:
    report, its_report = os.pipe()
    its_gate, gate = os.pipe()
    source = payload("probes/openmp.py").read_text()  # by -c: a script's folder would come first on its path
    if _why_not_from_here():
        source = f"import sys; sys.path[:] = filter(None, sys.path)\n{source}"
    command = [python, "-c", source, str(LIBRARY), str(its_report), str(its_gate), *order]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HARNESS_")}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment | settings,
            pass_fds=(its_report, its_gate),
            start_new_session=True,
            preexec_fn=_leave_no_core,
        )
    except OSError as error:
        os.close(report)
        os.close(gate)
        raise HarnessError(f"{python} cannot be started: {error.strerror}.", hint=f"{python} --version") from error
    finally:
        os.close(its_report)
        os.close(its_gate)
    child = _Child(process, report, gate)
    try:
        yield child
    finally:
        child.end(0)
        remove_record(process.pid)
        os.close(report)
        os.close(gate)


def _leave_no_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _read_lines(child: _Child, until: float) -> Iterator[bytes]:
    """Until it has closed its end or is dead, whoever else has that end open, or the time is over."""
    rest = b""
    while (left_s := until - time.monotonic()) > 0:
        dead = child.process.poll() is not None
        if not select.select([child.report], [], [], 0 if dead else min(left_s, _POLL_S))[0]:
            if dead:
                return
            continue
        data = os.read(child.report, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
        if len(rest) > _MOST_LINE:
            yield rest  # which nobody takes for a line


def _look(seen: Listed) -> Sighting:
    """From outside where there is /proc, else what the child has listed itself."""
    pid = seen.pid
    try:
        _await_rest(pid)
        return look_while_held(pid, read_maps(pid))
    except OSError:
        return read_listing(seen)


def _await_rest(pid: int) -> None:
    """Until no thread runs any more: libgomp's spin for some milliseconds before they wait where they can be seen."""
    until = time.monotonic() + _REST_S
    while time.monotonic() < until:
        states = [read_state(pid, int(name)) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 (OSError: gone)
        if "R" not in states:
            return
        time.sleep(0.005)


def read_listing(seen: Listed) -> Sighting:
    """What probes/openmp.py lists from inside, as if it had been seen from outside."""
    images = [
        Seen(Image(os.path.realpath(path), hex(base), hex(base + size)), base, base + size, replaced=False)
        for path, base, size in seen.images
        if _exists(path)  # not so for what macOS has in its shared cache, and for the vDSO
    ]
    slots: dict[int, list[Slot]] = {}
    for image, name, address, value in seen.calls:
        slots.setdefault(seen.images[image][1], []).append(Slot(name, address, value))
    gaps = [Gap(RECORD, "cannot be read on this system")]
    if seen.error is not None:
        gaps.append(Gap("loaded images", seen.error))
    return Sighting(
        pid=seen.pid,
        images=tuple(image._replace(slots=tuple(slots.get(image.base, ()))) for image in images),
        executable=images[0].image.path if images else None,
        root="",
        records=(),
        waiting=(),
        settings=(),
        gaps=tuple(gaps),
        seconds=0.0,
    )


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # no path at all
        return False


def _describe(status: int) -> str:
    return name_signal(-status) if status < 0 else f"exit status {status}"


def _find_words(output: bytes) -> str | None:
    match = _LAST_WORDS.search(output)
    text = match[0] if match else output.strip().rpartition(b"\n")[2]
    return text.decode(errors="replace") or None


def _needs_count(census: Census) -> bool:
    copies = _registering(census)
    return len(copies) > 1 and any(copy.initialised is None for copy in copies)


def _registering(census: Census) -> list[Runtime]:
    return [copy for copy in census.runtimes if copy.family in ("llvm", "intel")]


def _count_initialised(census: Census, banners: int) -> Census:
    """Each copy that initialises prints one banner: all did, or no more than those that are known to have."""
    copies = _registering(census)
    known = sum(1 for copy in copies if copy.initialised)
    if banners not in (known, len(copies)):
        return census
    everyone = banners == len(copies)
    runtimes = tuple(
        replace(copy, initialised=everyone) if copy in copies and copy.initialised is None else copy
        for copy in census.runtimes
    )
    return replace(census, runtimes=runtimes)


def _is_missing(step: Told) -> bool:
    missing = step.error is not None and step.error.type == "ModuleNotFoundError"
    return bool(missing and step.error and f"{step.module}.".startswith(f"{step.error.missing}."))


def _list_gaps(walk: Walk, order: tuple[str, ...], deadline_s: float) -> Iterator[Gap]:
    for step in walk.told:
        error = step.error
        if error is None or _is_missing(step):
            continue
        what = f"{'import' if step.step == 'import' else 'first use'} of {step.module}"
        if error.type == "Unknown":
            yield Gap(what, "no small operation of it is known here, so only its import was seen")
        else:
            yield Gap(what, f"{error.type}: {error.text}")
    if walk.late:
        yield Gap(f"import of {', '.join(order)}", f"was not over within {deadline_s:.0f} s")


def _list_steps(walk: Walk, order: tuple[str, ...]) -> Iterator[Step]:
    for told, look in zip(walk.told, walk.looks, strict=True):
        if told.step != "start" and told.module is not None and told.error is None:
            loaded = tuple(copy.place.image for copy in look.runtimes)
            initialised = tuple(copy.place.image for copy in look.runtimes if copy.initialised)
            yield Step(told.step, told.module, loaded, initialised)
    if walk.ended:
        kind, module = _find_next(walk.told, order)
        yield Step(kind, module, ended=walk.ended, words=walk.words)


def _find_next(told: list[Told], order: tuple[str, ...]) -> tuple[Any, str]:
    """The step that comes after these: the one that the child died in."""
    imports = [step for step in told if step.step == "import" and not _is_missing(step)]
    if len(imports) < len(order):
        return "import", order[len(imports)]
    imported = [step.module for step in imports if step.module and step.error is None]
    used = sum(step.step == "use" for step in told)
    return "use", (*imported, order[-1])[min(used, len(imported))]
