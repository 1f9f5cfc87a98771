"""Lines that may follow the last words of a process: they do not show that anybody went on. Text only."""

from __future__ import annotations

import re

# What may follow the last words of a process: its parent's notice, warnings of what outlives it, a dump of its death,
# the stacks that Rust's panic hook and Go's runtime print after their message.
AFTERWORDS = re.compile(
    r"\s*$|.*resource_tracker|\s+warnings\.warn\(|\[exit status|\S*: line \d+: +\d+ |Exception ignored |[WEI]\d{4} "
    r"|(?:Current thread|Thread) 0x|Fatal Python error: |Extension modules: |Python runtime state: |  File |OMP: "
    r"|Stack \(most|<Cannot show|Current thread's C stack trace |  Binary file |  <[a-zA-Z ]+>$|  \.\.\.$|Aborted"
    r"|\[rank\d+\]:\[[EWI]\d{4} |Exception raised from |frame #\d+: |CUDA kernel errors |For debugging consider "
    r"|Compile with .TORCH_USE|Device-side assertion |Search for .cudaError|\S+ malloc: \*\*\* set a breakpoint"
    r"|stack backtrace:$|note: (?:run with `RUST_|Some details are omitted, )"
    r"|\s+(?:\+-|\| )|goroutine \d+ |\[signal SIG|[\w./-]+\.[\w.()*]+\(.*\)$|created by |exit status \d+$"
)
