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
#define HARNESS_ABI 1

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

/* Copies source to sink (-1: nowhere) and, within bounds, to files called name.* in case_dir; never returns.
 */
HARNESS_API void harness_relay(int32_t source, int32_t sink, int32_t case_dir, const char *name,
                               const struct harness_bounds *bounds, int32_t close_when_unread,
                               struct harness_channel *channel);

#endif
