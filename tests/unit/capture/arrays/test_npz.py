"""Array files read by their headers, against numpy itself; damaged, foreign and forged ones get a sentence."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zipfile
from pathlib import Path

import pytest

from harness.capture.arrays.archive import read_array_file
from harness.capture.arrays.available_memory import read_room
from harness.capture.arrays.directory import list_overlaps
from harness.capture.arrays.header import BadHeader, read_header
from harness.diagnose.environment.npz import judge_npz
from harness.errors import HarnessError
from harness.evidence.arrays import Array, ArrayFile, Room
from harness.remedy import npz as remedy
from harness.remedy.npz import convert
from harness.report.npz import render, tell_mapping
from tests.builders.sparse_npz import build_sparse, header

np = pytest.importorskip("numpy")

DTYPES = [
    "<f4",
    ">f8",
    "|u1",
    "?",
    "<c16",
    "<c8",
    "<U5",
    "|S3",
    "|V6",
    "<M8[ns]",
    "<m8[D]",
    "<f2",
    "<g",
    [("a", "<f4"), ("b", "<U3", (2,)), ("c", [("d", "<i2"), ("e", "|S7")])],
    np.dtype([("a", "u1"), ("b", "<f8")], align=True),
    [(("a title", "a"), "<f8")],
]
SHAPES = [(), (0,), (7,), (3, 0, 2), (4, 5, 6)]


def fill(shape: tuple[int, ...], dtype: object) -> np.ndarray:
    array = np.zeros(shape, dtype)
    raw = np.random.default_rng(7).integers(0, 100, array.nbytes, "u1")
    return np.frombuffer(raw.tobytes(), array.dtype).reshape(shape) if array.nbytes else array


def write_members(path: Path, members: dict[str, bytes], **options: object) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def npy(array: np.ndarray, **options: object) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **options)
    return out.getvalue()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_header_says_what_numpy_says(dtype: object, shape: tuple[int, ...]) -> None:
    array = fill(shape, dtype)
    told = read_header(io.BytesIO(npy(array)))
    assert (told.shape, told.data_bytes, told.item_bytes) == (array.shape, array.nbytes, array.dtype.itemsize)
    assert len(npy(array)) - told.bytes == array.nbytes


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_all_three_format_versions_are_read(version: tuple[int, int]) -> None:
    array = np.zeros((3, 4), [("ü" if version == (3, 0) else "u", "<f4")])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = read_header(io.BytesIO(npy(array, version=version)))
    assert (told.version, told.shape, told.data_bytes) == (version, (3, 4), 48)


def test_a_header_of_python_2_is_read() -> None:
    told = read_header(io.BytesIO(header("{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 4L)}")))
    assert told.shape == (3, 4)


@pytest.mark.parametrize(
    "word", ["3i4", "<0i4", "i4,f8", "i4, (2,3)f8", "i4,", "<\x0c", "\x00", "10U7", "<U+17", "<U 7", "|N"]
)
def test_what_numpy_also_takes_for_a_dtype(word: str) -> None:
    told = read_header(io.BytesIO(header(repr({"descr": word, "fortran_order": False, "shape": (2,)}))))
    assert (told.item_bytes, told.pickled) == (np.dtype(word).itemsize, np.dtype(word).hasobject)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x93NUMPY\x09\x00", "version is 9.0"),
        (b"\x93NUMPY\x01", "ends inside"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "4,294,967,295 bytes long"),
        (header("{'descr': '<f4', 'shape': (3,)}"), "does not name"),
        (header("__import__('os').system('true')"), "no Python literal"),
        (header("(" * 5000), "no Python literal"),
        (header("-" * 60000 + "1", (2, 0)), "no Python literal"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}"), "shape is (-1, 4)"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}"), "shape is (True,)"),
        (header("{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}"), "fortran_order is 1"),
        (header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**62}, 8)}}"), "than there are addresses"),
        (header("{'descr': '', 'fortran_order': False, 'shape': (1,)}"), "none of numpy's own"),
        (header("{'descr': 'i4 f8', 'fortran_order': False, 'shape': (1,)}"), "none of numpy's own"),
        (header("{'descr': 'i4,,f8', 'fortran_order': False, 'shape': (1,)}"), "none of numpy's own"),
        (header("{'descr': '<f" + "9" * 5000 + "', 'fortran_order': False, 'shape': (1,)}"), "none of numpy's own"),
        (header("{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,)}"), "none of numpy's own"),
        (header("{'descr': [('a',)], 'fortran_order': False, 'shape': (1,)}"), "has the field"),
    ],
)
def test_a_bad_header_gets_a_sentence(data: bytes, words: str) -> None:
    with pytest.raises(BadHeader, match=words.replace("(", r"\(").replace(")", r"\)")):
        read_header(io.BytesIO(data))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    path = tmp_path_factory.mktemp("npz") / "mixed.npz"
    arrays = {
        "X": fill((50, 20, 8), "<f4"),
        "F": np.asfortranarray(fill((30, 40), "<i8")),
        "s": fill((5,), DTYPES[13]),
        "deep/er": fill((4,), "<f8"),
        "one": fill((), "<f8"),
    }
    np.savez(path, **arrays)
    return path, arrays


def test_the_printed_line_maps_the_array_that_numpy_loads(mixed: tuple[Path, dict[str, np.ndarray]]) -> None:
    path, arrays = mixed
    file = read_array_file(path)
    assert {array.name: array.ram_bytes for array in file.arrays} == {name: a.nbytes for name, a in arrays.items()}
    for array in file.arrays:
        mapped = eval(tell_mapping(file, array), {"np": np})
        assert isinstance(mapped, np.memmap)
        assert mapped.dtype == arrays[array.name].dtype and mapped.tobytes() == arrays[array.name].tobytes()
        assert array.fortran_order == (array.name == "F")
        assert array.aligned == (array.offset % arrays[array.name].dtype.alignment == 0)


def test_a_compressed_member_cannot_be_mapped_and_its_size_is_that_in_memory(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "c.npz", X=np.zeros((1000, 1000)))
    (array,) = read_array_file(tmp_path / "c.npz").arrays
    assert (array.method, array.ram_bytes, array.offset) == ("deflate", 8_000_000, None)
    assert array.file_bytes < 10_000


@pytest.mark.parametrize(("method", "name"), [(zipfile.ZIP_BZIP2, "bzip2"), (zipfile.ZIP_LZMA, "lzma")])
def test_other_methods_of_the_standard_library_are_read(tmp_path: Path, method: int, name: str) -> None:
    path = write_members(tmp_path / "m.npz", {"X.npy": npy(np.arange(100.0))}, compression=method)
    (array,) = read_array_file(path).arrays
    assert (array.method, array.shape, array.ram_bytes, array.trouble) == (name, (100,), 800, None)


def test_objects_are_named_and_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (os.mkdir, (str(tmp_path / "sprung"),))

    np.savez(tmp_path / "o.npz", o=np.array([Trap()], dtype=object), x=np.arange(3))
    file = read_array_file(tmp_path / "o.npz")
    objects = file.arrays[0]
    assert (objects.name, objects.pickled, objects.ram_bytes, objects.offset) == ("o", True, None, None)
    done = convert(file, tmp_path / "out")
    assert [one.name for one in done.written] == ["x"] and "pickled" in done.left_out[0].why
    assert not (tmp_path / "sprung").exists()


def read_chars() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def test_eleven_gigabytes_are_read_by_their_headers_and_can_be_mapped(tmp_path: Path) -> None:
    path = tmp_path / "train.npz"
    data = build_sparse(path, (35901, 100, 768))
    assert data == 11_028_787_200 and path.stat().st_blocks * 512 < 1_000_000
    assert np.load(path).files == ["X_train"]  # numpy takes it for what it is meant to be
    before = read_chars()
    file = read_array_file(path)
    assert read_chars() - before < 200_000
    assert file.arrays[0].ram_bytes == data
    mapped = eval(tell_mapping(file, file.arrays[0]), {"np": np})
    assert mapped.shape == (35901, 100, 768) and not mapped[35900, 99].any()


def test_a_truncated_member_says_what_is_promised_and_what_is_there(tmp_path: Path) -> None:
    path = write_members(tmp_path / "t.npz", {"X.npy": npy(np.zeros(1000))[:500], "ok.npy": npy(np.zeros(3))})
    file = read_array_file(path)
    assert "promises 8,000 bytes of data and 372 are there" in file.arrays[0].trouble
    assert file.arrays[1].trouble is None


def test_a_forged_shape_does_not_make_a_bomb(tmp_path: Path) -> None:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**40},)}}"
    file = read_array_file(write_members(tmp_path / "b.npz", {"X.npy": header(text) + bytes(64)}))
    assert file.arrays[0].trouble.startswith("truncated")


def test_members_that_share_their_bytes_are_a_bomb() -> None:
    assert list_overlaps([(0, 100, "a"), (50, 150, "b"), (200, 300, "c")]) == ["b"]
    assert list_overlaps([(0, 100, "a"), (100, 150, "b"), (150, 150, "empty"), (150, 160, "c")]) == []


def test_a_real_overlap_is_named(tmp_path: Path) -> None:
    path = write_members(tmp_path / "x.npz", {"a.npy": npy(np.zeros(50)), "b.npy": npy(np.zeros(50))})
    data = bytearray(path.read_bytes())
    second = data.rfind(b"PK\1\2")
    struct.pack_into("<L", data, second + 42, 0)  # the second entry leads to the first member
    data[second + 46 : second + 51] = b"a.npy"
    path.write_bytes(data)
    file = read_array_file(path)
    assert "share their bytes" in file.troubles[0]
    assert judge_npz("0", (file,), Room(10**12, "")).ruling.kind == "risk"


def test_of_two_members_with_one_name_numpy_gives_the_last(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("X.npy", npy(np.zeros(1000)))
        archive.writestr("X.npy", npy(np.ones(3)))
    file = read_array_file(path)
    assert [array.shadowed for array in file.arrays] == [True, False]
    assert np.load(path)["X"].sum() == 3
    assert judge_npz("0", (file,), Room(10**12, "")).total_bytes == 24


def test_what_is_not_an_array_is_listed_apart_and_content_counts_not_the_name(tmp_path: Path) -> None:
    members = {"readme.txt": b"hello there", "X": npy(np.arange(4)), "bad.npy": b"not an array at all"}
    file = read_array_file(write_members(tmp_path / "n.npz", members))
    assert file.others == ("readme.txt",)
    assert [(array.name, bool(array.trouble)) for array in file.arrays] == [("X", False), ("bad", True)]


@pytest.mark.parametrize(("method", "words"), [(9, "deflate64"), (93, "zstandard"), (77, "method 77")])
def test_an_unknown_method_is_named(tmp_path: Path, method: int, words: str) -> None:
    path = write_members(tmp_path / "u.npz", {"X.npy": npy(np.zeros(3))})
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, 8, method)
    struct.pack_into("<H", data, data.rfind(b"PK\1\2") + 10, method)
    path.write_bytes(data)
    assert words in read_array_file(path).arrays[0].trouble


def test_an_encrypted_member_is_named(tmp_path: Path) -> None:
    path = write_members(tmp_path / "e.npz", {"X.npy": npy(np.zeros(3))})
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.rfind(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    assert "encrypted" in read_array_file(path).arrays[0].trouble


def refusal(path: Path) -> str:
    with pytest.raises(HarnessError) as told:
        read_array_file(path)
    assert told.value.exit_code == 3 and told.value.hint
    return str(told.value)


def test_what_is_no_array_file_is_said_to_be_what_it_is(tmp_path: Path) -> None:
    samples = {
        "h5": (b"\x89HDF\r\n\x1a\n", "HDF5"),
        "pkl": (b"\x80\x04\x95", "pickle"),
        "gz": (b"\x1f\x8b\x08", "gzip"),
        "empty": (b"", "is empty"),
        "text": (b"hello world", "it begins with b'hello wo'"),
    }
    for name, (data, words) in samples.items():
        (tmp_path / name).write_bytes(data)
        assert words in refusal(tmp_path / name)
    assert "without an array" in refusal(write_members(tmp_path / "w.whl", {"a/METADATA": b"x"}))
    assert "torch.save" in refusal(write_members(tmp_path / "m.pt", {"m/data.pkl": b"x", "m/data/0": b"y"}))


def test_what_cannot_be_opened_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in refusal(tmp_path / "fifo")
    assert "is a directory" in refusal(tmp_path)
    assert "No such file" in refusal(tmp_path / "absent.npz")
    assert "not a regular file" in refusal(Path("/dev/zero"))


def test_an_archive_cut_off_anywhere_gets_a_sentence(tmp_path: Path, mixed: tuple[Path, dict]) -> None:
    whole = mixed[0].read_bytes()
    path = tmp_path / "cut.npz"
    for length in (10, 1000, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "damaged zip archive" in refusal(path)


def test_no_flipped_byte_of_the_structure_makes_it_fail_otherwise(tmp_path: Path) -> None:
    path = write_members(tmp_path / "f.npz", {"X.npy": npy(np.arange(3.0)), "y.npy": npy(np.arange(2))})
    whole = path.read_bytes()
    for index in range(len(whole)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 0xFF]) + whole[index + 1 :])
        try:
            read_array_file(path)
        except HarnessError as error:
            assert str(error)


def test_conversion_gives_the_same_arrays_mapped(mixed: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    path, arrays = mixed
    done = convert(read_array_file(path), tmp_path / "out")
    assert {one.name for one in done.written} == set(arrays) and not done.left_out
    for one in done.written:
        mapped = np.load(one.path, mmap_mode="r")
        assert isinstance(mapped, np.memmap) or mapped.ndim == 0
        assert mapped.tobytes() == arrays[one.name].tobytes() and mapped.dtype == arrays[one.name].dtype
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["F.npy", "X.npy", "deep", "one.npy", "s.npy"]
    with pytest.raises(HarnessError, match="nothing is overwritten"):
        convert(read_array_file(path), tmp_path / "out")


@pytest.mark.parametrize("name", ["../out.npy", "/abs.npy", "a/../../b.npy", "..\\win.npy", "link/x.npy"])
def test_no_name_leads_out_of_the_directory(name: str, tmp_path: Path) -> None:
    path = write_members(tmp_path / "slip.npz", {"ok.npy": npy(np.arange(3)), name: npy(np.arange(3))})
    target = tmp_path / "out"
    target.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (target / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HarnessError, match="outside of"):
        convert(read_array_file(path), target)
    assert [entry.name for entry in target.iterdir()] == ["link"]
    assert not list((tmp_path / "elsewhere").iterdir()) and not (tmp_path / "b.npy").exists()


def test_a_wrong_checksum_leaves_nothing_behind(tmp_path: Path) -> None:
    path = write_members(tmp_path / "crc.npz", {"a.npy": npy(np.arange(9.0)), "b.npy": npy(np.arange(900.0))})
    data = bytearray(path.read_bytes())
    data[data.find(b"PK\1\2") - 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(HarnessError, match="b is damaged"):
        convert(read_array_file(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_too_little_disk_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_sparse(tmp_path / "big.npz", (2**30, 2**10))  # 4 TiB
    with pytest.raises(HarnessError, match="has room for"):
        convert(read_array_file(tmp_path / "big.npz"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_zeros_become_holes(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "z.npz", X=np.zeros(4 * 2**20))
    done = convert(read_array_file(tmp_path / "z.npz"), tmp_path / "out")
    assert Path(done.written[0].path).stat().st_size == 32 * 2**20 + 128
    assert Path(done.written[0].path).stat().st_blocks * 512 <= 2 * remedy._PIECE


def one(ram_bytes: int | None, **options: object) -> ArrayFile:
    array = Array("X", (1,), "<f4", False, "stored", 10, ram_bytes, **options)
    return ArrayFile("data/x.npz", "npz", 10, (array,))


@pytest.mark.parametrize(
    ("ram_bytes", "available", "kind", "code"),
    [(101, 100, "conflict", 10), (100, 100, "risk", 11), (81, 100, "risk", 11), (80, 100, "no-conflict", 0)],
)
def test_ruling_by_size(ram_bytes: int, available: int, kind: str, code: int) -> None:
    document = judge_npz("0", (one(ram_bytes),), Room(available, "on this machine"))
    assert (document.ruling.kind, document.exit_code, document.ruling.status) == (kind, code, "established")
    assert ("--to-npy data/x" in (document.ruling.next or "")) == (kind != "no-conflict")


def test_what_is_not_known_is_never_no_conflict() -> None:
    for file, room in ((one(None, pickled=True), Room(100, "")), (one(5), Room(None, None))):
        document = judge_npz("0", (file,), room)
        assert (document.ruling.kind, document.ruling.status) == ("risk", "supported")


def test_several_files_are_added_up() -> None:
    document = judge_npz("0", (one(60), one(60)), Room(100, "on this machine"))
    assert document.ruling.kind == "conflict" and "one at a time they fit" in document.ruling.headline
    assert "mmap_mode is accepted and ignored" in " ".join(render(document, width=100, color=False).split())


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_room_is_the_least_of_machine_and_groups(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/job"
    root = write_tree(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 8000 kB\nSwapFree: 5 kB\n",
            "proc/self/cgroup": "0::/job\n",
            f"{group}/memory.events": "oom_kill 0\n",
            f"{group}/memory.max": "1000000\n",
            f"{group}/memory.current": "900000\n",
            f"{group}/memory.stat": "anon 100000\ninactive_file 300000\n",
        },
    )
    room = read_room(root)
    assert (room.available_bytes, room.swap_free_bytes) == (400_000, 5120)
    assert "memory.max" in room.source
    (root / group / "memory.max").write_text("max\n")
    assert read_room(root) == Room(8000 * 1024, "on this machine", 5120)


def test_room_that_nobody_tells_is_a_gap(tmp_path: Path) -> None:
    room = read_room(tmp_path)
    assert room.available_bytes is None and room.gap is not None
