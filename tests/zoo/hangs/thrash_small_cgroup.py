"""More memory in use than a small control group allows, with swap to make up for it: declared, not written.

Without swap the kernel kills instead of paging out, so the state could not be seen, and what was not seen is not
claimed. Where there is swap: join a memory group of 64 MiB and touch 192 MiB at random; VmSwap and majflt must rise.
"""

import sys

EXPECT = {
    "kind": "swapping",
    "pid_role": "main",
    "thread": None,
    "python_function": None,
    "python_line_text": None,
    "facts": ["swap"],
}
CONTROL = {"kind": "progressing"}
SKIP = "needs swap and a memory control group of its own; the machine this was written on has no swap"

sys.stderr.write(SKIP + "\n")
sys.exit(77)
