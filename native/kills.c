/* Who sends which signal to whom, as the kernel tells it to root: the tracepoint signal:signal_generate, through
 * perf_event_open.
 *
 * It sees what a process cannot tell itself: who sent it a SIGKILL. One event and one small ring for each processor,
 * filtered by signal in the kernel. Nothing is left behind, even when we are killed: the events end with their
 * descriptors, and the file system that knows the tracepoint's number is mounted nowhere (fsmount), only opened.
 *
 * Rejected: an instance in tracefs, which somebody has to remove, and a filter by pid, which would have to follow the
 * tree faster than it dies. Pids are those of the initial namespace; elsewhere this must not be used.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "harness.h"

#include <errno.h>

#ifdef __linux__
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Since Linux 5.2, the same numbers everywhere. */
enum { FSOPEN = 430, FSCONFIG = 431, FSMOUNT = 432, CLOEXEC = 1, CMD_CREATE = 6 };
enum { MOST_CPUS = 1024, RING_PAGES = 2, LEAST_RAW = 40 };
/* Documentation/trace/events.rst; the offsets have not changed since 2.6.38. */
enum { AT_SIGNO = 8, AT_CODE = 16, AT_TARGET = 36 };

struct ring {
    int fd;
    struct perf_event_mmap_page *control;
};

static struct ring rings[MOST_CPUS];
static int ring_count;

static int read_number(int directory, const char *path) {
    char text[16] = "";
    int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    int number = 0;
    for (const char *digit = text; got > 0 && *digit >= '0' && *digit <= '9'; digit++)
        number = number * 10 + (*digit - '0');
    return number;
}

static int find_tracepoint(void) {
    static const char name[] = "events/signal/signal_generate/id";
    int mounted = open("/sys/kernel/tracing", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int id = mounted < 0 ? 0 : read_number(mounted, name);
    if (mounted >= 0)
        close(mounted);
    if (id > 0)
        return id;
    int fs = (int)syscall(FSOPEN, "tracefs", CLOEXEC);
    if (fs < 0)
        return -errno;
    int root = syscall(FSCONFIG, fs, CMD_CREATE, NULL, NULL, 0) == 0 ? (int)syscall(FSMOUNT, fs, CLOEXEC, 0) : -1;
    int failed = errno;
    close(fs);
    if (root < 0)
        return -failed;
    id = read_number(root, name);
    close(root);
    return id > 0 ? id : -ENOENT;
}

static int open_ring(int id, int cpu, const char *filter, int epoll) {
    struct perf_event_attr about;
    memset(&about, 0, sizeof about);
    about.type = PERF_TYPE_TRACEPOINT;
    about.size = sizeof about;
    about.config = (uint64_t)id;
    about.sample_period = 1;
    about.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_RAW;
    about.wakeup_events = 1;
    about.disabled = 1;
    about.use_clockid = 1;
    about.clockid = CLOCK_MONOTONIC;
    int fd = (int)syscall(SYS_perf_event_open, &about, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0)
        return -errno;
    size_t length = (size_t)(1 + RING_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct epoll_event wanted = {.events = EPOLLIN};
    if (memory == MAP_FAILED || ioctl(fd, PERF_EVENT_IOC_SET_FILTER, filter) || epoll_ctl(epoll, 1, fd, &wanted) ||
        ioctl(fd, PERF_EVENT_IOC_ENABLE, 0)) {
        int failed = errno;
        if (memory != MAP_FAILED)
            munmap(memory, length); /* else the event outlives its descriptor */
        close(fd);
        return -failed;
    }
    rings[ring_count++] = (struct ring){fd, memory};
    return 0;
}

int32_t harness_kills_open(const int32_t *signos, int32_t count) {
    char filter[256] = "";
    size_t length = 0;
    for (int32_t i = 0; i < count && length < sizeof filter - 16; i++)
        length += (size_t)snprintf(filter + length, 16, "%ssig==%d", i ? "||" : "", (int)signos[i]);
    if (ring_count > 0)
        return -EBUSY;
    int id = find_tracepoint(), epoll = epoll_create1(EPOLL_CLOEXEC);
    if (id < 0 || epoll < 0) {
        int failed = id < 0 ? id : -errno;
        close(epoll);
        return failed;
    }
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    int failed = -ENOENT;
    for (int cpu = 0; cpu < cpus && cpu < MOST_CPUS; cpu++) {
        int opened = open_ring(id, cpu, filter, epoll);
        if (opened != 0 && opened != -ENODEV) /* ENODEV: a processor that is switched off */
            failed = opened;
    }
    if (ring_count > 0)
        return epoll;
    close(epoll);
    return failed;
}

void harness_kills_close(int32_t fd) {
    while (ring_count > 0) {
        struct ring *ring = &rings[--ring_count];
        munmap(ring->control, (size_t)(1 + RING_PAGES) * (size_t)sysconf(_SC_PAGESIZE));
        close(ring->fd);
    }
    close(fd);
}

/* What lies in the ring may go over its end. */
static void copy_out(const struct ring *ring, uint64_t at, void *to, size_t length) {
    const char *data = (const char *)ring->control + sysconf(_SC_PAGESIZE);
    size_t size = (size_t)RING_PAGES * (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < length; i++)
        ((char *)to)[i] = data[(at + i) % size];
}

struct sample {
    struct perf_event_header header;
    uint32_t pid, tid;
    uint64_t time_ns;
    uint32_t raw_size;
    char raw[LEAST_RAW];
};

static int read_record(const struct ring *ring, uint64_t at, struct harness_kill *kill, uint64_t *lost) {
    struct perf_event_header header;
    copy_out(ring, at, &header, sizeof header);
    if (header.type == PERF_RECORD_LOST) {
        uint64_t numbers[2];
        copy_out(ring, at + sizeof header, numbers, sizeof numbers);
        *lost += numbers[1];
    }
    if (header.type != PERF_RECORD_SAMPLE || header.size < offsetof(struct sample, raw) + LEAST_RAW)
        return 0;
    struct sample sample;
    copy_out(ring, at, &sample, offsetof(struct sample, raw) + LEAST_RAW);
    kill->time_ns = sample.time_ns;
    kill->sender = (int32_t)sample.pid;
    memcpy(&kill->signo, sample.raw + AT_SIGNO, 4);
    memcpy(&kill->code, sample.raw + AT_CODE, 4);
    memcpy(&kill->target, sample.raw + AT_TARGET, 4);
    return 1;
}

int32_t harness_kills_read(struct harness_kill *kills, int32_t most, uint64_t *lost) {
    int32_t count = 0;
    for (int i = 0; i < ring_count; i++) {
        struct perf_event_mmap_page *control = rings[i].control;
        uint64_t head = __atomic_load_n(&control->data_head, __ATOMIC_ACQUIRE), tail = control->data_tail;
        while (tail < head && count < most) {
            struct perf_event_header header;
            copy_out(&rings[i], tail, &header, sizeof header);
            if (header.size < sizeof header) { /* never seen; it would have no end */
                tail = head;
                break;
            }
            count += read_record(&rings[i], tail, &kills[count], lost);
            tail += header.size;
        }
        __atomic_store_n(&control->data_tail, tail, __ATOMIC_RELEASE);
    }
    return count;
}

#else
int32_t harness_kills_open(const int32_t *signos, int32_t count) {
    (void)signos;
    (void)count;
    return -ENOSYS;
}

void harness_kills_close(int32_t fd) { (void)fd; }

int32_t harness_kills_read(struct harness_kill *kills, int32_t most, uint64_t *lost) {
    (void)kills;
    (void)most;
    (void)lost;
    return 0;
}
#endif
