"""What `harness openmp` and threadpoolctl see, each really asked about the same process or file.

A cell counts the copies that were named among those that are there; "yes" only for all of them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.capture.openmp.live_census import take_census
from harness.capture.openmp.wheels import read_wheels
from harness.errors import HarnessError
from harness.evidence.openmp import Census
from tests.bench import targets
from tests.bench.child import own_cache, record_of, start
from tests.bench.measure import HARNESS, PYTHON, environment, require
from tests.bench.table import Note, Plan, Row
from tests.builders.natives import build
from tests.builders.two_runtimes import Unavailable, find_runtime

NO_PEER = f"threadpoolctl: not measured; next: {sys.executable} -m pip install threadpoolctl"
_FLAG = "KMP_DUPLICATE_LIB_OK"


def measure_sight(plan: Plan) -> Iterator[Row | Note]:
    if importlib.util.find_spec("threadpoolctl") is None:
        yield Note(NO_PEER)
        return
    with tempfile.TemporaryDirectory(prefix="harness-bench-") as folder, own_cache():
        for situation in (_two_llvm, _two_gnu, _static, _renamed, _stripped, _waiting, _dead, _core, _record, _foreign):
            place = Path(folder, situation.__name__)
            place.mkdir()
            try:
                yield from situation(place)
            except Unavailable as reason:
                yield Note(f"{situation.__name__.strip('_')}: not tried: {reason}")


def _two_llvm(place: Path) -> Iterator[Row | Note]:
    copies = [_copy(find_runtime("llvm"), place / name / "libomp.so.5") for name in ("a", "b")]
    with start(targets.LOAD, *copies) as child:
        _require_loaded(child.read())
        before = take_census(child.pid)
        theirs = child.go_on()
        after = take_census(child.pid)
    yield _row("two libomp", copies, _images(before), theirs)
    running = [sum(runtime.initialised is True for runtime in census.runtimes) for census in (before, after)]
    doubtful = sum(runtime.initialised is None for runtime in after.runtimes)
    flags = ["set" if any(one.name == _FLAG for one in census.settings) else "not set" for census in (before, after)]
    yield Note(f"before threadpoolctl was asked: {_FLAG} {flags[0]}, {running[0]} copies initialised")
    yield Note(f"after: {_FLAG} {flags[1]} in the process, {running[1]} initialised, {doubtful} perhaps")


def _two_gnu(place: Path) -> Iterator[Row | Note]:
    copies = [_copy(_gnu(), place / name / "libgomp.so.1") for name in ("a", "b")]
    yield _ask("two libgomp", copies)


def _static(place: Path) -> Iterator[Row | Note]:
    archive = find_runtime("intel").with_suffix(".a")
    if shutil.which("gcc") is None or not archive.exists():
        raise Unavailable("needs gcc and libiomp5.a")
    (place / "static.c").write_text(targets.STATIC)
    library = place / "extension.so"
    words = ["-shared", "-fPIC", "-o", library, place / "static.c", archive, "-ldl", "-lpthread", "-lm", "-lstdc++"]
    subprocess.run(["gcc", *words, "-Wl,--exclude-libs,ALL"], check=True)
    yield _ask("a static copy inside another library", [library])


def _renamed(place: Path) -> Iterator[Row | Note]:
    for name, runtime in (("libomp", find_runtime("llvm")), ("libgomp", _gnu())):
        yield _ask(f"a renamed copy ({name})", [_copy(runtime, place / name / "harmless.so")])


def _stripped(place: Path) -> Iterator[Row | Note]:
    if shutil.which("strip") is None:
        raise Unavailable("needs strip")
    for what, name in (("a stripped copy", "libomp.so.5"), ("a stripped and renamed copy", "harmless.so")):
        copy = _copy(find_runtime("llvm"), place / name)
        subprocess.run(["strip", "--strip-all", "-R", ".comment", copy], check=True)
        yield _ask(what, [copy])


def _waiting(place: Path) -> Iterator[Row | Note]:
    """Seen means: that it is there, and that it has not initialised."""
    copy = _copy(find_runtime("llvm"), place / "libomp.so.5")
    with start(targets.LOAD, copy) as child:
        _require_loaded(child.read())
        before = _initialised(take_census(child.pid))
        theirs = child.go_on()
        after = _initialised(take_census(child.pid))
    ours = "yes" if before is False else f"no: initialised {before}"
    peer = "no: it initialises it" if after else "no"
    named = f"peer names the file: {_seen([copy], theirs)}"
    yield Row("sees that a copy has not yet initialised", ours, peer, named)


def _dead(place: Path) -> Iterator[Row | Note]:
    copies = [_copy(find_runtime("llvm"), place / name / "libomp.so.5") for name in ("a", "b")]
    with start(targets.LOAD, f"+{copies[0]}", copies[1]) as child:
        _require_loaded(child.read())
        child.kill()
        left = child.record.exists()
        try:
            ours, why = _images(take_census(child.pid)), ""
        except HarnessError as error:
            ours, why = [], str(error)
    yield _row("a dead process, by its pid", copies, ours, _ask_another())
    yield Note(f"harness: {why} Its record in /dev/shm {'was still there' if left else 'was gone'}")
    for what, end in (
        ("that ended itself (abort)", "os.abort()"),
        ("that was killed (SIGKILL)", "os.kill(os.getpid(), 9)"),
    ):
        program = f"import ctypes, os; held = [ctypes.CDLL(p) for p in {list(map(str, copies))!r}]"
        program += f"; held[0].omp_get_max_threads(); {end}"
        yield _row(f"a dead process {what}, watched", copies, _watch(program, place), _let_watch(program, place))
    yield Note("watched: `harness run -- python -c …`, and `python -m threadpoolctl -c …`")


def _core(place: Path) -> Iterator[Row | Note]:
    copies = [_copy(find_runtime("llvm"), place / "libomp.so.5")]
    program = f"import ctypes, os; held = ctypes.CDLL({str(copies[0])!r}); held.omp_get_max_threads(); os.abort()"
    command = ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "sh", PYTHON, "-c", program]
    process = subprocess.Popen(command, cwd=place, stderr=subprocess.DEVNULL, env=environment())
    process.wait()
    record_of(process.pid).unlink(missing_ok=True)
    core = next(place.glob("core*"), None)
    if core is None:
        raise Unavailable("no core was written here")
    asked = subprocess.run([*HARNESS, "openmp", core], capture_output=True, text=True, env=environment(), check=False)
    yield _row("a dead process, from its core", copies, _named(copies, asked.stdout), _ask_another())
    yield Note((asked.stdout + asked.stderr).strip().splitlines()[0])


def _record(place: Path) -> Iterator[Row | Note]:
    """Pids come back: the record that one process left has the name of another's."""
    copy = _copy(find_runtime("llvm"), place / "libomp.so.5")
    with start(targets.LOAD, f"+{copy}") as dead, start(targets.LOAD, copy) as child:
        _require_loaded(dead.read() + child.read())
        dead.kill()
        if not dead.record.exists():
            raise Unavailable("no record was left in /dev/shm")
        dead.record.rename(child.record)
        census = take_census(child.pid)
        told = json.dumps(child.go_on())
    ours = "yes" if any(str(child.record) in gap.why for gap in census.gaps) else "no"
    peer = "yes" if str(child.record) in told else "no"
    yield Row("sees a dead process's record under a living pid", ours, peer, "-")


