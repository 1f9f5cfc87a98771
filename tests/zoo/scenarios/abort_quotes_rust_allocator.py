"""A C++ program quotes the words of Rust's allocator, and aborts for a reason of its own: nothing proves what ended it.
The near miss of program_rust_refused."""

EXPECT = {
    "kind": "allocation-failure",
    "status": "supported",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": None,
}
CONTROL = {"kind": "clean", "exit": 0}
PROGRAM = "abort_quotes_rust_allocator.cpp"
COMMAND = ["{file}", "{control}"]
