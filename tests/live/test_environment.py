"""`harness openmp --python`: what is installed for a real interpreter, without running any of it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.capture.files import scan_cache
from harness.capture.files.interpreter import Installed, Interpreter
from harness.capture.files.scan_cache import Memory
from harness.capture.openmp import environment
from harness.capture.openmp.environment import find_python, take_environment_census
from harness.errors import EXIT_COULD_NOT_LOOK, HarnessError
from harness.evidence.openmp import Census
from tests.builders.natives import build

VERSION = f"python3.{sys.version_info[1]}"


class Venv:
    """A new environment with packages made of the small native files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = root.with_name("cache")
        self.python = root / "bin" / "python"
        self.site = root / "lib" / VERSION / "site-packages"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True, timeout=60)

    def install(self, name: str, files: dict[str, Path]) -> None:
        """As pip does: the files, and a RECORD of them."""
        info = self.site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = []
        for place, source in files.items():
            path = self.site / place
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, path)
            digest = base64.urlsafe_b64encode(hashlib.sha256(source.read_bytes()).digest()).rstrip(b"=").decode()
            lines.append(f"{place},sha256={digest},{source.stat().st_size}\n")
        (info / "RECORD").write_text("".join(lines))

    def census(self) -> Census:
        return take_environment_census(str(self.python), self.cache)

    def short(self, path: str | None) -> str | None:
        return path and os.path.relpath(path, self.site)

    def bound(self, census: Census) -> dict[str | None, list[tuple[str, str | None]]]:
        return {
            self.short(caller.place.image): [(row.state, self.short(row.runtime)) for row in caller.bindings]
            for caller in census.callers
        }


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return Venv(tmp_path / "env")


@pytest.fixture
def two(venv: Venv) -> Venv:
    runtime, caller = build("elf")
    venv.install("first-one", {"first/caller.so": caller, "first/libomp.so": runtime})
    venv.install("second", {"second/caller.so": caller, "second/libomp.so": runtime})
    return venv


def test_two_packages_with_a_runtime_each(two: Venv) -> None:
    census = two.census()
    assert (census.subject, census.python) == ("environment", ".".join(map(str, sys.version_info[:3])))
    assert census.images == 4 and not census.gaps
    assert {
        (two.short(r.place.image), r.place.distribution, r.place.owner, r.place.modified) for r in census.runtimes
    } == {
        ("first/libomp.so", "first-one", "wheel", False),
        ("second/libomp.so", "second", "wheel", False),
    }
    assert {(r.family, r.static) for r in census.runtimes} == {("llvm", False)}
    assert two.bound(census) == {
        "first/caller.so": [("linked", "first/libomp.so")],
        "second/caller.so": [("linked", "second/libomp.so")],
    }


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_one_file_under_two_names_is_one_runtime(two: Venv, link: Callable[[Path, Path], None]) -> None:
    """The loader takes them as one, by device and inode; that is what `openmp fix` relies on."""
    duplicate = two.site / "second/libomp.so"
    duplicate.unlink()
    link(two.site / "first/libomp.so", duplicate)
    census = two.census()
    assert [two.short(runtime.place.image) for runtime in census.runtimes] == ["first/libomp.so"]
    assert {row for rows in two.bound(census).values() for row in rows} == {("linked", "first/libomp.so")}


def test_a_store_of_packages_that_the_environment_links_to(two: Venv, tmp_path: Path) -> None:
    """uv --link-mode symlink: the file lies elsewhere, the package is still the one that brought it."""
    store = tmp_path / "store"
    store.mkdir()
    (two.site / "first/libomp.so").rename(store / "abc")
    (two.site / "first/libomp.so").symlink_to(store / "abc")
    places = {two.short(runtime.place.image): runtime.place.distribution for runtime in two.census().runtimes}
    assert places == {"first/libomp.so": "first-one", "second/libomp.so": "second"}


