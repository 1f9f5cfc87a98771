/* One thread that has malloc's lock nearly always, and a fork that does not ask for it, as the one of libc would.
 * The thread is none of Python's: a child of a bare fork still has the states of its parent's Python threads. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCKS = 20000, BYTES = 5000 };

static atomic_int begun, stop;

/* malloc_trim goes through every free block with the lock of the arena. */
static void *trim(void *unused)
{
    (void)unused;
    void **blocks = malloc(BLOCKS * sizeof *blocks);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(BYTES);
    for (int i = 0; i < BLOCKS; i += 2)
        free(blocks[i]);
    for (begun = 1; !stop;)
        malloc_trim(0);
    for (;;)
        pause();
}

void zoo_start_trimming(int at_once)
{
    pthread_t thread;
    mallopt(M_ARENA_MAX, 1);
    stop = at_once ? 0 : 1;
    pthread_create(&thread, NULL, trim, NULL);
    while (!begun)
        usleep(1000);
}

void zoo_stop_trimming(void) { stop = 1; }

/* Where libc keeps the thread's id: it must be right in the child, or nobody can tell whose frames these are. */
static int *find_own_tid(void)
{
    int *place = (int *)pthread_self(), tid = (int)syscall(SYS_gettid);
    while (*place != tid)
        place++;
    return place;
}

int zoo_fork_without_handlers(void)
{
    int *place = find_own_tid();
    int child = (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        *place = (int)syscall(SYS_gettid);
    return child;
}
