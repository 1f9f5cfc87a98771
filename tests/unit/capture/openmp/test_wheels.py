"""Wheels as they would lie in one site-packages directory: who links to whom, and what is never followed or read.

The native members are made up: the first bytes of a native file, then the facts about it, which a stand-in for
`read_binaries` gives back.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.capture.files.binaries import Binary, Call, RuntimeCopy
from harness.capture.openmp import wheels
from harness.capture.openmp.wheels import find_wheels, read_wheels
from harness.errors import HarnessError, UsageError
from harness.evidence.openmp import Census

MAC, LINUX = "cp313-cp313-macosx_14_0_arm64", "cp313-cp313-manylinux_2_28_x86_64"
ELF, MACHO = b"\x7fELF", b"\xcf\xfa\xed\xfe"
METADATA = b"Name: faiss-cpu\nRequires-Dist: numpy<3\nRequires-Dist: x; extra == 'y'\n\n"
CALLS = ("__kmpc_fork_call", "omp_get_max_threads")


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(source: bytes | Path) -> list[Binary]:
        data = source if isinstance(source, bytes) else source.read_bytes()
        return msgspec.json.decode(data[4:].rstrip(b"\0"), type=list[Binary])

    monkeypatch.setattr(wheels, "read_binaries", read)


def binary(*, needed=(), rpaths=(), calls=(), runtime=False, mac=False, machine=None) -> bytes:
    made = Binary(
        format="macho" if mac else "elf",
        machine=machine or ("arm64" if mac else "x86_64"),
        name=None,
        needed=tuple(needed),
        rpaths=tuple(rpaths),
        calls=tuple(calls),
        defines=CALLS if runtime else (),
        runtime=RuntimeCopy("llvm", "5.0", False) if runtime else None,
        blas=(),
    )
    return (MACHO if mac else ELF) + msgspec.json.encode([made])


def wheel(where: Path, name: str, tags: str, members: dict[str, bytes]) -> Path:
    path = where / f"{name}-{tags}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return path


def links(census: Census) -> dict[str, str | None]:
    return {caller.place.image: binding.runtime for caller in census.callers for binding in caller.bindings}


def call(library: str | None = None) -> Call:
    return Call(CALLS, library)


def test_each_package_of_the_incident_links_to_its_own_copy(tmp_path: Path) -> None:
    torch = {
        "torch/lib/libomp.dylib": binary(runtime=True, mac=True),
        "torch/lib/libtorch_cpu.dylib": binary(
            mac=True, needed=["@rpath/libomp.dylib"], rpaths=["@loader_path"], calls=[call("@rpath/libomp.dylib")]
        ),
    }
    library = "@loader_path/.dylibs/libomp.dylib"
    faiss = {
        "faiss/.dylibs/libomp.dylib": binary(runtime=True, mac=True),
        "faiss/_swigfaiss.so": binary(mac=True, needed=[library], calls=[call(library)]),
        "faiss/__init__.py": b"import this",
        "faiss_cpu-1.11.dist-info/METADATA": METADATA,
    }
    found = read_wheels([wheel(tmp_path, "torch-2.7.1", MAC, torch), wheel(tmp_path, "faiss_cpu-1.11", MAC, faiss)])

    assert links(found) == {
        "torch/lib/libtorch_cpu.dylib": "torch/lib/libomp.dylib",
        "faiss/_swigfaiss.so": "faiss/.dylibs/libomp.dylib",
    }
    assert [runtime.place.distribution for runtime in found.runtimes] == ["torch", "faiss-cpu"]
    assert (found.platform, found.python, found.images) == ("macosx_14_0_arm64", "3.13", 4)
    assert [gap.what for gap in found.gaps] == ["dependencies"]
    assert "numpy" in found.gaps[0].why


def test_a_package_that_looks_into_another_shares_its_copy(tmp_path: Path) -> None:
    torch = {"torch/lib/libomp.so.5": binary(runtime=True)}
    other = {"other/_c.so": binary(needed=["libomp.so.5"], rpaths=["$ORIGIN/../torch/lib"], calls=[call()])}
    found = read_wheels([wheel(tmp_path, "torch-2", LINUX, torch), wheel(tmp_path, "other-1", LINUX, other)])
    assert links(found) == {"other/_c.so": "torch/lib/libomp.so.5"}


def test_data_files_lie_in_the_environment(tmp_path: Path) -> None:
    intel = {"intel_openmp-1.data/data/lib/libiomp5.so": binary(runtime=True)}
    rpath = "$ORIGIN/../../../.."
    other = {"a/b/_c.so": binary(needed=["libiomp5.so"], rpaths=[rpath], calls=[call()])}
    platlib = {"x-1.data/platlib/x/_c.so": binary(needed=["libiomp5.so"], rpaths=["$ORIGIN/../../.."], calls=[call()])}
    found = read_wheels(
        [
            wheel(tmp_path, "intel_openmp-1", LINUX, intel),
            wheel(tmp_path, "a-1", LINUX, other),
            wheel(tmp_path, "x-1", LINUX, platlib),
        ]
    )
    assert links(found) == {"a/b/_c.so": "lib/libiomp5.so", "x/_c.so": "lib/libiomp5.so"}


def test_of_a_universal_file_the_right_image_is_taken(tmp_path: Path) -> None:
    both = [*msgspec.json.decode(binary(mac=True, machine="x86_64")[4:]), *msgspec.json.decode(binary(mac=True)[4:])]
    members = {"a/_c.so": MACHO + msgspec.json.encode(both)}
    (native,) = _read_natives(wheel(tmp_path, "a-1", MAC, members), "macosx_14_0_arm64")
    assert native.machine == "arm64"


def _read_natives(path: Path, platform: str) -> list[Binary]:
    reading = wheels._Reading()
    wheels._read_members(wheels._open_wheel(path), platform, "3.13", reading)
    return [native.binary for native in reading.natives.values()]


@pytest.mark.parametrize(
    "name", ["../../lib/libomp.so.5", "/usr/lib/libomp.so.5", "a/../../x.so", "C:x.so", "a\\..\\x.so"]
)
def test_names_that_lead_out_are_left_out_and_said(tmp_path: Path, name: str) -> None:
    members = {
        name: binary(runtime=True),
        "a/_c.so": binary(needed=["libomp.so.5"], rpaths=["$ORIGIN/../../../.."], calls=[call()]),
    }
    found = read_wheels([wheel(tmp_path, "a-1", LINUX, members)])
    assert found.runtimes == ()
    assert links(found) == {"a/_c.so": None}
    assert "lead out of the environment" in found.gaps[0].why


@pytest.mark.parametrize(
    "library", ["/usr/lib/libomp.dylib", "@loader_path/../../../../../../../usr/lib/libomp.dylib", "@rpath/x"]
)
def test_what_a_file_names_is_never_looked_for_on_this_machine(tmp_path: Path, library: str) -> None:
    members = {
        "a/_c.so": binary(mac=True, needed=[library], rpaths=["/usr/lib", "@loader_path/../.."], calls=[call(library)])
    }
    assert links(read_wheels([wheel(tmp_path, "a-1", MAC, members)])) == {"a/_c.so": None}


def test_a_member_that_grows_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "_MOST_MEMBER_BYTES", 1 << 20)
    members = {"a/bomb.so": ELF + bytes(4 << 20), "a/_c.so": binary(runtime=True)}
    found = read_wheels([wheel(tmp_path, "a-1", LINUX, members)])
    assert found.images == 1
    assert "too large" in found.gaps[0].why


def test_all_members_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = binary(runtime=True)
    monkeypatch.setattr(wheels, "_MOST_BYTES", len(one) * 2)
    found = read_wheels([wheel(tmp_path, "a-1", LINUX, {f"a/{number}.so": one for number in range(4)})])
    assert (found.images, len(found.gaps)) == (2, 2)


def test_a_large_member_is_read_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "_IN_MEMORY_BYTES", 10)
    found = read_wheels([wheel(tmp_path, "a-1", LINUX, {"a/_c.so": binary(runtime=True)})])
    assert len(found.runtimes) == 1


def test_a_member_that_is_torn_is_a_gap_and_the_others_are_read(tmp_path: Path) -> None:
    path = wheel(tmp_path, "a-1", LINUX, {"a/x.so": ELF + b"[] not json", "a/_c.so": binary(runtime=True)})
    found = read_wheels([path])
    assert len(found.runtimes) == 1
    assert found.gaps[0].what.startswith("a/x.so")


@pytest.mark.parametrize("data", [b"", b"not a zip", b"PK\x03\x04", b"PK\x05\x06" + bytes(17)])
def test_what_is_not_a_zip_is_one_sentence(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / f"a-1-{LINUX}.whl"
    path.write_bytes(data)
    with pytest.raises(HarnessError, match="is not a wheel"):
        read_wheels([path])


def test_what_is_not_named_like_a_wheel_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"")
    with pytest.raises(HarnessError, match="not named like a wheel"):
        read_wheels([tmp_path / "a.zip"])


def test_a_directory_gives_its_wheels(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="no wheel"):
        find_wheels([tmp_path])
    path = wheel(tmp_path, "a-1", LINUX, {})
    assert find_wheels([tmp_path]) == [path]
    with pytest.raises(HarnessError, match="no such file"):
        find_wheels([tmp_path / "b.whl"])


def test_wheels_that_cannot_be_installed_together_are_refused(tmp_path: Path) -> None:
    mac, linux = wheel(tmp_path, "a-1", MAC, {}), wheel(tmp_path, "b-1", LINUX, {})
    with pytest.raises(UsageError, match="different platforms"):
        read_wheels([mac, linux])
    with pytest.raises(UsageError, match="two wheels of a"):
        read_wheels([mac, wheel(tmp_path, "a-2", MAC, {})])


def test_older_and_pure_wheels_go_with_newer_ones(tmp_path: Path) -> None:
    older = wheel(tmp_path, "a-1", "cp313-none-macosx_11_0_arm64", {})
    found = read_wheels([older, wheel(tmp_path, "b-1", MAC, {}), wheel(tmp_path, "c-1", "py3-none-any", {})])
    assert found.platform == "macosx_14_0_arm64"


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_mutated_wheel_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    path = wheel(tmp_path, "a-1", LINUX, {"a/_c.so": binary(runtime=True), "a-1.dist-info/METADATA": b"Name: a\n\n"})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    try:
        read_wheels([path])
    except HarnessError:
        pass
