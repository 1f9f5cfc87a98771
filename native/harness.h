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
#define HARNESS_ABI 9

/* One signal as it arrived at the supervisor. */
struct harness_signal {
    int32_t signo;
    int32_t code;
    int32_t pid;
    uint32_t uid;
    uint64_t value;   /* what was queued with it (man 3 sigqueue) */
    uint64_t time_ns; /* CLOCK_MONOTONIC */
};

/* A command to start. Bit N - 1 of ignored and blocked is signal N: what it starts with, everything else has the
 * default action. Each descriptor from[i] becomes its to[i]. */
struct harness_start {
    const char *path;
    char *const *argv;
    char *const *environment;
    const int32_t *from;
    const int32_t *to;
    uint64_t ignored;
    uint64_t blocked;
    int32_t count;
    int32_t unused;
};

/* A process was born (ppid is its parent), runs a new program (ppid is HARNESS_EXEC), or has ended (ppid is 0, status
 * is its wait status). */
#define HARNESS_EXEC (-1)
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

/* Which way a channel goes. Who carries it has the write end of its lifeline, and so has the supervisor; the holder has
 * the read end. -1: there is none. */
struct harness_way {
    const char *name;
    struct harness_channel *channel;
    struct harness_bounds bounds;
    int32_t source;
    int32_t sink;
    int32_t lifeline;
    int32_t close_when_unread;
};

#define HARNESS_X86_64 1
#define HARNESS_AARCH64 2
#define HARNESS_REGISTERS 34
#define HARNESS_FRAMES 64
#define HARNESS_MEMORIES 16
/* Flags of a crash: a handler returned to the same fault again and again; a handler gave up with raise(). */
#define HARNESS_LOOP 1
#define HARNESS_GAVE_UP 2
/* Codes of a crash are Linux's si_code, but for two of ours, which only macOS needs: the kernel does not say why, nor
 * whether it was sent; and a SIGBUS because the memory that is there does not allow the access.
 */
#define HARNESS_UNTOLD 256
#define HARNESS_REFUSED 257

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
    uint64_t time_ns; /* of the clock that the supervisor's time.monotonic() reads: it may hear of it later */
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

/* A signal that asks a process to leave, told by that process when it has the default action: who sent it. */
#define HARNESS_COMMAND 480
struct harness_leave {
    uint32_t abi;
    uint32_t size;
    int32_t pid;
    int32_t signo;
    int32_t code;
    int32_t sender;
    uint32_t uid;
    uint32_t length;   /* of command; 0: the sender was gone already */
    char command[480]; /* as in /proc/PID/cmdline */
};

/* How a Python program leaves by itself, told by it (native/ending.c). status is -1 when an exception of that type
 * reaches the top of a thread, else what exit() was given: then type is not empty if such an exception was the last
 * thing that happened, and finalised says whether the interpreter had ended itself before. Where neither is so, caller
 * is the image that called exit(), as far as that could be seen. lines: of the exception's traceback the outermost, the
 * next and the innermost; 0: there is none. */
struct harness_ending {
    uint32_t abi;
    uint32_t size;
    int32_t pid;
    int32_t tid;
    uint64_t time_ns;
    int32_t status;
    uint32_t finalised;
    char type[128];
    char caller[256];
    int32_t lines[3];
    uint32_t unused;
};

/* A signal that was sent to some thread of this machine, as the kernel tells it. code is its si_code: above 0 the
 * kernel sent it, and sender is who was running then. */
struct harness_kill {
    uint64_t time_ns;
    int32_t signo;
    int32_t code;
    int32_t target;
    int32_t sender;
};

HARNESS_API int32_t harness_abi(void);
HARNESS_API int32_t harness_size(const char *struct_name);

/* From now on every signal to this process that can be caught is a record. A descriptor that becomes readable when
 * there are some, or -errno. */
HARNESS_API int32_t harness_signals_open(void);
/* How many were written to records. */
HARNESS_API int32_t harness_signals_read(struct harness_signal *records, int32_t most);
/* Sends what a record tells of: 0, or -errno. */
HARNESS_API int32_t harness_signals_send(int32_t pid, const struct harness_signal *record);
/* Stops this process as the last SIGTSTP, SIGTTIN or SIGTTOU would have; returns when it was continued. */
HARNESS_API void harness_signals_stop(void);
/* Gives the signals back to what had them before. */
HARNESS_API void harness_signals_close(void);

