"""The kinds of death, in the order in which they are tried: the first row that matches is the verdict.

One row says it all: what it means, which text is its sign (with a recorded sample each), which signals, the sentence,
the remedies. To add a kind, add a row here and a scenario in tests/zoo; docs/generate.py makes the page of kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from harness.diagnose.death.crash.blame import crosses_openmp
from harness.diagnose.death.crash.instructions import Told, explain_instruction
from harness.diagnose.death.last_words import Traceback
from harness.diagnose.death.limits import find_cpu_limit
from harness.diagnose.death.loading import MARKERS, find_misfit
from harness.diagnose.death.matching import (
    CPP_RUNTIME,
    CUDA,
    LIBC,
    MAC_MALLOC,
    MAY_BE_LOGGED,
    METAL,
    OPENBLAS,
    OPENMP,
    RUST_PANIC,
    RUST_RUNTIME,
    TORCH,
    Finding,
    Kind,
    claims,
    marker,
    status_of_death,
)
from harness.diagnose.death.oom import find_oom
from harness.diagnose.death.reading import Reading
from harness.diagnose.death.sender import was_interrupted
from harness.diagnose.environment.openmp import LET_ONE_SERVE, NEVER_THE_FLAG, ONE_DISTRIBUTOR, SEPARATE_PROCESSES
from harness.diagnose.plumbing import plain_function
from harness.diagnose.words import cut_words
from harness.documents.verdict import Ground, Remedy, Status

# As a person writes it, and as it stands in the file.
_RUST_REFUSED = re.compile(r"(?:alloc::alloc::|_RNvNtCs\w+_5alloc5alloc18)handle_alloc_error")
_FATAL = re.compile(r"_?Py_Fatal\w*|fatal_error\w*")


def _python_fatal(reading: Reading) -> Finding | None:
    dump = reading.dump
    if dump is None or dump.signame is not None or not (reading.signame == "SIGABRT" or reading.culprit.ending is None):
        return None
    frames = reading.blame.frames_below if reading.blame else ()
    proven = any(_FATAL.fullmatch(plain_function(frame) or "") for frame in frames)
    if not proven and reading.aborting_image is not None:  # the stack was read, and nobody there gives up so
        return None
    status: Status = "established" if proven else "supported"
    ground = Ground(f"the interpreter printed: Fatal Python error: {dump.title}", str(dump.place))
    return Finding(status, dump.title, (ground,), {})


def _two_runtimes(reading: Reading) -> Finding | None:
    """Without the message: the runtime's own check on the stack, or a stack that crosses from one copy into another."""
    crash = reading.crash
    if crash is None or reading.is_sent or reading.blame is None:
        return None
    if crossing := crosses_openmp(crash):
        calling, called = (image.path for image in crossing)
        ground = Ground(f"on the stack {calling} calls straight into {called}", crash.origin)
        return Finding("established", "", (ground,), {"calling": calling, "called": called})
    checks = any("__kmp_register_library" in (frame.function or "") for frame in reading.blame.frames_below)
    if checks and reading.signame == "SIGABRT":
        ground = Ground("the runtime's check for a second copy is on the stack, above abort()", crash.origin)
        return Finding("established", "", (ground,), {})
    return None


def _refused_by_rust(reading: Reading) -> Finding | None:
    """Rust's way to the end for memory that it was not given; other allocators throw."""
    frames = reading.blame.frames_below if reading.blame and reading.signame == "SIGABRT" else ()
    refused = next((frame for frame in frames if _RUST_REFUSED.fullmatch(plain_function(frame) or "")), None)
    if refused is None or reading.crash is None:
        return None
    ground = Ground(f"{plain_function(refused)} is on the stack, above abort()", reading.crash.origin)
    return Finding("established", "Rust's allocator had none to give", (ground,), {})


_AGAIN = "harness run -- {command}"
_PAGE_BYTES = 4096


def _stack_overflow(reading: Reading) -> Finding | None:
    if reading.fault is None or reading.signame not in ("SIGSEGV", "SIGBUS") or reading.fault.kind_hint != "guard-page":
        return None
    origin = reading.crash.origin if reading.crash else ""
    return Finding("established", "", (Ground(reading.fault.sentence, origin),), {})


