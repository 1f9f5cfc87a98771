"""The stacks of one process as pystack's engine sees them, printed as JSON.

Runs in a child of its own (stacks.fork_tool), because the engine can crash or hang on a damaged target. Merges and
judges nothing.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from harness.capture.stacks.walk.thread_registers import end_with_parent, hold_all


def warm_engine() -> None:
    """So that the children forked for it have its import behind them."""
    with contextlib.suppress(ImportError):  # then the child says so
        import pystack.engine  # noqa: F401


def read_threads(pid: int, mode: str) -> list[dict[str, Any]]:
    """The engine itself stops nothing; for native frames we must hold all threads."""
    from pystack.engine import NativeReportingMode, get_process_threads

    threads = get_process_threads(pid, stop_process=False, native_mode=NativeReportingMode[mode])
    return [_describe(thread) for thread in threads]


def read_core_threads(core: str, executable: str, mode: str) -> list[dict[str, Any]]:
    from pystack.engine import NativeReportingMode, get_process_threads_for_core

    threads = get_process_threads_for_core(core, executable, native_mode=NativeReportingMode[mode])
    return [_describe(thread) for thread in threads]


def _describe(thread: Any) -> dict[str, Any]:
    """Outermost frame first, as the engine has them."""
    from pystack.types import NativeFrame, frame_type

    version = thread.python_version
    return {
        "tid": thread.tid,
        "name": thread.name,
        "python_state": version is not None,
        "holds_gil": _tell_gil(thread.holds_the_gil),
        "native": [
            {
                "address": frame.address,
                "symbol": frame.symbol,
                "file": frame.path,
                "line": frame.linenumber,
                "image": frame.library,
                "evaluates": frame_type(frame, version) == NativeFrame.FrameType.EVAL,
            }
            for frame in thread.native_frames
        ],
        "python": [
            {
                "function": frame.code.scope,
                "file": frame.code.filename,
                "line": frame.code.location.lineno,
                "entry": bool(frame.is_entry),
                "shim": bool(frame.is_shim),
            }
            for frame in thread.all_frames
        ],
    }


def _tell_gil(told: int) -> bool | None:
    """Null: the engine does not know."""
    return None if told < 0 else told > 0


def print_threads(pid: int, mode: str, deadline_s: float, stop: bool = True) -> None:
    end_with_parent(deadline_s)
    with hold_all(pid) if stop else contextlib.nullcontext():
        threads = read_threads(pid, mode)
    print_answer(threads)


def print_answer(threads: list[dict[str, Any]]) -> None:
    answer = json.dumps(threads).encode()
    with open(1, "wb", closefd=False) as out:
        out.write(answer)
