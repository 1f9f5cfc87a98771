"""Near-miss: a helper program that the loader refuses is logged with its words; the command leaves with 127 by itself.
The words name another program than the one that left."""

import os
import shutil
import subprocess
import sys
import tempfile

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 127,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["127"],
}
CONTROL = {"kind": "clean", "exit": 0}


def make_program():
    with open(shutil.which("true"), "rb") as program:
        content = program.read()
    with tempfile.NamedTemporaryFile(delete=False) as copy:
        copy.write(content.replace(b"libc.so.6", b"libq.so.6"))
    os.chmod(copy.name, 0o700)
    return copy.name


def run_helper():
    return subprocess.run([make_program()], stderr=subprocess.PIPE).stderr.decode()


print(run_helper(), file=sys.stderr)
print("no license for this machine", file=sys.stderr)
sys.exit(0 if "--control" in sys.argv else 127)
