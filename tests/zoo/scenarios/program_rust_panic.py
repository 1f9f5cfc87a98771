"""A Rust program panics: an index past the end, on line 3. It unwinds, and leaves with 101, the status of a panic."""

EXPECT = {
    "kind": "exit-nonzero",
    "status": "established",
    "exit": 101,
    "signal": None,
    "role": "main",
    "user_function": None,
    "headline": ["exit status 101", "panicked at", "program_rust_panic.rs:3:", "index out of bounds"],
}
CONTROL = {"kind": "clean", "exit": 0}
PROGRAM = "program_rust_panic.rs"
COMMAND = ["{file}", "{control}"]
