"""Readers of words: what tools print line by line, what another host's shell says, what users and jobs have written."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time

from harness.capture.files.owners import describe_distribution, search_conda, search_dpkg
from harness.capture.living.device import read_shares, read_users
from harness.capture.openmp.imports import read_listing, read_report
from harness.capture.openmp.platform_tags import Target as Platform
from harness.capture.openmp.requirements import read_requirements
from harness.capture.openmp.wheel_download import _describe_absence
from harness.capture.remote.connection import Link, LinkBroken
from harness.capture.remote.session import Session
from harness.evidence.text.redaction import Redactor
from harness.evidence.text.transcript import clean_for_terminal, part_from_text
from tests.fuzz.registry import decode, keep, load, scratch, target

# Tools


@target("nvidia-smi", b"GPU-1, 50\nGPU-2, [N/A]\n", b"4711, GPU-1, 300\n[N/A], GPU-2, 5\n")
def read_usage(data: bytes) -> None:
    assert all(0 <= percent <= 100 for _, percent in read_shares(data))
    assert all(pid >= 0 and mebibytes >= 0 for pid, _, mebibytes in read_users(data))


SEEN = b'{"pid": 4711, "python": "3.11.2", "platform": "linux-x86_64", "images": [["/x/libomp.so", 4096, 8192]]'
REPORT = b'{"step": "import", "module": "x", "error": %s, "seen": ' + SEEN + b', "calls": [[0, "omp_x", 4104, 4200]]}}'


@target("report of imports", REPORT % b"null", REPORT % b'{"type": "E", "text": "x", "missing": null}')
def read_imports(data: bytes) -> None:
    read_listing(read_report(data, 4711).seen)


PIP = """ERROR: Could not find a version that satisfies the requirement x==9 (from versions: 1.0, 1.1rc1, 2.0)
ERROR: No matching distribution found for x==9
"""


@target("pip", PIP.encode())
def read_pip(data: bytes) -> None:
    done = subprocess.CompletedProcess[str]([], 1, "", decode(data))
    _describe_absence("x==9", Platform("linux_x86_64", "3.11"), done, "python")


@target("requirements", b"torch>=2 ; python_version < '4'\n# x\nnumpy==1.26 \\\n  --hash=sha256:00\n-f wheels\n-e .\n")
def read_asked(data: bytes) -> None:
    read_requirements(keep(data, "asked/requirements.txt"))


STATUS = b"Package: libx\nStatus: install ok installed\nVersion: 1.2-3\n\nPackage: liby\nVersion: 4\n"


@target("dpkg", b"/usr/lib/libx.so\n/usr/lib/liby.so\n", STATUS)
def read_dpkg(data: bytes) -> None:
    """The same as both of its files."""
    keep(data, "dpkg/var/lib/dpkg/info/libx:amd64.list")
    keep(data, "dpkg/var/lib/dpkg/status")
    search_dpkg(["/usr/lib/libx.so"], scratch() / "dpkg")
    keep(b"/usr/lib/libx.so\n", "dpkg/var/lib/dpkg/info/libx:amd64.list")
    search_dpkg(["/usr/lib/libx.so"], scratch() / "dpkg")


@target("METADATA", b"Metadata-Version: 2.1\nName: x\nVersion: 1.0\n\nName: y\n", b"conda\n")
def read_metadata(data: bytes) -> None:
    for name in ("METADATA", "INSTALLER"):
        keep(data, f"described/x-1.dist-info/{name}")
    describe_distribution(scratch() / "described/x-1.dist-info")


@target("conda", b'{"name": "x", "version": "1", "files": ["lib/libx.so", "bin/x"]}')
def read_conda(data: bytes) -> None:
    keep(data, "conda/conda-meta/x-1-0.json")
    search_conda([str(scratch() / "conda/lib/libx.so")])


# Other hosts


class Lines:
    """What has come over a link, to whoever reads it from there."""

    def __init__(self, data: bytes) -> None:
        self._lines = iter(data.split(b"\n"))

    def read_line(self, deadline: float, *, wanted: bytes = b"") -> bytes:
        for line in self._lines:
            if line.startswith(wanted):
                return line
        raise LinkBroken("there: the connection ended", hint="")


TOKEN = "0" * 24
LEARNED = [
    "us Linux",
    "um x86_64",
    "un node",
    "ur 6.1",
    "id 0",
    "python 311 /usr/bin/python3",
    "pid 4711",
    "spy x",
    "end",
]


@target(
    "facts of a host", *("\n".join(f"{TOKEN} {line}" for line in lines).encode() for lines in (LEARNED, LEARNED[4:]))
)
def learn(data: bytes) -> None:
    session = Session.__new__(Session)
    session.name, session.round_trips, session._token = "there", 0, TOKEN
    session._link = Lines(data)  # type: ignore[assignment]
    facts = session._learn(0.0)
    assert all(pid >= 0 for pid in facts.pids)


@target("lines of a host", b"noise\n0a one\n0a two\n", text=False)
def read_lines(data: bytes) -> None:
    link = Link("there", ["cat", str(keep(data, "sent"))], "")
    with contextlib.closing(link), contextlib.suppress(LinkBroken):  # as each of them ends
        while True:
            assert link.read_line(time.monotonic() + 5, wanted=b"0a").startswith(b"0a")


# What is kept and shown

SECRETS = (
    b"curl -u bob:hunter2hunter2 -H 'Authorization: Bearer abcdef0123456789abcdef' https://u:p4ssw0rd@example.org/",
    b"train.py --token 0123456789abcdef --pass x PGPASSWORD=y HF_TOKEN=hf_a1b2c3d4e5f6g7h8i9j0a1b2c3d4e5f6g7 mysql -pz",
    b"-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAAAAAA\n-----END PRIVATE KEY-----\n",
    b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefgh machine x login y password z wandb: 0123456789" + b"a" * 30,
)


@target("redactor", *SECRETS)
def redact_all(data: bytes) -> None:
    redactor, text = Redactor(), data.decode(errors="surrogateescape")
    argv = redactor.argv(text.split(" "))
    assert len(argv) == text.count(" ") + 1
    assert redactor.text(text).count("\n") == text.count("\n")
    kept = redactor.raw(data)
    assert len(kept) == len(data) and kept.count(b"\n") == data.count(b"\n")
    json.dumps(redactor.fact({"argv": argv, "x": [text, {text: text}]}))


SHOWN = ("\x1b[31mred\x1b[0m \x1b]0;t\x07 \u202eabc\u202c a\u200bb\r50 %\r100 %\n", "Größe ✓ 训练\n\udb40\udc41")
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufe00-\ufe0f\U000e0000-\U000e0fff]"
)


@target("terminal", *(text.encode(errors="surrogatepass") for text in SHOWN), *load("gdb.txt"))
def show(data: bytes) -> None:
    shown = clean_for_terminal(decode(data).replace("\r", ""))
    assert not UNSEEN.search(shown), shown
    assert clean_for_terminal(shown) == shown
    part_from_text("x", decode(data))
