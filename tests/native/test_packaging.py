"""Does the package build anywhere, and does the library in it load everywhere?

Builds for real with the build tools of this environment, without the network; reads the library with
binutils, a peer of native/build.py's own ELF reader. Does not test what the library does.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "libharness.dylib" if sys.platform == "darwin" else "libharness.so"
BASELINE = (2, 17)
BUILDERS = ["hatchling", "packaging", "pathspec", "pluggy", "tomli", "trove_classifiers"]

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="glibc and ELF are Linux")
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler; next: apt-get install gcc"
)
needs_zig = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="no ziglang; next: pip install ziglang"
)


def glibc_here() -> tuple[int, ...]:
    name, version = platform.libc_ver()
    return tuple(map(int, version.split("."))) if name == "glibc" else ()


def clean_environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("CC", "PYTHONPATH")}
    return kept | changes


def build(tree: Path, out: Path, *what: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", str(out), str(tree)]
    return subprocess.run(command, env=clean_environment(**environment), capture_output=True, text=True, check=False)


def build_wheel(tree: Path, out: Path, **environment: str) -> Path:
    done = build(tree, out, "--wheel", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def unpack(wheel: Path, into: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into)
    return into / "harness" / LIBRARY


def files_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built")
    done = build(ROOT, out, "--wheel", "--sdist")
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def library(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(wheel, tmp_path_factory.mktemp("unpacked"))


@pytest.fixture
def tree(built: Path, tmp_path: Path) -> Path:
    """A source tree of one's own, unpacked from the sdist."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source")
    (path,) = (tmp_path / "source").iterdir()
    return path


