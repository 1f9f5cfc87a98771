"""What to say about a crash whose place tells little: memory damaged earlier, no GIL, code that no file holds.

Words and grounds for what `blame` has found. Decides nothing.
"""

from __future__ import annotations

from harness.diagnose.death.crash.address import describe_fault
from harness.diagnose.death.crash.blame import Blame
from harness.diagnose.death.crash.damage import find_jump, list_foreign_code
from harness.diagnose.death.crash.jit import JIT, list_compilers
from harness.diagnose.plumbing import is_interpreter, plain_function
from harness.documents.verdict import Ground, Remedy
from harness.evidence.crash import Crash, CrashFrame
from harness.evidence.run import name_signal

_MOST_NAMED = 12


def ground_damage(crash: Crash, seen: Blame | None) -> tuple[Ground, ...]:
    """Who could have done it: code that is neither the interpreter's nor the system's."""
    if seen is None or not (seen.noticed or seen.without_gil or _jump(seen)):
        return ()
    if seen.without_gil:
        return (Ground(_tell_state(crash), "the interpreter's own state"),)
    names = list_foreign_code(crash)
    left = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    loaded = f"native code loaded beside the interpreter's own: {', '.join(names[:_MOST_NAMED]) or 'none'}{left}"
    return (Ground(loaded, "loaded images"),)


def doubt_component(seen: Blame | None) -> tuple[str, ...]:
    """Of a component that is the interpreter only because its caller is not on the stack."""
    jump = _jump(seen) if seen else None
    if jump is None:
        return ()
    return (
        f"who called {plain_function(jump)} has left no frame (a tail call): "
        "a function of an extension, or one of Python's own",
    )


def _jump(seen: Blame) -> CrashFrame | None:
    by_interpreter = seen.component is not None and is_interpreter(seen.component.image)
    return find_jump(seen.frames_below) if by_interpreter else None


def _tell_state(crash: Crash) -> str:
    thread = next((thread for thread in crash.threads if thread.tid == crash.tid), None)
    if thread is not None and thread.python_state is False:
        return f"the interpreter does not know thread {crash.tid}: it has no Python thread state, so it holds no GIL"
    return f"thread {crash.tid} had released the GIL"


def advise(crash: Crash, seen: Blame, place: str | None) -> Remedy | None:
    """Whose move it is; null where that is the ordinary question of who called whom with what."""
    if seen.without_gil:
        return _advise_gil(seen)
    if seen.noticed is not None:
        return _advise_search(crash, place)
    if name_signal(crash.signo) in ("SIGSEGV", "SIGBUS") and describe_fault(crash).kind_hint == "guard-page":
        return _advise_depth(place)
    if seen.component is not None and seen.component.image == JIT:
        return _advise_jit(crash, place)
    is_own = seen.component is not None and is_interpreter(seen.component.image)
    return _advise_interpreter(seen, place) if is_own and name_signal(crash.signo) == "SIGSEGV" else None


def _advise_search(crash: Crash, place: str | None) -> Remedy:
    """What numba compiles checks no index and works on memory that is not Python's, which PYTHONMALLOC leaves alone."""
    innocent = f"at {place}" if place else "there"
    checks = "PYTHONMALLOC=debug" + " NUMBA_BOUNDSCHECK=1" * _has_numba(crash)
    return Remedy(
        do=f"Do not look {innocent}, where it was only noticed; find who did it: {checks} {{command}}",
        safe=True,
        why="an extension wrote past an end, freed too early or gave back a reference that it did not own",
        verify=f"{checks} harness run -- {{command}}",
    )


def _advise_depth(place: str | None) -> Remedy:
    return Remedy(
        do=f"Look at {place or 'what recurses'}: is that data nested deeper than meant, does it contain itself, or "
        "does a callback call its caller again without an end?",
        safe=True,
        why="code that calls itself for each level needs a stack as deep as its data",
        verify="harness run -- {command}",
    )


def _advise_interpreter(seen: Blame, place: str | None) -> Remedy:
    """Where nothing more is known of the place, as in an interpreter without symbols."""
    jump = _jump(seen)
    called = f"the C function that {place or 'Python'} calls" if jump else place or "the caller"
    return Remedy(
        do=f"Look at {called}: the interpreter most likely did what it was asked to. If nothing there "
        "gives it a bad pointer, an extension has damaged an object earlier: PYTHONMALLOC=debug {command}",
        safe=True,
        why="the interpreter faults on objects that are none",
        verify="harness run -- {command}",
    )


def _advise_gil(seen: Blame) -> Remedy:
    caller = seen.component.image.rpartition("/")[2] if seen.component and seen.component.image else "native code"
    return Remedy(
        do=f"Let {caller} hold the GIL while it calls into Python: PyGILState_Ensure() and PyGILState_Release() on a "
        "thread of its own, Py_END_ALLOW_THREADS before the call; from Python ctypes.PyDLL, not CDLL.",
        safe=True,
        why="the interpreter's own data may be used by the thread that holds the GIL only",
        verify="harness run -- {command}",
    )


def _advise_jit(crash: Crash, place: str | None) -> Remedy:
    if _has_numba(crash):
        return Remedy(
            do="Let numba check every index: NUMBA_BOUNDSCHECK=1 {command}",
            safe=True,
            why="a wrong index then raises IndexError instead of reading or writing elsewhere",
            verify="NUMBA_BOUNDSCHECK=1 harness run -- {command}",
        )
    return Remedy(
        do=f"Check the sizes and indices of what {place or 'the caller'} gives to compiled code; "
        "run it once with the compiler off.",
        safe=True,
        why="compiled code checks nothing that it was not asked to check",
        verify="harness run -- {command}",
    )


def _has_numba(crash: Crash) -> bool:
    return any(name.startswith("numba ") for name in list_compilers(crash))
