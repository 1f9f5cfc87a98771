"""A C++ program without any Python calls abort() in a function that the compiler has inlined, on a second thread.
Line 8 of program_cpp_abort.cpp is the call; serve() (line 13) holds the code; the debug information knows both."""

EXPECT = {
    "kind": "abort",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": None,
    "component": "program_cpp_abort",
    "component_function": "check_index",
    "faulting_image": "libc",
    "stack": [("check_index", "program_cpp_abort.cpp", 8), ("serve", "program_cpp_abort.cpp", 13)],
    "headline": ["program_cpp_abort"],
}
CONTROL = {"kind": "clean", "exit": 0}
PROGRAM = "program_cpp_abort.cpp"
COMMAND = ["{file}", "{control}"]
