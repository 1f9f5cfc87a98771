/* The one public header of the native library: C includes it, cffi reads it, so it holds plain declarations
 * only.
 *
 * Every struct has a fixed layout. harness_abi() and harness_size() let the Python side refuse a library that
 * was built from another version of this file instead of misreading its memory.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdint.h>

#define HARNESS_API __attribute__((visibility("default")))
#define HARNESS_ABI 2

/* One signal as it arrived at the supervisor. */
struct harness_signal {
    int32_t signo;
    int32_t code;
    int32_t pid;
    uint32_t uid;
};

/* A process was born (ppid is its parent) or has ended (ppid is 0, status is its wait status). */
struct harness_process {
    uint64_t time_ns;
    int32_t pid;
    int32_t ppid;
    int32_t status;
    int32_t unused;
};

/* What a relay has done so far; shared between the relay and the supervisor, written by the relay only. */
struct harness_channel {
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t last_ns;
    uint32_t busy;
    int32_t sink_errno;
    int32_t case_errno;
    uint32_t ended;
};

/* How much of a channel is kept in the case: the first head_bytes and at least the last tail_bytes. */
struct harness_bounds {
    uint64_t head_bytes;
    uint64_t tail_bytes;
};

#define HARNESS_X86_64 1
#define HARNESS_AARCH64 2
#define HARNESS_REGISTERS 34
#define HARNESS_FRAMES 64
#define HARNESS_MEMORIES 16
/* Flags of a crash: a handler returned to the same fault again and again; a handler gave up with raise(). */
#define HARNESS_LOOP 1
#define HARNESS_GAVE_UP 2

struct harness_memory {
    uint64_t address;
    uint8_t bytes[32];
};

/* A fatal signal as it arrived, before any other handler: what a dying process writes to the supervisor. */
struct harness_crash {
    uint32_t abi;
    uint32_t size;
    uint32_t machine;
    uint32_t flags;
    int32_t pid;
    int32_t tid;
    int32_t signo;
    int32_t code;
    int32_t sender;
    int32_t threads; /* others that were asked to stand still */
    int32_t parked;  /* those that did */
    uint32_t bypassed;
    uint64_t address;
    uint64_t pc;
    uint64_t sp;
    uint64_t fp;
    uint64_t registers[34];
    uint32_t frame_count;
    uint32_t memory_count;
    uint64_t frames[64];
    struct harness_memory memories[16];
};

HARNESS_API int32_t harness_abi(void);
HARNESS_API int32_t harness_size(const char *struct_name);

/* Returns a descriptor from which struct harness_signal records can be read, or -errno. */
HARNESS_API int32_t harness_signals_open(const int32_t *signos, int32_t count);

/* From now on orphans below this process come to it, with their status: 0, or -errno. */
HARNESS_API int32_t harness_adopt_orphans(void);

/* A descriptor that becomes readable when processes are born or end, or -errno. */
HARNESS_API int32_t harness_processes_open(void);
/* How many were written to processes. */
HARNESS_API int32_t harness_processes_read(int32_t fd, struct harness_process *processes, int32_t most);

/* Puts the crash link into this process; path is the supervisor's socket: 0, or -errno. */
HARNESS_API int32_t harness_link_start(const char *path);

/* Copies source to sink (-1: nowhere) and, within bounds, to files called name.* in case_dir; never returns.
 */
HARNESS_API void harness_relay(int32_t source, int32_t sink, int32_t case_dir, const char *name,
                               const struct harness_bounds *bounds, int32_t close_when_unread,
                               struct harness_channel *channel);

#endif
