"""signal.signal(SIGABRT, f): os.kill is survived, os.abort is not.
abort(3) restores the default when the handler has returned, and raises again: SIGABRT."""

import os
import signal

BARE = {"exit": 134}


def note(signo, frame):
    print("got", signal.Signals(signo).name, flush=True)


signal.signal(signal.SIGABRT, note)
os.kill(os.getpid(), signal.SIGABRT)
print("goes on", flush=True)
os.abort()
