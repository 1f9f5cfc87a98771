"""Builders of crashes for the unit tests: records as a dying process leaves them, with the shapes gdb shows."""

from __future__ import annotations

import signal

from harness.evidence.crash import Crash, CrashFrame, CrashThread, Image, Mapping

SEGV, BUS, ABRT, FPE, ILL, TRAP, SYS = (
    int(getattr(signal, f"SIG{name}")) for name in ("SEGV", "BUS", "ABRT", "FPE", "ILL", "TRAP", "SYS")
)
MAPERR, ACCERR, KERNEL, TKILL = 1, 2, 128, -6

PYTHON = "/usr/lib/libpython3.11.so.1.0"
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
FFI = "/usr/lib/x86_64-linux-gnu/libffi.so.8"
CTYPES = "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so"
FAISS = "/job/.venv/lib/python3.11/site-packages/faiss/libfaiss.so"
GOMP = "/job/.venv/lib/python3.11/site-packages/faiss_cpu.libs/libgomp-e985bcbb.so.1.0.0"
TORCH = "/job/.venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so"
OURS = "/job/.venv/lib/python3.11/site-packages/harness/libharness.so"

IMAGES = (
    Image("/usr/bin/python3.11", "0x555555554000", "0x555555559000", "python", "3.11.7", "interpreter"),
    Image(GOMP, "0x7fffeda00000", "0x7fffeda50000", "faiss-cpu", "1.15.1", "wheel"),
    Image(FAISS, "0x7fffee000000", "0x7fffee900000", "faiss-cpu", "1.15.1", "wheel"),
    Image(TORCH, "0x7ffff0000000", "0x7ffff1000000", "torch", "2.13.0", "wheel"),
    Image(OURS, "0x7ffff7300000", "0x7ffff7310000", "native-harness", "0.1.0", "wheel"),
    Image(FFI, "0x7ffff7440000", "0x7ffff7450000", "libffi8", "3.4.4", "system"),
    Image(CTYPES, "0x7ffff7458000", "0x7ffff7480000", "python", "3.11.7", "interpreter"),
    Image(LIBC, "0x7ffff7810000", "0x7ffff79f0000", "libc6", "2.36", "system"),
    Image(PYTHON, "0x7ffff7a00000", "0x7ffff7fb0000", "python", "3.11.7", "interpreter"),
)


def native(
    function: str | None, image: str | None, address: str | None = None, offset: str | None = None
) -> CrashFrame:
    return CrashFrame("native", function, image=image, address=address, offset=offset)


def python(function: str, file: str, line: int) -> CrashFrame:
    return CrashFrame("python", function, file=file, line=line)


def thread(tid: int, *frames: CrashFrame, name: str | None = None, crashed: bool = True) -> CrashThread:
    return CrashThread(tid, name, crashed, frames, "pystack native-all")


def mapping(start: int, end: int, permissions: str = "rw-p", path: str | None = None) -> Mapping:
    return Mapping(hex(start), hex(end), permissions, path)


def crash(*threads: CrashThread, **facts: object) -> Crash:
    """pid 100; the crashed thread is the first one."""
    values: dict[str, object] = {
        "pid": 100,
        "tid": threads[0].tid if threads else 100,
        "signo": SEGV,
        "si_code": MAPERR,
        "fault_address": "0x0",
        "pc": "0x7ffff796b219",
        "sp": "0x7fffffffde78",
        "registers": {},
        "raw_frames": (),
        "at_s": 1.0,
        "held_s": 0.2,
        "step": "native-all",
        "threads": threads,
        "images": IMAGES,
        **facts,
    }
    return Crash(**values)  # type: ignore[arg-type]
