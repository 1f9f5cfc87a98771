"""Which frames of a native stack only carry others: libc, unwinders, abort machinery, our own handler.

One table each of images and functions, and the names of functions without their noise. Judges nobody.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePath

from harness.evidence.crash import CrashFrame

# The name a native thread inherits when nobody gives it one says nothing about it.
INHERITED_NAME = re.compile(r"python[\d.]*t?")
OUR_IMAGE = re.compile(r"libharness\.(so|dylib)")
# File names as installed, and as auditwheel renames them (libstdc++-1a2b3c4d.so.6.0.33). Allocators stand in for
# libc's: a damaged heap is noticed there, by whoever comes next. OpenMP runtimes are never plumbing.
_IMAGES = re.compile(
    r"(?:lib(?:c|m|dl|rt|pthread|util|resolv|stdc\+\+|c\+\+|c\+\+abi|gcc_s|unwind|ffi|harness|jemalloc|tcmalloc\w*|mimalloc)"
    r"|libc\.musl-\w+|ld|ld-linux[\w-]*|ld-musl-\w+|linux-vdso|faulthandler)[.-].*"
    r"|\[vdso\]|dyld|libsystem_\w+\.dylib|libSystem\..*|libdyld\.dylib"
)
_INTERPRETER = re.compile(r"python(?:\d(?:\.\d+)?)?[dtm]*(?:-bin)?|libpython\d.*|Python")
# Where a process ends itself on purpose: what is above such a frame says nothing about the place.
_EXITS = re.compile(
    r"raise|gsignal|abort|__abort|pthread_kill|t?g?kill|__pthread_kill(?:_\w+)?"
    r"|__assert(?:_perror)?_fail(?:_base)?|__assert_rtn|__assert13|abort_message|demangling_terminate_handler\(\)"
    r"|__(?:libc_)?fatal|__libc_message(?:_impl)?|__fortify_fail(?:_abort)?|__chk_fail|__stack_chk_fail(?:_local)?"
    r"|_objc_terminate\(\)|std::terminate|std::__terminate|std::unexpected|std::abort|__verbose_terminate_handler"
    r"|__cxxabiv1::\w+|__gnu_cxx::__verbose_terminate_handler|__clang_call_terminate|std::__throw_\w+"
    r"|__cxa_(?:throw|rethrow|pure_virtual|deleted_virtual|bad_\w+|call_\w+|throw_\w+)"
    r"|_Unwind_\w+|__gxx_personality_v0|std::__glibcxx_assert_fail|std::__libcpp_verbose_abort"
)
# Rust's way to the end; where there is debug information its sources tell (_STANDARD_SOURCE).
_RUST_EXITS = re.compile(
    r"(?:core|std)::panicking::.*|core::(?:option|result)::\w+_failed|panic_(?:abort|unwind)::.*|std::process::abort"
    r"|std::rt::__rust_abort|std::sys\w*::.*(?:abort_internal|__rust_(?:begin|end)_short_backtrace).*"
    r"|(?:__rustc::)?(?:_*rust_\w+|rust_begin_unwind)|alloc::alloc::handle_alloc_error|alloc::raw_vec::handle_error"
    # Where the tool that read the stack does not know Rust's mangling: a path that begins in one of Rust's own crates.
    r"|_R(?:I|N[a-zA-Z])+C(?:s[0-9A-Za-z]*_)?(?:3std|4core|5alloc|7___rustc|11panic_abort|12panic_unwind)\w*"
)
# Of a library that is compiled into everybody's program: inlined headers of C++, Rust's own crates, Go's runtime.
_STANDARD_SOURCE = re.compile(
    r"/include/(?:[\w.-]+/)?c\+\+/|/rustc[/-][\w.]+/library/|/rustlib/src/rust/library/|^library/(?:core|alloc|std|panic_\w+)/src/"
    r"|/src/runtime/[^/]+\.(?:go|s)$"
)
_TRAMPOLINES = r"__restore_rt|__kernel_rt_sigreturn|_sigtramp|<signal handler called>"
_CARRIERS = re.compile(rf"{_TRAMPOLINES}|faulthandler_\w+|start_thread|clone3?|_start")
_MALLOC_INTERNALS = re.compile(
    r"_int_(?:malloc|free|realloc|memalign)\w*|malloc_(?:consolidate|printerr)|unlink_chunk|sysmalloc\w*|systrim"
    r"|tcache_\w+|munmap_chunk|mremap_chunk|largebin_\w+|checked_request2size"
)
_VARIANT = re.compile(r"_+(?P<name>(?:mem|str|wcs|wmem|bcopy|bzero)[a-z]*)_\w+")
_ALLOCATION = re.compile(r"(?:__libc_|c)(?P<name>malloc|free|realloc|calloc|memalign)")
_VERSION = re.compile(r"@+\w[\w.]*$|(?: \[clone [^\]]*\])+$")
_SUFFIX = re.compile(
    r"(?:\.+(?:part|constprop|isra|cold|lto_priv|llvm|localalias|_omp_fn|omp_outlined|_debug__|\d+))+$"
)
_TEXT_KEPT = re.compile(r"operator(?:\(\)|<=>|<<=?|>>=?|->\*?|[<>]=?)|->|\(anonymous namespace\)|^<\w+>")
# Only the demangled name of a template starts with its return type.
_RETURN_TYPE = re.compile(r"^(?:[\w:&*~]+ )+")
_LONGEST_NAME = 120
_NO_SYMBOL = frozenset({"", "?", "??", "???", "<unknown>"})


# Stacks have many frames of few functions: each name is taken apart once.
@lru_cache(maxsize=4096)
def image_name(image: str | None) -> str:
    return PurePath((image or "").removesuffix(" (deleted)")).name


@lru_cache(maxsize=4096)
def is_interpreter(image: str | None) -> bool:
    """The Python program or libpython; its extension modules (lib-dynload) are components of their own."""
    return _INTERPRETER.fullmatch(image_name(image)) is not None


@lru_cache(maxsize=4096)
def _is_runtime(image: str | None) -> bool:
    return _IMAGES.fullmatch(image_name(image)) is not None


def is_plumbing(frame: CrashFrame) -> bool:
    if frame.kind == "python":
        return False
    if _is_runtime(frame.image):
        return True
    if frame.file is not None and _STANDARD_SOURCE.search(frame.file):
        return True
    return is_exit(frame) or _CARRIERS.fullmatch(plain_function(frame) or "") is not None


def is_ours(frame: CrashFrame) -> bool:
    return OUR_IMAGE.fullmatch(image_name(frame.image)) is not None


def is_exit(frame: CrashFrame) -> bool:
    function = plain_function(frame) or ""
    return (_EXITS.fullmatch(function) or _RUST_EXITS.fullmatch(function)) is not None


def is_trampoline(frame: CrashFrame) -> bool:
    """Between a signal's handler and what it interrupted."""
    return frame.kind == "native" and re.fullmatch(_TRAMPOLINES, frame.function or "") is not None


