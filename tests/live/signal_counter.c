/* Tells every signal that it gets: number, whether a value came with it, and which. Ends with status 5 at the end of
 * its stdin, after all that had arrived. Ready when it has said so. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void tell_all(int fd) {
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof info) == sizeof info)
        dprintf(1, "%u %d %d\n", info.ssi_signo, info.ssi_code == SI_QUEUE, info.ssi_code == SI_QUEUE ? info.ssi_int : 0);
}

int main(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    int fd = signalfd(-1, &all, SFD_NONBLOCK);
    struct pollfd wanted[] = {{fd, POLLIN, 0}, {0, POLLIN, 0}};
    dprintf(1, "ready\n");
    while (poll(wanted, 2, -1) > 0) {
        int ends = wanted[1].revents;
        tell_all(fd);
        if (ends)
            return 5;
    }
    return 1;
}
