"""The answer of `harness npz`: ruling and reason first, then the arrays, then what to do.

Does not decide anything. A line that maps an array is never wrapped: it is there to be copied.
"""

from __future__ import annotations

from harness.diagnose.environment.npz import tell_bytes
from harness.diagnose.words import name_some
from harness.documents.npz import NpzDocument
from harness.documents.npz_conversion import ConversionDocument
from harness.evidence.arrays import Array, ArrayFile, Measured
from harness.report.sections import Item, Section, keep_told, list_remedies, make_headline, make_section
from harness.report.terminal import paint

_MOST_ROWS = 100


def render(document: NpzDocument, *, width: int, color: bool) -> str:
    return paint(list_npz_sections(document), width=width, color=color)


def list_npz_sections(document: NpzDocument) -> list[Section]:
    ruling = document.ruling
    measured = f"in a child, one access each, with {document.python}" if document.measured and document.python else None
    return keep_told(
        [
            make_headline(ruling.headline, ruling.kind, ruling.status),
            make_section("why", ruling.explanation),
            make_section("grounds", [Item(ground.fact, source=ground.source) for ground in ruling.grounds]),
            *(section for file in document.files for section in _list_file(file, document)),
            make_section("measured", measured),
            make_section("not seen", _gaps(document)),
            *list_remedies(ruling.remedies),
            make_section("next", ruling.next, "next"),
        ]
    )


def _list_file(file: ArrayFile, document: NpzDocument) -> list[Section]:
    measured = {row.name: row for row in document.measured if row.file == file.path}
    return [
        make_section("file", f"{file.path}  {tell_bytes(file.file_bytes)} on disk"),
        make_section("arrays", _arrays(file, measured)),
        make_section("trouble", [*_troubles(file), *file.troubles]),
        make_section("not arrays", name_some(file.others, _MOST_ROWS) if file.others else None),
        make_section("map", _maps(file), "next", wrap=False),
    ]


def _arrays(file: ArrayFile, measured: dict[str, Measured]) -> list[str]:
    lines = [_describe(array, file, measured.get(array.name)) for array in file.arrays[:_MOST_ROWS]]
    rest = len(file.arrays) - _MOST_ROWS
    return [*lines, f"… and {rest} more (--json has them)"] if rest > 0 else lines


def _describe(array: Array, file: ArrayFile, measured: Measured | None) -> str:
    if array.shape is None:
        return f"{array.name}  unreadable"
    order = ", Fortran order" if array.fortran_order else ""
    unknown = "pickled objects: size in memory not known before loading"
    size = unknown if array.ram_bytes is None else f"{tell_bytes(array.ram_bytes)} in memory"
    how = {"stored": "not compressed"}.get(array.method, f"{array.method} {tell_bytes(array.file_bytes)}")
    parts = [f"{array.name}  {array.shape} {array.dtype}{order}", size, how, _mapping(array, file)]
    if measured is not None:
        parts.append(_measure(measured))
    return ", ".join(parts)


def _mapping(array: Array, file: ArrayFile) -> str:
    if array.offset is None:
        return "cannot be mapped"
    how = "with mmap_mode" if file.kind == "npy" else "by hand, mmap_mode does nothing"
    return f"mappable {how} (offset {array.offset}{'' if array.aligned else ', not aligned'})"


def _measure(measured: Measured) -> str:
    if measured.grown_bytes is None or measured.seconds is None:
        return f"not measured ({measured.why_not})"
    how = "mapped" if measured.mapped else "copied"
    return f"measured +{tell_bytes(max(measured.grown_bytes, 0))} in {measured.seconds:.2f} s, {how}"


def _troubles(file: ArrayFile) -> list[str]:
    return [f"{array.name}: {array.trouble}" for array in file.arrays if array.trouble]


def _maps(file: ArrayFile) -> list[str]:
    """Of as many arrays as are listed above it."""
    return [tell_mapping(file, array) for array in file.arrays[:_MOST_ROWS] if array.offset]


def tell_mapping(file: ArrayFile, array: Array) -> str:
    """One line of Python that maps the array."""
    if file.kind == "npy":
        return f"np.load({file.path!r}, mmap_mode='r')"
    dtype = repr(array.dtype) if array.dtype and not array.dtype.startswith(("[", "(")) else array.dtype
    order = ", order='F'" if array.fortran_order else ""
    return f"np.memmap({file.path!r}, dtype={dtype}, mode='r', offset={array.offset}, shape={array.shape}{order})"


def _gaps(document: NpzDocument) -> list[str]:
    gap = document.room.gap
    return [*document.unread, *([f"{gap.what}: {gap.why}"] if gap else [])]


def render_conversion(document: ConversionDocument, *, width: int, color: bool) -> str:
    return paint(list_conversion_sections(document), width=width, color=color)


def list_conversion_sections(document: ConversionDocument) -> list[Section]:
    done = document.conversion
    total = sum(one.bytes for one in done.written)
    count = len(done.written)
    arrays = "1 array" if count == 1 else f"{count} arrays"
    loads = [f"np.load({one.path!r}, mmap_mode='r')" for one in done.written[:_MOST_ROWS]]
    loads += [f"# … and {count - _MOST_ROWS} more"] if count > _MOST_ROWS else []
    return keep_told(
        [
            make_headline(f"{arrays} written to {done.directory}, {tell_bytes(total)}, checked."),
            make_section("left out", [f"{one.name}: {one.why}" for one in done.left_out]),
            make_section("load", loads, "next", wrap=False),
        ]
    )
