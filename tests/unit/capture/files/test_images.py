"""Images from the text of /proc/PID/maps, and their owners from made-up installations."""

from __future__ import annotations

import base64
import hashlib
import struct
import sys
import sysconfig
from pathlib import Path

import pytest

from harness.capture.files import owners
from harness.capture.files.images import list_images, list_mappings, parse_maps, read_images, read_mappings, read_span
from harness.capture.files.owners import check_modified, find_owners, find_site_packages
from harness.evidence.crash import Image

# One line for each kind that matters; addresses as Linux 6.18 prints them.
MAPS = """\
55d0a0000000-55d0a0001000 r--p 00000000 08:01 11 {elf}
55d0a0001000-55d0a0002000 r-xp 00001000 08:01 11 {elf}
55d0a1000000-55d0a1021000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000001000 r--p 00000000 08:01 21 /opt/a/libone.so.1
7f0000001000-7f0000003000 r-xp 00001000 08:01 21 /opt/a/libone.so.1
7f0000003000-7f0000004000 rw-p 00003000 08:01 21 /opt/a/libone.so.1
7f0000004000-7f0000005000 rw-p 00000000 00:00 0\x20
7f0000010000-7f0000011000 r--p 00000000 08:01 22 /opt/a b/libgone.so (deleted)
7f0000011000-7f0000012000 r-xp 00001000 08:01 22 /opt/a b/libgone.so (deleted)
7f0000020000-7f0000021000 r--s 00000000 08:01 23 /data/train.npy
7f0000030000-7f0000031000 r-xp 00000000 08:01 24 {text}
7f0000040000-7f0000041000 rw-s 00000000 00:01 25 /dev/shm/torch_1_2 (deleted)
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
7ffc00030000-7ffc00032000 r-xp 00000000 00:00 0 [vdso]
"""


@pytest.fixture
def maps(tmp_path: Path) -> str:
    elf, text = tmp_path / "program", tmp_path / "not-elf"
    elf.write_bytes(b"\x7fELF\x02" + bytes(100))
    text.write_bytes(b"#!/bin/sh\n")
    return MAPS.format(elf=elf, text=text)


def place(images: tuple[Image, ...]) -> list[tuple[str, str, str, bool]]:
    return [(Path(image.path).name, image.base, image.end, image.deleted) for image in images]


def test_images_are_the_program_and_the_libraries_and_nothing_else(maps: str) -> None:
    assert place(list_images(parse_maps(maps))) == [
        ("program", "0x55d0a0000000", "0x55d0a0002000", False),
        ("libone.so.1", "0x7f0000000000", "0x7f0000004000", False),
        ("libgone.so", "0x7f0000010000", "0x7f0000012000", True),
    ]


def test_a_deleted_image_has_the_path_it_had(maps: str) -> None:
    assert [image.path for image in list_images(parse_maps(maps)) if image.deleted] == ["/opt/a b/libgone.so"]


def test_every_mapping_is_kept_with_its_path_as_the_kernel_wrote_it(maps: str) -> None:
    mappings = list_mappings(parse_maps(maps))
    assert len(mappings) == len(maps.splitlines())
    by_start = {mapping.start: mapping for mapping in mappings}
    assert by_start["0x7f0000040000"].path == "/dev/shm/torch_1_2 (deleted)"
    assert by_start["0x7f0000004000"].path is None
    assert (by_start["0x7ffc00000000"].path, by_start["0x7ffc00000000"].permissions) == ("[stack]", "rw-p")


