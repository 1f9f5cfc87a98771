/* The relay: carries one output channel of the command to where it was going, and keeps a bounded copy.
 *
 * One forked process per channel, the relay, in a session of its own, so that neither Ctrl-C nor a closing terminal nor
 * the death of the supervisor ends it; it runs C only and ends when the last writer has closed the channel. A
 * slow reader of stdout therefore never delays stderr.
 *
 * Order of events for each chunk: wait until there is something (poll), raise `busy`, read, deliver to the
 * sink, keep a copy, lower `busy`. A supervisor that sees an empty channel and then busy == 0 knows that all
 * was delivered. Delivery comes before keeping: the user's output is never late because of our disk.
 *
 * The copy is plain text: NAME.log holds the first head_bytes, then NAME.tail and NAME.tail.old rotate.
 * Beside each, FILE.times has lines "offset nanoseconds" (offset in the whole channel, CLOCK_MONOTONIC), the
 * first of which gives the offset of the file's first byte. Running out of disk stops the copy, never the
 * delivery.
 *
 * Killed, each is replaced by whoever is left: a relay by the supervisor, and when that is gone too, by the holder.
 * This is one more process, which holds the read ends, so that a command that writes in between waits and is not ended
 * by SIGPIPE, and sleeps on the lifelines: pipes whose write ends the supervisor and the relay of a channel have, so
 * that one that breaks says that both are gone, in whatever order. The holder's own relays have lifelines of their own.
 * A killed holder is replaced by the supervisor. A relay that comes to the end of its channel says so on the lifeline,
 * and the holder lets go: else a command whose reader has gone would wait for ever. None of them is called harness, by
 * name or by command line: who ends harness by its name (pkill) means the supervisor.
 *
 * Limits: a relay killed between read and delivery loses that chunk (64 KiB at most); supervisor, relays and holder
 * killed within a millisecond take the read ends with them. Nothing is ever set on the sink: its open file is shared
 * with strangers.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#define RELAY "output-relay"
#define HOLDER "output-holder"

enum { CHUNK_BYTES = 64 * 1024, MARKS_PER_FILE = 20000 };
static const uint64_t MARK_INTERVAL_NS = 50 * 1000 * 1000;

struct copy {
    int directory;
    const char *name;
    struct harness_bounds bounds;
    int text, times;     /* -1: closed */
    int in_tail;         /* NAME.log is full */
    uint64_t file_bytes; /* in the current file */
    uint64_t offset;     /* in the whole channel */
    uint64_t last_mark_ns;
    int marks;
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int wait_for(int fd, short events) {
    struct pollfd wanted = {.fd = fd, .events = events};
    while (poll(&wanted, 1, -1) == -1)
        if (errno != EINTR)
            return errno;
    return 0;
}

