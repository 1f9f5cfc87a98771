"""The command becomes a program that needs a library which is not installed: the loader ends it with status 127.
The program is a copy of `true` which asks for libq.so.6 in place of libc.so.6."""

import os
import shutil
import sys
import tempfile

EXPECT = {
    "kind": "abi-mismatch",
    "status": "established",
    "exit": 127,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["libq.so.6: cannot open shared object file"],
    "remedy": ["Install the library that is missing"],
}
CONTROL = {"kind": "clean", "exit": 0}


def make_program(needed):
    with open(shutil.which("true"), "rb") as program:
        content = program.read()
    with tempfile.NamedTemporaryFile(delete=False) as copy:
        copy.write(content.replace(b"libc.so.6", needed))
    os.chmod(copy.name, 0o700)
    return copy.name


os.execv(make_program(b"libc.so.6" if "--control" in sys.argv else b"libq.so.6"), ["train-native"])
