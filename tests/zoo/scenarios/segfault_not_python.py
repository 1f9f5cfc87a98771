"""A shell sends itself SIGSEGV: the command is not Python at all.
The wait status says SIGSEGV; there is no interpreter and so no Python frame."""

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": None,
    "headline": [],
}
CONTROL = {"kind": "clean", "exit": 0}
COMMAND = ["sh", "-c", 'echo working; test -n "{control}" || kill -SEGV $$']
