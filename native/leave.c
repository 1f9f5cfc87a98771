/* The crash link, signal context: SIGTERM, SIGINT, SIGHUP or SIGXCPU arrives, nobody handles it, and the process tells
 * who sent it before it dies of it.
 *
 * Like crash.c this file holds only what may run in a signal handler. Linux only.
 *
 * Nothing waits here: the sender's command line is read by the dying process itself, because a `kill` is gone a
 * millisecond later; one message goes to the supervisor, or nowhere when it cannot be delivered at once. So the other
 * threads need not be parked: they live on for less than a tenth of a millisecond.
 *
 * The default action is then taken as it would have been: it is given back to the kernel and the same siginfo is queued
 * to this thread. A program may have been in pselect, ppoll or sigsuspend, with a mask that ends with the call: the
 * mask it returns to must not keep the signal back.
 *
 * The handler is nobody's: a child that shares our memory (vfork) dies without a word. So does a program with a seccomp
 * filter of its own, which might kill for a word.
 *
 * What it cannot keep as it was, and why it is used only where the kernel does not tell (HARNESS_TELL): the default
 * action ends a process in a killable wait (a hung file system), a handler comes after that wait; and of two signals
 * sent in a row the second may be the one that ends it.
 */
#include "link.h"

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PATH_BYTES = 32 };

const int harness_leave_signals[LEAVE_COUNT] = {SIGTERM, SIGINT, SIGHUP, SIGXCPU};

int harness_leave_index(int signo) {
    for (int i = 0; i < LEAVE_COUNT; i++)
        if (harness_leave_signals[i] == signo)
            return i;
    return -1;
}

void harness_leave_action(struct sigaction *ours) {
    memset(ours, 0, sizeof *ours);
    ours->sa_sigaction = harness_on_leaving;
    ours->sa_flags = SA_SIGINFO | SA_ONSTACK;
    memset(&ours->sa_mask, 0xff, sizeof ours->sa_mask);
}

void harness_stop_telling(void) {
    harness_link.tells_leaving = 0;
    for (int i = 0; i < LEAVE_COUNT; i++) {
        struct sigaction now;
        if (harness_link.sigaction(harness_leave_signals[i], NULL, &now) == 0 && now.sa_sigaction == harness_on_leaving)
            harness_link.sigaction(harness_leave_signals[i], &harness_link.defaults[i], NULL);
    }
}

/* "/proc/PID/cmdline" */
static void write_path(char path[PATH_BYTES], int pid) {
    char digits[12], *end = path;
    int count = 0;
    for (; pid > 0; pid /= 10)
        digits[count++] = (char)('0' + pid % 10);
    memcpy(end, "/proc/", 6);
    end += 6;
    while (count > 0)
        *end++ = digits[--count];
    memcpy(end, "/cmdline", 9);
}

static uint32_t read_command(int pid, char *to, size_t room) {
    char path[PATH_BYTES];
    write_path(path, pid);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    long got = fd < 0 ? 0 : syscall(SYS_read, fd, to, room);
    if (fd >= 0)
        syscall(SYS_close, fd);
    return got > 0 ? (uint32_t)got : 0;
}

static __attribute__((noinline)) void tell(int signo, const siginfo_t *info) {
    struct harness_leave leave;
    memset(&leave, 0, sizeof leave);
    leave.abi = HARNESS_ABI;
    leave.size = sizeof leave;
    leave.pid = harness_link.pid;
    leave.signo = signo;
    leave.code = info->si_code;
    if (info->si_code <= 0 && info->si_code != SI_TIMER) { /* somebody sent it; the kernel and a timer are nobody */
        leave.sender = info->si_pid;
        leave.uid = info->si_uid;
        if (leave.sender > 0)
            leave.length = read_command(leave.sender, leave.command, sizeof leave.command);
    }
    harness_tell(&harness_link.address, &leave, sizeof leave);
}

/* The kernel's struct sigaction is all zeros for it; a library's function may have been replaced. */
static long give_default(int signo) {
    static const uint64_t action[4];
    return syscall(SYS_rt_sigaction, signo, action, NULL, 8L);
}

void harness_leave_by_itself(int signo) {
    struct sigaction now;
    uint64_t mask = 0;
    int saved = errno;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof mask);
    if (harness_link.sigaction(signo, NULL, &now) == 0 && now.sa_sigaction == harness_on_leaving &&
        !(mask >> (signo - 1) & 1)) { /* blocked here: somebody may be waiting for it */
        if (!harness_is_filtered()) {
            siginfo_t info;
            memset(&info, 0, sizeof info);
            info.si_pid = harness_link.pid;
            info.si_uid = (uid_t)syscall(SYS_getuid);
            tell(signo, &info);
        }
        give_default(signo);
    }
    errno = saved;
}

void harness_on_leaving(int signo, siginfo_t *info, void *context) {
    int saved = errno;
    pid_t pid = (pid_t)syscall(SYS_getpid);
    int filtered = harness_is_filtered();
    if (pid == harness_link.pid && !filtered)
        tell(signo, info);
    if (give_default(signo) != 0) /* a filter (seccomp) forbids it: returning would bring us here for ever */
        syscall(SYS_kill, pid, SIGKILL);
    harness_set_blocked(context, signo, 0);
    if ((filtered || harness_send_self(signo, info) != 0) &&
        syscall(SYS_tgkill, pid, (pid_t)syscall(SYS_gettid), signo) != 0)
        syscall(SYS_kill, pid, signo);
    errno = saved;
}

#endif
