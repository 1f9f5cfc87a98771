"""Near-miss: sentences that begin as a shell's notice of a dead process does, then sys.exit(1).
Nobody died: every process of the command was seen, and none ended by a signal."""

import sys

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "headline": ["exit status 1"],
}
CONTROL = {"kind": "clean", "exit": 0}

print("Terminated early at epoch 3")
print("Killed 3 stale workers")
print("Aborted", file=sys.stderr)
sys.exit(0 if "--control" in sys.argv else 1)