def test_both_readers_take_a_pid(tmp_path: Path, maps: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/maps").write_text(maps)
    assert len(read_images(7, tmp_path)) == 3
    assert len(read_mappings(7, tmp_path)) == len(maps.splitlines())


def write_library(path: Path, *segments: tuple[int, int]) -> Path:
    """An ELF header and one PT_LOAD for each (address, size in memory)."""
    header = b"\x7fELF\x02\x01\x01".ljust(32, b"\0") + struct.pack(
        "<QQIHHHHHH", 64, 0, 0, 64, 56, len(segments), 0, 0, 0
    )
    table = [struct.pack("<IIQQQQQQ", 1, 5, 0, address, address, size, size, 4096) for address, size in segments]
    path.write_bytes(header + b"".join(table))
    return path


@pytest.mark.parametrize(
    ("ours", "its", "path"),
    [
        ("root", "root", "/dev/shm/batch"),
        (".", "root", "{place}/root/dev/shm/batch"),  # that is where we find it
        ("root", "roo", "{place}/root/dev/shm/batch"),
    ],
)
def test_the_root_that_we_share_stands_before_no_path(tmp_path: Path, ours: str, its: str, path: str) -> None:
    """Of a process below the same chroot as we are, but in another mount namespace."""
    place = tmp_path.resolve()
    for process, root in (("7", its), ("self", ours)):
        (place / root).mkdir(exist_ok=True)
        (place / process).mkdir()
        (place / process / "root").symlink_to(place / root)
    (place / "7/maps").write_text(f"7f0000000000-7f0000001000 rw-s 00000000 00:28 2    {place}/root/dev/shm/batch\n")
    assert [mapping.path for mapping in read_mappings(7, place)] == [path.format(place=place)]


def test_one_file_loaded_twice_is_two_images(tmp_path: Path) -> None:
    library = write_library(tmp_path / "libomp.so", (0, 0x1000), (0x1000, 0x800))
    text = "".join(
        f"{base:x}-{base + 0x1000:x} r-xp 00000000 08:01 5 {library}\n"
        f"{base + 0x1000:x}-{base + 0x2000:x} rw-p 00001000 08:01 5 {library}\n"
        for base in (0x7F0000000000, 0x7F0000002000)  # one directly after the other
    )
    assert place(list_images(parse_maps(text))) == [
        ("libomp.so", "0x7f0000000000", "0x7f0000002000", False),
        ("libomp.so", "0x7f0000002000", "0x7f0000004000", False),
    ]


def test_a_tiny_library_whose_segments_share_a_page_of_the_file_is_one_image(tmp_path: Path) -> None:
    library = write_library(tmp_path / "tiny.so", (0, 0x400), (0x1400, 0x100))
    text = (
        f"7f0000000000-7f0000001000 r-xp 00000000 08:01 5 {library}\n"
        f"7f0000001000-7f0000002000 rw-p 00000000 08:01 5 {library}\n"
    )
    assert place(list_images(parse_maps(text))) == [("tiny.so", "0x7f0000000000", "0x7f0000002000", False)]


@pytest.mark.parametrize(
    "stray", [0x7F0000000000, 0x7F0000006000, 0x7F0000009000], ids=["below", "next to it", "above"]
)
def test_a_part_of_a_library_that_is_mapped_again_is_no_load(tmp_path: Path, stray: int) -> None:
    """libffi 3.5 maps the page of its trampolines once more, wherever there is room."""
    library = write_library(tmp_path / "libffi.so.8", (0, 0x1000), (0x1000, 0x2000))
    lines = [
        f"7f0000002000-7f0000003000 r--p 00000000 08:01 4 {tmp_path}/libother.so\n",
        f"7f0000003000-7f0000004000 r--p 00000000 08:01 5 {library}\n",
        f"7f0000004000-7f0000006000 r-xp 00001000 08:01 5 {library}\n",
        f"7f0000008000-7f0000009000 r--p 00000000 08:01 6 {tmp_path}/libmore.so\n",
        f"{stray:x}-{stray + 0x1000:x} r-xp 00000800 08:01 5 {library}\n",
    ]
    assert place(list_images(parse_maps("".join(sorted(lines)))))[1] == (
        "libffi.so.8",
        "0x7f0000003000",
        "0x7f0000006000",
        False,
    )


def test_a_file_replaced_under_its_path_is_another_image() -> None:
    text = (
        "7f0000000000-7f0000001000 r-xp 00000000 08:01 5 /x/liba.so (deleted)\n"
        "7f0000100000-7f0000101000 r-xp 00000000 08:01 6 /x/liba.so\n"
    )
    assert [image.deleted for image in list_images(parse_maps(text))] == [True, False]


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"text " * 40, b"\x7fELF\x02" + b"\xff" * 100])
def test_span_of_what_is_no_elf_file_is_unknown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.so").write_bytes(content)
    assert read_span(tmp_path / "x.so") is None


