"""A C++ program forgets to join a std::thread: its destructor calls std::terminate(), and no exception was ever thrown.
The near miss of cpp_exception_thread: the same end, where one was."""

EXPECT = {
    "kind": "abort",
    "status": "established",
    "exit": 134,
    "signal": "SIGABRT",
    "role": "main",
    "user_function": None,
    "component": "program_cpp_thread_left",
    "component_function": "prefetch",
    "faulting_image": "libc",
    "stack": [("prefetch", "program_cpp_thread_left.cpp", 9)],
    "headline": ["terminate called without an active exception"],
    "not_in_headline": ["not caught"],
}
CONTROL = {"kind": "clean", "exit": 0}
PROGRAM = "program_cpp_thread_left.cpp"
COMMAND = ["{file}", "{control}"]
