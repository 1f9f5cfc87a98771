"""What is loaded into this very process, and what its OpenMP calls are bound to, as the native library lists it.

Initialises no runtime and calls back into nothing. Another process is the business of live.py and, from inside, of
probes/openmp.py.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from harness.native import load

_ROOM = (256, 512, 1 << 15)  # images, calls, bytes of text; what is too little is asked again
_IMAGE, _CALL = struct.Struct("=QQII"), struct.Struct("=QQIiII")  # as in native/harness.h


class Loaded(NamedTuple):
    """`defines`: the HARNESS_DEFINES_* flags of native/harness.h."""

    path: str
    base: int
    size: int
    defines: int


class Call(NamedTuple):
    """`image` and `target` are places in the list of images; `target` null: the value lies in none of them."""

    image: int
    name: str
    slot: int
    value: int
    target: int | None
    lazy: bool


class Listing(NamedTuple):
    images: list[Loaded]
    calls: list[Call]


def list_loaded(*, calls: bool = True) -> Listing:
    """Images in the order in which they were loaded. `calls=False` leaves out what is bound to what."""
    ffi, lib = load()
    room = _ROOM
    while True:
        listing, _kept = _make_room(ffi, room, calls)
        if lib.harness_list_images(listing):
            return _read(ffi, listing)
        room = (listing.image_count, listing.call_count, listing.text_count)


def _make_room(ffi: Any, room: tuple[int, int, int], calls: bool) -> tuple[Any, list[Any]]:
    """The second part keeps the memory alive that the first points to."""
    images, texts = ffi.new("struct harness_image[]", room[0]), ffi.new("char[]", room[2])
    slots = ffi.new("struct harness_call[]", room[1]) if calls else ffi.NULL
    listing = ffi.new("struct harness_listing *", [images, slots, texts, *room])
    return listing, [images, slots, texts]


def _read(ffi: Any, listing: Any) -> Listing:
    """By `struct`, which is several times faster than cffi field by field."""
    text: bytes = ffi.buffer(listing.text, listing.text_count)[:]

    def string(at: int) -> str:
        return text[at : text.index(b"\0", at)].decode("utf-8", "replace")

    images = ffi.buffer(listing.images, listing.image_count * _IMAGE.size)
    calls = ffi.buffer(listing.calls, listing.call_count * _CALL.size) if listing.call_count else b""
    return Listing(
        [Loaded(string(path), base, size, defines) for base, size, path, defines in _IMAGE.iter_unpack(images)],
        [
            Call(image, string(name), slot, value, None if target < 0 else target, bool(lazy))
            for slot, value, image, target, name, lazy in _CALL.iter_unpack(calls)
        ],
    )