def install(
    site: Path,
    name: str,
    version: str,
    files: dict[str, bytes],
    *,
    installer: str = "pip",
    directory: str | None = None,
) -> None:
    info = site / f"{directory or name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: of the text\n")
    (info / "INSTALLER").write_text(installer + "\n")
    lines = []
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(
            f'"{path}",sha256={digest},{len(content)}' if "," in path else f"{path},sha256={digest},{len(content)}"
        )
    (info / "RECORD").write_text("\n".join([*lines, f"{info.name}/RECORD,,"]) + "\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = tmp_path / "venv/lib/python3.11/site-packages"
    site.mkdir(parents=True)
    install(site, "torch", "2.13.0+cpu", {"torch/lib/libtorch_cpu.so": b"torch", "torch/lib/libgomp.so.1": b"gomp"})
    install(
        site, "faiss-cpu", "1.15.1", {"faiss/_swigfaiss.so": b"faiss", "faiss_cpu.libs/libgomp-24e2.so.1.0.0": b"gomp"}
    )
    install(site, "intel-openmp", "2025.1", {"../../libiomp5.so": b"iomp"})
    install(site, "odd", "1", {"odd/a,b.so": b"odd"})
    return site


def own(
    *paths: Path | str, prefix: str | None = None, root: Path = Path("/nowhere")
) -> list[tuple[str, str | None, str | None]]:
    images = [Image(str(path), "0x1000", "0x2000") for path in paths]
    owned = find_owners(images, find_site_packages(str(path) for path in paths), prefix, root)
    return [(image.owner, image.distribution, image.version) for image in owned]


def test_wheel_files_belong_to_the_distribution_that_recorded_them(site: Path) -> None:
    assert own(
        site / "torch/lib/libgomp.so.1",
        site / "faiss_cpu.libs/libgomp-24e2.so.1.0.0",
        site / "odd/a,b.so",
        site / "torch/lib/libadded.so",
    ) == [
        ("wheel", "torch", "2.13.0+cpu"),
        ("wheel", "faiss-cpu", "1.15.1"),
        ("wheel", "odd", "1"),
        ("unowned", None, None),
    ]


def test_a_wheels_data_file_outside_of_site_packages_is_found(site: Path) -> None:
    assert own(site.parents[1] / "libiomp5.so") == [("wheel", "intel-openmp", "2025.1")]


def test_a_directory_of_another_name_counts_when_it_holds_dist_info(tmp_path: Path) -> None:
    install(tmp_path / "store/ab12", "numpy", "2.4.6", {"numpy/_core/_multiarray.so": b"np"})
    assert own(tmp_path / "store/ab12/numpy/_core/_multiarray.so") == [("wheel", "numpy", "2.4.6")]


def test_the_same_relative_path_elsewhere_is_not_owned(site: Path, tmp_path: Path) -> None:
    assert own(site / "faiss/_swigfaiss.so", tmp_path / "faiss/_swigfaiss.so") == [
        ("wheel", "faiss-cpu", "1.15.1"),
        ("unowned", None, None),
    ]


def test_a_deleted_image_has_an_owner_but_no_version(site: Path) -> None:
    image = Image(str(site / "torch/lib/libgomp.so.1"), "0x1000", "0x2000", deleted=True)
    owned = find_owners([image], [str(site)], None, Path("/nowhere"))[0]
    assert (owned.distribution, owned.version) == ("torch", None)
    assert check_modified(owned) is None


def test_modified_is_what_the_hash_says(site: Path) -> None:
    library = site / "torch/lib/libgomp.so.1"
    image = Image(str(library), "0x1000", "0x2000")
    assert check_modified(image) is False
    library.write_bytes(b"gomq")
    assert check_modified(image) is True
    library.unlink()
    assert check_modified(image) is None


def test_modified_is_unknown_for_a_file_that_nobody_recorded(site: Path) -> None:
    (site / "torch/lib/libadded.so").write_bytes(b"added")
    assert check_modified(Image(str(site / "torch/lib/libadded.so"), "0x1000", "0x2000")) is None


def test_conda_owns_by_its_own_list_and_by_the_installer_of_a_record(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "conda-meta/llvm-openmp-19.1.7-h4_0.json").write_text('{"files": ["lib/libomp.so", "lib/libx.so.1"]}')
    (prefix / "conda-meta/history").write_text("")
    install(prefix / "lib/python3.11/site-packages", "numpy", "2.4.6", {"numpy/a.so": b"x"}, installer="conda")
    assert own(
        prefix / "lib/libomp.so", prefix / "lib/python3.11/site-packages/numpy/a.so", prefix / "lib/liby.so"
    ) == [
        ("conda", "llvm-openmp", "19.1.7"),
        ("conda", "numpy", "2.4.6"),
        ("unowned", None, None),
    ]


def test_dpkg_owns_under_the_old_and_the_new_name(tmp_path: Path) -> None:
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "libc6:amd64.list").write_text("/.\n/lib\n/lib/x86_64-linux-gnu/libc.so.6\n")
    (info / "libssl3.list").write_text("/usr/lib/x86_64-linux-gnu/libssl.so.3\n")
    (info.parent / "status").write_text(
        "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\n\nPackage: libssl3\nVersion: 3.0.19-1\n"
    )
    paths = ("/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libssl.so.3", "/usr/lib/libc.so.6")
    assert own(*paths, root=tmp_path) == [
        ("system", "libc6", "2.36-9"),
        ("system", "libssl3", "3.0.19-1"),
        ("unowned", None, None),
    ]


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/home/u/.pyenv/versions/3.11.7/bin/python3.11", "3.11.7"),
        ("/home/u/.pyenv/versions/3.11.7/lib/libpython3.11.so.1.0", "3.11.7"),
        ("/home/u/.pyenv/versions/3.11.7/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so", "3.11.7"),
        ("/nowhere/lib/x86_64-linux-gnu/libpython3.13.so.1.0", "3.13"),
        ("/opt/tool-3.2.1/bin/python3.12", "3.12"),
        ("/nowhere/bin/python3", None),
    ],
)
def test_the_interpreter_is_known_by_its_files(path: str, version: str | None) -> None:
    assert own(path) == [("interpreter", "CPython", version)]