def _foreign(place: Path) -> Iterator[Row | Note]:
    """Two wheels for macOS; threadpoolctl must load what it is to see."""
    files, wheels = [], []
    for name in ("first", "second"):
        wheel = place / f"{name}-1.0-cp313-cp313-macosx_14_0_arm64.whl"
        wheels.append(wheel)
        with zipfile.ZipFile(wheel, "w") as archive:
            for file in build("macho"):
                archive.write(file, f"{name}/{file.name}")
            archive.extractall(place)
        files.append(place / name / "libomp.dylib")
    ours = [place / runtime.place.image for runtime in read_wheels(wheels).runtimes]
    with start(targets.LOAD, *files) as child:
        failed = child.read()
        theirs = child.go_on()
    yield _row("two libomp in wheels for macOS", files, ours, theirs)
    yield Note(f"threadpoolctl has to load them: {failed[0].rpartition(': ')[2] if failed else 'they were loaded'}")


def _ask(what: str, copies: list[Path]) -> Row:
    with start(targets.LOAD, *copies) as child:
        _require_loaded(child.read())
        ours = _images(take_census(child.pid))
        return _row(what, copies, ours, child.go_on())


def _ask_another() -> list[str]:
    """threadpoolctl looks at its own process only."""
    with start(targets.LOAD) as child:
        child.read()
        return child.go_on()


def _watch(program: str, place: Path) -> list[str]:
    """What the case of the dead command has."""
    cases = place / "cases"
    shutil.rmtree(cases, ignore_errors=True)
    _end([*HARNESS, "run", "--cases", str(cases), "--", PYTHON, "-c", program])
    (evidence,) = cases.glob("*/evidence.json")
    document = json.loads(evidence.read_text())
    record_of(document["pid"]).unlink(missing_ok=True)
    crashes = [crash["openmp"] for crash in document["crashes"] if crash["openmp"]]
    return [runtime["place"]["image"] for census in crashes for runtime in census["runtimes"]]


def _let_watch(program: str, place: Path) -> list[Path]:
    said = _end([PYTHON, "-m", "threadpoolctl", "-c", program])
    return _named(place.glob("*/*.so*"), said)


def _end(command: list[str]) -> str:
    no_core = ["sh", "-c", 'ulimit -S -c 0; exec "$@"', "sh"]
    with subprocess.Popen(
        [*no_core, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
    ) as process:
        said = process.stdout.read()
    record_of(process.pid).unlink(missing_ok=True)
    status = process.returncode
    require(abs(status) % 128 in (signal.SIGABRT, signal.SIGKILL), f"{' '.join(command)[:120]}: status {status}")
    return said


def _row(what: str, copies: Iterable[Path], ours: Iterable[object], theirs: Iterable[object]) -> Row:
    return Row(f"sees {what}", _seen(copies, ours), _seen(copies, theirs), "-")


def _seen(copies: Iterable[Path], named: Iterable[object]) -> str:
    there = {str(path.resolve()) for path in copies}
    found = there & {os.path.realpath(str(path)) for path in named}
    return f"{'yes' if found == there else 'no'}: {len(found)} of {len(there)}"


def _named(copies: Iterable[Path], words: str) -> list[Path]:
    return [path for path in copies if str(path) in words]


def _images(census: Census) -> list[str]:
    return [runtime.place.image for runtime in census.runtimes]


def _initialised(census: Census) -> bool | None:
    (runtime,) = census.runtimes
    return runtime.initialised


def _require_loaded(failed: list[str]) -> None:
    require(not failed, f"could not be loaded: {failed}")


def _copy(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    return target


def _gnu() -> Path:
    torch = importlib.util.find_spec("torch")
    found = sorted(Path(torch.origin).parent.glob("lib/libgomp*")) if torch and torch.origin else []
    if not found:
        raise Unavailable("needs a torch with a libgomp of its own")
    return found[0]
