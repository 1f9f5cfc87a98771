"""Makes the modules that follow on stdin importable from memory, and starts the agent. Nothing is written to disk.

Executed with `python -I -S -c` as text. What follows it: one line, the token and a number of bytes; then those bytes,
JSON packed by zlib.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import itertools
import json
import sys
import zlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any


class Carried(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The modules by name: whether it is a package, and the source."""

    def __init__(self, modules: dict[str, tuple[bool, str]]) -> None:
        self.modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.modules:
            return None
        is_package = self.modules[fullname][0]
        file = "/" + fullname.replace(".", "/") + ("/__init__.py" if is_package else ".py")
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=file, is_package=is_package)
        spec.has_location = True
        return spec

    def exec_module(self, module: ModuleType) -> None:
        source = self.modules[module.__name__][1]
        exec(compile(source, str(module.__file__), "exec", dont_inherit=True), module.__dict__)


def provide_what_310_has() -> None:
    """All that our modules use and Python 3.9 has not. Unequal lengths are a bug of ours, not looked for here."""
    plain_zip: Any = builtins.zip

    def zip_strictly(*columns: Any, strict: bool = False) -> Any:
        return plain_zip(*columns)

    def pairwise(items: Any) -> Any:
        first, second = itertools.tee(items)
        next(second, None)
        return plain_zip(first, second)

    if not hasattr(itertools, "pairwise"):
        builtins.zip, itertools.pairwise = zip_strictly, pairwise  # type: ignore[assignment, misc, unused-ignore]


def main() -> None:
    provide_what_310_has()
    stdin = sys.stdin.buffer
    token, size = stdin.readline().decode().split()
    sent = json.loads(zlib.decompress(stdin.read(int(size))))
    sys.meta_path.insert(0, Carried(sent["modules"]))
    from harness.capture.remote.agent.serve import serve

    serve(stdin, token, sent["payloads"])


if __name__ == "__main__":
    main()
