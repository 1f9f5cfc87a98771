"""A program prints what a Rust tool of its own said when that panicked, goes on without it, and leaves with 3 later.
The panic is no last word, and 3 is no status of a panic: the headline says 3 and nothing of the panic."""

import sys

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 3,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["exit status 3"],
    "not_in_headline": ["panicked"],
}
CONTROL = {"kind": "clean", "exit": 0}

sys.stderr.write("thread 'main' panicked at src/main.rs:10:5:\nindex out of bounds\n")
sys.stderr.write("going on without it\n")
sys.exit(0 if "--control" in sys.argv else 3)
