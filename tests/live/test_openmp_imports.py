"""What importing does, order by order: torch and faiss with two LLVM runtimes, and small modules that misbehave."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.capture.openmp.imports import list_orders, take_import_censuses
from harness.errors import HarnessError
from harness.evidence.openmp import Census
from tests.builders.two_runtimes import Unavailable, find_runtime, make_environment

LOAD = "import ctypes\nlibrary = ctypes.CDLL({path!r})\n"
START = LOAD + "library.omp_get_max_threads()\n"

Modules = Callable[..., None]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Modules:
    """Writes modules that the child finds; `{path!r}` in them is a copy of LLVM's runtime of their own."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.delenv("KMP_DUPLICATE_LIB_OK", raising=False)

    def write(**sources: str) -> None:
        for name, source in sources.items():
            copy = folder / f"lib{name}.so"
            if "{path!r}" in source:
                try:
                    shutil.copy(find_runtime("llvm"), copy)
                except Unavailable as reason:
                    pytest.skip(str(reason))
            (folder / f"{name}.py").write_text(source.replace("{path!r}", repr(str(copy))))

    return write


def take(*names: str, deadline_s: float = 30) -> list[Census]:
    return take_import_censuses(sys.executable, names, deadline_s)


def names(paths: tuple[str, ...]) -> list[str]:
    return sorted(Path(path).name for path in paths)


def test_orders() -> None:
    assert list_orders(["a"]) == [("a",)]
    assert list_orders(["a", "b", "a"]) == [("a", "b"), ("b", "a")]
    assert len(list_orders(["a", "b", "c"])) == 6
    assert list_orders(["a", "b", "c", "d"]) == [("a", "b", "c", "d"), ("d", "c", "b", "a")]


def test_torch_and_faiss_with_two_runtimes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KMP_DUPLICATE_LIB_OK", raising=False)
    try:
        environment = make_environment(tmp_path / "venv")
    except Unavailable as reason:
        pytest.skip(str(reason))
    torch, faiss = str(environment.copies["torch"]), str(environment.copies["faiss"])
    torch_first, faiss_first = take_import_censuses(str(environment.python), ["torch", "faiss"])

    assert torch_first.order == ("torch", "faiss")
    assert {runtime.place.image: runtime.initialised for runtime in torch_first.runtimes} == {torch: True, faiss: False}
    assert {binding.runtime for one in torch_first.callers for binding in one.bindings} == {torch}
    assert [(step.kind, step.module, step.ended) for step in torch_first.steps] == [
        ("import", "torch", None),
        ("import", "faiss", None),
        ("use", "torch", None),
        ("use", "faiss", None),
    ]
    (of_faiss,) = [one for one in faiss_first.callers if one.place.image.endswith("/libfaiss.so")]
    assert {binding.runtime for binding in of_faiss.bindings} == {faiss}
    last = faiss_first.steps[-1]
    assert (last.ended, last.module) == ("SIGABRT", "faiss")
    assert "OMP: Error #15" in (last.words or "")
    assert faiss_first.subject == "imports" and faiss_first.python == sys.version.split()[0]


def test_loading_is_not_initialising(modules: Modules) -> None:
    modules(first=LOAD, second=START)
    for census in take("first", "second"):
        assert {step.module: names(step.initialised) for step in census.steps} == {
            "first": [] if census.order[0] == "first" else ["libsecond.so"],
            "second": ["libsecond.so"],
        }
        assert {names((one.place.image,))[0]: one.initialised for one in census.runtimes} == {
            "libfirst.so": False,
            "libsecond.so": True,
        }
        assert {gap.what for gap in census.gaps} == {"first use of first", "first use of second"}


