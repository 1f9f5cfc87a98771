"""Several targets in one document: the verdict on each, where all of them are, and who is elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from harness.diagnose.living.document import find_odd_one, grow_tree, judge_living, list_ranks
from harness.diagnose.living.kinds import exit_code_of
from harness.diagnose.living.stack_tree import Stack, tell_who
from harness.documents.group import Group
from harness.documents.verdict import Document
from harness.errors import EXIT_COULD_NOT_LOOK, EXIT_FAULT, EXIT_INCONCLUSIVE
from harness.evidence.gap import Gap
from harness.evidence.living.look import LivingProcess, Look
from harness.evidence.text.numbers import find_number
from harness.version import __version__

_WORST_FIRST = (EXIT_FAULT, EXIT_COULD_NOT_LOOK, EXIT_INCONCLUSIVE, 0)


def judge_group(*looks: Look, unseen: Sequence[Gap] = ()) -> Group:
    """One look for each host. `unseen`: the hosts that could not be looked at."""
    merged = [replace(look, elsewhere=_ranks_elsewhere(looks, look)) for look in looks]
    processes = [process for look in merged for process in look.processes]
    return Group(
        harness=__version__,
        targets=tuple(judge_living(look, pid) for look in merged for pid in look.targets),
        tree=grow_tree(processes),
        outlier=find_odd_one(merged, processes),
        gaps=(*(gap for look in looks for gap in look.gaps), *unseen),
    )


def _ranks_elsewhere(looks: Sequence[Look], here: Look) -> tuple[LivingProcess, ...]:
    return tuple(process for look in looks if look is not here for process in list_ranks(look.processes))


class Shared(NamedTuple):
    """A verdict that `who` have in common, told of the first of them."""

    who: str
    times: int
    document: Document


def share_verdicts(group: Group) -> list[Shared]:
    """The worst first; of equally bad ones, that of the fewest."""
    alike: dict[tuple[str, str, str], list[Document]] = {}
    for document in group.targets:
        verdict = document.verdict
        place = verdict.user_frame.place if verdict.user_frame else verdict.headline
        about = "" if verdict.kind == "progressing" else place  # rates differ, and so do shares of samples
        alike.setdefault((verdict.kind, verdict.status, about), []).append(document)
    shared = [Shared(tell_who([_name(one) for one in some]), len(some), some[0]) for some in alike.values()]
    return sorted(shared, key=lambda one: (_WORST_FIRST.index(exit_code_of(one.document)), one.times))


def _name(document: Document) -> Stack:
    rank = document.target.rank
    number = find_number(rank or "")
    return Stack((), f"pid {document.target.pid}", number, document.target.host)


def exit_code_of_group(group: Group) -> int:
    """The worst of the targets. One that could not be looked at is worse than one that is undecided."""
    codes = {exit_code_of(document) for document in group.targets}
    if any(gap.what.startswith(("process ", "host ")) for gap in group.gaps):
        codes.add(EXIT_COULD_NOT_LOOK)
    return next((code for code in _WORST_FIRST if code in codes), 0)
