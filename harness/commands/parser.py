"""The words of the command line: which commands and options there are, and their help."""

from __future__ import annotations

import argparse

from harness.errors import EXIT_USAGE
from harness.version import __version__


class _Parser(argparse.ArgumentParser):
    """Argparse's usage errors in the house form: one sentence, the next command, status 2."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(EXIT_USAGE, f"harness: {message}.\n  next: {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="harness",
        description="Which native component ended this Python process, on what evidence, and what to do about it.",
    )
    parser.add_argument("--version", action="version", version=f"harness {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    run = commands.add_parser(
        "run",
        usage="harness run [options] [--] COMMAND…",
        help="supervise a command and say truly how it ended",
        description="Runs COMMAND unchanged, keeps a bounded copy of its output, and reports on stderr how it ended. "
        "The exit status is the command's own (128+N for signal N); 125, 126 and 127 mean it could not be started. "
        "At a terminal Ctrl-\\ shows what it is doing; twice within 2 s ends it.",
    )
    run.add_argument("--verdict", metavar="FILE", help="also write the verdict document (JSON) to FILE")
    run.add_argument(
        "--cases",
        metavar="DIR",
        help="where cases are kept (default: $HARNESS_CASES or your state directory)",
    )
    run.add_argument("--keep", action="store_true", help="keep the case of a command that ended well, too")
    run.add_argument(
        "--inject",
        choices=("auto", "preload", "shim", "none"),
        default="auto",
        help="how the crash link gets into the command (default: auto)",
    )
    run.add_argument(
        "--core",
        choices=("auto", "never", "always"),
        default="auto",
        help="a core of what dies: auto (default) only where the crash link saw nothing; never; always",
    )
    run.add_argument("--stall-after", metavar="TIME", help="look at it when nothing has moved for so long, e.g. 10m")
    run.add_argument(
        "--on-stall",
        choices=("report", "core", "term"),
        help="what to do then: report (default), and also write a core, or send SIGTERM",
    )
    _add_no_redact(run)
    run.add_argument("-q", "--quiet", action="store_true", help="the verdict line only")
    run.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    run.add_argument("words", metavar="COMMAND", nargs=argparse.REMAINDER, help="the command and its arguments")

    _add_openmp(commands)
    attach = commands.add_parser(
        "attach",
        usage="harness attach [TARGET…] [options]",
        help="look at a running process for a few seconds: slow or stuck, where, and on what",
        description="Looks at running processes, judges and lets go. TARGET is PID, [user@]host:PID or "
        "ssh://[user@]host[:port]/PID; nothing is installed there. Without a PID: the table of `harness ps`, and "
        "status 2. Exit status: 0 it moves, 11 busy or waiting (not decidable from outside), 10 stuck, 3 could not "
        "look; of several, the worst.",
    )
    attach.add_argument("targets", metavar="TARGET", nargs="*", help="processes; those below them are looked at too")
    attach.add_argument("--match", metavar="TEXT", help="Python processes with TEXT in their command line")
    attach.add_argument("--for", dest="for_s", metavar="TIME", default="5", help="how long to look (default: 5s)")
    attach.add_argument(
        "--native",
        choices=("auto", "always", "never"),
        default="auto",
        help="native stacks: without a stop of the process (default); with one, which may cut its system calls short; "
        "not at all",
    )
    attach.add_argument("-q", "--quiet", action="store_true", help="the verdict line only")
    attach.add_argument("--json", action="store_true", help="one JSON document on stdout")
    attach.add_argument("--cases", metavar="DIR", help="keep the look in DIR (a remote one is always kept)")
    _add_no_redact(attach)
    _add_reach(attach)
    _add_watch(commands)
    _add_repro(commands)
    ps = commands.add_parser(
        "ps",
        help="Python processes: age, CPU, memory, last write, one word",
        description="Exit status: 0, also where none was found; 3 the host could not be asked.",
    )
    ps.add_argument("targets", metavar="HOST", nargs="*", help="[user@]host or ssh://[user@]host:port (default: here)")
    ps.add_argument("--match", metavar="TEXT", help="only those with TEXT in their command line")
    ps.add_argument("--json", action="store_true", help="one JSON document on stdout")
    _add_no_redact(ps)
    _add_reach(ps)
    _add_npz(commands)
    doctor = commands.add_parser(
        "doctor",
        help="what can be observed on this machine, and how to fix what cannot",
        description="Exit status: 0 everything works, 11 something is missing, 10 nothing can be captured.",
    )
    doctor.add_argument("targets", metavar="HOST", nargs="*", help="another machine: [user@]host")
    doctor.add_argument("--json", action="store_true", help="one JSON document on stdout")
    _add_no_redact(doctor)
    _add_reach(doctor, several=False)
    return parser


def _add_watch(commands: argparse._SubParsersAction[_Parser]) -> None:
    watch = commands.add_parser(
        "watch",
        usage="harness watch [TARGET…] [options]",
        help="follow a running process: when and why it stops moving, and how it ends",
        description="Follows processes until they end or you leave with Ctrl-C; they run on. Reads /proc only, until "
        "one stands still: then it looks once, as attach does. Without a PID: the table of `harness ps`, and status 2. "
        "Exit status: 0 ended well, 10 ended otherwise, 11 ended and nobody saw how, 3 could not look, 130 you left.",
    )
    watch.add_argument("targets", metavar="TARGET", nargs="*", help="processes; those below them are watched too")
    watch.add_argument("--match", metavar="TEXT", help="Python processes with TEXT in their command line")
    watch.add_argument(
        "--stall-after",
        metavar="TIME",
        help="how long without movement is a stall (default: 60s, or 3 times the longest quiet period seen)",
    )
    watch.add_argument("--json-lines", dest="json", action="store_true", help="one JSON document per event on stdout")
    _add_no_redact(watch)
    _add_reach(watch)


def _add_reach(parser: _Parser, several: bool = True) -> None:
    """Of every command that takes targets on other hosts."""
    if several:
        parser.add_argument("--hosts", metavar="FILE", help="hosts, one per line; # starts a comment")
    parser.add_argument("--via", metavar="PREFIX", help="reach the processes by this command, e.g. 'docker exec -i c1'")
    parser.add_argument("--sudo", action="store_true", help="look as root over there (sudo -n)")
    parser.add_argument("--keep", dest="keep_tool", action="store_true", help="leave the py-spy that was sent there")
    parser.add_argument("--connect-timeout", metavar="TIME", default="10", help="give a host up after (default: 10s)")


def _add_repro(commands: argparse._SubParsersAction[_Parser]) -> None:
    repro = commands.add_parser(
        "repro",
        usage="harness repro NAME… [options]",
        help="run minimal programs, one change at a time: which native component fails, and with what",
        description="NAME is gru, accum, faiss, openmp, twotower or all. Every arm runs supervised in a process of its "
        "own. Exit status: 10 a fault was found, 11 some arms are invalid or were not run, 0 no fault, 3 none ran.",
    )
    repro.add_argument("names", metavar="NAME", nargs="*", help="gru, accum, faiss, openmp, twotower; all")
    repro.add_argument(
        "--device",
        dest="devices",
        action="append",
        choices=("cpu", "mps", "cuda"),
        help="where (default: cpu); several are compared",
    )
    repro.add_argument(
        "--python",
        dest="pythons",
        metavar="PY",
        action="append",
        help="the interpreter with torch and faiss (default: yours); several are compared",
    )
    repro.add_argument("--arm", dest="arms", metavar="ARM", action="append", help="only these arms (default: all)")
    repro.add_argument("--repeat", metavar="N", type=int, default=1, help="each arm so often (default: 1)")
    repro.add_argument("--steps", metavar="N", type=int, help="steps of each arm (default: those of the scale)")
    repro.add_argument(
        "--scale",
        choices=("tiny", "small", "seed"),
        default="tiny",
        help="tiny: seconds on 2 cores (default); seed: the shapes of the real training",
    )
    repro.add_argument(
        "--arm-timeout",
        metavar="TIME",
        default="2m",
        help="an arm without a step for so long is looked at, and ended (default: 2m)",
    )
    repro.add_argument("--resume", action="store_true", help="continue what was interrupted")
    repro.add_argument("--save-repro", metavar="DIR", help="write the smallest failing arm as a script of its own")
    repro.add_argument("--cases", metavar="DIR", help="where cases are kept (default: as for run)")
    repro.add_argument("--json", action="store_true", help="one JSON document on stdout")
    _add_no_redact(repro)


def _add_openmp(commands: argparse._SubParsersAction[_Parser]) -> None:
    openmp = commands.add_parser(
        "openmp",
        usage="harness openmp [TARGET | fix] [options]",
        help="OpenMP and BLAS runtimes: whose they are, who calls which, and whether they will clash",
        description="Looks at an environment (default), at a living process (PID), at wheels, or at what imports "
        "really load. `fix` lets one copy serve all. Exit status: 0 no conflict, 11 a risk, 10 a conflict, 3 could not "
        "look.",
    )
    openmp.add_argument("targets", metavar="TARGET | fix", nargs="*", help="a living process, here or host:PID; or fix")
    openmp.add_argument("--python", metavar="PY", help="the interpreter whose environment is meant (default: yours)")
    openmp.add_argument("--import", dest="modules", metavar="A,B", help="import these in a child, in both orders")
    openmp.add_argument("--wheels", metavar="FILE|DIR", nargs="+", help="wheel files, of any platform")
    openmp.add_argument("--requirements", metavar="FILE", help="fetch the wheels this file asks for, install nothing")
    openmp.add_argument("--platform", metavar="TAG", help="with --requirements: e.g. macosx_14_0_arm64")
    openmp.add_argument("--python-version", metavar="X.Y", help="with --requirements: e.g. 3.13")
    openmp.add_argument("--apply", action="store_true", help="with fix: change the files (default: only show)")
    openmp.add_argument("--undo", action="store_true", help="with fix: restore every file as it was")
    openmp.add_argument("--dry-run", action="store_true", help="with fix: only show (the default)")
    openmp.add_argument("--keep", metavar="COPY", help="with fix: the copy that shall serve all (default: the newest)")
    openmp.add_argument("--json", action="store_true", help="one JSON document on stdout")
    _add_no_redact(openmp)
    openmp.add_argument("--via", metavar="PREFIX", help="reach the process by this command, e.g. 'docker exec -i c1'")
    openmp.add_argument("--sudo", action="store_true", help="look as root over there (sudo -n)")


def _add_npz(commands: argparse._SubParsersAction[_Parser]) -> None:
    npz = commands.add_parser(
        "npz",
        usage="harness npz FILE… [options]",
        help="what loading .npz and .npy files really costs in memory, array by array",
        description="Reads headers only, whatever the size; unpickles nothing. Exit status: 0 all arrays fit into the "
        "memory that can be had, 11 barely, or not everything could be told, 10 they do not, 3 could not look.",
    )
    npz.add_argument("files", metavar="FILE", nargs="+", help=".npz and .npy files")
    npz.add_argument("--measure", action="store_true", help="access each array once in a child, and measure")
    npz.add_argument("--python", metavar="PY", help="with --measure: the interpreter (default: yours)")
    npz.add_argument("--to-npy", metavar="DIR", help="write each array as a .npy file, which can be mapped")
    npz.add_argument("--json", action="store_true", help="one JSON document on stdout")
    _add_no_redact(npz)


def _add_no_redact(parser: _Parser) -> None:
    parser.add_argument("--no-redact", action="store_true", help="keep and show passwords, tokens and keys, too")
