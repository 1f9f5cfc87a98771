/* The stand-in: a process beside the command that gets whatever is sent to more than one of us, and says so.
 *
 * A signal that arrives at the supervisor was sent to it alone, and then it is passed on; or to the whole process
 * group, to everything in a control group, to all whose command line has a word, and then the command has got it
 * already. siginfo is the same in all these cases. The stand-in is in the same group, session and control group, and
 * its command line has the command's words: when it got the same signal from the same sender, so did the command.
 *
 * It is a copy of the supervisor (fork) that holds no file of anybody's, runs C only, and ends with the supervisor: its
 * question pipe ends then. Each byte there is a question: the answer, a record with signal 0, comes after the records
 * of all that had arrived before. The kernel gives a group's signal to its younger members first, so what the
 * supervisor got as one of a group has been here already.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "supervisor.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

static int told = -1;

static void tell(const struct harness_signal *record) {
    while (write(told, record, sizeof *record) == -1)
        if (errno != EINTR)
            _exit(0);
}

static void tell_signal(int signo, siginfo_t *info, void *context) {
    (void)context;
    int saved = errno;
    if (info->si_code <= 0 && info->si_pid == getpid())
        return; /* SIGPIPE of our own: nobody reads */
    if (info->si_code > 0 && (signo == SIGSEGV || signo == SIGBUS || signo == SIGILL || signo == SIGFPE))
        _exit(1); /* a fault of ours: it would come again */
    struct harness_signal record;
    harness_note_signal(&record, info);
    tell(&record);
    errno = saved;
}

static void close_others(int asked) {
    long highest = sysconf(_SC_OPEN_MAX);
    for (int fd = 0; fd < (highest < 4096 ? highest : 4096); fd++)
        if (fd != asked && fd != told)
            close(fd);
}

void harness_stand_in(int32_t asked, int32_t tells) {
    told = tells;
    close_others(asked);
#ifdef __linux__
    prctl(PR_SET_NAME, HARNESS_STAND_IN);
#endif
    struct sigaction wanted = {.sa_sigaction = tell_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigset_t none;
    sigemptyset(&none);
    sigfillset(&wanted.sa_mask);
    for (int signo = 1; signo < NSIG; signo++)
        sigaction(signo, &wanted, NULL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    static const struct harness_signal answer;
    char question;
    for (ssize_t got; (got = read(asked, &question, 1)) == 1 || (got == -1 && errno == EINTR);)
        if (got == 1)
            tell(&answer);
    _exit(0);
}
