"""The census of a running process, against the process's own view, gdb, threadpoolctl and what was done on purpose."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.capture.files.formats.elf import Elf
from harness.capture.files.images import read_maps
from harness.capture.files.layout import _remember
from harness.capture.openmp.imports import Listed, read_listing
from harness.capture.openmp.live_census import complete, take_census
from harness.capture.openmp.live_images import Slot, look_while_held
from harness.capture.openmp.registration import remove_record
from harness.capture.openmp.variables import SET_SINCE, STARTED_WITH
from harness.errors import EXIT_COULD_NOT_LOOK, HarnessError
from harness.evidence.openmp import Census, Runtime
from harness.native import LIBRARY
from tests.builders.two_runtimes import Unavailable, find_runtime
from tests.live.processes import until

PROBE = Path(__file__).parents[2] / "probes/openmp.py"
READY = "\nimport json, sys\nprint(json.dumps(answer if 'answer' in dir() else None), flush=True)\nsys.stdin.read()\n"
# What the process says of itself: the probe's list, then threadpoolctl's.
ASK_ITSELF = f"""
import contextlib, io, sys
words, sys.argv = sys.argv, ["probe", {str(LIBRARY)!r}]
with contextlib.redirect_stdout(io.StringIO()) as said:
    exec(compile(open({str(PROBE)!r}).read(), "probe", "exec"), {{"__name__": "__main__"}})
import json, threadpoolctl
answer = [json.loads(said.getvalue()), threadpoolctl.threadpool_info()]
"""
CALLER = """
extern int omp_get_max_threads(void), omp_get_num_threads(void);
int touch(void) { return omp_get_max_threads() + omp_get_num_threads(); }
"""
NOBODY = 65534


def need_patients() -> None:
    """Without importing them: torch's libgomp would be in the way of every test that runs after this one."""
    if not (find_spec("torch") and find_spec("faiss")):
        pytest.skip("needs torch and faiss-cpu")


