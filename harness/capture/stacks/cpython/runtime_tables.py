"""Where the fields of CPython's structures are, as the process says: the table that its `_PyRuntime` begins with.

CPython has it from 3.13 on, for debuggers (Include/internal/pycore_debug_offsets.h), free-threaded builds too. Which
offsets are in it differs between releases, and a release that is not known here is not read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

_COOKIE = b"xdebugpy"
_HEAD = struct.Struct("<8sQQ")  # cookie, version, free-threaded
_KNOWN = (13, 14, 15)
# `14:name` is there from 3.14 on. What follows these is not needed.
_TABLE = """
runtime_state: size finalizing interpreters_head
interpreter_state: size id next threads_head 14:threads_main gc imports_modules sysdict builtins ceval_gil
    gil_runtime_state gil_runtime_state_enabled gil_runtime_state_locked gil_runtime_state_holder
    14:code_object_generation 14:tlbc_generation
thread_state: size prev next interp current_frame 15:base_frame 15:last_profiled_frame 15:last_profiled_frame_seq
    thread_id native_thread_id datastack_chunk status 15:holds_gil 15:gil_requested 15:current_exception 15:exc_state
err_stackitem: 15:exc_value
interpreter_frame: size previous executable instr_ptr localsplus owner 14:stackpointer 14:tlbc_index
code_object: size filename name qualname linetable firstlineno argcount localsplusnames localspluskinds
    co_code_adaptive 14:co_tlbc
pyobject: size ob_type
type_object: size tp_name tp_repr tp_flags 15:tp_basicsize 15:tp_dictoffset
heap_type_object: 15:size 15:ht_cached_keys
tuple_object: size ob_item ob_size
list_object: size ob_item ob_size
set_object: 14:size 14:used 14:table 14:mask
dict_object: size ma_keys ma_values
float_object: size ob_fval
long_object: size lv_tag ob_digit
bytes_object: size ob_size ob_sval
unicode_object: size state length asciiobject_size
"""

Read = Callable[[int, int], bytes]


class Tables:
    """`offsets["code_object.filename"]`; an offset that is 0 may be one that this build has not."""

    def __init__(self, minor: int, free_threaded: bool, offsets: dict[str, int]) -> None:
        self.minor, self.free_threaded, self.offsets = minor, free_threaded, offsets


def read_tables(read: Read, runtime: int) -> Tables | None:
    """Null: there is no such table, or of a release that is not known."""
    data = read(runtime, _HEAD.size)
    if len(data) < _HEAD.size:
        return None
    cookie, version, free_threaded = _HEAD.unpack(data)
    minor = version >> 16 & 255
    if cookie != _COOKIE or version >> 24 != 3 or minor not in _KNOWN or free_threaded > 1:
        return None
    names = list(_list_names(minor))
    data = read(runtime + _HEAD.size, 8 * len(names))
    if len(data) < 8 * len(names):
        return None
    values = struct.unpack(f"<{len(names)}Q", data)
    return Tables(minor, bool(free_threaded), {name: values[at] for at, name in enumerate(names)})


def _list_names(minor: int) -> Iterator[str]:
    group = ""
    for word in _TABLE.split():
        since, _, name = word.rpartition(":")
        if not name:
            group = since
        elif not since or minor >= int(since):
            yield f"{group}.{name}"