static int write_all(int fd, const char *data, size_t length) {
    while (length > 0) {
        ssize_t written = write(fd, data, length);
        if (written >= 0) {
            data += written;
            length -= (size_t)written;
        } else if (errno == EAGAIN) { /* somebody made the shared open file non-blocking */
            if (wait_for(fd, POLLOUT) != 0)
                return errno;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

static int open_in_case(const struct copy *copy, const char *suffix) {
    char path[64];
    snprintf(path, sizeof path, "%s%s", copy->name, suffix);
    return openat(copy->directory, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void close_copy(struct copy *copy) {
    if (copy->text != -1)
        close(copy->text);
    if (copy->times != -1)
        close(copy->times);
    copy->text = copy->times = -1;
}

static void rename_in_case(const struct copy *copy, const char *from, const char *to) {
    char old_path[64], new_path[64];
    snprintf(old_path, sizeof old_path, "%s%s", copy->name, from);
    snprintf(new_path, sizeof new_path, "%s%s", copy->name, to);
    renameat(copy->directory, old_path, copy->directory, new_path);
}

static int open_copy(struct copy *copy) {
    copy->text = open_in_case(copy, copy->in_tail ? ".tail" : ".log");
    copy->times = copy->text == -1 ? -1 : open_in_case(copy, copy->in_tail ? ".tail.times" : ".log.times");
    if (copy->times == -1)
        return errno;
    off_t there = lseek(copy->text, 0, SEEK_END); /* not 0 when a killed relay began the file */
    copy->file_bytes = there > 0 ? (uint64_t)there : 0;
    copy->marks = 0;
    copy->last_mark_ns = 0;
    return 0;
}

static int rotate_copy(struct copy *copy) {
    close_copy(copy);
    if (copy->in_tail) {
        rename_in_case(copy, ".tail", ".tail.old");
        rename_in_case(copy, ".tail.times", ".tail.old.times");
    }
    copy->in_tail = 1;
    return open_copy(copy);
}

static int mark_time(struct copy *copy, uint64_t time_ns) {
    if (time_ns - copy->last_mark_ns < MARK_INTERVAL_NS || copy->marks >= MARKS_PER_FILE)
        return 0;
    char line[64];
    int length = snprintf(line, sizeof line, "%" PRIu64 " %" PRIu64 "\n", copy->offset, time_ns);
    copy->last_mark_ns = time_ns;
    copy->marks++;
    return write_all(copy->times, line, (size_t)length);
}

static int keep(struct copy *copy, const char *data, size_t length, uint64_t time_ns) {
    while (length > 0) {
        uint64_t limit = copy->in_tail ? copy->bounds.tail_bytes : copy->bounds.head_bytes;
        if (copy->file_bytes >= limit) {
            int failed = rotate_copy(copy);
            if (failed)
                return failed;
            continue;
        }
        size_t part = length < limit - copy->file_bytes ? length : (size_t)(limit - copy->file_bytes);
        int failed = mark_time(copy, time_ns);
        if (!failed)
            failed = write_all(copy->text, data, part);
        if (failed)
            return failed;
        data += part;
        length -= part;
        copy->file_bytes += part;
        copy->offset += part;
    }
    return 0;
}

static void become(const char *name) {
    for (int signo = 1; signo < NSIG; signo++)
        signal(signo, SIG_IGN); /* what is sent; a fault of our own ends us all the same */
    setsid();
#ifdef __linux__
    prctl(PR_SET_NAME, name);
#endif
    (void)name;
}

static int is_needed(int fd, const struct harness_way *ways, int32_t count, int case_dir) {
    for (int32_t i = 0; i < count; i++)
        if (fd == ways[i].source || fd == ways[i].sink || fd == ways[i].lifeline)
            return 1;
    return fd == case_dir;
}

static void close_others(const struct harness_way *ways, int32_t count, int case_dir) {
    long highest = sysconf(_SC_OPEN_MAX);
    for (int fd = 0; fd < (highest < 4096 ? highest : 4096); fd++)
        if (!is_needed(fd, ways, count, case_dir))
            close(fd);
}

/* Returns what read() returned; a pty whose last slave has closed says EIO, which is the end as well. */
static ssize_t read_chunk(int source, char *chunk) {
    for (;;) {
        ssize_t got = read(source, chunk, CHUNK_BYTES);
        if (got >= 0 || (errno != EINTR && errno != EAGAIN))
            return got;
        wait_for(source, POLLIN);
    }
}

static void carry(const struct harness_way *way, int case_dir) {
    static char chunk[CHUNK_BYTES];
    struct harness_channel *channel = way->channel;
    struct copy copy = {.directory = case_dir, .name = way->name, .bounds = way->bounds, .text = -1, .times = -1};
    copy.offset = channel->bytes_in; /* not 0 when this relay replaces a killed one */
    copy.in_tail = copy.offset >= way->bounds.head_bytes;
    if (channel->case_errno == 0)
        channel->case_errno = open_copy(&copy);
    for (;;) {
        wait_for(way->source, POLLIN);
        __atomic_store_n(&channel->busy, 1, __ATOMIC_SEQ_CST);
        ssize_t got = read_chunk(way->source, chunk);
        if (got <= 0)
            break;
        uint64_t time_ns = now_ns();
        channel->bytes_in += (uint64_t)got;
        channel->last_ns = time_ns;
        int failed = way->sink == -1 ? 0 : write_all(way->sink, chunk, (size_t)got);
        if (failed)
            channel->sink_errno = failed;
        else
            channel->bytes_out += (uint64_t)got;
        if (channel->case_errno == 0)
            channel->case_errno = keep(&copy, chunk, (size_t)got, time_ns);
        if (failed == EPIPE && way->close_when_unread)
            break;
        __atomic_store_n(&channel->busy, 0, __ATOMIC_SEQ_CST);
    }
    __atomic_store_n(&channel->ended, 1, __ATOMIC_SEQ_CST);
    ssize_t told = write(way->lifeline, "", 1); /* -1, where there is no holder */
    (void)told;
}

void harness_relay(const struct harness_way *way, int32_t case_dir) {
    become(RELAY);
    signal(SIGCHLD, SIG_DFL);
    close_others(way, 1, case_dir);
    carry(way, case_dir);
    _exit(0);
}

/* By a relay of the holder's own, or by itself where there can be none. Gives the new lifeline; -1: it is over. */
static int carry_on(struct harness_way way, int case_dir) {
    int line[2] = {-1, -1};
    __atomic_store_n(&way.channel->busy, 0, __ATOMIC_SEQ_CST);
    pid_t pid = pipe(line) == -1 ? -1 : fork();
    if (pid == 0) {
        way.lifeline = line[1];
        harness_relay(&way, case_dir);
    }
    close(line[1]);
    if (pid == -1) {
        close(line[0]);
        way.lifeline = line[0] = -1;
        carry(&way, case_dir);
    }
    return line[0];
}

/* A byte: the channel has ended. The end of the file: whoever carried it was killed, and so was the supervisor. */
static int has_ended(const struct pollfd *line, const struct harness_channel *channel) {
    char byte;
    ssize_t got;
    while ((got = read(line->fd, &byte, 1)) == -1 && errno == EINTR)
        ;
    return got == 1 || __atomic_load_n(&channel->ended, __ATOMIC_SEQ_CST);
}

void harness_hold(const struct harness_way *ways, int32_t count, int32_t case_dir) {
    enum { MOST = 3 };
    struct pollfd lines[MOST];
    int32_t left = count < MOST ? count : MOST, open = left;
    become(HOLDER); /* its children, whose end the lifelines tell, are collected by the kernel */
    close_others(ways, count, case_dir);
    for (int32_t i = 0; i < left; i++)
        lines[i] = (struct pollfd){.fd = ways[i].lifeline, .events = POLLIN};
    while (open > 0) {
        if (poll(lines, (nfds_t)left, -1) == -1)
            continue;
        for (int32_t i = 0; i < left; i++) {
            if (lines[i].fd == -1 || lines[i].revents == 0)
                continue;
            int ended = has_ended(&lines[i], ways[i].channel);
            close(lines[i].fd);
            lines[i].fd = ended ? -1 : carry_on(ways[i], case_dir);
            if (lines[i].fd == -1) {
                close(ways[i].source);
                close(ways[i].sink);
                open--;
            }
        }
    }
    _exit(0);
}