/* Starts a command: its pid, or -errno. */
HARNESS_API int32_t harness_start(const struct harness_start *start);

/* Tells of its own signals: a record for each, and one with signal 0 for each byte it is asked. Ends when nobody can
 * ask any more; never returns. */
#define HARNESS_STAND_IN "signals-of"
HARNESS_API void harness_stand_in(int32_t asked, int32_t tells);

/* From now on orphans below this process come to it (1), with their status, or no more (0): 0, or -errno. */
HARNESS_API int32_t harness_adopt_orphans(int32_t adopt);

/* A descriptor that becomes readable when processes are born or end, or -errno. */
HARNESS_API int32_t harness_processes_open(void);
/* How many were written to processes. */
HARNESS_API int32_t harness_processes_read(int32_t fd, struct harness_process *processes, int32_t most);

/* A descriptor that becomes readable when one of the signals is sent to anybody (once in a process), or -errno.
 */
HARNESS_API int32_t harness_kills_open(const int32_t *signos, int32_t count);
/* Stops listening; takes what harness_kills_open gave. */
HARNESS_API void harness_kills_close(int32_t fd);
/* How many were written to kills; *lost grows by those that there was no room for. */
HARNESS_API int32_t harness_kills_read(struct harness_kill *kills, int32_t most, uint64_t *lost);

/* Puts the crash link into this process; path is the supervisor's socket: 0, or -errno. */
HARNESS_API int32_t harness_link_start(const char *path);
/* Takes back the signals that were given the default action since: a shim's last act, after the interpreter's own end.
 */
HARNESS_API void harness_link_renew(void);

/* Processes that are started between the two, and all below them, are reported to path when they crash, from outside:
 * 0, or -errno. Only where the kernel has exception ports (native/mach.c).
 */
HARNESS_API int32_t harness_watch_begin(const char *path);
HARNESS_API void harness_watch_end(void);

/* Copies source to sink (-1: nowhere) and, within bounds, to files called name.* in case_dir; never returns. */
HARNESS_API void harness_relay(const struct harness_way *way, int32_t case_dir);
/* Holds the ways open, and carries each that nobody else is left to carry; returns never. */
HARNESS_API void harness_hold(const struct harness_way *ways, int32_t count, int32_t case_dir);

/* What an image defines. LLVM's and Intel's OpenMP have both of the first two, GNU's has the second only. */
#define HARNESS_DEFINES_KMPC 1
#define HARNESS_DEFINES_GOMP 2
#define HARNESS_DEFINES_OPENBLAS 4
#define HARNESS_DEFINES_MKL 8
#define HARNESS_DEFINES_BLIS 16

/* An image loaded into this process; path is an offset into the listing's text. */
struct harness_image {
    uint64_t base;
    uint64_t size;
    uint32_t path;
    uint32_t defines;
};

/* A slot through which an image calls an OpenMP function that it does not define. target is the image that the
 * value lies in, or -1; lazy: that is the caller itself, the function was not called yet. */
struct harness_call {
    uint64_t slot;
    uint64_t value;
    uint32_t image;
    int32_t target;
    uint32_t name;
    uint32_t lazy;
};

/* Room of the caller's, and how much was needed, in the order in which the images were loaded. calls may be null:
 * they are not looked for then.
 */
struct harness_listing {
    struct harness_image *images;
    struct harness_call *calls;
    char *text;
    uint32_t image_room;
    uint32_t call_room;
    uint32_t text_room;
    uint32_t image_count;
    uint32_t call_count;
    uint32_t text_count;
};

/* Whether there was room for everything; if not, the counts say how much is needed. Initialises nothing. */
HARNESS_API int32_t harness_list_images(struct harness_listing *listing);

/* Which rows of an ELF-64 relocation table (24 bytes each, of any process or file) name a symbol from first to last.
 * How many there are; at most so many are written.
 */
HARNESS_API int32_t harness_find_relocations(const void *table, uint32_t count, uint32_t first, uint32_t last,
                                             uint32_t *rows, int32_t most);

#endif