class Child:
    """A Python program that has said it is ready, with what it said."""

    def __init__(self, source: str, words: tuple[object, ...] = (), **options: Any) -> None:
        dropped = ("KMP_DUPLICATE_LIB_OK", "OMP_NUM_THREADS")
        options.setdefault("env", {name: value for name, value in os.environ.items() if name not in dropped})
        command = [sys.executable, "-c", source + READY, *map(str, words)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.pid = self.process.pid
        self.answer = json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        remove_record(self.pid)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def child() -> Iterator[Callable[..., Child]]:
    started: list[Child] = []

    def start(*arguments: Any, **options: Any) -> Child:
        started.append(Child(*arguments, **options))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture
def libomp() -> Path:
    try:
        return find_runtime("llvm")
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def caller(tmp_path: Path, libomp: Path) -> Path:
    """A library that calls the copy beside it."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    folder = tmp_path / "caller"
    folder.mkdir()
    (folder / "caller.c").write_text(CALLER)
    shutil.copy(libomp, folder / "libomp.so.5")
    library = folder / "caller.so"
    words = ["-shared", "-fPIC", "-o", library, folder / "caller.c", folder / "libomp.so.5", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(["gcc", *words], check=True)
    return library


@pytest.fixture(scope="module", params=["torch, faiss", "faiss, torch"])
def patients(request: pytest.FixtureRequest) -> Iterator[tuple[str, Child]]:
    need_patients()
    child = Child(f"import {request.param}\n{ASK_ITSELF}")
    yield request.param, child
    child.end()


def by_distribution(census: Census) -> dict[str | None, Runtime]:
    return {runtime.place.distribution: runtime for runtime in census.runtimes}


def by_name(census: Census) -> dict[str, Runtime]:
    return {Path(runtime.place.image).name: runtime for runtime in census.runtimes}


def bound_to(census: Census, caller: str) -> set[str | None]:
    """The base of what is called by the image of that file name."""
    (found,) = [one for one in census.callers if Path(one.place.image).name.startswith(caller)]
    return {binding.base for binding in found.bindings}


def slots_of(pid: int) -> dict[int, Slot]:
    return {slot.address: slot for seen in look_while_held(pid, read_maps(pid)).images for slot in seen.slots}


def names_beside(name: str, library: Path) -> set[str]:
    """All names of a function: libgomp has several for some, and gdb gives one of them."""
    with Elf(library) as elf:
        symbols = [symbol for symbol in elf.symbols((b"",)) if symbol.defined]
    (address,) = {symbol.address for symbol in symbols if symbol.name == name}
    return {symbol.name for symbol in symbols if symbol.address == address}


def test_two_libgomp_and_the_order_of_import_decides_who_calls_which(patients: tuple[str, Child]) -> None:
    order, child = patients
    census = take_census(child.pid)
    copies = by_distribution(census)

    assert set(copies) == {"torch", "faiss-cpu"}
    assert {runtime.family for runtime in census.runtimes} == {"gnu"}
    assert (census.subject, census.name, census.platform) == ("process", str(child.pid), "linux-x86_64")
    assert census.python == sys.version.split()[0]
    assert not census.gaps
    assert bound_to(census, "libtorch_cpu") == {copies["torch"].place.base}
    expected = "torch" if order.startswith("torch") else "faiss-cpu"
    assert bound_to(census, "libfaiss") == {copies[expected].place.base}


def test_outside_and_inside_agree(patients: tuple[str, Child]) -> None:
    _, child = patients
    inside = child.answer[0]
    seen_inside = {(name, slot, value) for _, name, slot, value in inside["calls"]}
    assert {(slot.name, slot.address, slot.value) for slot in slots_of(child.pid).values()} == seen_inside

    listed = complete(read_listing(msgspec.convert({**inside, "pid": child.pid}, Listed)))
    outside = take_census(child.pid)
    assert set(listed.callers) == set(outside.callers)  # one in the order of loading, the other by address
    assert {one.place for one in listed.runtimes} == {one.place for one in outside.runtimes}


def test_gdb_says_the_same(patients: tuple[str, Child]) -> None:
    gdb = shutil.which("gdb")
    if gdb is None:
        pytest.skip("needs gdb")
    _, child = patients
    places = {runtime.place.base: runtime.place.image for runtime in take_census(child.pid).runtimes}
    slots = [slot for slot in slots_of(child.pid).values() if slot.value][::9]
    assert len(slots) > 4
    words = [word for slot in slots for word in ("-ex", f"info symbol *(long*){slot.address:#x}")]
    command = [
        gdb,
        "-nx",
        "-batch",
        "-iex",
        "set auto-solib-add off",
        "-p",
        str(child.pid),
        "-ex",
        "sharedlibrary gomp",
    ]
    told = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, check=True).stdout
    answers = re.findall(r"^(\w+)(?: \+ \d+)? in section \.text of (/\S+)$", told, re.M)

    assert len(answers) == len(slots), told
    images = {image.base: image.end for image in look_while_held(child.pid, read_maps(child.pid)).images}
    for slot, (name, image) in zip(slots, answers, strict=True):
        assert slot.name in names_beside(name, Path(image))
        base = next(base for base, end in images.items() if base <= (slot.value or 0) < end)
        assert places[hex(base)] == str(Path(image).resolve())


def test_threadpoolctl_sees_no_library_that_the_census_does_not(patients: tuple[str, Child]) -> None:
    _, child = patients
    census = take_census(child.pid)
    theirs = {(one["user_api"], str(Path(one["filepath"]).resolve())): one for one in child.answer[1]}
    ours = {("openmp", runtime.place.image) for runtime in census.runtimes}
    ours |= {("blas", blas.place.image) for blas in census.blas if blas.kind == "openblas"}

    assert ours == set(theirs)
    for blas in census.blas:
        if blas.kind == "openblas":
            peer = theirs["blas", blas.place.image]
            assert (blas.threads, blas.threading) == (peer["num_threads"], peer["threading_layer"])
            assert peer["version"] in (blas.config or "")
    assert {blas.kind for blas in census.blas} == {"openblas", "mkl"}  # the static one inside libtorch_cpu


def test_gnu_threads_that_wait_tell_which_copy_has_started(child: Callable[..., Child]) -> None:
    """libgomp has no record; its threads spin for some milliseconds, then wait in a system call of its own."""
    need_patients()
    source = "import faiss, torch\ntorch.set_num_threads(2)\n(torch.ones(1 << 20) * 2).sum()"
    running = child(source)

    def started() -> set[str | None]:
        return {one.place.distribution for one in take_census(running.pid).runtimes if one.initialised}

    assert until(started, "no thread waits in libgomp") == {"torch"}


def test_a_second_look_from_memory_sees_the_same(patients: tuple[str, Child]) -> None:
    _, child = patients
    look_while_held(child.pid, read_maps(child.pid))
    remembered = look_while_held(child.pid, read_maps(child.pid))
    _remember.cache_clear()
    assert look_while_held(child.pid, read_maps(child.pid)).images == remembered.images


def test_the_copy_that_is_registered_is_named(child: Callable[..., Child], libomp: Path, tmp_path: Path) -> None:
    copies = [tmp_path / name for name in ("liba.so", "libb.so")]
    for copy in copies:
        shutil.copy(libomp, copy)
    source = "import ctypes, sys\nfirst, second = map(ctypes.CDLL, sys.argv[1:])\n"

    census = take_census(child(source, copies).pid)
    assert [runtime.family for runtime in census.runtimes] == ["llvm", "llvm"]
    assert {(runtime.registered, runtime.initialised) for runtime in census.runtimes} == {(False, False)}

    found = by_name(take_census(child(source + "second.omp_get_max_threads()", copies).pid))
    assert (found["libb.so"].registered, found["libb.so"].initialised) == (True, True)
    assert (found["liba.so"].registered, found["liba.so"].initialised) == (False, None)


def test_both_run_under_the_flag_and_one_is_registered(
    child: Callable[..., Child], libomp: Path, tmp_path: Path
) -> None:
    copies = [shutil.copy(libomp, tmp_path / name) for name in ("liba.so", "libb.so")]
    source = (
        "import ctypes, os, sys\nos.environ['KMP_DUPLICATE_LIB_OK'] = 'TRUE'\n"
        "for path in sys.argv[1:]: ctypes.CDLL(path).omp_get_max_threads()\n"
    )
    census = take_census(child(source, copies).pid)
    found = by_name(census)
    assert (found["liba.so"].registered, found["libb.so"].registered) == (True, False)
    assert found["libb.so"].initialised is None
    (flag,) = [setting for setting in census.settings if setting.name == "KMP_DUPLICATE_LIB_OK"]
    assert (flag.value, flag.source) == ("TRUE", SET_SINCE)


def test_settings_are_those_of_the_start_and_those_set_since(child: Callable[..., Child]) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "3", "KMP_BLOCKTIME": "0", "OMP_SECRET": "", "SECRET": "x"}
    source = "import os\nos.environ['MKL_NUM_THREADS'] = '2'\ndel os.environ['KMP_BLOCKTIME']"
    settings = {one.name: (one.value, one.source) for one in take_census(child(source, env=env).pid).settings}
    assert settings["OMP_NUM_THREADS"] == ("3", STARTED_WITH)
    assert settings["MKL_NUM_THREADS"] == ("2", SET_SINCE)
    assert "KMP_BLOCKTIME" not in settings and "SECRET" not in settings


def test_a_renamed_and_stripped_copy_is_known(child: Callable[..., Child], libomp: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.so"
    subprocess.run(["strip", "-o", plain, libomp], check=True)
    found = by_name(take_census(child("import ctypes, sys\nctypes.CDLL(sys.argv[1])", [plain]).pid))
    assert found["plain.so"].family == "llvm"
    assert not found["plain.so"].static


def test_a_static_copy_registers_beside_a_dynamic_one(
    child: Callable[..., Child], libomp: Path, tmp_path: Path
) -> None:
    """One in the environment, the other in shared memory: they do not see each other, and both run."""
    archive = Path(sys.prefix, "lib", "libiomp5.a")
    if shutil.which("gcc") is None or not archive.exists():
        pytest.skip("needs gcc and the intel-openmp wheel")
    (tmp_path / "caller.c").write_text(CALLER)
    holder = tmp_path / "holder.so"
    words = ["-shared", "-fPIC", "-o", holder, tmp_path / "caller.c", archive, "-ldl", "-lpthread", "-lm", "-lstdc++"]
    subprocess.run(["gcc", *words], check=True)
    source = "import ctypes, sys\nctypes.CDLL(sys.argv[1]).touch()\nctypes.CDLL(sys.argv[2]).omp_get_max_threads()"
    census = take_census(child(source, [holder, libomp]).pid)
    found = by_name(census)
    assert (found["holder.so"].family, found["holder.so"].static) == ("intel", True)
    assert {runtime.registered for runtime in census.runtimes} == {True}
    assert not census.callers  # it calls what it has inside


def test_the_same_file_loaded_twice_is_two_copies(child: Callable[..., Child], libomp: Path) -> None:
    source = """
import ctypes, os, sys
first = ctypes.CDLL(sys.argv[1])
new_namespace = ctypes.c_long(-1)
assert ctypes.CDLL(None).dlmopen(new_namespace, os.fsencode(sys.argv[1]), 2)
first.omp_get_max_threads()
"""
    census = take_census(child(source, [libomp]).pid)
    assert [runtime.place.image for runtime in census.runtimes] == [str(libomp)] * 2
    assert sorted(runtime.registered is True for runtime in census.runtimes) == [False, True]


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_what_was_deleted_is_read_from_memory(child: Callable[..., Child], caller: Path, how: str) -> None:
    running = child("import ctypes, sys\nctypes.CDLL(sys.argv[1]).touch()", [caller])
    before = take_census(running.pid)
    for file in (caller, caller.with_name("libomp.so.5")):
        file.unlink()
        if how == "replaced":
            shutil.copy(sys.executable, file)
    after = take_census(running.pid)

    (runtime,) = after.runtimes
    assert (runtime.place.deleted, runtime.family, runtime.registered) == (True, "llvm", True)
    assert runtime.version == before.runtimes[0].version
    assert [one.bindings for one in after.callers] == [one.bindings for one in before.callers]
    assert all(one.place.deleted for one in after.callers)
    assert {gap.what.rpartition("/")[2] for gap in after.gaps} == {"libomp.so.5", "caller.so"}


def test_a_record_left_by_an_earlier_process_is_not_believed(
    child: Callable[..., Child], libomp: Path, tmp_path: Path
) -> None:
    running = child("import ctypes, sys\nctypes.CDLL(sys.argv[1])", [libomp])
    (seen,) = [one for one in look_while_held(running.pid, read_maps(running.pid)).images if "libomp" in one.image.path]
    record = Path(f"/dev/shm/__KMP_REGISTERED_LIB_{running.pid}_{os.getuid()}")
    record.write_bytes(b"%#x-cafe1234-libomp.so.5\0" % (seen.end - 64))
    try:
        census = take_census(running.pid)
    finally:
        record.unlink()
    assert census.runtimes[0].registered is False
    (gap,) = census.gaps
    assert str(record) in gap.why and gap.fix == f"rm {record}"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")
def test_root_sees_another_users_process(child: Callable[..., Child], libomp: Path) -> None:
    source = f"import ctypes, json, os, sys\nos.setuid({NOBODY})\nctypes.CDLL(sys.argv[1]).omp_get_max_threads()"
    running = child(source, [libomp])
    try:
        (runtime,) = take_census(running.pid).runtimes
        assert runtime.registered is True
    finally:
        Path(f"/dev/shm/__KMP_REGISTERED_LIB_{running.pid}_{NOBODY}").unlink(missing_ok=True)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")
def test_another_user_is_told_what_to_do() -> None:
    take_census(os.getpid())  # everything that is imported late is there before the rights are gone
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            take_census(os.getppid())
            words = "it could look"
        except HarnessError as error:
            words = f"{error.exit_code}\n{error}\n{error.hint}"
        os.write(writing, words.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        status, message, hint = answer.read().split("\n")
    os.waitpid(pid, 0)
    assert status == str(EXIT_COULD_NOT_LOOK)
    assert message == f"Process {os.getpid()} belongs to another user, or may not be traced."
    assert hint == f"sudo harness openmp {os.getpid()}"


def test_a_process_that_is_gone(child: Callable[..., Child]) -> None:
    running = child("")
    running.process.kill()
    os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(HarnessError, match="has no memory: it has ended") as zombie:
        take_census(running.pid)
    running.process.wait()
    with pytest.raises(HarnessError, match="There is no process") as gone:
        take_census(running.pid)
    assert {zombie.value.exit_code, gone.value.exit_code} == {EXIT_COULD_NOT_LOOK}
    assert zombie.value.hint == gone.value.hint == "harness ps"


def test_a_process_among_other_files(child: Callable[..., Child], caller: Path, tmp_path: Path) -> None:
    """As in a container: the library is where only the process sees it, and so is the record."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    inner = f"mount -t tmpfs none {hidden} && cp {caller.parent}/* {hidden} && mount -t tmpfs none /dev/shm && exec"
    source = "import ctypes, sys\nctypes.CDLL(sys.argv[1]).touch()"
    program = [sys.executable, "-c", source + READY, str(hidden / caller.name)]
    command = ["unshare", "-m", "sh", "-c", f'{inner} "$@"', "sh", *program]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with process:
        if not process.stdout.readline():
            pytest.skip("needs the right to make a mount namespace")
        census = take_census(process.pid)
        process.kill()
    assert not (hidden / caller.name).exists()
    (runtime,) = census.runtimes
    assert runtime.place.image == str(hidden / "libomp.so.5")
    assert (runtime.family, runtime.registered, runtime.place.deleted) == ("llvm", True, False)
    (one,) = census.callers
    assert {(binding.state, binding.runtime) for binding in one.bindings} == {("bound", runtime.place.image)}
    assert census.python == sys.version.split()[0]


def test_without_the_right_to_read_memory_the_rest_is_still_told(
    child: Callable[..., Child], caller: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under Yama's ptrace_scope 1, where the mappings may be read and the memory may not."""
    running = child("import ctypes, sys\nctypes.CDLL(sys.argv[1]).touch()", [caller])
    real_open = os.open

    def refuse(path: Any, *rest: Any, **options: Any) -> int:
        if str(path).endswith("/mem"):
            raise PermissionError(13, "Permission denied")
        return real_open(path, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    census = take_census(running.pid)
    (runtime,) = census.runtimes
    assert (runtime.family, runtime.registered, runtime.initialised) == ("llvm", None, None)
    assert [binding.state for one in census.callers for binding in one.bindings] == ["linked"]
    assert any(gap.what == "what the OpenMP calls are bound to" for gap in census.gaps)
