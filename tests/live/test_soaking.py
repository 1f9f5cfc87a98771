"""Ten seconds of the soak, which runs for an hour by itself; and that it tells what differs from a twin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.soaking import LOST_BYTES, Round, Soak

SECONDS, SEED = 10, 1
LINES = [b"pool %08d 0 ..\n" % number for number in range(20_000)]


def test_ten_seconds_change_no_result() -> None:
    words = [sys.executable, "-m", "tests.live.soaking", str(SECONDS), str(SEED)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\n0 wrong\n") and "look: " in done.stdout and "bytes of output" in done.stdout


@pytest.mark.parametrize(
    ("got", "relays", "is_told"),
    [
        (LINES, 0, False),
        (LINES[:5] + LINES[6:], 0, True),
        (LINES[:5] + LINES[6:], 1, False),
        (LINES[:5] + LINES[4:], 1, True),
        (LINES[: -LOST_BYTES // len(LINES[0]) - 1], 1, True),
        (LINES[: -LOST_BYTES // len(LINES[0]) - 1], 2, False),
        ([b"pool 00000000 1 ..\n", *LINES[1:]], 1, True),
    ],
)
def test_an_output_is_compared(tmp_path: Path, got: list[bytes], relays: int, is_told: bool) -> None:
    """Without a killed relay every byte; with one, what is there in its order, and 64 KiB may be missing."""
    round_ = Round(Soak(1, 1, tmp_path, None), tmp_path)
    round_.killed["pool-run relay"] = relays
    for name, lines in (("pool-run", got), ("pool-bare", LINES)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "stdout").write_bytes(b"".join(lines))
    round_.compare_output("pool stdout", tmp_path / "pool-run/stdout", tmp_path / "pool-bare/stdout")
    assert bool(round_.wrong) == is_told, round_.wrong
