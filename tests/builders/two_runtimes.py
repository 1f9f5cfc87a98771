"""The two-tower incident, rebuilt on Linux: real torch and faiss, each with an LLVM OpenMP runtime of its own.

`make_environment(DIRECTORY)` makes a venv in a second, of hard links to the packages of the running interpreter. What
it replaces it replaces in the new place only. Plain Python, so that tests, zoo and demo can all use it.

What happens, by order of import (FACTS, "Reproducing the real thing on Linux"):
  faiss, then torch: faiss's copy initialises, torch's copy finds it registered, prints Error #15 and aborts (134).
  torch, then faiss: clean. torch loads its copy RTLD_GLOBAL, so faiss's calls are bound to that one as well.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

PACKAGES = ("torch", "faiss-cpu", "numpy")
DEBIAN_RUNTIME = Path("/usr/lib/llvm-14/lib/libomp.so.5")
_LEFT_OUT = shutil.ignore_patterns("include", "tests")  # most of torch's 14,000 files; nothing here compiles
Family = Literal["llvm", "intel"]

# Each prints `result: ` and one number that must not depend on which runtime did the work.
FAISS = """
import faiss, numpy
vectors = numpy.random.default_rng(1).random((2000, 64), dtype="float32")
index = faiss.IndexFlatIP(64)
index.add(vectors)
near = index.search(vectors[:200], 10)[1]
print("result: faiss", int(near.sum()), flush=True)
"""
TORCH = """
import torch
torch.manual_seed(1)
gru = torch.nn.GRU(64, 32, batch_first=True, bidirectional=True)
gru(torch.randn(16, 50, 64))[0].square().mean().backward()
print("result: torch", f"{sum(float(p.grad.double().square().sum()) for p in gru.parameters()):.9f}", flush=True)
"""
FAISS_FIRST = FAISS + TORCH
TORCH_FIRST = TORCH + FAISS
EXPECT = {"faiss first": {"exit": 134, "component": "torch"}, "torch first": {"exit": 0, "component": None}}


class Unavailable(Exception):
    """What is needed to make the environment is not installed here."""


class Environment(NamedTuple):
    """`copies`: the two runtimes, by the package whose they are."""

    prefix: Path
    python: Path
    site_packages: Path
    copies: dict[str, Path]


def make_environment(directory: Path, family: Family = "llvm", *, replace: bool = True) -> Environment:
    """`directory` must not exist. With replace=False it is the same environment with the packages' own libgomp."""
    runtime = find_runtime(family)
    site_packages = directory / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    python = _make_venv(directory, site_packages)
    for distribution in _close_over(PACKAGES):
        for source in _top_level(distribution):
            _link_tree(source, site_packages / source.name)
    copies = {"torch": site_packages / "torch/lib/libgomp.so.1", "faiss": _find_one(site_packages, "faiss_cpu.libs")}
    for path in copies.values() if replace else ():
        path.unlink()  # the name only: what else is linked to the file keeps it
        shutil.copy(runtime, path)
    return Environment(directory, python, site_packages, copies)


def run(environment: Environment, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Status as a shell gives it. Two threads: with one, torch does not enter a parallel region."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "KMP_DUPLICATE_LIB_OK", "OMP_NUM_THREADS")
    inherited = {name: value for name, value in os.environ.items() if name not in dropped}
    done = subprocess.run(
        [environment.python, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**inherited, "OMP_NUM_THREADS": "2", **variables},
    )
    if done.returncode < 0:
        done.returncode = 128 - done.returncode
    return done


def read_results(done: subprocess.CompletedProcess[str]) -> set[str]:
    return {line for line in done.stdout.splitlines() if line.startswith("result: ")}


def find_runtime(family: Family) -> Path:
    """LLVM's from Debian's libomp5-14; Intel's from the intel-openmp wheel, which puts it in the environment's lib/."""
    path = DEBIAN_RUNTIME if family == "llvm" else Path(sys.prefix, "lib", "libiomp5.so")
    if not path.exists():
        raise Unavailable(f"needs {path.name} ({'apt install libomp5-14' if family == 'llvm' else 'intel-openmp'})")
    return path.resolve()


def _make_venv(directory: Path, site_packages: Path) -> Path:
    """What `python -m venv --without-pip` leaves, without the half second that it takes."""
    (directory / "bin").mkdir(parents=True)
    site_packages.mkdir(parents=True)
    home = Path(sys.executable).resolve()
    (directory / "pyvenv.cfg").write_text(f"home = {home.parent}\ninclude-system-site-packages = false\n")
    python = directory / "bin/python"
    python.symlink_to(home)
    for name in ("python3", f"python3.{sys.version_info[1]}"):
        (directory / "bin" / name).symlink_to("python")
    return python


def _close_over(names: tuple[str, ...]) -> list[importlib.metadata.Distribution]:
    """The distributions and what they require, as far as it is installed."""
    found: dict[str, importlib.metadata.Distribution] = {}
    left = list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in PACKAGES:
                raise Unavailable(f"needs {name} in the environment of {sys.executable}") from None
            continue
        wanted = (text for text in found[name].requires or () if "extra ==" not in text)
        left += [match[0] for match in map(re.compile(r"[\w.-]+").match, wanted) if match]
    return list(found.values())


def _top_level(distribution: importlib.metadata.Distribution) -> Iterator[Path]:
    """What it has put into site-packages; scripts in bin/ are left where they are."""
    record = (distribution.read_text("RECORD") or "").splitlines()
    site_packages = Path(str(distribution.locate_file("")))
    for name in {re.split("[/,]", line, maxsplit=1)[0] for line in record} - {"..", "__pycache__"}:
        yield site_packages / name


def _link_tree(source: Path, target: Path) -> None:
    """`cp -al`, with the bytecode: a hard link has the times of its source, so that it stays valid."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True, ignore=_LEFT_OUT)
    else:
        _link(source, target)


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:  # of a folder that several packages share, as NVIDIA's do
        return
    except OSError:  # another device, or one that has no links
        shutil.copy2(source, target)


def _find_one(site_packages: Path, directory: str) -> Path:
    found = sorted((site_packages / directory).glob("libgomp-*.so*"))
    if len(found) != 1:
        raise Unavailable(f"this build of faiss-cpu has {len(found)} libgomp of its own")
    return found[0]