def _shared_memory(reading: Reading) -> Finding | None:
    """The address alone cannot tell a full /dev/shm from a truncated file there; the room that was left can."""
    if (
        reading.crash is None
        or reading.fault is None
        or reading.signame != "SIGBUS"
        or reading.fault.kind_hint != "shm"
    ):
        return None
    grounds = [Ground(reading.fault.sentence, reading.crash.origin)]
    free = reading.crash.shm_free_bytes
    if free is not None:
        grounds.append(Ground(f"{free} bytes were left in /dev/shm", "statvfs"))
    if free is not None and free >= _PAGE_BYTES:
        return None
    return Finding("established" if free is not None else "supported", reading.fault.sentence, tuple(grounds), {})


def _illegal_instruction(reading: Reading) -> Finding | None:
    """By the bytes at pc: which extension, and whether this CPU shows it."""
    if reading.signame != "SIGILL":
        return None
    told = explain_instruction(reading.crash) if reading.crash and not reading.is_sent else None
    detail = told.words if told else ""
    return Finding(status_of_death(reading), detail, (), {}, remedies=_suit_cpu(told, reading) if told else ())


def _suit_cpu(told: Told, reading: Reading) -> tuple[Remedy, ...]:
    component = reading.blame.component if reading.blame else None
    what = (component and (component.distribution or PurePath(component.image or "").name)) or "that code"
    if told.instruction.flag is None:
        why = "the compiler puts such an instruction where the code must not come to, or a check calls for it"
        return (Remedy(f"Report it to {what} with the case: the code ended itself there.", True, why, _AGAIN),)
    if told.missing is None:
        return ()
    virtual = "; a virtual machine can be given its host's CPU (qemu: -cpu host)" if told.is_virtual else ""
    do = (
        f"Use a build of {what} for any CPU of this family (not one made with -march=native elsewhere), or a machine "
        f"where /proc/cpuinfo shows {told.missing}{virtual}."
    )
    return (Remedy(do, True, "compiled code asks for an extension that the CPU does not show", _AGAIN),)


def _kernel_signal(reading: Reading) -> Finding | None:
    """A kernel log without a process of ours: the line itself is the evidence."""
    for line in reading.evidence.kernel:
        found = re.search(r"(?P<name>\S+)\[(?P<pid>\d{1,9})\]:? segfault at", line.text)
        if found and reading.is_log:
            return Finding("established", "", (Ground(f"kernel: {cut_words(line.text, 160)}", line.source),), {})
    return None


def _other_signal(reading: Reading) -> Finding | None:
    """One that no kind claims: a timer's, a real-time one, or one that was sent and has not its usual reason."""
    if reading.signame in (None, "SIGINT") or any(claims(kind, reading) for kind in KINDS):
        return None
    return Finding(status_of_death(reading), "", (), {})


_MAY_BE_RAISED = "whether a SIGINT came before was not seen: a program may raise KeyboardInterrupt itself"
_MAY_BE_ITS_OWN = "a SIGINT came before, but Python's own handler raises KeyboardInterrupt without a message"


def _interrupted(reading: Reading) -> Finding | None:
    """Ctrl-C is a SIGINT that arrived; CPython dies of SIGINT as well where the program itself raised the exception."""
    raised = next((item for item in reading.exceptions if item.type == "KeyboardInterrupt"), None)
    if raised is None:
        return Finding(status_of_death(reading), "", (), {}) if reading.signame == "SIGINT" else None
    arrived, is_told = was_interrupted(reading), reading.is_proven or reading.signame == "SIGINT"
    if arrived is False or (arrived is None and raised.message.strip()):  # which CPython's own has not
        return None
    ground = Ground(f"{'uncaught' if reading.is_proven else 'printed:'} {raised.sentence}", str(raised.end))
    if reading.is_log or not is_told:
        return Finding("supported", "", (ground,), {}, () if reading.is_log else (MAY_BE_LOGGED,))
    doubt = _MAY_BE_RAISED if arrived is None else _MAY_BE_ITS_OWN if raised.message.strip() else None
    return Finding("supported" if doubt else "established", "", (ground,), {}, (doubt,) if doubt else ())


