/* Starts the command as it would have started without us: dispositions, mask and clocks that harness was given.
 *
 * Not posix_spawn: that can give default dispositions, not ignored ones. To ignore a signal here while it starts would
 * lose what arrives meanwhile, and of SIGCHLD the command's own end; and glibc's leaves signals 32 and 33 ignored. The
 * child is ours until exec, so no handler of ours may run in it: everything is blocked until all have gone.
 *
 * An alarm and the interval timers go through exec but not through fork (man 2 setitimer): `perl -e 'alarm 60; exec
 * …'` means the command, so they move to it. And so does the death of our parent where it means SIGKILL
 * (PR_SET_PDEATHSIG): any other signal arrives here and is passed on.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#define start_child vfork
#else
#define start_child fork
#endif

enum { TIMERS = 3 };
static const int TIMER[TIMERS] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};

static void set_action(int signo, int ignored) {
    struct sigaction action = {.sa_handler = ignored ? SIG_IGN : SIG_DFL};
    sigaction(signo, &action, NULL); /* refused for those of libc: they stay as they are */
#ifdef __linux__
    static const uint64_t usual[4]; /* the kernel's own struct: SIG_DFL */
    if (harness_survived >> (signo - 1) & 1)
        syscall(SYS_rt_sigaction, signo, usual, NULL, 8L);
#endif
}

static void set_signals(uint64_t ignored, uint64_t blocked) {
    sigset_t mask;
    sigemptyset(&mask);
    for (int signo = 1; signo < NSIG; signo++) {
        set_action(signo, ignored >> (signo - 1) & 1);
        if (blocked >> (signo - 1) & 1)
            sigaddset(&mask, signo);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
}

static int set_outputs(const struct harness_start *start) {
    for (int32_t i = 0; i < start->count; i++)
        if (start->from[i] == start->to[i] ? fcntl(start->to[i], F_SETFD, 0) == -1
                                           : dup2(start->from[i], start->to[i]) == -1)
            return -1;
    return 0;
}

static void become_command(const struct harness_start *start, const struct itimerval *timers, int death) {
    for (int i = 0; i < TIMERS; i++)
        if (timers[i].it_value.tv_sec || timers[i].it_value.tv_usec)
            setitimer(TIMER[i], &timers[i], NULL);
#ifdef __linux__
    if (death == SIGKILL)
        prctl(PR_SET_PDEATHSIG, death, 0, 0, 0);
#endif
    (void)death;
    if (set_outputs(start) == 0) {
        set_signals(start->ignored, start->blocked);
        execve(start->path, start->argv, start->environment);
    }
}

static int read_death_signal(void) {
    int signo = 0;
#ifdef __linux__
    prctl(PR_GET_PDEATHSIG, &signo, 0, 0, 0);
#endif
    return signo;
}

int32_t harness_start(const struct harness_start *start) {
    int said[2], death = read_death_signal();
    if (pipe(said) == -1)
        return -errno;
    fcntl(said[0], F_SETFD, FD_CLOEXEC);
    fcntl(said[1], F_SETFD, FD_CLOEXEC);
    struct itimerval none = {{0, 0}, {0, 0}}, timers[TIMERS];
    for (int i = 0; i < TIMERS; i++)
        setitimer(TIMER[i], &none, &timers[i]);
    sigset_t all, mask;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &mask);
    pid_t pid = start_child();
    if (pid == 0) {
        become_command(start, timers, death);
        int failed = errno;
        ssize_t written = write(said[1], &failed, sizeof failed);
        (void)written;
        _exit(127);
    }
    int failed = pid == -1 ? errno : 0;
    sigprocmask(SIG_SETMASK, &mask, NULL);
    close(said[1]);
    if (pid != -1 && read(said[0], &failed, sizeof failed) == (ssize_t)sizeof failed)
        waitpid(pid, NULL, 0);
    close(said[0]);
    return failed ? -failed : pid;
}
