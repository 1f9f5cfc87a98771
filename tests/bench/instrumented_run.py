"""`harness run` with a stopwatch: `instrumented_run.py FILE run -- COMMAND…` writes where its time went to FILE.

Stands in for the `harness` script. The steps are whatever run.py and supervision.py call, found by looking, so that a
new one shows up by itself; only the outermost call counts, so the steps add up. Does not look into the command.
Imports nothing of its own before harness does, else harness's imports would look cheaper than they are.
"""

import sys
import time

FIRST_NS = time.monotonic_ns()
FUNCTION, CLASS, MODULE = type(lambda: None), type, type(sys)

_steps = []
_depth = 0


def timed(name, function):
    def call(*args, **kwargs):
        global _depth
        _depth += 1
        begun = time.monotonic_ns()
        try:
            return function(*args, **kwargs)
        finally:
            _depth -= 1
            if _depth == 0:
                _steps.append([name, time.monotonic_ns() - begun])

    return call


def import_commands():
    from harness.commands.parser import build_parser

    return build_parser().parse_args(sys.argv[2:])


def import_run():
    from harness.commands import run

    return run


def is_ours(value):
    home = value.__name__ if isinstance(value, MODULE) else getattr(value, "__module__", None)
    return isinstance(home, str) and home.startswith(("harness.capture", "harness.evidence"))


def instrument(place):
    for name, value in list(vars(place).items()):
        if isinstance(value, FUNCTION) and is_ours(value):
            setattr(place, name, timed(value.__qualname__, value))


def main():
    arguments = timed("import harness.commands, parse the words", import_commands)()
    run = timed("import harness.commands.run", import_run)()
    rooms = (run, sys.modules["harness.commands.job"])
    values = [value for room in rooms for value in vars(room).values()]
    places = [value for value in values if isinstance(value, (MODULE, CLASS)) and is_ours(value)]
    for place in (*rooms, *places, sys.modules["harness.capture.run.channels"].Channel):
        instrument(place)
    begun = time.monotonic_ns()
    status = run.run_command(arguments)
    run_ns = time.monotonic_ns() - begun
    import json

    answer = {"first_ns": FIRST_NS, "steps": _steps, "run_ns": run_ns, "last_ns": time.monotonic_ns()}
    with open(sys.argv[1], "w") as file:  # noqa: PTH123 (pathlib may not be loaded)
        json.dump(answer, file)
    return status


if __name__ == "__main__":
    sys.exit(main())
