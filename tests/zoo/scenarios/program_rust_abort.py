"""A Rust program that is built with panic=abort panics: an index past the end, on line 3.
The standard library aborts; who asked for the element is pick()."""

EXPECT = {
    "kind": "abort",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": None,
    "component": "program_rust_abort",
    "component_function": "pick",
    "faulting_image": "libc",
    "stack": [("pick", "program_rust_abort.rs", 3), ("main", "program_rust_abort.rs", 9)],
    "headline": ["panicked at", "program_rust_abort.rs:3:", "index out of bounds"],
}
CONTROL = {"kind": "clean", "exit": 0}
PROGRAM = "program_rust_abort.rs"
BUILD_FLAGS = ["-C", "panic=abort"]
COMMAND = ["{file}", "{control}"]
