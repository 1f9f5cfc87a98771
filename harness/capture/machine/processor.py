"""The processor as this system shows it: a hypervisor or a kernel may hide some of its extensions.

Reads /proc/cpuinfo; `proc` is a variable so that a made-up one can be tested.
"""

from __future__ import annotations

from pathlib import Path

from harness.evidence.crash import Cpu


def read_cpu(proc: Path = Path("/proc")) -> Cpu | None:
    """Of the first processor. Null: not Linux, or it cannot be read."""
    try:
        text = (proc / "cpuinfo").read_text(errors="replace")
    except OSError:
        return None
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    fields = {name.strip(): value.strip() for name, _, value in lines}
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    is_virtual = "hypervisor" in flags if "flags" in fields else None  # aarch64 does not tell
    return Cpu(fields.get("model name"), tuple(flags), is_virtual)
