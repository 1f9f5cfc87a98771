/* What the supervisor asks of the kernel: its signals as records in a pipe, with their sender, and its
 * orphans.
 *
 * Every signal that can be caught is caught: the command decides what becomes of it, and the supervisor never dies of
 * what was meant for the command. Also those that were ignored at the start (nohup, a background job of sh): the
 * command may have set a handler since; it starts with them ignored (native/launch.c). Signals 32 and 33 are the C
 * library's own and cannot be asked for; like that library in a process with threads we do not die of them.
 *
 * The supervisor has to know who sent a SIGINT: the terminal (the command got it too, passing it on would
 * press Ctrl-C twice) or a process (the command did not). Python's handlers do not say; siginfo does.
 *
 * Handlers, not a blocked mask and signalfd: exec resets handlers by itself, in every tool that is started. The handler
 * calls write() only. When the pipe is full, the record is held and its signal stays blocked until the pipe was read:
 * the kernel queues what comes meanwhile, in order, and tells a sender when there is no more room. A SIGCHLD that finds
 * no room is dropped: it is a hint to wait for everything anyway.
 *
 * A fault of our own (SIGSEGV with a code above 0, abort()) goes to whoever had the signal before us. What we cause
 * ourselves (SIGPIPE and SIGXFSZ of a write) is not recorded. A copy of us (fork) records nothing: the pipe is not its.
 * One thread is assumed: a second one could be given a signal that the first has blocked.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#else
#include <sys/ucontext.h>
#endif

static pid_t owner;
static int signal_pipe[2] = {-1, -1};
static struct sigaction before[NSIG];
static struct harness_signal held[NSIG];
static volatile sig_atomic_t is_held[NSIG];
static volatile sig_atomic_t stop_asked;

static int is_stop(int signo) { return signo == SIGTSTP || signo == SIGTTIN || signo == SIGTTOU; }

static int is_fault(int signo) {
    return signo == SIGSEGV || signo == SIGBUS || signo == SIGFPE || signo == SIGILL || signo == SIGTRAP ||
           signo == SIGSYS || signo == SIGABRT;
}

/* A faulting instruction comes again by itself; what was raised or trapped has to be raised again. */
static void give_back(int signo, const siginfo_t *info) {
    sigaction(signo, &before[signo], NULL);
    if (info->si_code <= 0 || signo == SIGTRAP || signo == SIGSYS || signo == SIGABRT)
        raise(signo);
}

void harness_note_signal(struct harness_signal *record, const siginfo_t *info) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    record->signo = info->si_signo;
    record->code = info->si_code;
    record->pid = info->si_pid;
    record->uid = info->si_uid;
    record->value = info->si_code < 0 ? (uint64_t)(uintptr_t)info->si_value.sival_ptr : 0;
    record->time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void record_signal(int signo, siginfo_t *info, void *context) {
    int saved = errno;
    pid_t self = getpid();
    int is_own = info->si_code <= 0 && info->si_pid == self;
    if (is_fault(signo) && (info->si_code > 0 || is_own)) {
        give_back(signo, info);
    } else if (self == owner && !is_own) {
        struct harness_signal record;
        harness_note_signal(&record, info);
        if (is_stop(signo) || signo == SIGCONT)
            stop_asked = signo == SIGCONT ? 0 : signo;
        if (write(signal_pipe[1], &record, sizeof record) == -1 && signo != SIGCHLD) {
            held[signo] = record;
            is_held[signo] = 1;
            sigaddset(&((ucontext_t *)context)->uc_sigmask, signo);
        }
    }
    errno = saved;
}

static int set_private(int fd) {
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) == -1 || fcntl(fd, F_SETFL, O_NONBLOCK) == -1)
        return -errno;
    return 0;
}

/* libc refuses to speak of its own signals, the kernel does not. Those that we ignore; the command does not. */
uint64_t harness_survived;

static void survive_those_of_libc(void) {
#ifdef __linux__
    static const uint64_t ignore[4] = {1 /* SIG_IGN */};
    for (int signo = 32; signo <= 34; signo++) {
        uint64_t now[4] = {1};
        struct sigaction refused;
        if (sigaction(signo, NULL, &refused) == -1 && syscall(SYS_rt_sigaction, signo, NULL, now, 8L) == 0 && !now[0] &&
            syscall(SYS_rt_sigaction, signo, ignore, NULL, 8L) == 0)
            harness_survived |= 1ull << (signo - 1);
    }
#endif
}

static void give_back_those_of_libc(void) {
#ifdef __linux__
    static const uint64_t usual[4]; /* SIG_DFL */
    for (int signo = 32; signo <= 34; signo++)
        if (harness_survived >> (signo - 1) & 1)
            syscall(SYS_rt_sigaction, signo, usual, NULL, 8L);
    harness_survived = 0;
#endif
}

