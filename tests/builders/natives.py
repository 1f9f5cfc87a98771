"""Small real native files for three platforms: a library that looks like an OpenMP runtime, and one that calls it."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_OFFERED = """
#ifdef _WIN32
#define OFFERED __declspec(dllexport)
#else
#define OFFERED __attribute__((visibility("default")))
#endif
"""
_RUNTIME = """
OFFERED const char __kmp_version[] = "@(#) LLVM OMP version: 5.0.20140926\\0@(#) LLVM OMP build compiler: Clang 14.0";
OFFERED int omp_get_max_threads(void) { return 1; }
OFFERED void __kmpc_fork_call(void *where, int count, void *work) { (void)where; (void)count; (void)work; }
"""
_CALLER = """
extern int omp_get_max_threads(void);
extern void __kmpc_fork_call(void *where, int count, void *work);
OFFERED int PyInit_caller(void) { __kmpc_fork_call(0, 0, 0); return omp_get_max_threads(); }
"""
# zig's target, the runtime's file, its flags, the caller's file, its flags (RUNTIME: what it is linked against)
_TARGETS = {
    "elf": (
        "x86_64-linux-gnu",
        ("libomp.so", ["-Wl,-soname,libomp.so"]),
        ("caller.so", ["libomp.so", "-Wl,-rpath,$ORIGIN"]),
    ),
    "macho": (
        "aarch64-macos",
        ("libomp.dylib", ["-Wl,-install_name,@rpath/libomp.dylib"]),
        ("caller.so", ["libomp.dylib", "-Wl,-rpath,@loader_path"]),
    ),
    "pe": (
        "x86_64-windows-gnu",
        ("omp.dll", ["-nostdlib", "-Wl,--no-entry", "-Wl,--out-implib,omp.lib"]),
        ("caller.pyd", ["-nostdlib", "-Wl,--no-entry", "omp.lib"]),
    ),
}
FORMATS = tuple(_TARGETS)


@functools.cache
def build(kind: str) -> tuple[Path, Path]:
    """(the runtime, its caller) in one folder, which lives as long as the tests do."""
    pytest.importorskip("ziglang", reason="no ziglang, which compiles for three platforms; next: make .venv/dev.stamp")
    target, runtime, caller = _TARGETS[kind]
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="harness-natives-"))
    folder = Path(_FOLDERS[-1].name)
    for (name, flags), source in ((runtime, _RUNTIME), (caller, _CALLER)):
        (folder / f"{name}.c").write_text(_OFFERED + source)
        command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-shared", "-fPIC", "-O1"]
        subprocess.run([*command, "-o", name, f"{name}.c", *flags], cwd=folder, check=True, timeout=300)
    return folder / runtime[0], folder / caller[0]


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
