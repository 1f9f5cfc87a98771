"""A regular expression that backtracks for ever: 2**64 ways to cut one run of letters.

One C call of the interpreter's own matcher, with the GIL held. The control matches many short lines with a sound
pattern. Seen: state R, gdb has sre_ucs1_match in the interpreter's own image under the one Python line; control:
number rises in four dumps.
"""

import re
import signal
import sys

from stage import say_ready

EXPECT = {
    "kind": "busy-native",
    "pid_role": "main",
    "thread": "MainThread",
    "python_function": "parse_header",
    "python_line_text": "return pattern.match(line)",
    "facts": ["the regular expression engine", "parse_header"],
}
STRIPPED = {"kind": "busy-python", "facts": []}  # the interpreter's own functions have no names there
CONTROL = {"kind": "progressing", "status": "supported", "rising_local": "number"}
LIMIT_S = 110


def parse_header(pattern, line):
    return pattern.match(line)


def parse_lines(pattern, line, count):
    say_ready()
    for number in range(count):
        if pattern.match(line):
            raise SystemExit(f"line {number} matches")


signal.alarm(LIMIT_S)
if "--control" in sys.argv:
    parse_lines(re.compile(r"a+$"), "a" * 64 + "!", 10**10)
else:
    say_ready()
    parse_header(re.compile(r"(?:a+)+$"), "a" * 64 + "!")