def test_modified_unowned_and_recorded_outside_of_site_packages(venv: Venv) -> None:
    runtime, _ = build("elf")
    venv.install("data-files", {"../../libiomp5.so": runtime})
    venv.install("patched", {"patched/libomp.so": runtime})
    with (venv.site / "patched/libomp.so").open("ab") as file:
        file.write(b"\0")
    shutil.copy(runtime, venv.site / "lying_around.so")
    (venv.site / "unrelated.so.txt").write_text("no library")
    places = {venv.short(r.place.image): r.place for r in venv.census().runtimes}
    assert places["../../libiomp5.so"].distribution == "data-files"
    assert places["patched/libomp.so"].modified is True
    assert (places["lying_around.so"].owner, places["lying_around.so"].distribution) == ("unowned", None)
    assert len(places) == 3


def test_nothing_of_the_users_is_run(two: Venv, tmp_path: Path) -> None:
    mark = f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
    for name in ("x.pth", "sitecustomize.py", "usercustomize.py", "json.py", "first/__init__.py"):
        (two.site / name).write_text(mark)
    subprocess.run([two.python, "-c", ""], check=True, timeout=30)
    assert (tmp_path / "ran").exists()  # it would have been noticed
    (tmp_path / "ran").unlink()
    assert len(two.census().runtimes) == 2
    assert not (tmp_path / "ran").exists()


def test_the_variable_that_hides_the_fault_is_found_in_a_pth_file(two: Venv) -> None:
    (two.site / "hide.pth").write_text("import os; os.environ['KMP_DUPLICATE_LIB_OK'] = 'TRUE'\n")
    setting = next(row for row in two.census().settings if row.name == "KMP_DUPLICATE_LIB_OK")
    assert (setting.value, setting.source) == ("TRUE", f"{two.site}/hide.pth:1")


def test_an_editable_installation_is_looked_into(venv: Venv, tmp_path: Path) -> None:
    source = tmp_path / "my source"
    (source / "pkg").mkdir(parents=True)
    for native in build("elf"):
        shutil.copy(native, source / "pkg")
    venv.install("mine", {})
    said = {"url": (source).as_uri(), "dir_info": {"editable": True}}
    (venv.site / "mine-1.0.dist-info/direct_url.json").write_text(json.dumps(said))
    census = venv.census()
    (runtime,) = census.runtimes
    assert (runtime.place.image, runtime.place.distribution) == (str(source / "pkg/libomp.so"), "mine")


def test_torn_files_are_a_gap_and_foreign_ones_are_nothing(two: Venv) -> None:
    (two.site / "torn.so").write_bytes(build("elf")[0].read_bytes()[:1000])
    (two.site / "empty.so").write_bytes(b"")
    (two.site / "script.so").write_text("INPUT(libomp.so)\n")
    shutil.copy(build("macho")[0], two.site / "mac.so")
    shutil.copy(build("pe")[0], two.site / "windows.dll")
    (two.site / "dangling.so").symlink_to("gone")
    (two.site / "loop").symlink_to(two.site)
    os.mkfifo(two.site / "pipe.so")
    census = two.census()
    assert len(census.runtimes) == 2 and census.images == 4
    (gap,) = census.gaps
    assert "torn.so" in gap.why and "script.so" in gap.why and "mac.so" not in gap.why


