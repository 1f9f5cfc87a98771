"""An extension module reads address 0 in its init function.
The import statement is the innermost frame of the user's own; importlib, below it, is the standard library."""

import os
import sys

EXPECT = {
    "kind": "segfault",
    "status": "established",
    "exit": 139,
    "signal": "SIGSEGV",
    "role": "main",
    "user_function": "load_tokenizer",
    "component": "native_import_fault",
    "component_function": "zoo_count_tokens",
    "faulting_image": "native_import_fault",
    "fault": ["read", "null"],
    "headline": ["during import of native_import_fault", "load_tokenizer"],
}
CONTROL = {"kind": "clean", "exit": 0}
BUILD = "native_import_fault.c"


def load_tokenizer():
    import native_import_fault

    print("imported", native_import_fault.__name__)


sys.path.insert(0, os.path.dirname(os.environ["ZOO_LIB"]))
if "--control" not in sys.argv:
    os.environ["ZOO_NO_TABLE"] = "1"
load_tokenizer()
