"""Children put a seccomp filter on themselves that kills for, or refuses, what a look would need; then they die.
Each dies of its own signal, not of the SIGSYS that our own system calls would bring, and none survives."""

import ctypes
import faulthandler
import os
import signal

BARE = {"exit": 0}
BUILD = "filters.c"
VERSIONS = ["3.9", "3.11", "3.13"]

library = ctypes.CDLL(os.environ["ZOO_LIB"])


def send_to_itself(signo):
    os.kill(os.getpid(), signo)
    signal.pause()


def raise_to_itself(signo):
    signal.raise_signal(signo)
    signal.pause()


def wait_for(signo):
    """The parent sends it when the filter is on; faulthandler prints the line, so there is only one."""
    os.write(tell, b"x") and signal.pause()


def wait_masked(signo):
    """Blocked but for the time of the call: it must end the process all the same."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signo])
    os.write(tell, b"x")
    ctypes.CDLL(None).ppoll(None, 0, None, ctypes.create_string_buffer(128))


def recover(signo):
    signal.signal(signo, lambda *_: os._exit(30))
    os.kill(os.getpid(), signo)
    signal.pause()


def open_a_file():
    os.open("/dev/null", os.O_RDONLY)


ENDS = [
    (library.read_null,),
    (library.divide_by_zero,),
    (library.breakpoint,),
    (os.abort,),
    (open_a_file,),
    *((send_to_itself, signo) for signo in (signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV)),
    (raise_to_itself, signal.SIGFPE),
    *((wait_for, signo) for signo in (signal.SIGTERM, signal.SIGABRT, signal.SIGHUP, signal.SIGSEGV)),
    (wait_masked, signal.SIGABRT),
    (recover, signal.SIGSEGV),
]


def in_child(put_filter_on, end, *words):
    pid = os.fork()
    if pid == 0:
        put_filter_on()
        end(*words)
        os._exit(3)
    if end in (wait_for, wait_masked):
        os.read(ready, 1)
        os.kill(pid, words[0])
    status = os.waitpid(pid, 0)[1]
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
    print(end.__name__, *(int(word) for word in words), how, flush=True)


ready, tell = os.pipe()
for put_on in (library.kill_for_all_but, library.refuse_all_but):
    for end in ENDS:
        in_child(lambda put_on=put_on: put_on(-1), *end)
in_child(lambda: None, wait_masked, signal.SIGABRT)
for end in (library.open_by_emulation, library.handle_fault):
    in_child(lambda: None, end)


def refuse_to_change_actions():
    """faulthandler would have to give the default action back, and could not."""
    faulthandler.disable()
    library.refuse_all_but(library.sigaction_call())


in_child(refuse_to_change_actions, library.read_null)
