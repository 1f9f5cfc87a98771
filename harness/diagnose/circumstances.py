"""What to say about a crash whose place tells little: memory damaged earlier, no GIL, code that no file holds.

Words and grounds for what `blame` has found. Decides nothing.
"""

from __future__ import annotations

from harness.diagnose.address import describe_fault
from harness.diagnose.blame import Blame
from harness.diagnose.damage import list_foreign_code
from harness.diagnose.jit import JIT, list_compilers
from harness.diagnose.plumbing import is_interpreter
from harness.diagnose.verdict import Ground, Remedy
from harness.evidence.crash import Crash
from harness.evidence.model import name_signal

_MOST_NAMED = 12


def ground_damage(crash: Crash, seen: Blame | None) -> tuple[Ground, ...]:
    """Who could have done it: code that is neither the interpreter's nor the system's."""
    if seen is None or not (seen.noticed or seen.without_gil):
        return ()
    if seen.without_gil:
        return (Ground(_tell_state(crash), "the interpreter's own state"),)
    names = list_foreign_code(crash)
    left = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    loaded = f"native code loaded beside the interpreter's own: {', '.join(names[:_MOST_NAMED]) or 'none'}{left}"
    return (Ground(loaded, "loaded images"),)


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
        innocent = f"at {place}" if place else "there"
        return Remedy(
            do=f"Do not look {innocent}, where it was only noticed; find who did it: PYTHONMALLOC=debug {{command}}",
            safe=True,
            why="an extension wrote past an end, freed too early or gave back a reference that it did not own",
            verify="PYTHONMALLOC=debug harness run -- {command}",
        )
    if seen.component is not None and seen.component.image == JIT:
        return _advise_jit(crash, place)
    is_fault = name_signal(crash.signo) == "SIGSEGV" and describe_fault(crash).kind_hint != "guard-page"
    return _advise_interpreter(place) if is_fault and seen.component and is_interpreter(seen.component.image) else None


def _advise_interpreter(place: str | None) -> Remedy:
    """Where nothing more is known of the place, as in an interpreter without symbols."""
    return Remedy(
        do=f"Look at {place or 'the caller'}: the interpreter most likely did what it was asked to. If nothing there "
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
    if any(name.startswith("numba ") for name in list_compilers(crash)):
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
