"""The table of `harness ps` for a terminal: one process per row, with the command that looks closer."""

from __future__ import annotations

import shlex

from harness.evidence.processes import ProcessRow, ProcessTable
from harness.evidence.transcript import clean_for_terminal

_HEADER = ("PID", "AGE", "CPU", "RSS", "THREADS", "WROTE", "STATE", "COMMAND")


def render_ps(table: ProcessTable, *, width: int, color: bool) -> str:
    if not table.rows:
        return "harness: No Python process was found.\n"
    cells = [_HEADER, *(_cells(row) for row in table.rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADER) - 1)]
    lines = []
    for row in cells:
        start = "  ".join(text.ljust(size) for text, size in zip(row, widths, strict=False))
        lines.append(f"{start}  {row[-1]}"[:width].rstrip())
    if color:
        lines[0] = f"\x1b[2m{lines[0]}\x1b[0m"
    busiest = max(table.rows, key=lambda row: (row.cpu, row.rss_bytes))
    return "\n".join([*lines, f"  next: harness attach {busiest.pid}"]) + "\n"


def _cells(row: ProcessRow) -> tuple[str, ...]:
    return (
        str(row.pid),
        tell_age(row.age_s),
        f"{row.cpu:.0%}",
        f"{row.rss_bytes / 2**20:.0f} MB",
        str(row.threads),
        "-" if row.quiet_s is None else f"{tell_age(row.quiet_s)} ago",
        row.word,
        clean_for_terminal(shlex.join(row.argv)),
    )


def tell_age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.0f}s"
