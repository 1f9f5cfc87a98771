"""Near-miss: a shell leaves with 139 by its own choice, the status that it gives to a command that segfaulted.
With every birth seen by the kernel's own word there was no such command."""

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 139,
    "signal": None,
    "role": "main",
    "headline": ["exit status 139"],
}
CONTROL = {"kind": "clean", "exit": 0}
COMMAND = ["sh", "-c", 'test -n "{control}" || exit 139']
NEEDS_ROOT = True
