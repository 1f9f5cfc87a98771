"""What the GPUs did meanwhile, by nvidia-smi where there is one: their busy time, and the memory of each process.

Busy is not progress: a collective that waits keeps its GPU at 100 %. Asks nothing of the process itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from harness.capture.alive.counting import make_counter
from harness.capture.stacks import run_tool
from harness.capture.trust import find_program
from harness.evidence.alive import Counter

_DEADLINE_S = 3.0
_EVERY_S = 2.0
_FORMAT = "--format=csv,noheader,nounits"


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
        for uuid, share in self._ask("--query-gpu=uuid,utilization.gpu"):
            seen = self._busy_ms[uuid]
            spent_ms = round(int(share) / 100 * (at_s - self._before_s) * 1000)
            seen.append((at_s, seen[-1][1] + spent_ms if seen else 0))
        for pid, uuid, mebibytes in self._ask("--query-compute-apps=pid,gpu_uuid,used_memory"):
            self._mebibytes[int(pid)].append((at_s, int(mebibytes)))
            self._used_by[int(pid)].add(uuid)
        self._before_s = at_s

    def _ask(self, question: str) -> Iterator[list[str]]:
        """Rows in which a number is missing ("[N/A]") are left out. After an error it is not asked again."""
        said = run_tool([str(self._tool), question, _FORMAT], _DEADLINE_S)
        if said.error is not None:
            self._tool = None
            return
        for line in said.output.decode(errors="replace").splitlines():
            words = [word.strip() for word in line.split(",")]
            if words[-1].isdigit():
                yield words

    def counters(self, pid: int) -> Iterator[Counter]:
        """Of the GPUs that this process uses."""
        for uuid in sorted(self._used_by.get(pid, ())):
            if seen := self._busy_ms.get(uuid):
                yield make_counter("device", f"busy time of {uuid}, ms", seen)
        if seen := self._mebibytes.get(pid, []):
            yield make_counter("device", "GPU memory, MiB", seen)
