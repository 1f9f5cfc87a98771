"""SIGSEGV is blocked, sent with kill and fetched with sigwait; then it is sent and unblocked.
A blocked signal that was sent stays pending: sigwait takes it, and the handler runs only after the unblocking."""

import os
import signal

BARE = {"exit": 0}


def note(signo, frame):
    print("got", signal.Signals(signo).name, flush=True)


signal.signal(signal.SIGSEGV, note)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGSEGV])
os.kill(os.getpid(), signal.SIGSEGV)
print("pending", [signal.Signals(signo).name for signo in signal.sigpending()])
print("waited for", signal.Signals(signal.sigwait([signal.SIGSEGV])).name)
os.kill(os.getpid(), signal.SIGSEGV)
print("unblocking", flush=True)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGSEGV])
print("done")
