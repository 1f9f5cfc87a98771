"""Writes a checkpoint larger than RLIMIT_FSIZE allows; the OSError is not caught.
Python ignores SIGXFSZ at start, so write(2) fails with EFBIG: "[Errno 27] File too large"."""

import resource
import sys
import tempfile

EXPECT = {
    "kind": "resource-limit",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": "save_checkpoint",
    "headline": ["File too large"],
}
CONTROL = {"kind": "clean", "exit": 0}


def save_checkpoint(size_bytes):
    with tempfile.TemporaryFile(buffering=0) as checkpoint:
        written = 0
        while written < size_bytes:
            written += checkpoint.write(bytes(size_bytes - written))
    print("saved", written)


resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
save_checkpoint(1 << 16 if "--control" in sys.argv else 1 << 21)