def is_malloc_internal(frame: CrashFrame) -> bool:
    return _is_runtime(frame.image) and _MALLOC_INTERNALS.fullmatch(plain_function(frame) or "") is not None


def symbol_of(frame: CrashFrame) -> str | None:
    """The function as the tool named it; null when it had no symbol."""
    return None if frame.function is None or frame.function in _NO_SYMBOL else frame.function


def plain_function(frame: CrashFrame) -> str | None:
    """The name without arguments, templates, compiler suffixes and the variants a CPU selects."""
    symbol = symbol_of(frame)
    if symbol is None or frame.kind == "python":
        return symbol
    return _plain(symbol, _is_runtime(frame.image))


@lru_cache(maxsize=4096)
def _plain(symbol: str, in_runtime: bool) -> str:
    name = _SUFFIX.sub("", _strip_arguments(_VERSION.sub("", symbol))) or ".omp_outlined"
    name = name.removeprefix("__GI_")
    if not in_runtime:
        return name
    if variant := _VARIANT.fullmatch(name):
        # glibc serves memcpy with __memmove_avx_unaligned_erms on one CPU, with __memcpy_ssse3 on another.
        return "memcpy" if variant["name"] == "memmove" else variant["name"]
    allocation = _ALLOCATION.fullmatch(name)
    return allocation["name"] if allocation else name


def shorten_function(name: str) -> str:
    """Readable in a report: template arguments go first, then the parameters, then the tail."""
    for shorter in (name, collapse(name, "<", ">"), collapse(collapse(name, "<", ">"), "(", ")")):
        if len(shorter) <= _LONGEST_NAME:
            return shorter
    return collapse(collapse(name, "<", ">"), "(", ")")[: _LONGEST_NAME - 1] + "…"


def collapse(name: str, opening: str, closing: str) -> str:
    """`f<a<b>, c>(d)` becomes `f<…>(d)`. Left alone: operators, `<lambda>`, `(anonymous namespace)`."""
    result, depth, position = "", 0, 0
    while position < len(name):
        kept = _TEXT_KEPT.match(name, position)
        text = kept[0] if kept else name[position]
        position += len(text)
        if text == opening:
            result += f"{opening}…{closing}" if depth == 0 else ""
            depth += 1
        elif text == closing and depth:
            depth -= 1
        elif depth == 0:
            result += text
    return result


def _strip_arguments(name: str) -> str:
    """`void ns::f<int>(char*) const` becomes `ns::f`."""
    bare = collapse(collapse(name, "<", ">"), "(", ")").replace("<…>", "")
    head, parameters, _ = bare.partition("(…)")
    return _RETURN_TYPE.sub("", head) if parameters and "operator" not in head else head
