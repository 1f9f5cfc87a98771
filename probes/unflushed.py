"""What a CPython process has printed to stdout and stderr but not flushed: `unflushed.py PID`, one JSON line.

Reads /proc/PID/{maps,mem,pagemap} and nothing else; does not stop, signal or change the process. Exact bytes or a
sentence that says why not. Without PID it looks at its own interpreter. `places` in the answer are the streams' own
addresses: given back as further words they spare the next look the search, which takes most of the time.

The way in: the image that holds the tag "cpython-3NN" holds the name "_io.TextIOWrapper". Up to 3.11 a static type
object points at that name; from 3.12 a PyType_Spec does, whose table of methods the type on the heap points at. A
stream is where a word equals the type's address. A TextIOWrapper keeps text it has not handed on in `pending_bytes`;
a BufferedWriter keeps `buffer[write_pos:write_end]`; a FileIO has the descriptor.

Nothing is believed for its address alone: a type must be a type with the right name and size, an object must stand in
the garbage collector's list (a copy of an object does not), counts must add up, and two readings must be equal.
"""

import json
import os
import re
import struct
import sys
import time

NAMES = {1: "stdout", 2: "stderr"}
KEEP_BYTES = 64 << 10
PENDING_LIMIT_BYTES = 16 << 20  # a TextIOWrapper hands on after 8 KiB unless told otherwise
ITEMS_LIMIT = 1 << 16
# Objects of the interpreter's first second lie near the start of its memory, which is searched first.
SEARCH_BYTES = 256 << 20
SEARCH_S, SEARCH_WALL_S = 1.5, 8.0  # on a CPU; others may keep us from it
SETTLE_S = 0.5
WINDOW_BYTES = 32 << 20  # looked up in the pagemap at once, so that reserved memory is passed over quickly
PIECE_BYTES = 1 << 20
IMAGE_BYTES = 256 << 20
PAGE = os.sysconf("SC_PAGESIZE")

# Offsets on 64-bit, from Include/cpython/object.h and Modules/_io/{textio,bufferedio,fileio}.c of 3.9 to 3.15; each is
# counted from the end of an object's head, whose last word is the type.
HEAD_BYTES, FREE_THREADED_HEAD_BYTES = 16, 32
TP_NAME, TP_BASICSIZE, TP_DEALLOC, TP_FLAGS, TP_METHODS, TP_BASE = 8, 16, 32, 152, 216, 240
LIST_ITEMS, BYTES_TEXT = 8, 16
IS_READY, IS_LIST, IS_BYTES, IS_STR, IS_TYPE = 1 << 12, 1 << 25, 1 << 27, 1 << 28, 1 << 31
SPEC_SLOTS, SLOT_METHODS = 24, 64
TEXT, WRITER, RANDOM, FILE = b"_io.TextIOWrapper", b"_io.BufferedWriter", b"_io.BufferedRandom", b"_io.FileIO"
# What they have without their head.
SIZES = {TEXT: 184, WRITER: 136, RANDOM: 136, FILE: 32}
# ok, detached, chunk_size, buffer, encoding, encoder, pending_bytes, pending_bytes_count
TEXT_FIELDS = struct.Struct("<iiqQQQ80xQq")
# raw, ok, detached, readable, writable, buffer, write_pos, write_end, owner, buffer_size
WRITER_FIELDS = struct.Struct("<Qiiii16xQ24xqq8xQq")
# A count has eight bytes; from 3.14 the last two are flags. Free-threaded: thread, flags, lock, the collector's bits,
# the thread's own count, the others' count and two bits.
LARGEST_COUNT = 1 << 33
FREE_THREADED_COUNTS = struct.Struct("<QHBBIq")


class CouldNot(Exception):
    """The answer is this sentence."""


class Moved(Exception):
    """What was read does not fit together: the process went on meanwhile, or it is not what it looked like."""


