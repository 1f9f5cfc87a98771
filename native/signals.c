/* What the supervisor asks of the kernel: its signals as records in a pipe, with their sender, and its
 * orphans.
 *
 * The supervisor has to know who sent a SIGINT: the terminal (the command got it too, passing it on would
 * press Ctrl-C twice) or a process (the command did not). Python's handlers do not say; siginfo does.
 *
 * Handlers, not a blocked mask and signalfd: exec resets handlers by itself, so the command starts with the
 * mask and the dispositions that harness was given. A signal that was ignored (nohup, a background job) stays
 * ignored. The handler calls write() only. A full pipe drops the record: SIGCHLD is a hint to wait for
 * everything anyway.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

static int signal_pipe = -1;

static void record_signal(int signo, siginfo_t *info, void *context) {
    (void)context;
    int saved = errno;
    struct harness_signal record = {signo, info->si_code, info->si_pid, info->si_uid};
    ssize_t written = write(signal_pipe, &record, sizeof record);
    (void)written;
    errno = saved;
}

static int set_private(int fd) {
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) == -1 || fcntl(fd, F_SETFL, O_NONBLOCK) == -1)
        return -errno;
    return 0;
}

int32_t harness_signals_open(const int32_t *signos, int32_t count) {
    int ends[2];
    if (pipe(ends) == -1)
        return -errno;
    int failed = set_private(ends[0]) | set_private(ends[1]);
    if (failed)
        return failed;
    signal_pipe = ends[1];
    for (int32_t i = 0; i < count; i++) {
        struct sigaction now, wanted = {.sa_sigaction = record_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
        sigfillset(&wanted.sa_mask); /* one record after the other */
        if (sigaction(signos[i], NULL, &now) == -1)
            return -errno;
        if (now.sa_handler == SIG_IGN && signos[i] != SIGCHLD)
            continue;
        if (signos[i] == SIGCHLD)
            wanted.sa_flags |= SA_NOCLDSTOP;
        if (sigaction(signos[i], &wanted, NULL) == -1)
            return -errno;
    }
    return ends[0];
}

int32_t harness_adopt_orphans(void) {
#ifdef __linux__
    return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == -1 ? -errno : 0;
#else
    return -ENOSYS;
#endif
}

int32_t harness_abi(void) { return HARNESS_ABI; }

int32_t harness_size(const char *struct_name) {
    if (strcmp(struct_name, "harness_signal") == 0)
        return sizeof(struct harness_signal);
    if (strcmp(struct_name, "harness_process") == 0)
        return sizeof(struct harness_process);
    if (strcmp(struct_name, "harness_crash") == 0)
        return sizeof(struct harness_crash);
    if (strcmp(struct_name, "harness_leave") == 0)
        return sizeof(struct harness_leave);
    if (strcmp(struct_name, "harness_kill") == 0)
        return sizeof(struct harness_kill);
    if (strcmp(struct_name, "harness_channel") == 0)
        return sizeof(struct harness_channel);
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
