"""Near-miss: a probe fails with a ModuleNotFoundError, which the shell handles; then the shell leaves with 1 as well.
The same status proves nothing where the shell still printed something: both readings are told."""

import sys

EXPECT = {
    "kind": "python-exception",
    "status": "supported",
    "exit": 1,
    "signal": None,
    "role": "child",
    "headline": ["no_such_module_of_ours"],
    "against": ["no gpu"],
}
CONTROL = {"kind": "clean", "exit": 0}
COMMAND = [
    "sh",
    "-c",
    "{python} {file} {control} || echo no gpu; test -n '{control}' || { echo config is missing >&2; exit 1; }",
]

if "--control" not in sys.argv:
    import no_such_module_of_ours  # noqa: F401
