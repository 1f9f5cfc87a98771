"""Who is meant by a name, by the rules of ld.so, dyld and Windows, on files that do not exist."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.capture.files.binaries import Binary, Call, RuntimeCopy
from harness.capture.files.linking import Linker, Program, read_loader_cache

NAMES = ("GOMP_parallel", "omp_get_max_threads")


def image(**fields: Any) -> Binary:
    given = {"format": "elf", "machine": "x86_64", "name": None, "needed": (), "rpaths": (), "calls": (), "defines": ()}
    return Binary(**(given | {"runtime": None, "blas": ()} | fields))


def runtime(**fields: Any) -> Binary:
    return image(defines=NAMES, runtime=RuntimeCopy("gnu", None, False), **fields)


def caller(*needed: str, library: str | None = None, weak: bool = False, **fields: Any) -> Binary:
    return image(needed=needed, calls=(Call(NAMES, library, weak),), **fields)


def led_to(files: dict[str, Binary], path: str, **context: Any) -> list[tuple[str, str | None]]:
    linker = Linker(files.get, images=files, **context)
    return [(binding.state, binding.runtime) for binding in linker.bind(path, files[path])]


def test_origin_is_the_folder_of_the_file_that_asks() -> None:
    files = {
        "/s/torch/lib/libtorch.so": caller("libgomp.so.1", rpaths=("$ORIGIN",)),
        "/s/torch/lib/libgomp.so.1": runtime(),
        "/usr/lib/libgomp.so.1": runtime(),
    }
    assert led_to(files, "/s/torch/lib/libtorch.so") == [("linked", "/s/torch/lib/libgomp.so.1")]


def test_a_library_that_is_needed_by_a_needed_one_serves_too() -> None:
    files = {
        "/s/a/_a.so": caller("liba.so", rpaths=("${ORIGIN}/../a.libs",)),
        "/s/a.libs/liba.so": image(needed=("libgomp-1.so",), rpaths=("$ORIGIN",)),
        "/s/a.libs/libgomp-1.so": runtime(),
    }
    assert led_to(files, "/s/a/_a.so") == [("linked", "/s/a.libs/libgomp-1.so")]


@pytest.mark.parametrize("passes_on", [True, False])
def test_rpath_holds_for_what_a_library_needs_and_runpath_does_not(passes_on: bool) -> None:
    """As faiss has it: libfaiss has the path, its OpenBLAS has none, both need libgomp."""
    files = {
        "/s/faiss/libfaiss.so": image(needed=("libblas.so",), rpaths=("$ORIGIN/../libs",), rpaths_pass_on=passes_on),
        "/s/libs/libblas.so": caller("libgomp-1.so", rpaths_pass_on=True),
        "/s/libs/libgomp-1.so": runtime(),
    }
    expected = [("linked", "/s/libs/libgomp-1.so")] if passes_on else [("unresolved", None)]
    assert led_to(files, "/s/libs/libblas.so") == expected


def test_library_path_comes_before_runpath_and_after_rpath() -> None:
    files = {
        "/l/libgomp.so.1": runtime(),
        "/s/libgomp.so.1": runtime(),
        "/s/x.so": caller("libgomp.so.1", rpaths=("/s",)),
    }
    assert led_to(files, "/s/x.so", library_path=["/l"]) == [("linked", "/l/libgomp.so.1")]
    files["/s/x.so"] = replace(files["/s/x.so"], rpaths_pass_on=True)
    assert led_to(files, "/s/x.so", library_path=["/l"]) == [("linked", "/s/libgomp.so.1")]


def test_the_interpreters_own_path_and_then_the_systems() -> None:
    files = {"/c/lib/libgomp.so.1": runtime(), "/usr/lib/libgomp.so.1": runtime()}
    files["/s/x.so"] = caller("libgomp.so.1", rpaths_pass_on=True)
    program = Program("/c/bin/python", image(rpaths=("$ORIGIN/../lib",), rpaths_pass_on=True))
    system = {"libgomp.so.1": ["/usr/lib/libgomp.so.1"]}
    assert led_to(files, "/s/x.so", program=program) == [("linked", "/c/lib/libgomp.so.1")]
    assert led_to(files, "/s/x.so", system=lambda name: system.get(name, ())) == [("linked", "/usr/lib/libgomp.so.1")]


def test_a_library_for_another_machine_is_passed_over() -> None:
    files = {"/a/libgomp.so.1": runtime(machine="aarch64"), "/b/libgomp.so.1": runtime()}
    files["/s/x.so"] = caller("libgomp.so.1", rpaths=("/a", "/b"))
    assert led_to(files, "/s/x.so") == [("linked", "/b/libgomp.so.1")]


def test_nobody_defines_it() -> None:
    files = {"/s/x.so": caller("libgomp.so.1"), "/s/y.so": caller(weak=True)}
    assert led_to(files, "/s/x.so") == [("unresolved", None)]
    assert led_to(files, "/s/y.so") == []  # it does without


def test_libraries_that_need_each_other_come_to_an_end() -> None:
    files = {"/s/a.so": caller("b.so", rpaths=("/s",)), "/s/b.so": image(needed=("a.so", "b.so"), rpaths=("/s",))}
    assert led_to(files, "/s/a.so") == [("unresolved", None)]


def test_two_level_names_of_macos() -> None:
    fields = {"format": "macho", "machine": "arm64", "rpaths_pass_on": True}
    files = {
        "/s/torch/lib/libtorch_cpu.dylib": caller(
            "@rpath/libomp.dylib", library="@rpath/libomp.dylib", rpaths=("@loader_path",), **fields
        ),
        "/s/torch/lib/libomp.dylib": runtime(**fields),
        "/s/faiss/_swigfaiss.so": caller(
            "@loader_path/.dylibs/libomp.dylib", library="@loader_path/.dylibs/libomp.dylib", **fields
        ),
        "/s/faiss/.dylibs/libomp.dylib": runtime(**fields),
        "/s/x.so": caller("@rpath/libomp.dylib", library="@rpath/libomp.dylib", **fields),
        "/s/y.so": caller(
            "@executable_path/../lib/libomp.dylib", library="@executable_path/../lib/libomp.dylib", **fields
        ),
        "/c/lib/libomp.dylib": runtime(**fields),
    }
    program = Program("/c/bin/python3.13", image(rpaths=("@loader_path/../lib",), **fields))
    assert led_to(files, "/s/torch/lib/libtorch_cpu.dylib") == [("linked", "/s/torch/lib/libomp.dylib")]
    assert led_to(files, "/s/faiss/_swigfaiss.so") == [("linked", "/s/faiss/.dylibs/libomp.dylib")]
    assert led_to(files, "/s/x.so") == [("unresolved", None)]
    for path in ("/s/x.so", "/s/y.so"):
        assert led_to(files, path, program=program) == [("linked", "/c/lib/libomp.dylib")]


def test_windows_does_not_mind_the_case_and_looks_beside_the_file_first() -> None:
    files = {
        "s/sklearn/.libs/vcomp140.dll": runtime(format="pe"),
        "s/sklearn/cluster/_k.pyd": caller("VCOMP140.DLL", library="VCOMP140.DLL", format="pe"),
        "s/torch/lib/libiomp5md.dll": runtime(format="pe"),
        "s/torch/lib/torch_cpu.dll": caller("libiomp5md.dll", library="libiomp5md.dll", format="pe"),
        "Library/bin/libiomp5md.dll": runtime(format="pe"),
    }
    assert led_to(files, "s/sklearn/cluster/_k.pyd") == [("linked", "s/sklearn/.libs/vcomp140.dll")]
    assert led_to(files, "s/torch/lib/torch_cpu.dll") == [("linked", "s/torch/lib/libiomp5md.dll")]


def test_the_loaders_cache_of_this_machine() -> None:
    file = Path("/etc/ld.so.cache")
    if not file.exists():
        pytest.skip("no /etc/ld.so.cache on this system")
    cache = read_loader_cache(file)
    assert any(Path(path).exists() for path in cache["libc.so.6"])


@pytest.mark.parametrize(
    "data",
    [b"", b"noise", b"glibc-ld.so.cache1.1", b"glibc-ld.so.cache1.1" + struct.pack("<I", 1 << 31) + bytes(100)],
)
def test_a_damaged_cache_is_no_cache(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(data)
    assert set(read_loader_cache(tmp_path / "cache")) <= {""} | {"glibc-ld.so.cache1.1"}
    assert read_loader_cache(tmp_path / "missing") == {}