@pytest.fixture(scope="session")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("native_build", ROOT / "native" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_apples_linker_is_told_to_bind_at_load_and_zigs_is_not(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert hook.link_flags(True) == ["-Wl,-bind_at_load"]
    assert hook.link_flags(False) == []


@pytest.fixture
def nowhere(tmp_path: Path) -> str:
    """A PATH on which there is no compiler, nor anything else."""
    (tmp_path / "empty").mkdir()
    return str(tmp_path / "empty")


def readelf(option: str, path: Path) -> str:
    tool = shutil.which("readelf")
    if tool is None:
        pytest.skip("no readelf; next: apt-get install binutils")
    return subprocess.run([tool, "-W", option, str(path)], capture_output=True, text=True, check=True).stdout


def needed_versions(path: Path) -> set[str]:
    """The symbol versions that readelf lists as needed, not those that the library defines."""
    needs = readelf("--version-info", path).partition("Version needs section")[2]
    needs = needs.partition("Version definition section")[0]
    return set(re.findall(r"Name: (\S+)\s+Flags", needs))


def newest_glibc(path: Path) -> tuple[int, ...]:
    versions = [re.fullmatch(r"GLIBC_([\d.]+)", version) for version in needed_versions(path)]
    numbers = [tuple(map(int, match[1].split("."))) for match in versions if match]
    assert numbers, "a library that needs nothing from libc was not linked as we think"
    return max(numbers)


def test_wheel_serves_every_python_of_one_platform(wheel: Path) -> None:
    tag = re.sub(r"[-.]", "_", sysconfig.get_platform())
    assert wheel.name.endswith(f"-py3-none-{tag}.whl")
    with zipfile.ZipFile(wheel) as archive:
        (description,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        assert "Root-Is-Purelib: false" in archive.read(description).decode()


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = files_of(wheel)
    assert len(names) == len(set(names))
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"harness"}
    assert [name for name in names if name.endswith((".so", ".dylib"))] == [f"harness/{LIBRARY}"]


@pytest.mark.parametrize("kind", ["probes", "reproducers"])
def test_payloads_travel_as_data(wheel: Path, kind: str) -> None:
    scripts = {str(path.relative_to(ROOT / kind)) for path in (ROOT / kind).rglob("*.py")}
    prefix = f"harness/payloads/{kind}/"
    assert {name.removeprefix(prefix) for name in files_of(wheel) if name.startswith(prefix)} == scripts


def test_new_payload_needs_no_list_to_be_edited(tree: Path, tmp_path: Path) -> None:
    (tree / "probes").mkdir(exist_ok=True)
    (tree / "probes" / "an_added_probe.py").write_text("print('{}')\n")
    (tree / "probes" / "notes.txt").write_text("not a probe\n")
    names = files_of(build_wheel(tree, tmp_path / "out"))
    assert "harness/payloads/probes/an_added_probe.py" in names
    assert not [name for name in names if name.endswith("notes.txt")]


def test_library_loads(library: Path) -> None:
    # In a child: the library may install handlers, and this process has its own.
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    done = subprocess.run([sys.executable, "-I", "-c", code, str(library)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@linux_only
def test_library_needs_no_python(library: Path) -> None:
    """What it asks an interpreter for, it can do without: those references are weak."""
    undefined = re.findall(r"\bGLOBAL +DEFAULT +UND +(\S+)", readelf("--dyn-syms", library))
    assert undefined
    assert [name for name in undefined if re.match(r"_?Py", name)] == []
    needed = re.findall(r"NEEDED.*\[(.*)\]", readelf("--dynamic", library))
    assert [name for name in needed if "python" in name] == []


@linux_only
def test_library_keeps_the_glibc_baseline(library: Path) -> None:
    assert newest_glibc(library) <= BASELINE


@linux_only
def test_our_elf_reader_agrees_with_binutils(hook: ModuleType, library: Path) -> None:
    # The interpreter's own extension modules are strangers: another compiler, other flags.
    strangers = sorted(Path(sysconfig.get_path("platstdlib"), "lib-dynload").glob("*.so"))
    for path in [library, *strangers]:
        assert set(hook.read_needed_versions(path)) == needed_versions(path), path


@pytest.mark.parametrize(
    ("version", "newer"),
    [
        ("GLIBC_2.2.5", False),
        ("GLIBC_2.17", False),
        ("GLIBC_2.18", True),
        ("GLIBC_2.100", True),
        ("GLIBC_3.0", True),
        ("GLIBC_PRIVATE", True),
        ("GLIBC_ABI_DT_RELR", True),
        ("GCC_3.0", False),
        ("GLIBCXX_3.4.30", False),
    ],
)
def test_which_versions_break_the_baseline(hook: ModuleType, version: str, newer: bool) -> None:
    assert hook.is_newer(version) is newer


@pytest.mark.skipif(glibc_here() < (2, 25), reason="this system has no glibc of 2.25 or later")
@needs_compiler
def test_newer_symbol_stops_the_build(tree: Path, tmp_path: Path) -> None:
    # man 3 getrandom: glibc 2.25.
    source = "#include <sys/random.h>\nlong newer(void *);\n"
    (tree / "native" / "newer.c").write_text(source + "long newer(void *p) { return getrandom(p, 1, 0); }\n")
    done = build(tree, tmp_path / "out", "--wheel")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "GLIBC_2.25 (getrandom), newer than glibc 2.17; next: CC=ziglang python -m pip install ." in said


@linux_only
@needs_compiler
def test_symbol_of_the_baseline_itself_does_not(tree: Path, tmp_path: Path) -> None:
    # man 3 secure_getenv: glibc 2.17.
    source = "#define _GNU_SOURCE\n#include <stdlib.h>\nchar *same(void);\n"
    (tree / "native" / "same.c").write_text(source + 'char *same(void) { return secure_getenv("HOME"); }\n')
    build_wheel(tree, tmp_path / "out")


def test_sdist_builds_the_same_wheel(wheel: Path, tree: Path, tmp_path: Path) -> None:
    again = build_wheel(tree, tmp_path / "out")
    assert again.name == wheel.name
    assert files_of(again) == files_of(wheel)


@needs_compiler
def test_compile_error_keeps_the_compilers_words(tree: Path, tmp_path: Path) -> None:
    (tree / "native" / "broken.c").write_text("int broken(void) { return undeclared_name; }\n")
    done = build(tree, tmp_path / "out", "--wheel")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "undeclared_name" in said
    assert "its output is above; next: CC=ziglang python -m pip install ." in said


def test_missing_compiler_named_by_cc(tmp_path: Path, tree: Path) -> None:
    done = build(tree, tmp_path / "out", "--wheel", CC="no-such-cc -m64")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "the C compiler 'no-such-cc -m64' cannot be started (No such file or directory)" in said


def requirements(what: str, **environment: str) -> str:
    """What the backend asks of an installer before the build; an isolated build installs exactly this."""
    code = f"import hatchling.build; print(hatchling.build.get_requires_for_build_{what}())"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_zig_is_asked_for_only_without_a_compiler(nowhere: str) -> None:
    assert "ziglang" in requirements("wheel", PATH=nowhere)
    assert "ziglang" in requirements("editable", PATH=nowhere)
    assert "ziglang" in requirements("wheel", CC="ziglang")
    assert "ziglang" not in requirements("sdist", PATH=nowhere)
    assert "ziglang" not in requirements("wheel", PATH=nowhere, CC="/opt/cross/bin/cc")


@needs_compiler
def test_zig_is_not_asked_for_with_one() -> None:
    assert "ziglang" not in requirements("wheel")


@needs_zig
def test_without_a_compiler_zig_builds_the_same_wheel(wheel: Path, nowhere: str, tmp_path: Path) -> None:
    by_zig = build_wheel(ROOT, tmp_path / "out", PATH=nowhere)
    assert files_of(by_zig) == files_of(wheel)
    library = unpack(by_zig, tmp_path / "unpacked")
    test_library_loads(library)
    if sys.platform == "linux":
        assert newest_glibc(library) <= BASELINE


def test_without_compiler_and_zig_one_sentence_says_so(tree: Path, nowhere: str, tmp_path: Path) -> None:
    # An environment with the backend and nothing else; ziglang cannot be taken out of the one we run in.
    venv.create(tmp_path / "bare", symlinks=True)
    (bare,) = (tmp_path / "bare" / "lib").glob("python*/site-packages")
    for name in BUILDERS:
        if (spec := importlib.util.find_spec(name)) and spec.origin:
            (bare / name).symlink_to(Path(spec.origin).parent)
    command = [str(tmp_path / "bare" / "bin" / "python"), "-m", "hatchling", "build", "-t", "wheel"]
    environment = clean_environment(PATH=nowhere)
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == (
        "native/build.py: no C compiler was found, and no ziglang wheel in its place; "
        "next: python -m pip install ziglang"
    )
