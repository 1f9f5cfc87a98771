"""Near-miss: the last line is libgomp's own, to the letter, and the status is the one libgomp would give; quoted.
libgomp calls exit() while Python is running; here it had ended itself first (twin: resource_limit_libgomp)."""

import sys

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["exit status 1"],
}
CONTROL = {"kind": "clean", "exit": 0}

print("libgomp: Thread creation failed: Resource temporarily unavailable", file=sys.stderr)
sys.exit(0 if "--control" in sys.argv else 1)
