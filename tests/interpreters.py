"""`python -m tests.interpreters [VERSION...]`: the interpreters of today that this machine's Debian has not, for tests.

3.14 is taken from packages of a newer Debian, with the C library and whatever else those need beside it; a version
that ends in t (free-threaded) has no package and is built from Debian's source. Both by this machine's own mirror of
Debian, with apt and its signatures, into the user's cache; nothing is installed, and root is not needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "harness-interpreters"
USUAL = ("3.13t", "3.14", "3.14t", "3.15")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# A later one has the newer interpreters, an earlier one still has the source of the older.
SOURCES = """\
Types: deb
URIs: {mirror}
Suites: forky
Components: main
Signed-By: {keyring}

Types: deb-src
URIs: {mirror}
Suites: trixie forky
Components: main
Signed-By: {keyring}
"""
# What is asked of an interpreter before it counts: the scenarios need these, a build leaves out what has no headers.
CHECK = "import ctypes, zlib, ssl, asyncio, multiprocessing.synchronize, sys; print(sys.version.split()[0])"


class CouldNotMake(Exception):
    """The answer is this sentence."""


def locate(version: str) -> Path:
    """Where it is, or would be."""
    return CACHE / version / "usr" / "bin" / f"python{version}"


def run(command: list[str | Path], where: Path, log: Path) -> None:
    """At low priority; what it said is in the log."""
    with log.open("ab") as out:
        done = subprocess.run(["nice", "-n", "10", *command], cwd=where, stdout=out, stderr=out)
    if done.returncode:
        said = log.read_text(errors="replace").strip().splitlines()
        raise CouldNotMake(f"{command[0]} failed: {said[-1] if said else 'no word'} (all of it: {log})")


class Archive:
    """The mirror that this machine takes its packages from, asked for another release of Debian."""

    def __init__(self, where: Path) -> None:
        self.where, self.log = where, CACHE / "log"
        for name in ("lists/partial", "cache/archives/partial"):
            (where / name).mkdir(parents=True)
        (where / "status").touch()  # as if nothing were installed, so that all a package needs is fetched
        (where / "newer.sources").write_text(SOURCES.format(mirror=find_mirror(), keyring=KEYRING))
        self.ask("update")

    def ask(self, *words: str) -> None:
        places = {
            "Dir::State": self.where,
            "Dir::State::lists": self.where / "lists",
            "Dir::State::status": self.where / "status",
            "Dir::Cache": self.where / "cache",
            "Dir::Etc::sourcelist": self.where / "newer.sources",
            "Dir::Etc::sourceparts": "/dev/null",
            "APT::Sandbox::User": "root",
        }
        options = [part for name, value in places.items() for part in ("-o", f"{name}={value}")]
        run(["apt-get", "-q", *options, *words], self.where, self.log)

    def download_packages(self, name: str) -> list[Path]:
        self.ask("install", "--yes", "--download-only", "--no-install-recommends", name)
        return sorted((self.where / "cache" / "archives").glob("*.deb"))

    def download_source(self, name: str) -> Path:
        self.ask("source", "--download-only", "--tar-only", name)
        return next(self.where.glob(f"{name}_*.orig.tar.*"))


def find_mirror() -> str:
    if not shutil.which("apt-get") or not Path(KEYRING).exists():
        raise CouldNotMake("this needs Debian's apt-get and its archive keys")
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True)
    found = [uri for uri in done.stdout.split() if uri.rstrip("/").endswith("/debian")]
    if not found:
        raise CouldNotMake("apt's sources name no mirror of Debian")
    return found[0]


def unpack(version: str, archive: Archive) -> None:
    """Beside the C library it was built for, and told to load that one."""
    import lief

    root = CACHE / version
    for package in archive.download_packages(f"python{version}"):
        run(["dpkg-deb", "-x", package, root], archive.where, archive.log)
    executable = locate(version)
    binary = lief.ELF.parse(str(executable))
    assert binary is not None
    libraries = next(root.glob("usr/lib/*/libc.so.6")).parent
    # DT_RPATH: what its libraries need is looked for there as well, which DT_RUNPATH would not do.
    binary.add(lief.ELF.DynamicEntryRpath(str(libraries)))
    binary.interpreter = f"{root}/usr{binary.interpreter}"  # /lib64 is a link to usr/lib64
    executable.unlink()
    binary.write(str(executable))
    executable.chmod(0o755)


def build(version: str, archive: Archive) -> None:
    """As a library and a small executable; unoptimised beyond -O2, since a profile takes an hour."""
    source = archive.download_source(f"python{version.rstrip('t')}")
    tree = archive.where / f"build-{version}"
    tree.mkdir()
    run(["tar", "-xf", source, "--strip-components=1"], tree, archive.log)
    prefix = CACHE / version / "usr"
    options = ["--disable-gil", "--enable-shared", "--with-ensurepip=no", "--disable-test-modules"]
    run(["./configure", "-q", f"--prefix={prefix}", *options, f"LDFLAGS=-Wl,-rpath,{prefix}/lib"], tree, archive.log)
    run(["make", "-s", f"-j{os.cpu_count()}"], tree, archive.log)
    run(["make", "-s", "install"], tree, archive.log)


def check(version: str) -> str:
    done = subprocess.run([locate(version), "-I", "-c", CHECK], capture_output=True, text=True)
    if done.returncode:
        wanted = "; next: apt-get install libffi-dev zlib1g-dev libssl-dev" if version.endswith("t") else ""
        raise CouldNotMake(f"it does not work: {(done.stderr.strip() or 'no word').splitlines()[-1]}{wanted}")
    return done.stdout.strip()


def make(version: str) -> str:
    """One that works is left as it is; one that does not is made anew, and none is left that does not work."""
    if locate(version).exists():
        return f"is there already: CPython {check(version)}, {locate(version)}"
    shutil.rmtree(CACHE / version, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory(prefix="making-", dir=CACHE) as where:
            (build if version.endswith("t") else unpack)(version, Archive(Path(where)))
        return f"CPython {check(version)}, {locate(version)}"
    except CouldNotMake:
        shutil.rmtree(CACHE / version, ignore_errors=True)
        raise


def main(versions: list[str]) -> int:
    """Not to have one of the usual ones is no failure: a mirror may lack a source."""
    CACHE.mkdir(parents=True, exist_ok=True)
    failed = 0
    for version in versions or USUAL:
        try:
            print(f"{version}: {make(version)}", flush=True)
        except CouldNotMake as error:
            print(f"{version}: not made: {error}", flush=True)
            failed += 1
    return 1 if versions and failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
