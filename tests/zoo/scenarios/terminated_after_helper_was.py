"""Near-miss: a shell ends a helper with SIGTERM, as it wants to; later it gets SIGTERM itself and dies of it.
A shell does not die of the signal that ended its child: it is the shell that was terminated."""

EXPECT = {
    "kind": "terminated",
    "status": "established",
    "exit": 143,
    "signal": "SIGTERM",
    "role": "main",
    "headline": ["SIGTERM", "sent by itself"],
}
CONTROL = {"kind": "clean", "exit": 0}
SHIM_UNPRIVILEGED = {"headline": ["SIGTERM"]}  # who sent it is told by the kernel to root, and by the preloaded library
COMMAND = ["bash", "-c", "sleep 100 & kill $!; wait $! 2>/dev/null; test -n '{control}' || kill -TERM $$; true"]
