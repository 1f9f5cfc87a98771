"""What macOS's `sample` prints: by hand, and where a real text lies if it lies beside the project.

HUNG is written to the shape of a real one, which cannot be shipped.
"""

from __future__ import annotations

from pathlib import Path

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "macos" / "sample_faiss_search_two_libomp.txt"
# A search that waits in the barrier of the second copy, whose code to sleep was taken from the first.
HUNG = """Analysis of sampling Python (pid 4711) every 1 millisecond
Process:         Python [4711]
Path:            /opt/python/bin/Python
Load Address:    0x100000000
Identifier:      org.python.python
Version:         3.13.7 (3.13.7)
Code Type:       ARM64
Parent Process:  zsh [88]

Date/Time:       2026-01-02 10:20:30.500 +0100
Launch Time:     2026-01-02 10:10:30.000 +0100
OS Version:      macOS 26.0 (25A000)
Report Version:  7

Physical footprint:         1.5G
----

Call graph:
    400 Thread_901: Main Thread
    + 400 start  (in dyld) + 100  [0x190000064]
    +   400 _PyEval_EvalFrameDefault  (in Python) + 200  [0x1000000c8]
    +     400 search(float const*, long)  (in libsearch.dylib) + 40  [0x130000028]
    +       400 __kmpc_fork_call  (in libomp.dylib) + 192  [0x120000400]
    +         400 kmp_flag_64<false, true>::wait(kmp_info*, int, void*)  (in libomp.dylib) + 844  [0x120000800]
    +           400 void __kmp_suspend_64<false, true>(int, kmp_flag_64*)  (in libomp.dylib) + 4  [0x110000900]
    +             400 _pthread_cond_wait  (in libsystem_pthread.dylib) + 984  [0x195000010]
    +               400 __psynch_cvwait  (in libsystem_kernel.dylib) + 8  [0x196000008]
    400 Thread_902
      400 thread_start  (in libsystem_pthread.dylib) + 8  [0x195000008]
        400 __psynch_cvwait  (in libsystem_kernel.dylib) + 8  [0x196000008]

Total number in stack (recursive counted multiple, when >=5):

Binary Images:
       0x100000000 -        0x1000fffff +Python (3.13.7) <A0000000-0000-0001> /opt/*/Python
       0x110000000 -        0x110077ff7 +libomp.dylib (0) <A0000000-0000-0002> /Users/*/libomp.dylib
       0x120000000 -        0x120077ff7 +libomp.dylib (0) <A0000000-0000-0002> /Users/*/libomp.dylib
       0x130000000 -        0x13000ffff +libsearch.dylib (0) <A0000000-0000-0003> /Users/*/libsearch.dylib
       0x190000000 -        0x19000ffff  dyld (1.0 - 1) <A0000000-0000-0004> /usr/lib/dyld
       0x195000000 -        0x19500ffff  libsystem_pthread.dylib (1) <A0000000-0000-0005> /usr/lib/p
       0x196000000 -        0x19600ffff  libsystem_kernel.dylib (1) <A0000000-0000-0006> /usr/lib/k.dylib
"""
FIRST, SECOND = "0x110000000", "0x120000000"  # as its list of images says
