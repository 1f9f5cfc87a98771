"""A C++ program reads through a null pointer inside code of std::vector that was inlined from a header.
The fault is in begin() of the header; whose loop it is, line 8 of program_cpp_header.cpp, is what one wants to know."""

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": None,
    "component": "program_cpp_header",
    "component_function": "longest",
    "faulting_image": "program_cpp_header",
    "stack": [("longest", "program_cpp_header.cpp", 8), ("main", "program_cpp_header.cpp", 16)],
    "headline": ["program_cpp_header"],
}
CONTROL = {"kind": "clean", "exit": 0}
PROGRAM = "program_cpp_header.cpp"
COMMAND = ["{file}", "{control}"]
