"""Names and numbers of the Linux system calls in which threads are found waiting. A table, and not all of them."""

from __future__ import annotations

import re

# Name, number on x86_64, number on aarch64, how many arguments. Linux arch/x86/entry/syscalls/syscall_64.tbl and
# include/uapi/asm-generic/unistd.h; only those in which threads are found waiting.
_TABLE = """
read 0 63 3|write 1 64 3|open 2 - 3|poll 7 - 3|ioctl 16 29 3|pread64 17 67 4|pwrite64 18 68 4|readv 19 65 3
writev 20 66 3|select 23 - 5|msync 26 227 3|pause 34 - 0|nanosleep 35 101 2|sendfile 40 71 4|connect 42 203 3
accept 43 202 3|sendto 44 206 6|recvfrom 45 207 6|sendmsg 46 211 3|recvmsg 47 212 3|wait4 61 260 4|semop 65 193 3
msgsnd 69 189 4|msgrcv 70 188 5|fcntl 72 25 3|flock 73 32 2|fsync 74 82 1|fdatasync 75 83 1|rt_sigtimedwait 128 137 4
rt_sigsuspend 130 133 2|sync 162 81 0|futex 202 98 6|io_getevents 208 4 5|semtimedop 220 192 4|clock_nanosleep 230 115 4
epoll_wait 232 - 4|mq_timedsend 242 182 5|mq_timedreceive 243 183 5|waitid 247 95 5|openat 257 56 4|pselect6 270 72 6
ppoll 271 73 5|splice 275 76 6|sync_file_range 277 84 4|epoll_pwait 281 22 6|accept4 288 242 4|preadv 295 69 5
pwritev 296 70 5|recvmmsg 299 243 5|sendmmsg 307 269 4|io_uring_enter 426 426 6|openat2 437 437 4|epoll_pwait2 441 441 6
futex_waitv 449 449 5|futex_wait 455 455 6|close 3 57 1|unlink 87 - 1|unlinkat 263 35 3|stat 4 - 2|fstat 5 80 2
newfstatat 262 79 4|statx 332 291 5|getdents64 217 61 3|mmap 9 222 6|munmap 11 215 2|mprotect 10 226 3|madvise 28 233 3
vfork 58 - 0|clone 56 220 5|exit_group 231 94 1|restart_syscall 219 128 0|sched_yield 24 124 0
"""


def _parse_table() -> dict[str, dict[int, tuple[str, int]]]:
    names: dict[str, dict[int, tuple[str, int]]] = {"x86_64": {}, "aarch64": {}}
    for row in _TABLE.replace("\n", "|").strip("|").split("|"):
        name, *numbers, count = row.split()
        for machine, number in zip(names, numbers, strict=True):
            if number != "-":
                names[machine][int(number)] = name, int(count)
    return names


# What /proc/PID/task/TID/syscall can say: the number, six arguments, stack and code pointer.
LINE = re.compile(r"running|-1(?: 0x[0-9a-f]{1,16}){2}|[0-9]{1,10}(?: 0x[0-9a-f]{1,16}){8}")
CALLS = _parse_table()  # by machine and number: name, how many arguments
