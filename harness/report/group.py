"""The report on several targets: who is elsewhere, the tree of all, each different verdict once."""

from __future__ import annotations

from harness.diagnose.living.document import tell_outlier
from harness.diagnose.living.group import Shared, share_verdicts
from harness.documents.group import Group
from harness.report.living import draw_tree
from harness.report.sections import Item, Section, keep_told, list_gaps, make_headline, make_section
from harness.report.terminal import paint


def render_group(group: Group, *, width: int, color: bool) -> str:
    return paint(list_group_sections(group), width=width, color=color)


def render_group_line(group: Group, *, width: int, color: bool) -> str:
    """For -q."""
    return paint([head_group(group)], width=width, color=color)


def list_group_sections(group: Group) -> list[Section]:
    shared = share_verdicts(group)
    return keep_told(
        [
            head_group(group),
            make_section("tree", draw_tree(group.tree, None) if group.tree.count else [], "drawing"),
            make_section("verdicts", [_tell(one) for one in shared]),
            list_gaps(group.gaps),
            make_section("next", f"harness attach {_find_next(group, shared)}", "next"),
            make_section("case", group.case),
        ]
    )


def _find_next(group: Group, shared: list[Shared]) -> str:
    """The odd one, else one of the worst, as it is typed."""
    target = shared[0].document.target
    if group.outlier is not None:
        at = group.outlier.host, group.outlier.pids[0]
        target = next((one.target for one in group.targets if (one.target.host, one.target.pid) == at), target)
        return (target.address or "{pid}").replace("{pid}", str(group.outlier.pids[0]))
    return (target.address or "{pid}").replace("{pid}", str(target.pid))


def head_group(group: Group) -> Section:
    """One line: who is elsewhere; else what all have in common, or the worst."""
    if group.outlier:
        return make_headline(tell_outlier(group.outlier))
    worst, *others = share_verdicts(group)
    about = f"{len(group.targets)} processes, {len(others) + 1} verdicts, the worst" if others else "all"
    verdict = worst.document.verdict
    return make_headline(f"{about}: {_tell(worst).text}", verdict.kind, verdict.status)


def _tell(shared: Shared) -> Item:
    verdict = shared.document.verdict
    return Item(f"{shared.times} × {shared.who}: {verdict.headline}", source=f"{verdict.kind}, {verdict.status}")
