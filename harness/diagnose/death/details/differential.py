"""What else it could have been: each usual suspicion with what the evidence says about it.

A suspicion that could not be checked stays open; only a look that was possible and found nothing rules out.
"""

from __future__ import annotations

import re

from harness.diagnose.death.matching import Finding
from harness.diagnose.death.oom import weigh_oom
from harness.diagnose.death.reading import Reading
from harness.diagnose.environment.openmp import FLAG, rule
from harness.documents.verdict import Hypothesis
from harness.evidence.run import Statement

_TRACKER = re.compile(r"resource_tracker: There appear to be \d+ leaked")
_THREAD_VARIABLES = re.compile(r"(OMP|MKL|OPENBLAS|VECLIB|NUMEXPR|BLIS)_(MAXIMUM_)?NUM_THREADS|KMP_\w+")
_RUNTIME_LOADERS = frozenset(
    ["torch", "faiss", "numpy", "scipy", "sklearn", "tensorflow", "numba", "lightgbm", "xgboost", "cv2"]
)


def weigh(kind: str, finding: Finding, reading: Reading) -> tuple[Hypothesis, ...]:
    rows = [weigh_oom(kind, finding, reading), _exception(kind, reading), _openmp(kind, reading)]
    if reading.mentions(_TRACKER):
        because = "the warning comes from the resource tracker that outlived a hard death: a consequence"
        rows.append(Hypothesis("leaked semaphores", "ruled-out", because))
    rows += [
        Hypothesis(f"{late.sets} set in the script", "ruled-out", _too_late(late, loader))
        for late, loader in late_settings(reading.evidence.script)
    ]
    return tuple(row for row in rows if row is not None)


def late_settings(script: tuple[Statement, ...]) -> list[tuple[Statement, Statement]]:
    """Thread variables set after the import that loads the runtime which reads them once."""
    found = []
    loaders: dict[str, Statement] = {}
    for statement in script:
        if statement.imports in _RUNTIME_LOADERS:
            loaders.setdefault(statement.file, statement)
        elif statement.sets and _THREAD_VARIABLES.fullmatch(statement.sets) and statement.file in loaders:
            found.append((statement, loaders[statement.file]))
    return found


def _too_late(setting: Statement, loader: Statement) -> str:
    name = setting.file.rpartition("/")[2]
    return (
        f"{name}:{setting.line} sets it after {name}:{loader.line} imported {loader.imports}, "
        "and the runtime reads it once, when it is loaded: it had no effect"
    )


def _exception(kind: str, reading: Reading) -> Hypothesis | None:
    if kind == "python-exception" or reading.final is not None:
        return None
    if reading.signame is None:
        return Hypothesis("python-exception", "ruled-out", "no traceback stands at the end of its output")
    if before := reading.before_signal:
        because = f"nothing caught {before.sentence}; {reading.signame} ended it after that"
        return Hypothesis("python-exception", "open", because)
    return Hypothesis("python-exception", "ruled-out", f"a signal ended it ({reading.signame}), not an exception")


def _openmp(kind: str, reading: Reading) -> Hypothesis | None:
    if kind == "duplicate-openmp" or reading.signame not in ("SIGABRT", "SIGSEGV", "SIGBUS"):
        return None
    flag = reading.evidence.environment.get(FLAG)
    if flag:
        because = f"{FLAG}={flag} is set: it hides Error #15 and lets such crashes happen instead"
        return Hypothesis("duplicate-openmp", "open", because)
    if reading.signame == "SIGABRT":
        return Hypothesis(
            "duplicate-openmp", "ruled-out", "a second runtime prints Error #15 before it aborts; none was"
        )
    return _loaded_runtimes(reading)


def _loaded_runtimes(reading: Reading) -> Hypothesis | None:
    """Two that are really used are a risk worth naming, but no cause without a stack that crosses between them."""
    if reading.crash is None or reading.crash.openmp is None:
        return Hypothesis("duplicate-openmp", "open", "which OpenMP runtimes were loaded was not recorded")
    ruling = rule(reading.crash.openmp)
    return Hypothesis("duplicate-openmp", "ruled-out" if ruling.kind == "no-conflict" else "open", ruling.headline)