def _python_exception(reading: Reading) -> Finding | None:
    final = reading.final
    if final is None:
        return None
    where = f"in thread {final.thread}: " if final.thread else ""
    ground = Ground(f"{'uncaught' if reading.is_proven else 'printed:'} {where}{final.sentence}", str(final.end))
    if reading.is_proven:
        return Finding("established", where + final.sentence, (ground,), {})
    return Finding("supported", where + final.sentence, (ground,), {}, tuple(_doubt_printed(final, reading)))


_ENDS_A_THREAD = (
    "an exception in a thread ends that thread only: the program itself left, for this or for another reason"
)


def _doubt_printed(final: Traceback, reading: Reading) -> Iterator[str]:
    """The other reading: that it was got over, and something else was the reason to leave."""
    if reading.is_log:
        return
    if final.thread is None:
        yield MAY_BE_LOGGED
    else:
        yield _ENDS_A_THREAD
    if said := reading.list_said_beside(final):
        line, place = said[-1]
        yield f"{cut_words(line, 80)!r} ({place}) was printed then or later: the program may have gone on"


def _exit_nonzero(reading: Reading) -> Finding | None:
    if reading.exit_code is None:
        return None
    told, printed = reading.exit, reading.printed_last
    if printed is None or reading.is_log:
        return Finding("supported" if reading.is_log else "established", "", (), {})
    ground = Ground(f"printed before: {printed.sentence}", str(printed.end))
    if told is None:  # os._exit(), or nobody was there who could have told
        return Finding("supported", "", (ground,), {}, ("whether that exception ended it was not seen",))
    fact = f"no exception ended it: exit({told.exit_code}) was called, {printed.name} had been caught or was another's"
    return Finding("established", "", (ground, Ground(fact, "crash link")), {})


def _clean(reading: Reading) -> Finding | None:
    return Finding("established", "", (), {}) if reading.exit_code == 0 else None


