"""The native library, loaded through cffi; refuses one that was built from another header.

Does not build it: that is `native/build.py`, run by pip.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import HarnessError

LIBRARY = Path(__file__).with_name("libharness.dylib" if sys.platform == "darwin" else "libharness.so")
STRUCTS = (
    "harness_signal",
    "harness_start",
    "harness_process",
    "harness_channel",
    "harness_bounds",
    "harness_way",
    "harness_crash",
    "harness_leave",
    "harness_ending",
    "harness_kill",
    "harness_image",
    "harness_call",
    "harness_listing",
)
REINSTALL = "pip install --force-reinstall native-harness"


@cache
def load() -> tuple[Any, Any]:
    """Returns (ffi, lib). The ABI module is generated from native/harness.h when the package is built."""
    try:
        from harness._abi import ffi

        # Never unloaded: at the interpreter's end a SIGCHLD would find its handler gone.
        lib: Any = ffi.dlopen(str(LIBRARY), os.RTLD_NOW | os.RTLD_NODELETE)
    except (ImportError, OSError) as error:
        raise HarnessError(f"The native library cannot be loaded: {error}", hint=REINSTALL) from error
    for struct in STRUCTS:
        expected, actual = ffi.sizeof(f"struct {struct}"), lib.harness_size(struct.encode())
        if lib.harness_abi() != lib.HARNESS_ABI or expected != actual:
            raise HarnessError(
                f"{LIBRARY.name} was built from another version of its header "
                f"({struct}: {actual} bytes, expected {expected}).",
                hint=REINSTALL,
            )
    return ffi, lib
