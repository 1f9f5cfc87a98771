"""Where a suspended coroutine of another process stands, and what it awaits, read from its objects.

CPython 3.9 to 3.15. Stops nothing, and believes no address for itself: an object counts by the name of its type.
Coroutines that are not CPython's own (Cython's) end the chain. Up to 3.10 a coroutine has its frame apart, from 3.11 in
itself; the awaited object is what lies on top of the frame's stack, from 3.15 below one other word. A free-threaded
build has longer heads; from 3.14 its threads run copies of the code, and it is not read, as debug builds are not.
Offsets into an object count from the end of its head.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from harness.capture.stacks.cpython.objects import FREE_THREADED_HEAD_BYTES, HEAD_BYTES, is_counted
from harness.capture.stacks.cpython.own_reader import find_line
from harness.capture.stacks.cpython.process_memory import Memory
from harness.evidence.crash import CrashFrame

OLDEST, NEWEST, NEWEST_FREE_THREADED = 9, 15, 13
_NAME_BYTES = 32
TP_BASE = 240
_TP_NAME, _TP_BASICSIZE, _TP_FLAGS = 8, 16, 152
_IS_TYPE = 1 << 31
_MOST_METATYPES = 8
_LARGEST_COUNT = 1 << 31
_COUNT_BYTES = 4  # what follows are zeros, from 3.14 flags
_GC_BITS_AT, _IS_TRACKED = 11, 1  # of a free-threaded build, which has no list of what is tracked
_COROUTINES = (b"coroutine", b"generator", b"async_generator")
# Each has what it stands for behind its head.
_WRAPPERS = (b"coroutine_wrapper", b"async_generator_asend", b"async_generator_athrow", b"anext_awaitable")
FUTURE_ITERATOR = b"_asyncio.FutureIter"
_TAG_BITS = 3  # of a reference on a frame, from 3.14 on
_MOST_FRAMES, _MOST_WORDS = 64, 64
_PAGE_BYTES, _MOST_PAGES = 4096, 1 << 14
_LONGEST_TEXT, _LONGEST_TABLE, _LARGEST_FILE = 4096, 1 << 20, 64 << 20
# Of the frame in a coroutine: where it begins; from there its code, its instruction, its stack's height, its variables.
_INSIDE = {
    11: (64, 32, 56, 64, 72),
    12: (56, 0, 56, 64, 72),
    13: (56, 0, 56, 64, 72),
    14: (56, 0, 56, 64, 80),
    15: (56, 0, 56, 64, 80),
}
_STATE_AT = -5  # from there
_STATES_312: dict[int, str] = {-2: "new", -1: "suspended", 0: "running"}
_STATES_313: dict[int, str] = {-3: "new", -2: "suspended", -1: "suspended", 0: "running"}
_STATES: dict[int, dict[int, str]] = {
    10: _STATES_312,
    11: _STATES_312,
    12: _STATES_312,
    13: _STATES_313,
    14: _STATES_313,
    15: {0: "new", 1: "suspended", 2: "suspended", 3: "suspended", 4: "running"},
}


class Torn(Exception):
    """What was read does not fit together: the process went on meanwhile, or it is not what it looked like."""


class Frame(NamedTuple):
    """`state`: new, suspended, running, done. `awaited`, `first`: what lies on its stack, its first variable; or 0.

    `words`: its first variables, and what lies on its stack.
    """

    state: str
    code: int = 0
    offset: int = 0
    awaited: int = 0
    first: int = 0
    words: tuple[int, ...] = ()


class Chain(NamedTuple):
    """From the outermost to the innermost. `awaited`: what the innermost awaits; `first`: its first variable.

    `words`: variables and stacks of all of them. Of a coroutine that stays suspended they stay what they are.
    """

    state: str
    frames: tuple[CrashFrame, ...] = ()
    awaited: int = 0
    first: int = 0
    words: tuple[int, ...] = ()


class Coroutines:
    def __init__(self, memory: Memory, minor: int, *, free_threaded: bool = False) -> None:
        self.memory, self.minor = memory, minor
        self.head = FREE_THREADED_HEAD_BYTES if free_threaded else HEAD_BYTES
        self._kinds: dict[int, bytes] = {}
        self._codes: dict[int, tuple[str, str, int, bytes]] = {}
        self._lines: dict[tuple[int, int], CrashFrame] = {}
        self._pages: dict[int, bytes] = {}

    def peek(self, address: int, size: int) -> bytes:
        """As much as there is, of a page as it was when it was first read: objects stand close together."""
        page, at = divmod(address, _PAGE_BYTES)
        if at + size > _PAGE_BYTES:
            return self.memory.read(address, size)
        if page not in self._pages:
            if len(self._pages) >= _MOST_PAGES:
                self._pages.clear()
            self._pages[page] = self.memory.read(page * _PAGE_BYTES, _PAGE_BYTES)
        return self._pages[page][at : at + size]

    def peek_word(self, address: int) -> int:
        """0 where nothing is."""
        return int.from_bytes(self.peek(address, 8), "little")

    def read(self, address: int, size: int) -> bytes:
        data = self.peek(address, size)
        if len(data) != size:
            raise Torn
        return data

    def word(self, address: int) -> int:
        return int.from_bytes(self.read(address, 8), "little")

    def words(self, address: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}Q", self.read(address, 8 * count))

    def field(self, address: int, at: int = 0) -> int:
        """The word of the object there that is so far behind its head."""
        return self.word(address + self.head + at)

    # Objects

    def kind(self, address: int) -> bytes:
        """The name of the type of what is there; nothing where that is no object."""
        if address < 4096 or address % 8:
            return b""
        return self.type_name(self.type_of(address))

    def type_of(self, address: int) -> int:
        return self.peek_word(address + self.head - 8)

    def type_name(self, kind: int) -> bytes:
        if kind not in self._kinds:
            self._kinds[kind] = self._read_type_name(kind) if self.is_type(kind) else b""
        return self._kinds[kind]

    def _read_type_name(self, kind: int) -> bytes:
        return self.memory.read(self.peek_word(kind + self.head + _TP_NAME), _NAME_BYTES).partition(b"\0")[0]

    def is_type(self, address: int) -> bool:
        if address < 4096 or address % 8:
            return False
        meta = self.type_of(address)
        return bool(self.peek_word(meta + self.head + _TP_FLAGS) & _IS_TYPE) and self._is_metatype(meta)

    def _is_metatype(self, kind: int) -> bool:
        """It is `type`, the only one that is its own type, or derives from it; what has the bit by chance does not."""
        for _ in range(_MOST_METATYPES):
            if self.type_of(kind) == kind:
                return self._read_type_name(kind) == b"type"
            kind = self.peek_word(kind + self.head + TP_BASE)
        return False

    def size_of(self, kind: int) -> int:
        return self.peek_word(kind + self.head + _TP_BASICSIZE)

    def is_alive(self, address: int) -> bool:
        """Counted, and known to the collector: a freed object is not, nor, where that has a list, a copy of one."""
        if self.head == FREE_THREADED_HEAD_BYTES:
            head = self.peek(address, self.head)
            return len(head) == self.head and is_counted(head) and bool(head[_GC_BITS_AT] & _IS_TRACKED)
        count = int.from_bytes(self.peek(address, _COUNT_BYTES), "little")
        at = address - 16
        after = self.peek_word(at) & ~7
        return 0 < count < _LARGEST_COUNT and after != 0 and self.peek_word(after + 8) & ~7 == at

    def text(self, address: int) -> str:
        """Of a compact str; its kind, and whether it is ASCII, are bits of its state."""
        if self.kind(address) != b"str":
            raise Torn
        length, bits = self.field(address), self.read(address + self.head + 16, 1)[0] >> 2
        width = bits & 7
        if not bits & 8 or width not in (1, 2, 4):
            raise Torn
        ascii_at, other_at = (32, 56) if self.minor < 12 else (24, 40)
        start = address + self.head + (ascii_at if bits & 16 else other_at)
        data = self.read(start, min(length, _LONGEST_TEXT) * width)
        return data.decode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width], "replace")

    def items(self, address: int, most: int = 16) -> tuple[int, ...]:
        """Of a tuple or a list. From 3.14 a tuple remembers its hash."""
        kind = self.kind(address)
        if kind not in (b"tuple", b"list"):
            return ()
        own = address + self.head + (8 if self.minor < 14 else 16)
        return self.words(own if kind == b"tuple" else self.field(address, 8), min(self.field(address), most))

    # Frames

    def follow(self, coroutine: int) -> Chain:
        """From the coroutine of a task to what the innermost one awaits."""
        frames: list[CrashFrame] = []
        words: list[int] = []
        state, first = "", 0
        for _ in range(_MOST_FRAMES):
            kind = self.kind(coroutine)
            if kind in _WRAPPERS:
                coroutine = self.field(coroutine)
                continue
            if kind not in _COROUTINES:
                break
            frame = self._read_frame(coroutine)
            state = state or frame.state
            if frame.state == "done":
                break
            frames.append(self._describe(frame))
            words += (frame.offset, *frame.words)
            coroutine, first = frame.awaited, frame.first
        else:
            raise Torn
        return Chain(state or "suspended", tuple(frames), coroutine, first, tuple(words))

    def _read_frame(self, coroutine: int) -> Frame:
        return self._read_apart(coroutine) if self.minor < 11 else self._read_inside(coroutine)

    def _read_apart(self, coroutine: int) -> Frame:
        at, running = self.field(coroutine), self.read(coroutine + self.head + 8, 1)[0] == 1
        if not at:
            return Frame("done")
        if self.kind(at) != b"frame":
            raise Torn
        data = self.read(at, 368)
        (code,), (values,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<Q", data, 64)
        if self.minor == 9:
            (top,), (offset,) = struct.unpack_from("<Q", data, 72), struct.unpack_from("<i", data, 104)
            (first,) = struct.unpack_from("<Q", data, 360)
            state = "running" if running else "new" if offset < 0 else "suspended"
        else:
            (depth,), (index,) = struct.unpack_from("<i", data, 80), struct.unpack_from("<i", data, 96)
            (first,) = struct.unpack_from("<Q", data, 352)
            top, offset = values + 8 * depth, 2 * index
            state = _STATES[10].get(struct.unpack_from("<b", data, 108)[0], "done")
        awaited = self.word(top - 8) if state == "suspended" and top > values else 0
        words = self._read_words(at + (360 if self.minor == 9 else 352), top) if state == "suspended" else ()
        return Frame(state, code, max(offset, 0), awaited, first, words)

    def _read_words(self, start: int, top: int) -> tuple[int, ...]:
        count = min((top - start) // 8, _MOST_WORDS)
        return tuple(word & ~_TAG_BITS for word in self.words(start, count)) if count > 0 else ()

    def _read_inside(self, coroutine: int) -> Frame:
        start, code_at, instruction_at, top_at, variables_at = _INSIDE[self.minor]
        start += self.head
        data = self.read(coroutine, start + variables_at + 8)
        state = _STATES[self.minor].get(struct.unpack_from("<b", data, start + _STATE_AT)[0], "done")
        if state == "done":
            return Frame(state)
        (code,), (instruction,) = (struct.unpack_from("<Q", data, start + at) for at in (code_at, instruction_at))
        code &= ~_TAG_BITS
        variables = coroutine + start + variables_at
        if self.minor < 14:
            top = variables + 8 * struct.unpack_from("<i", data, start + top_at)[0]
        else:
            (top,) = struct.unpack_from("<Q", data, start + top_at)
        (first,) = struct.unpack_from("<Q", data, start + variables_at)
        variables_end = code + self.head + (60 if self.minor == 11 else 56)
        bottom = variables + 8 * int.from_bytes(self.read(variables_end, 4), "little")
        slot = top - (8 if self.minor < 15 else 16)
        awaited = self.word(slot) & ~_TAG_BITS if state == "suspended" and slot >= bottom else 0
        offset = instruction - code - self.size_of(self.type_of(code))  # the instructions begin behind the fields
        words = self._read_words(variables, top) if state == "suspended" else ()
        return Frame(state, code, max(offset, 0), awaited, first & ~_TAG_BITS, words)

    def _describe(self, frame: Frame) -> CrashFrame:
        known = (frame.code, frame.offset)
        if known not in self._lines:
            if self.kind(frame.code) != b"code":
                raise Torn
            if frame.code not in self._codes:
                self._codes[frame.code] = self._read_code(frame.code)
            name, file, first_line, table = self._codes[frame.code]
            line = _LINES.get(self.minor, find_line)(table, first_line, frame.offset)
            self._lines[known] = CrashFrame("python", name, file, line)
        return self._lines[known]

    def _read_code(self, code: int) -> tuple[str, str, int, bytes]:
        """Name, file, first line, table of lines."""
        file_at, line_at = (88, 24) if self.minor < 11 else (96, 56 if self.minor == 11 else 52)
        table = self.field(code, file_at + (16 if self.minor < 11 else 24))
        if self.kind(table) != b"bytes":
            raise Torn
        return (
            self.text(self.field(code, file_at + 8)),
            self.text(self.field(code, file_at)),
            int.from_bytes(self.read(code + self.head + line_at, 4), "little"),
            self.read(table + self.head + 16, min(self.field(table), _LONGEST_TABLE)),
        )


def _find_line_39(table: bytes, first_line: int, offset: int) -> int:
    """co_lnotab: pairs of how many bytes, and then how many lines, further; CPython 3.9, Objects/lnotab_notes.txt."""
    line, reached = first_line, 0
    for at in range(0, len(table) - 1, 2):
        reached += table[at]
        if reached > offset:
            break
        line += table[at + 1] - 256 * (table[at + 1] > 127)
    return line


def _find_line_310(table: bytes, first_line: int, offset: int) -> int:
    """co_linetable: pairs of a range's length in bytes, and how many lines further; PEP 626. -128: it has no line."""
    line, reached = first_line, 0
    for at in range(0, len(table) - 1, 2):
        reached += table[at]
        step = table[at + 1] - 256 * (table[at + 1] > 127)
        line += step if step != -128 else 0
        if offset < reached:
            break
    return line


def find_types(objects: Coroutines, name: bytes) -> Iterator[int]:
    """A type has the address of its name."""
    found: set[int] = set()
    for string in (*_find_constant(objects.memory, name + b"\0"), *objects.memory.find_bytes(name + b"\0")):
        for place in objects.memory.find(string):
            kind = place - objects.head - _TP_NAME
            if kind not in found and objects.is_type(kind):
                found.add(kind)
                yield kind


def _find_constant(memory: Memory, text: bytes) -> Iterator[int]:
    """In the interpreter, or in the module that is a file of its own."""
    for row in memory.rows:
        name = row.path.rpartition("/")[2]
        if row.permissions[:2] == "r-" and ("python" in name or name.startswith("_asyncio")):
            data = memory.read(row.start, min(row.end - row.start, _LARGEST_FILE))
            at = data.find(text)
            while at >= 0:
                yield row.start + at
                at = data.find(text, at + 1)


def list_instances(objects: Coroutines, kind: int) -> list[int]:
    """Where an object of that type is alive."""
    places = [place - objects.head + 8 for place in objects.memory.find(kind)]
    return [address for address in places if objects.is_alive(address)]


_LINES = {9: _find_line_39, 10: _find_line_310}
