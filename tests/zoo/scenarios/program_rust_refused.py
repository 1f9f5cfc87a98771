"""A Rust program asks for more memory than any machine has: its allocator gives up with abort()."""

EXPECT = {
    "kind": "allocation-failure",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": None,
    "component": "program_rust_refused",
    "faulting_image": "libc",
    "headline": ["memory allocation of 4611686018427387904 bytes failed"],
}
CONTROL = {"kind": "clean", "exit": 0}
PROGRAM = "program_rust_refused.rs"
COMMAND = ["{file}", "{control}"]