@pytest.mark.skipif(sys.version_info < (3, 11) or sys.platform != "linux", reason="Py_Version, since 3.11, in ELF")
def test_the_release_is_the_one_compiled_in_whatever_the_file_is_called(tmp_path: Path) -> None:
    """A static interpreter tells by itself, else its libpython; a module has the release of what is beside it."""
    library = Path(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("LDLIBRARY") or "")
    is_shared = library.suffix == ".so" and library.exists()  # Debian's is static, and says that it is not
    folder = f"{sys.version_info[0]}.{sys.version_info[1]}"
    program = tmp_path / (f"libpython{folder}.so" if is_shared else f"bin/python{folder}")
    program.parent.mkdir(exist_ok=True)
    program.symlink_to(library if is_shared else Path(sys.executable).resolve())
    module = tmp_path / f"lib/python{folder}/lib-dynload/_ctypes.so"
    release = sys.version.split()[0].rstrip("+")
    assert own(program, module) == [("interpreter", "CPython", release)] * 2
    assert own("/nowhere/bin/python3.2", program)[0] == ("interpreter", "CPython", "3.2")  # another one beside it


@pytest.mark.parametrize("path", ["/opt/python/libfoo.so", "/usr/bin/pythonista-run", "/x/lib-dynload/deeper/a.so"])
def test_what_only_resembles_the_interpreter_is_not_it(path: str) -> None:
    assert own(path) == [("unowned", None, None)]


def test_another_prefixes_interpreter_is_not_ours() -> None:
    assert own("/opt/b/bin/python3.11", prefix="/opt/bb") == [("unowned", None, None)]


def test_rpm_is_asked_once_for_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the tool, which prints what rpm 4.18 prints; the answer's order is that of the question."""
    rpm = tmp_path / "rpm"
    rpm.write_text('#!/bin/sh\nprintf "glibc\\t2.39-6.fc40\\nfile /opt/x.so is not owned by any package\\n"\n')
    rpm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert owners.search_rpm({"/opt/x.so", "/lib64/libc.so.6"}) == {
        "/lib64/libc.so.6": owners.Owned("system", "glibc", "2.39-6.fc40")
    }
