"""`make demo`: the answers to the incidents this program exists for, on real torch and faiss, in under three minutes.

Not a test: it shows. It fails only when an exit status is not the expected one.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.builders.hang_driver import HANGS, start
from tests.builders.two_runtimes import Environment, Unavailable, make_environment

CLEAN, FAULT = 0, 10


class Demo:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "HARNESS_CASES": str(directory / "cases"), "TMPDIR": str(directory)}
        self.environment.setdefault("OMP_WAIT_POLICY", "passive")  # a busy machine must not make it ten minutes
        self.wrong: list[str] = []

    def tell(self, sentence: str) -> None:
        print(f"\n\n== {sentence}\n", flush=True)

    def show(self, *words: str, expect: int) -> None:
        line = shlex.join(["harness", *words])
        print(f"$ {line}", flush=True)
        command = [sys.executable, "-m", "harness", *words]
        status = subprocess.run(command, env=self.environment, check=False).returncode
        print(f"[exit status {status}]", flush=True)
        if status != expect:
            self.wrong.append(f"{line}: exit status {status}, and not {expect}")

    def show_all(self) -> None:
        print("An arm is one run of a small program; it differs in one thing from another arm, mostly from `base`.")
        print(f"What the demo makes, the environment of section 1 and all cases, is in {self.directory}: temporary,")
        print("and removed at the end.")
        self.tell("1. torch and faiss-cpu, each with its own LLVM OpenMP runtime, as on a Mac: which one kills it?")
        self.show_two_runtimes()
        self.tell("2. The same program in the environment as it was installed.")
        self.show("repro", "openmp", "--python", sys.executable, expect=CLEAN)
        self.tell("3. A trainer that runs, and whose log is empty: stuck, or only slow? And what has it said?")
        (self.directory / "trainer").mkdir()
        with start(HANGS / "slow_steps.py", sys.executable, False, self.directory / "trainer") as trainer:
            print(f"$ wc -c train.log\n{trainer.out.stat().st_size} train.log", flush=True)
            self.show("attach", str(trainer.pid), expect=CLEAN)
        self.tell("4. Every suspect of the incident, one change at a time, on this machine's CPU.")
        self.show("repro", "all", "--device", "cpu", "--scale", "tiny", "--python", sys.executable, expect=CLEAN)

    def show_two_runtimes(self) -> None:
        """Linux wheels bring GNU's runtime, of which two get on: each gets a copy of one that does not."""
        try:
            runtime, two = make_two_runtimes(self.directory / "two-runtimes")
        except Unavailable as reason:
            print(f"(not shown: {reason})", flush=True)
            return
        print(f"(Linux wheels have GNU's, which would not mind; in this copy each has {runtime} in its place.)\n")
        self.show("repro", "openmp", "--python", str(two.python), expect=FAULT)


def make_two_runtimes(directory: Path) -> tuple[str, Environment]:
    """The wheel's runtime, which needs no root; the distribution's where there is no such wheel (aarch64)."""
    try:
        return "LLVM's as Intel builds it, of the wheel intel-openmp,", make_environment(directory, "intel")
    except Unavailable:
        return "LLVM's, of Debian's libomp5,", make_environment(directory, "llvm")


def main() -> int:
    os.chdir(Path(__file__).parents[1])
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="harness-demo-") as directory:
        demo = Demo(Path(directory))
        demo.show_all()
    here = os.path.relpath(Path(sys.executable).parent)
    print(f"\ndone in {time.monotonic() - begun:.0f} s. Your own job: {here}/harness run python train.py", end="")
    print(f"   (or first: . {here}/activate)", flush=True)
    for sentence in demo.wrong:
        print(f"not as expected: {sentence}", file=sys.stderr)
    return 1 if demo.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
