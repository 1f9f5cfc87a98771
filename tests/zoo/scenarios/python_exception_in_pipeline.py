"""In a shell's pipeline the reader raises a ValueError; the writer then fails of a BrokenPipeError, and ends later.
The shell ends as the reader has ended: who only lost his reader is a consequence."""

import sys

EXPECT = {
    "kind": "python-exception",
    "status": "established",
    "exit": 1,
    "signal": None,
    "role": "child",
    "user_function": "read_rows",
    "headline": ["ValueError: row 1000 has 3 columns"],
}
CONTROL = {"kind": "clean", "exit": 0}
COMMAND = ["sh", "-c", "{python} {file} write {control} | {python} {file} read {control}"]


def write_rows(count):
    for number in range(count):
        print("row", number)


def read_rows(broken):
    for number, _ in enumerate(sys.stdin):
        if broken and number == 1000:
            raise ValueError("row 1000 has 3 columns")


if "write" in sys.argv:
    write_rows(2000 if "--control" in sys.argv else 1_000_000)
else:
    read_rows("--control" not in sys.argv)
