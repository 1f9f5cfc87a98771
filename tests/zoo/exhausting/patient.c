/* Says a word on each channel, then does what its argument says: crash, or leave with that status.
 *
 * `patient crash notes FILE` writes down the number of each system call that the crash link makes in this process while
 * it dies; `patient crash N ERRNO` has the Nth of them fail. The link makes them through the function syscall(), and a
 * program's own comes before the C library's. A seccomp filter would not do: who has one is not looked at.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int dies, count, refused_call, refusal, notes = -1;

long syscall(long number, ...) {
    static long (*next)(long, long, long, long, long, long, long);
    __builtin_va_list list;
    long words[6];
    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    __builtin_va_start(list, number);
    for (int i = 0; i < 6; i++)
        words[i] = __builtin_va_arg(list, long);
    __builtin_va_end(list);
    if (dies && notes >= 0) {
        char line[24];
        if (write(notes, line, (size_t)snprintf(line, sizeof line, "%ld\n", number)) < 0)
            _exit(98);
    } else if (dies && ++count == refused_call) {
        errno = refusal;
        return -1;
    }
    return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

int main(int argc, char **argv) {
    if (write(1, "out\n", 4) != 4 || write(2, "err\n", 4) != 4)
        return 99;
    if (argc > 3 && strcmp(argv[2], "notes") == 0)
        notes = open(argv[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    else if (argc > 3)
        refused_call = atoi(argv[2]), refusal = atoi(argv[3]);
    dies = 1;
    if (argc > 1 && strcmp(argv[1], "crash") == 0)
        *(volatile int *)8 = 1;
    return argc > 1 ? atoi(argv[1]) : 0;
}
