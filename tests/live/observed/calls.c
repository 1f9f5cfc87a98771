/* One blocking system call, by name, and what it returned: "name result errno". Whoever looks on must not change it.
 *
 * Each ends by itself; a helper (a child) serves it after SERVE_MS in two parts, PAUSE_MS apart. Says "ready" on fd 3
 * just before the call.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LARGE = 1 << 20, HALF = 64 };

static struct timespec limit; /* of the calls that have one */
static int pair[2];
static char buffer[LARGE];

static void pause_s(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) && errno == EINTR) {
    }
}

/* Reads slowly what the call writes, or writes in two parts what it reads. */
static void serve(int reads)
{
    if (fork())
        return;
    double wait_s = limit.tv_sec / 2.0;
    close(pair[reads ? 1 : 0]);
    int mine = pair[reads ? 0 : 1];
    pause_s(wait_s);
    if (reads) {
        long left = LARGE;
        ssize_t got;
        pause_s(wait_s / 2);
        while (left > 0 && (got = read(mine, buffer, sizeof buffer)) > 0)
            left -= got;
    } else {
        (void)!write(mine, buffer, HALF);
        pause_s(wait_s / 2);
        (void)!write(mine, buffer, HALF);
    }
    pause_s(0.2);
    _exit(0);
}

static long ask_epoll_wait(void)
{
    struct epoll_event event;
    return epoll_wait(epoll_create1(0), &event, 1, (int)limit.tv_sec * 1000);
}
static long ask_epoll_pwait(void)
{
    struct epoll_event event;
    sigset_t none;
    sigemptyset(&none);
    return epoll_pwait(epoll_create1(0), &event, 1, (int)limit.tv_sec * 1000, &none);
}
static long ask_sigtimedwait(void)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    sigprocmask(SIG_BLOCK, &one, NULL);
    return sigtimedwait(&one, NULL, &limit);
}
static long ask_semtimedop(void)
{
    int set = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf take = {0, -1, 0};
    long got = semtimedop(set, &take, 1, &limit);
    int error = errno;
    semctl(set, 0, IPC_RMID);
    errno = error;
    return got;
}
static long ask_io_getevents(void)
{
    aio_context_t context = 0;
    struct io_event event;
    syscall(SYS_io_setup, 1, &context);
    return syscall(SYS_io_getevents, context, 1, 1, &event, &limit);
}
static long ask_recv_timeout(void)
{
    struct timeval patience = {limit.tv_sec, 0};
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return recv(pair[0], buffer, HALF, 0);
}
static long ask_recv_all(void)
{
    serve(0);
    return recv(pair[0], buffer, 2 * HALF, MSG_WAITALL);
}
static long ask_write_pipe(void)
{
    (void)!pipe(pair);
    serve(1);
    return write(pair[1], buffer, LARGE);
}
static long ask_send(void)
{
    serve(1);
    return send(pair[1], buffer, LARGE, 0);
}
static long ask_select(void)
{
    struct timeval patience = {limit.tv_sec, 0};
    return select(0, NULL, NULL, NULL, &patience);
}
static long ask_ppoll(void)
{
    struct pollfd one = {pair[0], POLLIN, 0};
    return ppoll(&one, 1, &limit, NULL);
}
static long ask_pselect(void)
{
    return pselect(0, NULL, NULL, NULL, &limit, NULL);
}
static long ask_poll(void)
{
    struct pollfd one = {pair[0], POLLIN, 0};
    return poll(&one, 1, (int)limit.tv_sec * 1000);
}
static long ask_nanosleep(void)
{
    return nanosleep(&limit, NULL);
}
static long ask_clock_nanosleep(void)
{
    return clock_nanosleep(CLOCK_MONOTONIC, 0, &limit, NULL);
}
static long ask_sem_timedwait(void)
{
    sem_t never;
    struct timespec until;
    sem_init(&never, 0, 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += limit.tv_sec;
    return sem_timedwait(&never, &until);
}
static long ask_futex(void)
{
    static uint32_t word;
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &limit, NULL, 0);
}
static long ask_msgrcv(void)
{
    struct {
        long kind;
        char text[HALF];
    } message = {1, ""};
    int queue = msgget(IPC_PRIVATE, 0600);
    if (!fork()) {
        pause_s((double)limit.tv_sec);
        msgsnd(queue, &message, HALF, 0);
        _exit(0);
    }
    long got = msgrcv(queue, &message, HALF, 0, 0);
    int error = errno;
    msgctl(queue, IPC_RMID, NULL);
    errno = error;
    return got;
}
static long ask_read_pipe(void)
{
    (void)!pipe(pair);
    serve(0);
    return read(pair[0], buffer, HALF);
}

static const struct {
    const char *name;
    long (*ask)(void);
} calls[] = {
    {"epoll_wait", ask_epoll_wait},     {"epoll_pwait", ask_epoll_pwait},
    {"sigtimedwait", ask_sigtimedwait}, {"semtimedop", ask_semtimedop},
    {"io_getevents", ask_io_getevents}, {"recv_timeout", ask_recv_timeout},
    {"recv_all", ask_recv_all},         {"write_pipe", ask_write_pipe},
    {"send", ask_send},                 {"select", ask_select},
    {"ppoll", ask_ppoll},               {"pselect", ask_pselect},
    {"poll", ask_poll},                 {"nanosleep", ask_nanosleep},
    {"clock_nanosleep", ask_clock_nanosleep},
    {"sem_timedwait", ask_sem_timedwait},
    {"futex", ask_futex},               {"msgrcv", ask_msgrcv},
    {"read_pipe", ask_read_pipe},
};

/* All at once, a child each, so that one look at the parent is one at all. argv[1]: seconds. */
int main(int argc, char **argv)
{
    limit.tv_sec = argc > 1 ? atoi(argv[1]) : 4;
    for (size_t n = 0; n < sizeof calls / sizeof *calls; n++) {
        if (fork())
            continue;
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        errno = 0;
        long got = calls[n].ask();
        dprintf(1, "%s %ld %s\n", calls[n].name, got, got < 0 ? strerrorname_np(errno) : "-");
        _exit(0);
    }
    dprintf(2, "ready\n");
    while (wait(NULL) > 0) {
    }
    return 0;
}