class Memory:
    """The memory of another process, as it is: every read may find it changed or gone."""

    def __init__(self, pid):
        self.mem = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        with open(f"/proc/{pid}/maps", "rb") as file:
            self.mappings = [parse_mapping(line) for line in file]
        try:
            self.pagemap = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY)
        except OSError:
            self.pagemap = None  # then pages that were never touched are read too
        self.give_up_at = time.monotonic() + SEARCH_WALL_S
        self.give_up_cpu_s = time.process_time() + SEARCH_S
        self.cut_short = self.is_swapped = False

    def close(self):
        for number in (self.mem, self.pagemap):
            if number is not None:
                os.close(number)

    def is_gone(self):
        """Also after an exec: the file stays with the memory it was opened for."""
        return not any(self.peek(start, 1) for start, *_ in self.mappings[:8])

    def peek(self, address, size):
        """As much as there is."""
        try:
            return os.pread(self.mem, size, address)
        except (OSError, OverflowError):
            return b""

    def read(self, address, size):
        data = self.peek(address, size)
        if len(data) != size:
            raise Moved("memory it points at is not there")
        return data

    def word(self, address):
        return int.from_bytes(self.read(address, 8), "little")

    def pieces(self):
        """(address, bytes) of the private memory that is there, the oldest first, within the bounds."""
        anonymous = [one for one in self.mappings if one[2][:2] == b"rw" and one[2][3:4] == b"p" and not one[3]]
        heaps = [one for one in anonymous if one[4] == b"[heap]"]
        others = [one for one in anonymous if not one[4].startswith((b"[heap", b"[stack"))]
        # brk grows upwards, mmap downwards, and neighbours merge into one mapping: its old end is not its own start.
        upwards = cut_into_windows(heaps, 1)
        downwards = cut_into_windows(others[::-1], -1)
        searched = 0
        for start, end in take_turns(upwards, downwards):
            for address, size in self.resident(start, end):
                data = self.peek(address, size)
                searched += len(data)
                if data != bytes(len(data)):  # a cheap way past what is all zeros
                    yield address, data
                if self.is_spent(searched):
                    return
            if self.is_spent(searched):
                return

    def is_spent(self, searched):
        late = time.monotonic() > self.give_up_at or time.process_time() > self.give_up_cpu_s
        if searched > SEARCH_BYTES or late:
            self.cut_short = True
        return self.cut_short

    @property
    def is_partly_searched(self):
        return self.cut_short or self.is_swapped

    def resident(self, start, end):
        """Runs of pages that are in memory. Reading others would map the zero page into the process, or bring them back
        from swap at its expense: in a full control group that ends it (Linux 6.18, seen 2026-11)."""
        try:
            entries = os.pread(self.pagemap, (end - start) // PAGE * 8, start // PAGE * 8)[7::8]
            self.is_swapped |= re.search(rb"[\x40-\x7f]", entries) is not None  # bit 63 present, bit 62 swapped
            marked = re.finditer(rb"[\x80-\xff]+", entries)
            runs = [(start + run.start() * PAGE, start + run.end() * PAGE) for run in marked]
        except (OSError, TypeError):  # no pagemap
            runs = [(start, end)]
        for first, last in runs:
            for address in range(first, last, PIECE_BYTES):
                yield address, min(PIECE_BYTES, last - address)


def parse_mapping(line):
    """start, end, permissions, inode, path"""
    span, permissions, _, _, inode, *path = line.rstrip(b"\n").split(None, 5)
    start, _, end = span.partition(b"-")
    return int(start, 16), int(end, 16), permissions, int(inode), path[0] if path else b""


def cut_into_windows(mappings, step):
    for start, end, *_ in mappings:
        for offset in range(0, end - start, WINDOW_BYTES):
            if step > 0:
                yield start + offset, min(start + offset + WINDOW_BYTES, end)
            else:
                yield max(end - offset - WINDOW_BYTES, start), end - offset


def take_turns(*iterators):
    left = list(iterators)
    while left:
        for one in list(left):
            item = next(one, None)
            if item is None:
                left.remove(one)
            else:
                yield item


def find_words(address, data, wanted):
    """Where in this piece the word `wanted` is, at addresses a word can have."""
    needle = wanted.to_bytes(8, "little")
    short = needle.rstrip(b"\0")  # memory is full of zeros: a needle that ends in one is searched for ten times slower
    at = data.find(short)
    while at >= 0:
        if (address + at) % 8 == 0 and data[at : at + 8] == needle:
            yield address + at
        at = data.find(short, at + 1)


class Image:
    """The file, mapped into the process, that holds the interpreter."""

    def __init__(self, memory, path):
        own = [one for one in memory.mappings if one[4] == path]
        self.start, self.end = own[0][0], own[-1][1]
        if sum(end - start for start, end, *_ in own) > IMAGE_BYTES:
            raise CouldNot(f"{os.fsdecode(path)} is too large to be searched")
        self.pieces = [(start, memory.peek(start, end - start)) for start, end, *_ in own]
        self.minor = self.flags = None
        for _, data in self.pieces:
            tag = re.search(rb"cpython-3(\d\d?)t?\0", data)
            suffix = re.search(rb"\.cpython-3\d+([a-z]*)[-.]", data)
            self.minor = int(tag.group(1)) if tag else self.minor
            self.flags = suffix.group(1) if suffix else self.flags

    @property
    def is_free_threaded(self):
        return self.flags == b"t"

    def holds(self, address):
        return self.start <= address < self.end

    def find_bytes(self, wanted):
        for start, data in self.pieces:
            for match in re.finditer(re.escape(wanted), data):
                yield start + match.start()

    def find_words(self, wanted):
        for start, data in self.pieces:
            yield from find_words(start, data, wanted)


def find_image(memory, pid):
    """The executable first: where it is an interpreter, a libpython beside it came with an extension and sleeps."""
    executable = os.fsencode(os.readlink(f"/proc/{pid}/exe"))
    mapped = list(dict.fromkeys(one[4] for one in memory.mappings))
    named = [path for path in mapped if os.path.basename(path).startswith((b"python", b"libpython"))]
    for path in [executable, *named]:
        if path in mapped:
            image = Image(memory, path)
            if image.minor is not None:
                check_build(image)
                return image
    raise CouldNot("no CPython was found in the process")


def check_build(image):
    if image.pieces[0][1][:6] != b"\x7fELF\x02\x01":
        raise CouldNot("only 64-bit little-endian processes can be read")
    if not 9 <= image.minor <= 15:
        raise CouldNot(f"it is CPython 3.{image.minor}; only 3.9 to 3.15 can be read")
    if image.flags and not image.is_free_threaded:
        raise CouldNot(f"it is a debug build of CPython ({image.flags.decode()})")


class Interpreter:
    """CPython's own structures in that memory."""

    def __init__(self, memory, image):
        self.memory, self.image = memory, image
        self.head = FREE_THREADED_HEAD_BYTES if image.is_free_threaded else HEAD_BYTES
        self.sizes = {name: size + self.head for name, size in SIZES.items()}
        self.sizes[TEXT] -= 8 if image.minor < 12 else 0
        self.text_at, self.text_pointer_at = (32, 56) if image.minor < 12 else (24, 40)
        self.count_bytes = 6 if image.minor >= 14 else 8
        self.known_types = {}

    def may_live(self, data, at):
        """Whether an object's head may be there: pointers come in tables, too many to follow each.

        Before this piece it may be anything.
        """
        if at < 0 or at + self.head > len(data):
            return True
        if not self.image.is_free_threaded:
            return 0 < int.from_bytes(data[at : at + self.count_bytes], "little") < LARGEST_COUNT
        _, _, lock, collector, own, others = FREE_THREADED_COUNTS.unpack_from(data, at)
        return lock < 4 and collector < 128 and (own > 0 or others >> 2 > 0)

    def read_body(self, address, layout):
        """(type, fields) of a living object."""
        data = self.memory.read(address, self.head + layout.size)
        if not self.may_live(data, 0):
            raise Moved("what was an object is none any more")
        kind = int.from_bytes(data[self.head - 8 : self.head], "little")
        return kind, layout.unpack_from(data, self.head)

    def read_kind(self, address):
        return self.memory.word(address + self.head - 8)

    def read_type(self, address):
        """(name, size, flags, base) if there is a type object at this address."""
        if address not in self.known_types:
            self.known_types[address] = self.check_type(address)
        return self.known_types[address]

    def check_type(self, address):
        try:
            data = self.memory.read(address + self.head - 8, TP_BASE + 16)
            field = lambda offset: int.from_bytes(data[offset + 8 : offset + 16], "little")  # noqa: E731
            meta_flags = self.memory.word(field(-8) + self.head + TP_FLAGS)
            if not (meta_flags & IS_TYPE and field(TP_FLAGS) & IS_READY and self.image.holds(field(TP_DEALLOC))):
                return None
            name = self.memory.peek(field(TP_NAME), 64).partition(b"\0")[0]
            return name, field(TP_BASICSIZE), field(TP_FLAGS), field(TP_BASE)
        except Moved:
            return None

    def name_builtin(self, address):
        """Which of the types of `sizes` the type at this address is or derives from."""
        for _ in range(16):
            found = self.read_type(address)
            if found is None:
                return None
            name, size, _, base = found
            if self.sizes.get(name) == size:
                return name
            address = base
        return None

    def type_of(self, address):
        return self.name_builtin(self.read_kind(address))

    def is_derived(self, address, base):
        found = self.read_type(address)
        return found is not None and found[3] == base

    def find_type(self, name):
        tables = set()
        for string in self.image.find_bytes(name + b"\0"):
            for place in self.image.find_words(string):
                found = self.read_type(place - TP_NAME - self.head)
                if found and found[:2] == (name, self.sizes[name]):
                    return place - TP_NAME - self.head
                tables.update(self.read_methods_of_spec(place, name))
        for address, data in self.memory.pieces() if tables else ():
            for table in tables:
                for place in find_words(address, data, table):
                    found = self.read_type(place - TP_METHODS - self.head)
                    if found and found[:2] == (name, self.sizes[name]):
                        return place - TP_METHODS - self.head
        part = "the part of its memory that was searched" if self.memory.cut_short else "its memory"
        raise CouldNot(f"the type {name.decode()} was not found in {part}")

    def read_methods_of_spec(self, spec, name):
        """The table of methods in a PyType_Spec (3.12 and later)."""
        try:
            size = int.from_bytes(self.memory.read(spec + 8, 4), "little")
            slot = self.memory.word(spec + SPEC_SLOTS)
            if size != self.sizes[name] or not self.image.holds(slot):
                return
            for _ in range(64):
                if self.memory.word(slot) & 0xFFFFFFFF == SLOT_METHODS:
                    yield self.memory.word(slot + 8)
                slot += 16
        except Moved:
            return

    def is_tracked(self, address):
        """Whether the garbage collector's list leads back here; its two low bits are flags. Free-threaded has a bit."""
        try:
            if self.image.is_free_threaded:
                return FREE_THREADED_COUNTS.unpack(self.memory.read(address, FREE_THREADED_COUNTS.size))[3] & 1 == 1
            following = self.memory.word(address - 16) & ~3
            return self.memory.word(following + 8) & ~3 == address - 16
        except Moved:
            return False

    def read_text(self, address, limit):
        """The bytes of an ASCII str or of a bytes object."""
        near = self.memory.peek(address, 256)  # most texts are short: one call instead of four
        if len(near) < self.head + 24:
            raise Moved("memory it points at is not there")
        kind, size, _, state = struct.unpack_from("<QQQQ", near, self.head - 8)
        if self.image.is_free_threaded and self.image.minor >= 14:
            state = state >> 8 << 2  # whether it is interned takes a byte there, two bits elsewhere
        found = self.read_type(kind)
        flags = found[2] if found else 0
        if size > limit or not (flags & IS_BYTES or (flags & IS_STR and state & 0x5C == 0x44)):  # 1-byte kind, ASCII
            raise Moved("its text is neither ASCII nor bytes")
        if flags & IS_BYTES:
            start = address + self.head + BYTES_TEXT
        elif state & 0x20:  # compact: the text follows its head
            start = address + self.head + self.text_at
        else:
            start = self.memory.word(address + self.head + self.text_pointer_at)
        inside = address <= start and start + size <= address + len(near)
        data = near[start - address :][:size] if inside else self.memory.read(start, size)
        if flags & IS_STR and not data.isascii():
            raise Moved("its text is not ASCII")
        return data

    def read_pending(self, address, count):
        """What a TextIOWrapper has not handed on: a str, a bytes or a list of them."""
        if not address:
            return b""
        if count > PENDING_LIMIT_BYTES:
            raise CouldNot(f"a stream holds {count} bytes, more than are read")
        items = [address]
        found = self.read_type(self.read_kind(address))
        if found and found[2] & IS_LIST:
            body = address + self.head
            length, items_at = self.memory.word(body), self.memory.word(body + LIST_ITEMS)
            if length > ITEMS_LIMIT:
                raise CouldNot(f"a stream holds a list of {length} texts, more than are read")
            items = struct.unpack(f"<{length}Q", self.memory.read(items_at, 8 * length))
        texts = {item: self.read_text(item, count) for item in set(items)}  # most newlines are one object
        return b"".join(map(texts.__getitem__, items))


class Streams:
    """The TextIOWrapper and BufferedWriter objects of a process that lead to a file descriptor."""

    def __init__(self, interpreter):
        self.python, self.memory = interpreter, interpreter.memory
        self.texts, self.writers = set(), set()

    def search(self):
        types = {self.python.find_type(TEXT), self.python.find_type(WRITER)}
        for _ in range(4):  # subclasses, and theirs
            types = self.search_for(types)
            if not types:
                break
        if self.python.image.is_free_threaded:
            self.drop_unreferenced()

    def drop_unreferenced(self):
        """A free-threaded build has no list of what is genuine, but of a copy inside something else nobody knows."""
        left = self.texts | self.writers
        for address, data in self.memory.pieces():
            left -= {one for one in left if any(True for _ in find_words(address, data, one))}
        self.texts -= left
        self.writers -= left

    def recall(self, places):
        """Those that were found before; whether all of them still are streams."""
        for address in places:
            self.collect(address)
        return bool(places) and set(places) <= self.texts | self.writers

    def search_for(self, types):
        """Collects the instances of these types; returns the types derived from them."""
        derived = set()
        for address, data in self.memory.pieces():
            for wanted in types:
                for place in find_words(address, data, wanted):
                    stream, subclass = place + 8 - self.python.head, place - TP_BASE - self.python.head
                    if self.python.may_live(data, stream - address):
                        self.collect(stream)
                    if self.python.may_live(data, subclass - address) and self.python.is_derived(subclass, wanted):
                        derived.add(subclass)
        return derived

    def collect(self, address):
        """If it is a stream. The word may belong to something else: a tuple of types, a namespace, the stack."""
        text = read_or_none(self.read_text_fields, address)
        if text:
            self.texts.add(address)
            address = text[0]  # may be a BufferedRandom, whose type is not searched for
        if read_or_none(self.read_writer_fields, address):
            self.writers.add(address)

    def read_text_fields(self, address):
        """(buffer, encoding, encoder, pending, count) of an open TextIOWrapper."""
        kind, (ok, detached, _, *fields) = self.python.read_body(address, TEXT_FIELDS)
        if ok != 1 or detached or self.python.name_builtin(kind) != TEXT:
            return None
        return fields if self.python.type_of(fields[0]) in (WRITER, RANDOM, FILE) else None

    def read_writer_fields(self, address):
        """(descriptor, buffer, write_pos, write_end, owner, buffer_size) of an open BufferedWriter."""
        kind, (raw, ok, detached, _, writable, *fields) = self.python.read_body(address, WRITER_FIELDS)
        if ok != 1 or detached or writable != 1 or self.python.name_builtin(kind) not in (WRITER, RANDOM):
            return None
        descriptor = self.read_descriptor(raw)
        return None if descriptor is None else [descriptor, *fields]

    def read_descriptor(self, address):
        if self.python.type_of(address) != FILE:
            return None
        return int.from_bytes(self.memory.read(address + self.python.head, 4), "little", signed=True)

    def keep_genuine(self, found, key):
        """Without copies: of two objects that own the same thing, the one the garbage collector knows."""
        tracked = {address for address in found if self.python.is_tracked(address)}
        owned = {found[address][key] for address in tracked}
        if any(fields[key] not in owned for fields in found.values()):
            raise Moved("it is not in the garbage collector's list (a collection may be under way)")
        return {address: found[address] for address in self.drop_equals(sorted(tracked), found, key)}

    def drop_equals(self, tracked, found, key):
        """A copy that something points at has the collector's bit of a free-threaded build, too."""
        if not self.python.image.is_free_threaded:
            return tracked
        owners = {found[address][key]: address for address in tracked}
        if any(found[address] != found[owners[found[address][key]]] for address in tracked):
            raise Moved("two objects claim the same text, and which of them is a copy cannot be told")
        return owners.values()

    def read_once(self, descriptor):
        """[(count, last bytes, encoding)] on this descriptor, one for each whose place in the order is not known."""
        writers, texts = self.read_open(descriptor)
        answer = []
        for address, fields in writers.items():
            above = [one for one in texts.values() if one[0] == address]
            answer += join_if_ordered(self.read_buffer(fields), [self.read_wrapper(one) for one in above])
        answer += [self.read_wrapper(one) for one in texts.values() if one[0] not in writers]
        return [one for one in answer if one[0]] or answer[:1]

    def read_open(self, descriptor):
        """The writers and the wrappers that lead to this descriptor; one that went away since is left out."""
        writers, texts = {}, {}
        for address in self.writers:
            fields = read_or_none(self.read_writer_fields, address)
            if fields and fields[0] == descriptor:
                writers[address] = fields
        for address in self.texts:
            fields = read_or_none(self.read_text_fields, address)
            if fields and (fields[0] in writers or read_or_none(self.read_descriptor, fields[0]) == descriptor):
                texts[address] = fields
        return self.keep_genuine(writers, 1), self.keep_genuine(texts, 2)

    def read_buffer(self, fields):
        _, buffer, start, end, owner, size = fields
        if owner:
            raise Moved("a write is under way, and what it carries is in no buffer")
        if end == -1:
            return 0, b"", ""
        if not 0 <= start <= end <= size:
            raise Moved("its positions do not fit together")
        kept = min(end - start, KEEP_BYTES)
        return end - start, self.memory.read(buffer + end - kept, kept), ""

    def read_wrapper(self, fields):
        _, encoding, _, pending, count = fields
        data = self.python.read_pending(pending, count)
        if len(data) != count:
            raise Moved("its count is not the length of its text")
        return count, data[-KEEP_BYTES:], self.python.read_text(encoding, 64).decode()

    def read_settled(self, descriptor):
        """Two readings in a row that are equal: then there was a moment at which all of it was true."""
        give_up_at = time.monotonic() + SETTLE_S
        before, why = None, "it goes on printing while it is read"
        while True:
            try:
                now, why = self.read_once(descriptor), "it goes on printing while it is read"
            except Moved as error:
                now, why = None, str(error)
            if now is not None and now == before:
                return now
            if time.monotonic() > give_up_at:
                raise CouldNot(f"{NAMES[descriptor]} could not be read: {why}")
            if before is not None or now is None:
                time.sleep(0.003)
            before = now


def read_or_none(read, address):
    try:
        return read(address)
    except Moved:
        return None


def join_if_ordered(below, above):
    """What the wrapper holds comes after what the writer holds; between two wrappers the order is not known."""
    holding = [one for one in above if one[0]]
    encoding = (holding or above or [below])[0][2]
    if len(holding) > 1:
        return [(below[0], below[1], encoding), *holding]
    count, data, _ = holding[0] if holding else (0, b"", "")
    return [(below[0] + count, (below[1] + data)[-KEEP_BYTES:], encoding)]


def describe(descriptor, count, data, encoding):
    truncated = count > len(data)
    if truncated and encoding.lower() in ("", "utf-8"):
        data = data.lstrip(bytes(range(0x80, 0xC0)))  # not with the rest of a character
    try:
        text = data.decode(encoding or "utf-8", "backslashreplace")
    except (LookupError, ValueError):
        text = data.decode("utf-8", "backslashreplace")
    return {"fd": descriptor, "name": NAMES[descriptor], "bytes": count, "text": text, "truncated": truncated}


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return False


def look(pid, places=()):
    if not os.path.exists("/proc/self/mem"):
        raise CouldNot("this needs Linux and its /proc")
    try:
        memory = Memory(pid)
    except PermissionError:
        if is_zombie(pid):  # it has no memory left, and so belongs to nobody but root
            raise CouldNot(f"process {pid} has ended") from None
        raise CouldNot(f"not permitted to read the memory of {pid}: run as its user or as root") from None
    except (FileNotFoundError, ProcessLookupError):
        ended = os.path.exists(f"/proc/{pid}")
        raise CouldNot(f"process {pid} has ended" if ended else f"there is no process {pid}") from None
    try:
        streams = Streams(Interpreter(memory, find_image(memory, pid)))
        if not streams.recall(places):
            streams.search()
        found, why = read_all(streams)
        places = sorted(streams.texts | streams.writers)
        return {"streams": found, "why": "; ".join(why) or None, "partly": memory.is_partly_searched, "places": places}
    except (CouldNot, OSError):
        if memory.is_gone():
            raise CouldNot(f"process {pid} ended while it was read") from None
        raise
    finally:
        memory.close()


def read_all(streams):
    found, why = [], []
    for descriptor in NAMES:
        try:
            found += [describe(descriptor, *one) for one in streams.read_settled(descriptor)]
        except CouldNot as error:
            why.append(str(error))
    if streams.memory.cut_short:
        why.append("only the older part of its memory was searched: a stream opened later may be missing")
    if streams.memory.is_swapped and len({one["fd"] for one in found}) < len(NAMES):
        why.append("what is in swap was not searched, because that could end the process: a stream may be missing")
    if not found:
        raise CouldNot("; ".join(why) or "no open stream on stdout or stderr was found in the process")
    return found, why


def main(words):
    if not all(word.isdigit() for word in words):
        sys.stderr.write("usage: unflushed.py [PID [PLACE...]]\n")
        return 2
    answer = {"streams": []}
    try:
        answer = look(int(words[0]) if words else os.getpid(), list(map(int, words[1:])))
    except CouldNot as error:
        answer["why"] = str(error)
    except OSError as error:
        answer["why"] = f"its memory could not be read: {error}"
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    if status:
        sys.exit(status)