def test_what_has_not_changed_is_not_read_again(two: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    an_hour_ago = time.time() - 3600
    for path in (*two.site.rglob("*"), two.site):
        os.utime(path, (an_hour_ago, an_hour_ago))
    first = two.census()
    read: list[str] = []
    monkeypatch.setattr(environment, "read_binaries", lambda path: read.append(path.name) or [])
    assert two.census() == first and not read
    os.utime(two.site / "second/caller.so")
    two.census()
    assert read == ["caller.so"]
    assert scan_cache.default_place().name not in {entry.name for entry in two.site.iterdir()}


def test_a_runtime_that_was_added_since_is_seen(two: Venv) -> None:
    assert len(two.census().runtimes) == 2
    shutil.copy(build("elf")[0], two.site / "third.so")
    assert len(two.census().runtimes) == 3
    (two.site / "third.so").unlink()
    assert len(two.census().runtimes) == 2


def test_a_conda_environment(tmp_path: Path) -> None:
    """No RECORD says whose libomp.so in lib/ is; conda-meta does."""
    (tmp_path / "lib" / VERSION / "site-packages").mkdir(parents=True)
    (tmp_path / "conda-meta").mkdir()
    shutil.copy(build("elf")[0], tmp_path / "lib/libomp.so")
    said = json.dumps({"files": ["lib/libomp.so", "lib/gone.so", "share/x.txt"], "name": "llvm-openmp"}, indent=2)
    (tmp_path / "conda-meta/llvm-openmp-18.1.8-hf5423f3_1.json").write_text(said)
    site = str(tmp_path / "lib" / VERSION / "site-packages")
    prefix = str(tmp_path)
    installed = Installed(
        Interpreter("3.13.0", "linux-x86_64", f"{prefix}/bin/python", prefix, prefix, f"{prefix}/lib", (site,)),
        Memory(None),
    )
    assert installed.files == [f"{prefix}/lib/libomp.so"]
    owned = installed.find_owners(installed.files)[installed.files[0]]
    assert (owned.owner, owned.distribution, owned.version) == ("conda", "llvm-openmp", "18.1.8")


def test_the_packages_of_this_very_environment() -> None:
    """Each wheel brings a libgomp of its own and is linked to that one; auditwheel sees to it."""
    site = Path(sysconfig.get_path("platlib"))
    expected = {
        "torch/lib/libtorch_cpu.so": "torch/lib/libgomp.so.1",
        "faiss/libfaiss.so": "faiss_cpu.libs/libgomp-*",
        "faiss_cpu.libs/libopenblaso*": "faiss_cpu.libs/libgomp-*",
        "sklearn/cluster/_k_means_lloyd*.so": "scikit_learn.libs/libgomp-*",
    }
    pairs = [(sorted(site.glob(caller)), sorted(site.glob(runtime))) for caller, runtime in expected.items()]
    if not all(callers and runtimes for callers, runtimes in pairs):
        pytest.skip("torch, faiss-cpu and scikit-learn are not installed; next: make .venv/dev.stamp")
    census = take_environment_census(sys.executable)
    bound = {caller.place.image: caller.bindings for caller in census.callers}
    for callers, runtimes in pairs:
        (binding,) = bound[str(callers[0])]
        assert (binding.state, binding.runtime) == ("linked", str(runtimes[0]))
    assert {blas.place.distribution for blas in census.blas} >= {"numpy", "scipy", "faiss-cpu", "torch"}


@pytest.fixture
def refused(tmp_path: Path) -> dict[str, str]:
    """What is named as an interpreter, and a word of the answer."""
    (tmp_path / "train.py").write_text(f"#!{sys.executable}\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "train.py").chmod(0o755)
    (tmp_path / "python3").write_text("#!/bin/sh\necho no; exit 3\n")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "text").write_text("x")
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/pyvenv.cfg").write_text("home = /gone\n")
    (tmp_path / "env/bin/python").symlink_to("/gone/bin/python3")
    return {
        str(tmp_path / "missing"): "does not exist",
        str(tmp_path): "is a directory",
        str(tmp_path / "train.py"): "is not a Python interpreter",
        str(tmp_path / "text"): "is not a Python interpreter",
        "/bin/ls": "is not a Python interpreter",
        str(tmp_path / "python3"): "is not a Python 3 that works",
        str(tmp_path / "env/bin/python"): "which is gone",
    }


def test_bad_interpreters_are_refused_with_the_next_command(refused: dict[str, str], tmp_path: Path) -> None:
    for python, words in refused.items():
        with pytest.raises(HarnessError, match=words) as caught:
            take_environment_census(find_python(python), tmp_path / "cache")
        assert caught.value.exit_code == EXIT_COULD_NOT_LOOK and caught.value.hint
    assert not (tmp_path / "ran").exists()
    with pytest.raises(HarnessError, match="no python9 on PATH"):
        find_python("python9")


def test_the_interpreter_is_the_active_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONDA_PREFIX", "/opt/conda")
    monkeypatch.setenv("VIRTUAL_ENV", "/opt/venv")
    assert find_python(None) == "/opt/venv/bin/python"
    monkeypatch.delenv("VIRTUAL_ENV")
    assert find_python(None) == "/opt/conda/bin/python"
    monkeypatch.delenv("CONDA_PREFIX")
    assert find_python(None) == shutil.which("python3")
    assert find_python("./x/python") == "./x/python"