int32_t harness_signals_open(void) {
    if (pipe(signal_pipe) == -1)
        return -errno;
    int failed = set_private(signal_pipe[0]);
    if (failed || (failed = set_private(signal_pipe[1])))
        return failed;
    owner = getpid();
    stop_asked = 0;
    memset((void *)is_held, 0, sizeof is_held);
    struct sigaction wanted = {.sa_sigaction = record_signal, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    sigfillset(&wanted.sa_mask); /* one record after the other */
    for (int signo = 1; signo < NSIG; signo++) {
        memset(&before[signo], 0, sizeof before[signo]);
        if (signo != SIGKILL && signo != SIGSTOP && sigaction(signo, NULL, &before[signo]) == 0 &&
            sigaction(signo, &wanted, NULL) == -1)
            return -errno;
    }
    survive_those_of_libc();
    return signal_pipe[0];
}

static int32_t take_held(struct harness_signal *records, int32_t most) {
    int32_t count = 0;
    sigset_t free;
    sigemptyset(&free);
    for (int signo = 1; signo < NSIG && count < most; signo++)
        if (is_held[signo]) {
            records[count++] = held[signo];
            is_held[signo] = 0;
            sigaddset(&free, signo);
        }
    if (count > 0)
        sigprocmask(SIG_UNBLOCK, &free, NULL);
    return count;
}

int32_t harness_signals_read(struct harness_signal *records, int32_t most) {
    ssize_t got = read(signal_pipe[0], records, (size_t)most * sizeof *records);
    int32_t count = got > 0 ? (int32_t)((size_t)got / sizeof *records) : 0;
    return count < most ? count + take_held(records + count, most - count) : count;
}

void harness_signals_close(void) {
    struct sigaction usual = {.sa_handler = SIG_DFL};
    for (int signo = 1; signo < NSIG; signo++)
        if (signo != SIGKILL && signo != SIGSTOP)
            sigaction(signo, signo == SIGCHLD ? &usual : &before[signo], NULL); /* ignored, we could not wait */
    give_back_those_of_libc();
    close(signal_pipe[0]);
    close(signal_pipe[1]);
    signal_pipe[0] = signal_pipe[1] = -1;
}

/* While the stop is pending, a SIGCONT takes it back (man 7 signal, the kernel's prepare_signal); one that came before
 * has reset stop_asked. So nobody is stopped for good who was told to go on. */
void harness_signals_stop(void) {
    int signo = stop_asked;
    if (signo == 0)
        return;
    sigset_t one, mask;
    sigemptyset(&one);
    sigaddset(&one, signo);
    struct sigaction usual = {.sa_handler = SIG_DFL}, ignored = {.sa_handler = SIG_IGN}, ours;
    sigprocmask(SIG_BLOCK, &one, &mask);
    sigaction(signo, &usual, &ours);
    kill(getpid(), signo);
    if (stop_asked == 0)
        sigaction(signo, &ignored, NULL);  /* forgets the one that is pending */
    stop_asked = 0;                        /* now: the next one may come as soon as we go on */
    sigprocmask(SIG_SETMASK, &mask, NULL); /* here we stand */
    sigaction(signo, &ours, NULL);
}

/* A value, and who sent it, can be given along with codes below 0 only (man 2 rt_sigqueueinfo). */
int32_t harness_signals_send(int32_t pid, const struct harness_signal *record) {
#ifdef __linux__
    if (record->code < 0 && record->code != SI_TKILL) {
        siginfo_t info;
        memset(&info, 0, sizeof info);
        info.si_signo = record->signo;
        info.si_code = record->code;
        info.si_pid = record->pid;
        info.si_uid = record->uid;
        info.si_value.sival_ptr = (void *)(uintptr_t)record->value;
        return syscall(SYS_rt_sigqueueinfo, pid, record->signo, &info) == -1 ? -errno : 0;
    }
#endif
    return kill(pid, record->signo) == -1 ? -errno : 0;
}

int32_t harness_adopt_orphans(int32_t adopt) {
#ifdef __linux__
    return prctl(PR_SET_CHILD_SUBREAPER, adopt, 0, 0, 0) == -1 ? -errno : 0;
#else
    (void)adopt;
    return -ENOSYS;
#endif
}

int32_t harness_abi(void) { return HARNESS_ABI; }

int32_t harness_size(const char *struct_name) {
    if (strcmp(struct_name, "harness_signal") == 0)
        return sizeof(struct harness_signal);
    if (strcmp(struct_name, "harness_start") == 0)
        return sizeof(struct harness_start);
    if (strcmp(struct_name, "harness_process") == 0)
        return sizeof(struct harness_process);
    if (strcmp(struct_name, "harness_crash") == 0)
        return sizeof(struct harness_crash);
    if (strcmp(struct_name, "harness_leave") == 0)
        return sizeof(struct harness_leave);
    if (strcmp(struct_name, "harness_ending") == 0)
        return sizeof(struct harness_ending);
    if (strcmp(struct_name, "harness_kill") == 0)
        return sizeof(struct harness_kill);
    if (strcmp(struct_name, "harness_channel") == 0)
        return sizeof(struct harness_channel);
    if (strcmp(struct_name, "harness_way") == 0)
        return sizeof(struct harness_way);
    if (strcmp(struct_name, "harness_bounds") == 0)
        return sizeof(struct harness_bounds);
    if (strcmp(struct_name, "harness_image") == 0)
        return sizeof(struct harness_image);
    if (strcmp(struct_name, "harness_call") == 0)
        return sizeof(struct harness_call);
    if (strcmp(struct_name, "harness_listing") == 0)
        return sizeof(struct harness_listing);
    return -1;
}
