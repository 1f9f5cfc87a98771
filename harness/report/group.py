"""The report on several targets for a terminal: who is elsewhere, the tree of all, each different verdict once."""

from __future__ import annotations

from harness.diagnose.group import Group, Shared, share_verdicts
from harness.diagnose.living import tell_outlier
from harness.report.living import draw_tree
from harness.report.text import paint_headline, rows, verdict_line


def render_group(group: Group, *, width: int, color: bool) -> str:
    shared = share_verdicts(group)
    lines = [paint_headline(tell_group(group), width, color)]
    lines += rows("tree", draw_tree(group.tree, None) if group.tree.count else [], width, color)
    lines += rows("verdicts", [_tell(one) for one in shared], width, color)
    lines += rows("not seen", [f"{gap.what}: {gap.why}" for gap in group.gaps], width, color)
    lines += rows("next", [f"harness attach {_find_next(group, shared)}"], width, color)
    lines += rows("case", [group.case] if group.case else [], width, color)
    return "\n".join(lines) + "\n"


def _find_next(group: Group, shared: list[Shared]) -> str:
    """The odd one, else one of the worst, as it is typed."""
    target = shared[0].document.target
    if group.outlier is not None:
        at = group.outlier.host, group.outlier.pids[0]
        target = next((one.target for one in group.targets if (one.target.host, one.target.pid) == at), target)
        return (target.address or "{pid}").replace("{pid}", str(group.outlier.pids[0]))
    return (target.address or "{pid}").replace("{pid}", str(target.pid))


def render_group_line(group: Group, *, width: int, color: bool) -> str:
    """For -q."""
    return paint_headline(tell_group(group), width, color) + "\n"


def tell_group(group: Group) -> str:
    """One line: who is elsewhere; else what all have in common, or the worst."""
    if group.outlier:
        return f"harness: {tell_outlier(group.outlier)}"
    worst, *others = share_verdicts(group)
    about = (
        f"harness: {len(group.targets)} processes, {len(others) + 1} verdicts, the worst" if others else "harness: all"
    )
    return f"{about}: {_tell(worst)}"


def _tell(shared: Shared) -> str:
    return f"{shared.times} × {shared.who}: {verdict_line(shared.document).removeprefix('harness: ')}"
