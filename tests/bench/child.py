"""A child that is spoken with: it prints JSON lines and goes on when it is told to. Measures nothing."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.measure import PYTHON, environment, require


def record_of(pid: int) -> Path:
    """Where an LLVM OpenMP runtime registers itself; it stays when the process is killed."""
    return Path(f"/dev/shm/__KMP_REGISTERED_LIB_{pid}_{os.getuid()}")


class Child:
    def __init__(self, process: subprocess.Popen[bytes], words: Any) -> None:
        self.process, self._words = process, words
        self.pid = process.pid
        self.record = record_of(process.pid)

    def read(self) -> Any:
        """The next line; a child that ended without one fails the measurement."""
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self._words.seek(0)
            last = self._words.read().decode(errors="replace").strip()[-300:]
            require(False, f"a child ended with status {self.process.returncode}: {last}")
        return json.loads(line)

    def go_on(self) -> Any:
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return self.read()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def start(program: str, *words: object) -> Iterator[Child]:
    command = [PYTHON, "-c", program, *map(str, words)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=environment()
        )
        try:
            yield Child(process, said)
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
            record_of(process.pid).unlink(missing_ok=True)


@contextlib.contextmanager
def own_cache() -> Iterator[str]:
    """What harness remembers of native files, here and in its commands, begins empty and leaves the user's alone."""
    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory(prefix="harness-bench-cache-") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            yield folder
        finally:
            if before is None:
                del os.environ["XDG_CACHE_HOME"]
            else:
                os.environ["XDG_CACHE_HOME"] = before
