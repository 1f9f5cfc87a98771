"""`python -m tests.fuzz SECONDS [NAME …]`: every reader in turn, for as long as asked; `make fuzz SECONDS=600`.

Says how many inputs each was given and how many of them it read, and keeps what broke one: the input, and how to run it
again.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import random
import signal
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz import answers, cases, files, insides, words  # noqa: F401 (they fill the registry)
from tests.fuzz.engine import Broken, Target, change, execute
from tests.fuzz.guided import FOUND, guide
from tests.fuzz.registry import TARGETS

ROUND_S = 2.0
MOST_CHANGES = 6


def make_input(target: Target, rng: random.Random) -> bytes:
    changes = [
        (rng.getrandbits(8), rng.getrandbits(24), rng.getrandbits(20)) for _ in range(rng.randint(1, MOST_CHANGES))
    ]
    return change(rng.choice(target.seeds), changes, target.seeds, target.text)


def run_round(target: Target, rng: random.Random, for_s: float, seen: collections.Counter[str]) -> None:
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        data = make_input(target, rng)
        try:
            seen[f"{target.name}: read"] += execute(target, data)
        except Broken as error:
            tell(target, data, error, seen)
        seen[target.name] += 1


def tell(target: Target, data: bytes, error: Broken, seen: collections.Counter[str]) -> None:
    """Each place once."""
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
    where = f"{type(error.__cause__).__name__} at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}"
    seen[f"broken: {target.name}: {where}"] += 1
    if seen[f"broken: {target.name}: {where}"] == 1:
        FOUND.mkdir(exist_ok=True)
        file = FOUND / f"{target.name.replace(' ', '-')}-{abs(hash(data)):x}"
        file.write_bytes(data)
        print(f"{error} ({where}); python -m tests.fuzz again {target.name!r} {file}", flush=True)


def guide_all(names: list[str], seconds: float, seen: collections.Counter[str]) -> None:
    for name in names:
        count, problem = guide(name, seconds / len(names))
        seen[name] += count
        if problem is not None:
            seen[f"broken: {name}: {problem}"] += 1
            print(problem, flush=True)


def main() -> int:
    if sys.argv[1:2] == ["again"]:
        execute(TARGETS[sys.argv[2]], Path(sys.argv[3]).read_bytes())
        return 0
    seconds, names = float(sys.argv[1]), sys.argv[2:] or list(TARGETS)
    seed = random.SystemRandom().getrandbits(32)
    print(f"{len(names)} readers, {seconds:.0f} s, seed {seed}", flush=True)
    rng, seen = random.Random(seed), collections.Counter[str]()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    has_guide = importlib.util.find_spec("atheris") is not None
    if not has_guide:
        print("atheris is not installed: random changes only", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        if has_guide:
            seconds /= 2
            guide_all(names, seconds, seen)
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            for name in names:
                run_round(TARGETS[name], rng, min(ROUND_S, left_s / len(names)), seen)
    for name in names:
        print(f"{name}: {seen[name]:,} inputs, {seen[f'{name}: read']:,} were read")
    broken = [name for name in seen if name.startswith("broken: ")]
    print(f"{sum(seen[name] for name in names):,} inputs in all; {len(broken)} places broke")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