# Rust's panic hook: place, then message; before 1.73 on one line. Go's runtime: the message, then its goroutines.
_RUST_PANIC = r"^thread '[^'\n]*'(?: \(\d+\))? panicked at (?:\S.*:\d+:\d+:\n.*|'.*', \S.*:\d+:\d+$)"
_GO_PANIC = r"^(?:panic|fatal error): .+(?=(?:\n.*){0,12}?\n\ngoroutine \d+ (?:gp=\S+ .*)?\[)"
_NATIVE_STACK = Remedy(
    do="{native}",
    safe=True,
    why="native code faults on input that is not valid, or by a bug of its own",
)
_NO_EXCEPTION = Remedy(
    do="{native}",
    safe=True,
    why="no exception was thrown: a std::thread that was neither joined nor detached went out of scope, or a virtual "
    "function was called while its object was being made or destroyed",
)
_HEAP_CHECK = Remedy(
    do="Find the first bad write, not the place that noticed it: valgrind --error-limit=no {command}",
    safe=True,
    why="heap damage is detected long after it was done; the library that aborts is often innocent",
)
# A handler of SIGABRT that works on the damaged heap may fault itself before it comes to an end.
_HEAP_ENDS = "SIGABRT SIGSEGV"
KINDS: tuple[Kind, ...] = (
    Kind(
        "oom-kill",
        "the kernel, a control group or an OOM daemon killed it for memory, and says so",
        "Killed for lack of memory ({detail}){where}{before}",
        rule=find_oom,
        remedies=(
            Remedy(
                do="Lower the peak (smaller batches, fewer workers, memory-mapped data) or raise the limit.",
                safe=True,
                why="whoever killed it names this process, and memory as the reason",
                verify="harness run -- {command}",
            ),
        ),
    ),
    Kind(
        "duplicate-openmp",
        "two OpenMP runtimes in one process: the second one aborts (OMP Error #15), or a stack crosses between them",
        "Two OpenMP runtimes in one process: {runtimes}{where}",
        markers=(
            marker(
                r"OMP: Error #15: Initializing (?P<second>\S+), but found (?P<first>\S+) already initialized",
                "SIGABRT",
                "omp15_linux_libomp_so.txt",
                speaker=OPENMP,
            ),
        ),
        rule=_two_runtimes,
        remedies=(ONE_DISTRIBUTOR, LET_ONE_SERVE, SEPARATE_PROCESSES, NEVER_THE_FLAG),
        next="harness openmp --python {python}",
    ),
    Kind(
        "allocation-failure",
        "memory was refused: MemoryError, bad_alloc, device out of memory",
        "Memory was refused: {detail}{where}{limit}{before}",
        markers=(
            marker(
                r"(?:MemoryError|(?:numpy\.[\w.]+\.)?_ArrayMemoryError|(?:pyarrow\.[\w.]+\.)?ArrowMemoryError)"
                r"(?:: .*)?$",
                "exception",
                "python_oom_malloc_memoryerror.txt",
            ),
            marker(
                r"RuntimeError: (?:\[enforce fail at .*?\] .*?)?(?P<what>DefaultCPUAllocator: .*?bytes)",
                "exception",
                "torch_cpu_alloc_fail.txt",
            ),
            marker(
                r"  what\(\):  \[enforce fail at .*?\] .*?(?P<what>DefaultCPUAllocator: .*?bytes)",
                "SIGABRT",
                "  what():  [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate 8 bytes",
                speaker=CPP_RUNTIME,
            ),
            marker(r"(?:\w+\.)*OutOfMemoryError: .*", "exception", "torch.OutOfMemoryError: CUDA out of memory."),
            marker(
                r"RuntimeError: MPS backend out of memory \(MPS allocated.*",
                "exception",
                "RuntimeError: MPS backend out of memory (MPS allocated)",
            ),
            marker(
                r"terminate called after throwing an instance of '(?P<what>std::bad_alloc)'",
                "SIGABRT",
                "terminate called after throwing an instance of 'std::bad_alloc'",
                speaker=CPP_RUNTIME,
            ),
            marker(
                r"memory allocation of \d+ bytes failed$",
                "SIGABRT",
                "memory allocation of 9 bytes failed",
                speaker=RUST_RUNTIME,
                caller=_RUST_REFUSED,
            ),
            marker(r"RuntimeError: (?P<what>std::bad_alloc)$", "exception", "RuntimeError: std::bad_alloc"),
            marker(
                r"OpenBLAS error: Memory allocation .*failed.*",
                "exit",
                "OpenBLAS error: Memory allocation still failed",
                speaker=OPENBLAS,
            ),
        ),
        rule=_refused_by_rust,
        remedies=(
            Remedy(
                do="Compare the size that was asked for with the limit: ulimit -v, the control group, free memory.",
                safe=True,
                why="an allocation that is refused is not an OOM kill: the process was told no and gave up itself",
            ),
        ),
        names_limit=True,
    ),
    Kind(
        "shared-memory-full",
        "/dev/shm had no room left",
        "Shared memory (/dev/shm) is full: {detail}{where}{limit}",
        markers=(
            marker(
                r"RuntimeError: (?P<what>unable to (?:allocate|write|open).*shared memory.*No space left on device)",
                "exception",
                "dataloader_shm_enospc_new_torch.txt",
            ),
            marker(
                r"OSError: \[Errno 28\] (?P<what>No space left on device: '/dev/shm/[^']*')",
                "exception",
                "OSError: [Errno 28] No space left on device: '/dev/shm/x'",
            ),
        ),
        rule=_shared_memory,
        remedies=(
            Remedy(
                do="Give the container more shared memory (docker run --shm-size=8g) or use fewer DataLoader workers.",
                safe=True,
                why="DataLoader workers pass batches through /dev/shm",
                verify="harness run -- {command}",
            ),
        ),
        names_limit=True,
    ),
    Kind(
        "resource-limit",
        "a limit was hit: CPU time, file size, threads, open files, disk",
        "A resource limit was hit: {detail}{where}{limit}",
        markers=(
            marker(
                r"libgomp: Thread creation failed: .*",
                "exit SIGABRT",
                "libgomp_thread_creation_failed.txt",
                speaker=OPENMP,
            ),
            marker(
                r"OpenBLAS blas_thread_init: pthread_create failed.*",
                "exit",
                "OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 8",
                speaker=OPENBLAS,
            ),
            marker(
                r"OMP: Error #34: .*",
                "exit SIGABRT",
                "OMP: Error #34: System unable to allocate necessary resources for OMP thread:",
                speaker=OPENMP,
            ),
            marker(
                r"RuntimeError: (?P<what>can't start new thread)$", "exception", "RuntimeError: can't start new thread"
            ),
            marker(
                r"OSError: (?P<what>\[Errno (?:24|27|28)\] (?!.*'/dev/shm/).*)",
                "exception",
                "OSError: [Errno 24] Too many open files: 'x'",
            ),
        ),
        signals={"SIGXFSZ": "file size (SIGXFSZ; ulimit -f)"},
        remedies=(
            Remedy(
                do="Look at the limits it ran with (ulimit -a) and raise the one named, or use less of it.",
                safe=True,
                why="the limit ended it, not a fault in a library",
                verify="harness run -- {command}",
            ),
        ),
        rule=find_cpu_limit,
        names_limit=True,
    ),
    Kind(
        "device-assert",
        "an assertion on the device or in its driver failed (CUDA, MPS, Metal)",
        "A device assertion failed: {detail}{where}",
        markers=(
            marker(
                r"\S{1,200}\.cuh?:\d+: .*Assertion `.*?` failed",
                "SIGABRT exit",
                "synth/cuda_device_side_assert.txt",
                speaker=CUDA,
            ),
            marker(
                r"(?:RuntimeError|(?:torch\.)?AcceleratorError): (?P<what>CUDA error: device-side assert triggered)$",
                "exception",
                "synth/cuda_device_side_assert.txt",
            ),
            marker(
                r"(?:\S*/)?(?P<what>(?:MPS|Metal|MTL)\w*\.mm?:\d+: failed assertion .*)",
                "SIGABRT",
                "synth/mps_ndarray_failed_assertion.txt",
                speaker=METAL,
            ),
        ),
        remedies=(
            Remedy(
                do="Run it once with CUDA_LAUNCH_BLOCKING=1, or on the CPU, to get the Python line of the operation.",
                safe=True,
                why="device work is asynchronous: the line in the traceback is where the error was noticed, not made",
                verify="CUDA_LAUNCH_BLOCKING=1 harness run -- {command}",
            ),
        ),
    ),
    Kind(
        "collective-failure",
        "a collective operation (NCCL, gloo) timed out or lost a peer",
        "A collective operation failed: {detail}{where}",
        markers=(
            marker(
                r"(?:\[rank\d+\]:)?\[E.*?\] \[.*?\] "
                r"(?P<what>Watchdog caught collective operation timeout: \w+\([^)]*\))",
                "SIGABRT exit",
                "synth/nccl_watchdog_timeout.txt",
                speaker=TORCH,
            ),
            marker(
                r"RuntimeError: \[\S*?(?P<what>gloo/\S+\] (?:Timed out waiting|Connection closed|Connection reset).*)",
                "exception",
                "gloo_allreduce_timeout.txt",
            ),
            marker(
                r"(?:\w+\.)*Dist(?:Backend|Network|Store)Error: .*",
                "exception",
                "torch.distributed.DistNetworkError: The client socket has timed out",
            ),
        ),
        remedies=(
            Remedy(
                do="Look at the ranks that did not arrive: one of them is dead, slow or in other code.",
                safe=True,
                why="the rank that reports the timeout is the one that waited, not the one that failed",
            ),
        ),
    ),
    Kind(
        "abi-mismatch",
        "a compiled module does not fit the libraries, the driver or the machine it is loaded with",
        "A compiled module does not fit what it is loaded with: {detail}{where}",
        markers=MARKERS,
        rule=find_misfit,
        remedies=(
            Remedy(
                do="Install versions built for each other: upgrade the module, or hold back what it was built against.",
                safe=True,
                why="the module was compiled for another version than the one it found",
                verify="harness run -- {command}",
            ),
        ),
    ),
    Kind(
        "python-fatal",
        "the interpreter itself gave up (Py_FatalError)",
        "The Python interpreter gave up: {detail}{where}",
        rule=_python_fatal,
        remedies=(_NATIVE_STACK,),
    ),
    Kind(
        "memory-corruption",
        "the heap or the stack was found damaged (glibc, stack protector, FORTIFY)",
        "Memory was found damaged: {detail}{where}",
        markers=(
            marker(
                r"free\(\): (?:double free detected in tcache \d|invalid (?:pointer|size|next size).*)",
                _HEAP_ENDS,
                "glibc_free_invalid_pointer.txt",
                speaker=LIBC,
            ),
            marker(
                r"double free or corruption \(.*?\)",
                _HEAP_ENDS,
                "glibc_double_free_or_corruption_prev.txt",
                speaker=LIBC,
            ),
            marker(
                r"munmap_chunk\(\): invalid pointer", _HEAP_ENDS, "glibc_munmap_chunk_invalid_pointer.txt", speaker=LIBC
            ),
            marker(
                r"(?:malloc|realloc|malloc_consolidate)\(\): (?:invalid|unsorted|corrupted|unaligned|mismatching).*",
                _HEAP_ENDS,
                "malloc(): invalid size (unsorted)",
                speaker=LIBC,
            ),
            marker(
                r"corrupted (?:size vs\. prev_size|double-linked list).*",
                _HEAP_ENDS,
                "corrupted size vs. prev_size",
                speaker=LIBC,
            ),
            marker(
                r"\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*",
                "SIGABRT",
                "glibc_stack_smashing.txt",
                speaker=LIBC,
            ),
            marker(
                r"\S{1,64}\(\d+,0x[0-9a-f]+\) malloc: \*\*\* error for object \S+: "
                r"(?P<what>pointer being freed was not allocated)",
                _HEAP_ENDS,
                "python(1,0x2) malloc: *** error for object 0x1: pointer being freed was not allocated",
                speaker=MAC_MALLOC,
            ),
        ),
        remedies=(_HEAP_CHECK,),
    ),
    Kind(
        "cpp-exception",
        "a C++ exception reached no handler (std::terminate)",
        "A C++ exception was not caught: {detail}{where}",
        markers=(
            marker(
                r"terminate called after throwing an instance of '(?!std::bad_alloc')[^']+'(?:\n  what\(\):  .*)?",
                "SIGABRT",
                "cxx_terminate_runtime_error.txt",
                speaker=CPP_RUNTIME,
            ),
            marker(
                r"libc\+\+abi(?:\.dylib)?: terminating (?:due to|with) .*",
                "SIGABRT",
                "libc++abi: terminating due to uncaught exception of type std::runtime_error: x",
                speaker=CPP_RUNTIME,
            ),
        ),
        remedies=(_NATIVE_STACK,),
    ),
    Kind(
        "stack-overflow",
        "the stack ran into its guard page: recursion too deep, or a stack too small",
        "Stack overflow{component}{where}",
        rule=_stack_overflow,
        remedies=(
            Remedy(
                do="Recurse less, or give the thread more stack (ulimit -s, threading.stack_size, OMP_STACKSIZE).",
                safe=True,
                why="the access that failed was in the guard page next to the stack pointer",
                verify="harness run -- {command}",
            ),
            _NATIVE_STACK,
        ),
    ),
    Kind(
        "abort",
        "it ended itself with abort() (SIGABRT)",
        "Aborted (SIGABRT){component}{after}{where}",
        markers=(
            marker(r"(?:\S+: )?\S{1,200}:\d+: .*Assertion `.*' failed\.", "SIGABRT", "cxx_assert.txt", speaker=LIBC),
            marker(
                r"(?:(?:pure|deleted) virtual method called\n)?terminate called without an active exception",
                "SIGABRT",
                "cxx_terminate_no_active_exception.txt",
                _NO_EXCEPTION,
                speaker=CPP_RUNTIME,
            ),
            marker(
                r"libc\+\+abi(?:\.dylib)?: (?:terminating$|(?:Pure|Deleted) virtual function called!)",
                "SIGABRT",
                "libc++abi: Pure virtual function called!",
                _NO_EXCEPTION,
                speaker=CPP_RUNTIME,
            ),
            marker(r"OMP: Error #(?!15:|34:)\d+: .*", "SIGABRT SIGSEGV", "synth/omp179_macos_mutex_init.txt"),
            marker(
                r"objc\[\d+\]: .*when fork\(\) was called\. We cannot safely call it.*",
                "SIGABRT SIGTRAP",
                "synth/objc_fork_crash.txt",
            ),
            marker(r"Intel MKL FATAL ERROR: .*", "SIGABRT", "synth/mkl_fatal_cannot_load.txt"),
            marker(_RUST_PANIC, "SIGABRT", "rust_panic_abort.txt", speaker=RUST_RUNTIME, caller=RUST_PANIC),
            marker(_GO_PANIC, "SIGABRT", "panic: giving up\n\ngoroutine 1 [running]:"),
        ),
        signals={"SIGABRT": ""},
        remedies=(_NATIVE_STACK,),
    ),
    Kind(
        "segfault",
        "invalid memory access (SIGSEGV)",
        "Segmentation fault (SIGSEGV){component}{where}",
        signals={"SIGSEGV": ""},
        rule=_kernel_signal,
        remedies=(_NATIVE_STACK,),
    ),
    Kind(
        "bus-error",
        "memory that could not be delivered (SIGBUS)",
        "Bus error (SIGBUS){component}{where}",
        signals={"SIGBUS": ""},
        remedies=(_NATIVE_STACK,),
    ),
    Kind(
        "illegal-instruction",
        "an instruction this CPU does not have, or one that traps on purpose (SIGILL)",
        "Illegal instruction (SIGILL){component}{after}{where}",
        rule=_illegal_instruction,
        remedies=(_NATIVE_STACK,),
    ),
    Kind(
        "arithmetic",
        "integer division by zero or overflow (SIGFPE)",
        "Arithmetic fault (SIGFPE){component}{where}",
        signals={"SIGFPE": ""},
        remedies=(_NATIVE_STACK,),
    ),
    Kind(
        "trap",
        "a breakpoint or trap instruction (SIGTRAP)",
        "Trap (SIGTRAP){component}{where}",
        signals={"SIGTRAP": ""},
        remedies=(_NATIVE_STACK,),
    ),
    Kind(
        "bad-syscall",
        "a system call a filter forbids (SIGSYS)",
        "Forbidden system call (SIGSYS){component}{where}",
        signals={"SIGSYS": ""},
        remedies=(_NATIVE_STACK,),
    ),
    Kind(
        "terminated",
        "ended by a signal that asks a process to leave: SIGTERM, SIGHUP, SIGPIPE and their like",
        "Terminated by {signal}{detail}{where}{sender}",
        signals={
            "SIGTERM": "",
            "SIGHUP": "",
            "SIGPIPE": ": nobody reads its output any more",
            "SIGQUIT": "",
            "SIGALRM": ": its own alarm clock",
            "SIGUSR1": "",
            "SIGUSR2": "",
        },
        rule=_other_signal,
    ),
    Kind(
        "interrupted",
        "ended by Ctrl-C (SIGINT)",
        "Interrupted by SIGINT (Ctrl-C){where}{sender}",
        rule=_interrupted,
    ),
    Kind(
        "killed",
        "ended by SIGKILL, with no proof of a reason; the sender is named where it can be",
        "Killed by SIGKILL{where}{killer}",
        signals={"SIGKILL": ""},
        remedies=(
            Remedy(
                do="Ask who may send SIGKILL here: an OOM killer, a scheduler's limit, a watchdog, a person.",
                safe=True,
                why="SIGKILL leaves no trace in the process itself",
            ),
        ),
    ),
    Kind("python-exception", "an exception that nothing caught", "{detail}{where}", rule=_python_exception),
    Kind(
        "exit-nonzero",
        "it chose to leave with a non-zero status",
        "The command left with exit status {status}{after}{where}",
        markers=(
            marker(_RUST_PANIC, "exit=101", "rust_panic_unwinding.txt"),
            marker(_GO_PANIC, "exit=2", "go_panic.txt"),
        ),
        rule=_exit_nonzero,
    ),
    Kind("clean", "it ended with status 0", "The command ended with status 0{but}", rule=_clean, ends_well=True),
)

NAMES = tuple(kind.name for kind in KINDS)
