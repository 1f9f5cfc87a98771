/* What interpose.c (ordinary context) and crash.c (signal context) share. Not public.
 *
 * interpose.c writes the table of remembered actions when the program calls sigaction; crash.c reads it when a fatal
 * signal arrives, maybe in the middle of such a write. Each entry therefore has two slots and an index that is
 * switched atomically: a reader always sees a whole action.
 */
#ifndef HARNESS_LINK_H
#define HARNESS_LINK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "harness.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

enum { FATAL_COUNT = 7, LEAVE_COUNT = 4, DEADLINE_MS = 3000 };

typedef int sigaction_function(int, const struct sigaction *, struct sigaction *);

struct remembered {
    struct sigaction slots[2];
    int reporters[2]; /* 1: a known reporter, it prints and gives up, so we may look first; -1: not asked yet (Linux) */
    int current;
    int writing;  /* spin lock of writers */
    int bypassed; /* somebody changed the kernel's action behind our back */
};

struct link {
    int active;             /* 0: every interposed call passes through */
    pid_t pid;              /* the table belongs to this process; a vfork child shares the memory but not the table */
    int unfiltered;         /* no seccomp filter when it started: one that is there later is the program's own */
    int had_privileges;     /* no_new_privs was not set when it started: nobody but root could have added a filter */
    int asked_for_reporter; /* faulthandler is there because harness asked for it, not the user */
    sigaction_function *sigaction;
    struct sockaddr_un address;
    struct remembered table[FATAL_COUNT];
    int tells_leaving;                      /* ours is where the program has the default action (leave.c) */
    struct sigaction defaults[LEAVE_COUNT]; /* that default action: the mask and the flags it was asked for with */
};

extern struct link harness_link;
extern const int harness_fatal_signals[FATAL_COUNT];

/* -1: not one of the fatal signals. */
int harness_fatal_index(int signo);
/* Whether the program has put a seccomp filter on itself: any system call of ours might be the one it kills for. */
int harness_is_filtered(void);
/* Gives the signal to the kernel or to their handler, as if we had never been there. */
void harness_step_aside(struct remembered *entry, int signo, siginfo_t *info, void *context);
/* In the mask that a handler returns to. What was sent during sigsuspend or ppoll may be blocked there. */
void harness_set_blocked(void *context, int signo, int blocked);
/* The mask that a handler asked to be run with. */
void harness_set_mask(const void *context, const struct sigaction *action, int signo);
/* One deadline for all of it; what waits is the caller. */
void harness_tell_and_wait(const struct sockaddr_un *supervisor, const struct harness_crash *crash);
/* One message and no answer; given up at once where it cannot be delivered. */
void harness_tell(const struct sockaddr_un *supervisor, const void *message, size_t length);
/* The signal with its siginfo, once more, to this thread; not 0: it was refused. */
long harness_send_self(int signo, siginfo_t *info);
void harness_on_fatal(int signo, siginfo_t *info, void *context);
/* What the kernel has for a fatal signal that is not ignored: ours, in front of theirs. */
void harness_our_action(struct sigaction *ours, const struct sigaction *theirs);

extern const int harness_leave_signals[LEAVE_COUNT];
/* -1: not one of the signals that ask a process to leave. */
int harness_leave_index(int signo);
void harness_on_leaving(int signo, siginfo_t *info, void *context);
/* Before a process sends itself one of them: tells, and gives the default action back. */
void harness_leave_by_itself(int signo);
void harness_leave_action(struct sigaction *ours);
/* Gives the default actions back to the kernel. */
void harness_stop_telling(void);

/* From here on a Python program tells how it leaves by itself (ending.c); nothing in any other program. */
void harness_watch_ending(void);
/* From where exit() was called (interpose.c). Null: it was not, or not through us. */
extern const void *harness_exit_caller;

static inline int starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Whether a handler in the image of this name prints and gives up, so that we may look first. faulthandler asks for
 * SA_NODEFER, Python's own signal module does not: its handlers may recover.
 */
static inline int is_reporter_image(const char *name, int flags) {
    if (starts_with(name, "python") || starts_with(name, "libpython") || starts_with(name, "faulthandler"))
        return (flags & SA_NODEFER) != 0;
    return starts_with(name, "libtorch") || starts_with(name, "libc10") || starts_with(name, "_C.");
}

#endif
