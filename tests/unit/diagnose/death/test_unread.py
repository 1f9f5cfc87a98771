"""A stack that nobody read: the reason, and a command that is not the one that was run."""

from __future__ import annotations

import shlex
import signal

import pytest

from harness.diagnose.death.judge import judge
from harness.evidence.gap import Gap
from harness.evidence.run import Core, Ending, Evidence, Process
from tests.builders.evidence import run_evidence

SEGFAULT = Ending(signo=int(signal.SIGSEGV))


def run_of(*argv: str, **facts: object) -> Evidence:
    main = Process(100, 1, argv[0], argv, argv[0], 0.0, None, 10.0, SEGFAULT, "wait status")
    return run_evidence("", SEGFAULT, argv=argv, **{"processes": (main,), **facts})


def no_link(why: str) -> dict[str, object]:
    return {"gaps": (Gap("the dying process itself", why),)}


@pytest.mark.parametrize(
    ("evidence", "command"),
    [
        (run_of("/bin/job", **no_link("--inject none was asked for")), "harness run -- /bin/job"),
        (run_of("/bin/job", **no_link("/bin/job is setuid: the loader ignores …")), "sudo harness run -- /bin/job"),
        (run_of("sudo", "-u", "ann", "/my job", "x"), "sudo -u ann harness run -- '/my job' x"),
        (run_of("sudo", "-n", "--", "job"), "sudo -n -- harness run -- job"),
        (run_of("sudo", "job", "-u"), "sudo harness run -- job -u"),
        (run_of("/bin/job", "a b"), "gdb -batch -ex run -ex 'thread apply all bt' --args /bin/job 'a b'"),
        (
            run_of("/bin/my job", cores=(Core(100, "/c s/core.100.gz", "core", 9, "moved"),)),
            "gunzip -k '/c s/core.100.gz' && gdb -batch -ex 'thread apply all bt' '/bin/my job' '/c s/core.100'",
        ),
    ],
)
def test_the_command_that_reads_it(evidence: Evidence, command: str) -> None:
    document = judge(evidence)
    (gap,) = (gap for gap in document.gaps if gap.what == "native stack")
    assert (gap.fix == command and gap.fix != f"harness run -- {shlex.join(evidence.argv)}") or "inject" in gap.why
    assert document.verdict.remedies[0].do.endswith(command)
    assert [remedy.verify for remedy in document.verdict.remedies] == [None]


def test_what_is_no_python_misses_no_python_stack() -> None:
    assert "Python stack" not in [gap.what for gap in judge(run_of("/bin/job")).gaps]
    assert "Python stack" in [gap.what for gap in judge(run_of("/usr/bin/python3.11")).gaps]
