"""`python -m tests.fuzz.guided NAME SECONDS`: inputs that reach new lines of a reader, by atheris (libFuzzer).

A process for each reader, because libFuzzer ends its own. `make fuzz` spends half of its time on this where atheris
installs; tests do without it. Where it breaks one, the input is kept, and the traceback ends the process.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOUND = Path(tempfile.gettempdir(), "harness-fuzz-found")
_STARTING_S = 60


def guide(name: str, for_s: float) -> tuple[int, str | None]:
    """How many inputs, and what broke it."""
    command = [sys.executable, "-m", "tests.fuzz.guided", name, str(max(1, round(for_s)))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=for_s + _STARTING_S, check=False)
    except subprocess.TimeoutExpired:
        return 0, f"{name}: no end {_STARTING_S} s after its time"
    runs = re.findall(r"^(?:Done |#)(\d+)\b", done.stderr, re.M)  # as it goes, and in the end
    count = max(map(int, runs), default=0)
    broken = re.search(r"^tests\.fuzz\.engine\.Broken: .*|^Broken: .*", done.stderr + done.stdout, re.M)
    if done.returncode == 0:
        return count, None
    return count, f"{broken[0] if broken else done.stderr[-500:]} (kept in {FOUND})"


def main() -> None:
    name, seconds = sys.argv[1:]
    import atheris

    with atheris.instrument_imports(include=["harness"]):
        from tests.fuzz import answers, files, insides, words  # noqa: F401 (they fill the registry)
    from tests.fuzz.engine import MOST_BYTES, execute
    from tests.fuzz.registry import TARGETS

    FOUND.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="harness-fuzz-corpus-") as corpus:
        for number, seed in enumerate(TARGETS[name].seeds):
            Path(corpus, str(number)).write_bytes(seed)
        bounds = [f"-max_total_time={seconds}", f"-max_len={MOST_BYTES}", f"-artifact_prefix={FOUND}/{name}-"]
        atheris.Setup([sys.argv[0], *bounds, "-rss_limit_mb=4096", corpus], lambda data: execute(TARGETS[name], data))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