def test_an_abort_while_importing_is_an_answer(modules: Modules, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    say_pid = f"import os\nwith open({str(pids)!r}, 'a') as file: file.write(str(os.getpid()) + chr(10))\n"
    modules(first=say_pid + START, second=say_pid + START)
    for census in take("first", "second"):
        died_in = census.order[1]
        assert [(step.module, step.ended) for step in census.steps] == [(census.order[0], None), (died_in, "SIGABRT")]
        assert "Error #15" in (census.steps[-1].words or "")
        (runtime,) = census.runtimes  # of the last look: the second was never seen
        assert runtime.registered is True
    died = set(pids.read_text().split())
    assert len(died) == 2
    for pid in died:  # the dead leave a record, we take it away
        assert not list(Path("/dev/shm").glob(f"__KMP_REGISTERED_LIB_{pid}_*"))


def test_under_the_flag_the_banners_tell_that_both_have_initialised(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules(first=START, second=START)
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "TRUE")
    census = take("first", "second")[0]
    assert [one.initialised for one in census.runtimes] == [True, True]
    assert sorted(one.registered is True for one in census.runtimes) == [False, True]
    assert "KMP_VERSION" not in {setting.name for setting in census.settings}


def test_a_module_that_does_not_exist_and_one_that_raises(modules: Modules) -> None:
    modules(first=START, second="raise RuntimeError('not today')", third="import nowhere_at_all")
    censuses = take("first", "second", "nosuch")
    assert {census.order for census in censuses} == {("first", "second"), ("second", "first")}
    for census in censuses:
        assert census.absent == ("There is no module nosuch.",)
        assert ("import of second", "RuntimeError: not today") in {(gap.what, gap.why) for gap in census.gaps}
        assert [step.module for step in census.steps if step.kind == "import"] == ["first"]
        assert len(census.runtimes) == 1
    (broken,) = take("third")
    assert not broken.absent  # it exists; something that it needs does not
    assert "nowhere_at_all" in broken.gaps[0].why


def test_a_child_that_takes_for_ever_is_ended(modules: Modules) -> None:
    modules(first=START, second="import time\nprint('noise', flush=True)\ntime.sleep(1000)")
    begun = time.monotonic()
    censuses = take("first", "second", deadline_s=2)
    assert time.monotonic() - begun < 20
    assert [len(census.runtimes) for census in censuses] == [1, 0]
    assert all("not over within 2 s" in census.gaps[-1].why for census in censuses)
    assert not any(step.ended for census in censuses for step in census.steps)


def test_a_module_that_ends_the_process(modules: Modules) -> None:
    modules(first="import os\nos._exit(7)", second="import sys\nsys.exit(3)")
    (quits,) = take("second")
    assert quits.gaps[0].why == "SystemExit: 3"
    (gone,) = take("first")
    assert [(step.module, step.ended) for step in gone.steps] == [("first", "exit status 7")]
    assert gone.images > 0  # what was there before the import


WRITE_TO_PIPES = """
import os, stat
def write(data):
    for fd in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, data)
        except OSError:
            pass
write(FORGED)
"""
SEEN = '{"pid": %d, "python": "3", "platform": "x", "images": [], "calls": [[5, "x", 0, 0]]}'
STEP = '{"step": "import", "module": "first", "error": null, "seen": %s}\n'


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        (b"hello\n", "malformed"),
        (b'{"step": "import"}\n', "module"),
        (b"[" * 60000 + b"\n", "Expected `object`"),
        (STEP.encode() % SEEN.encode() % 1, "process 1, which is none of its own"),
    ],
)
def test_a_module_that_writes_into_the_report_is_not_believed(modules: Modules, forged: bytes, why: str) -> None:
    modules(first=WRITE_TO_PIPES.replace("FORGED", repr(forged)))
    with pytest.raises(HarnessError, match=why):
        take("first")


def test_what_is_raised_may_be_anything(modules: Modules) -> None:
    modules(first="class E(Exception):\n    name = object()\n    def __str__(self): raise E\nraise E")
    (census,) = take("first")
    assert census.gaps[0].why == "E: it cannot be told"


def test_an_interpreter_that_does_not_run() -> None:
    with pytest.raises(HarnessError, match="cannot be started") as error:
        take_import_censuses("/nonexistent/python", ["json"])
    assert error.value.hint == "/nonexistent/python --version"
    with pytest.raises(HarnessError, match="does not run"):
        take_import_censuses(shutil.which("false") or "false", ["json"])


def test_no_descriptor_and_no_process_is_left() -> None:
    before = len(os.listdir("/proc/self/fd")), list_children()  # noqa: PTH208
    take("json")
    assert (len(os.listdir("/proc/self/fd")), list_children()) == before  # noqa: PTH208


def list_children() -> set[str]:
    """With the dead that nobody has collected; other tests' fixtures may have some."""
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}
