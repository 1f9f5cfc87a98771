"""The table of `harness ps` for a terminal: one process per row, with the command that looks closer."""

from __future__ import annotations

import shlex
import sys

from harness.evidence.living.processes import ProcessRow, ProcessTable, choose_next
from harness.evidence.text.transcript import clean_for_terminal

_HEADER = ("PID", "AGE", "CPU", "RSS", "THREADS", "WROTE", "STATE", "COMMAND")


def render_whole(table: ProcessTable, *, width: int, color: bool) -> str:
    """For a pipe or a file: whoever reads it wants the whole command."""
    return render_ps(table, width=sys.maxsize, color=color)


def render_ps(table: ProcessTable, *, width: int, color: bool) -> str:
    chosen = choose_next(table.rows)
    if chosen is None:
        return "\n".join(["harness: No Python process was found.", *_tell_gaps(table)]) + "\n"
    of_hosts = any(row.host for row in table.rows)
    cells = [_HEADER, *(_cells(row) for row in table.rows)]
    if of_hosts:
        cells = [
            (host, *row) for host, row in zip(["HOST", *(row.host or "" for row in table.rows)], cells, strict=True)
        ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    lines = []
    for row in cells:
        start = "  ".join(text.ljust(size) for text, size in zip(row, widths, strict=False))
        whole = f"{start}  {row[-1]}".rstrip()
        lines.append(clean_for_terminal(whole if len(whole) <= width else f"{whole[: width - 1].rstrip()}…"))
    if color:
        lines[0] = f"\x1b[2m{lines[0]}\x1b[0m"
    target = table.address.replace("{pid}", str(chosen.pid))
    return "\n".join([*lines, *_tell_gaps(table), f"  next: harness attach {target}"]) + "\n"


def _tell_gaps(table: ProcessTable) -> list[str]:
    return [clean_for_terminal(f"{gap.what.removeprefix('host ')}  {gap.why}") for gap in table.gaps]


def _cells(row: ProcessRow) -> tuple[str, ...]:
    return (
        str(row.pid),
        tell_age(row.age_s),
        f"{row.cpu:.0%}",
        f"{row.rss_bytes / 2**20:.0f} MB",
        str(row.threads),
        "-" if row.quiet_s is None else f"{tell_age(row.quiet_s)} ago",
        row.word,
        clean_for_terminal(" ".join(shlex.join(row.argv).split())),
    )


def tell_age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.0f}s"
