"""What the GPUs did meanwhile, by nvidia-smi where there is one: their busy time, and the memory of each process.

Busy is not progress: a collective that waits keeps its GPU at 100 %. Asks nothing of the process itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from harness.capture.machine.trust import find_program
from harness.capture.stacks.tools import run_tool
from harness.evidence.living.look import Counter, make_counter
from harness.evidence.text.numbers import find_number

_DEADLINE_S = 3.0
_EVERY_S = 2.0
_MOST_BYTES = 1 << 20
_FORMAT = "--format=csv,noheader,nounits"


def read_shares(output: bytes) -> Iterator[tuple[str, int]]:
    """GPU and busy percent. A row in which a number is missing ("[N/A]"), or that is none, is left out."""
    for words in _split(output, 2):
        percent = find_number(words[1])
        if percent is not None and percent <= 100:
            yield words[0], percent


def read_users(output: bytes) -> Iterator[tuple[int, str, int]]:
    """Process, GPU and MiB, likewise."""
    for words in _split(output, 3):
        pid, mebibytes = find_number(words[0]), find_number(words[2])
        if pid is not None and mebibytes is not None:
            yield pid, words[1], mebibytes


def _split(output: bytes, columns: int) -> Iterator[list[str]]:
    for line in output[:_MOST_BYTES].decode(errors="replace").split("\n"):
        words = [word.strip() for word in line.split(",")]
        if len(words) == columns:
            yield words


class Meter:
    """Busy time is the utilisation, as nvidia-smi has it for the last moment, times the time since the last sample."""

    def __init__(self) -> None:
        self._tool = find_program("nvidia-smi")
        self._due_s = 0.0
        self._before_s = 0.0
        self._busy_ms: dict[str, list[tuple[float, int]]] = defaultdict(list)
        self._mebibytes: dict[int, list[tuple[float, int]]] = defaultdict(list)
        self._used_by: dict[int, set[str]] = defaultdict(set)

    def sample(self, at_s: float) -> None:
        if self._tool is None or at_s < self._due_s:
            return
        self._due_s = at_s + _EVERY_S
        for uuid, percent in read_shares(self._ask("--query-gpu=uuid,utilization.gpu")):
            seen = self._busy_ms[uuid]
            spent_ms = round(percent / 100 * (at_s - self._before_s) * 1000)
            seen.append((at_s, seen[-1][1] + spent_ms if seen else 0))
        for pid, uuid, mebibytes in read_users(self._ask("--query-compute-apps=pid,gpu_uuid,used_memory")):
            self._mebibytes[pid].append((at_s, mebibytes))
            self._used_by[pid].add(uuid)
        self._before_s = at_s

    def _ask(self, question: str) -> bytes:
        """After an error it is not asked again."""
        if self._tool is None:
            return b""
        said = run_tool([self._tool, question, _FORMAT], _DEADLINE_S)
        if said.error is not None:
            self._tool = None
            return b""
        return said.output

    def counters(self, pid: int) -> Iterator[Counter]:
        """Of the GPUs that this process uses."""
        for uuid in sorted(self._used_by.get(pid, ())):
            if seen := self._busy_ms.get(uuid):
                yield make_counter("device", f"busy time of {uuid}, ms", seen)
        if seen := self._mebibytes.get(pid, []):
            yield make_counter("device", "GPU memory, MiB", seen)
