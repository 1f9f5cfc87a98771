"""`python download_size.py EXTRA…`: how much an installation of this project with these extras would download.

Asks pip, which knows what is installed already; downloads nothing that an installation would not. Never fatal.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[1]
DEADLINE_S = 120


def list_requirements(extras: list[str]) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]


def ask_pip(requirements: list[str]) -> list[str]:
    """The addresses of what is not installed yet."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-"]
    options = ["--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
    done = subprocess.run(
        [*command, *options, *requirements],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=DEADLINE_S,
        check=True,
    )
    return [item["download_info"]["url"] for item in json.loads(done.stdout)["install"]]


def measure(url: str) -> int:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return Path(urllib.parse.unquote(parts.path)).stat().st_size
    request = urllib.request.Request(url, method="HEAD")
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        return int(answer.headers["Content-Length"])


def main() -> None:
    try:
        urls = ask_pip(list_requirements(sys.argv[1:]))
        sizes = {url: measure(url) for url in urls}
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, KeyError) as error:
        print(f"how much will be downloaded is not known ({type(error).__name__})")
        return
    if not sizes:
        print("nothing has to be downloaded")
        return
    largest = max(sizes, key=lambda url: sizes[url])
    name = urllib.parse.unquote(largest).rpartition("/")[2].partition("-")[0]
    total = sum(sizes.values()) / 1e6
    print(f"to download: {len(sizes)} packages, {total:.0f} MB, of which {name} {sizes[largest] / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
