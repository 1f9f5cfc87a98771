"""Puts the crash link into a Python process where LD_PRELOAD cannot: found on PYTHONPATH, run by `site` at start.

Then hands over to the sitecustomize it stands in front of. Without interposition a handler that is installed later
(a DataLoader worker's) replaces ours, and native threads get no alternate stack.
"""

import os
import sys


def start_link():
    import ctypes

    link = os.environ.get("HARNESS_LINK")
    name = "libharness.dylib" if sys.platform == "darwin" else "libharness.so"
    folder = os.path.dirname(link or "")
    library = os.path.join(folder, name)
    if not link or not os.path.exists(library):
        return
    about = os.lstat(folder)  # after our supervisor's end anybody could make one of that name
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        return
    native = ctypes.PyDLL(library)  # with the GIL: the link adds an audit hook
    native.harness_link_start.argtypes = [ctypes.c_char_p]
    native.harness_link_start(os.fsencode(link))
    # At the interpreter's end faulthandler gives the default action back; libraries' destructors run after that.
    ctypes.pythonapi.Py_AtExit(native.harness_link_renew)


def print_stacks_when_asked():
    """On macOS nobody but root can read our memory; a signal that is ignored otherwise makes us print our own lines."""
    import atexit
    import faulthandler
    import signal

    if not os.environ.get("HARNESS_LINK") or not hasattr(signal, "SIGINFO"):
        return
    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"harness-stacks-{os.getuid()}-{os.getpid()}")
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and os.unlink(path))
    faulthandler.register(signal.SIGINFO, file=file, all_threads=True)


def run_the_other_one():
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    start_link()
    print_stacks_when_asked()
finally:
    run_the_other_one()
