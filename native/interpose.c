/* The crash link, ordinary context: puts our handler in front of all others and keeps it there.
 *
 * Active only in a process that was started with HARNESS_LINK in its environment and this library in LD_PRELOAD, or
 * that called harness_link_start; everywhere else each function here passes through to the C library.
 *
 * sigaction and its relatives are interposed for the seven fatal signals: a handler that the program installs later
 * (faulthandler, torch's DataLoader workers, c10) is remembered, shown to whoever asks, and called when its turn comes
 * (crash.c), while ours stays with the kernel. SIG_IGN goes to the kernel as it is, because it must survive exec.
 *
 * With HARNESS_TELL in the environment SIGTERM, SIGINT, SIGHUP and SIGXCPU have a handler of ours while the program has
 * their default action: it tells who sent the signal (leave.c). The program is shown SIG_DFL, and whatever else it
 * installs goes to the kernel as it is. The supervisor asks for it only where the kernel does not tell it the senders:
 * a default action ends a process that waits for a hung file system, a handler has to wait for it.
 *
 * pthread_create and thrd_create are interposed to give every native thread an alternate stack: without one a stack
 * overflow kills the handler with the thread.
 *
 * What bypasses us (raw system calls, a sigaction looked up in libc itself) is noticed by asking the kernel at each
 * fork and thread start, and is told with the crash.
 *
 * macOS (compiled, never run): the variable is DYLD_INSERT_LIBRARIES, and dyld replaces what the section __interpose
 * lists, everywhere but here. A process that was started with HARNESS_WATCHED and still has an exception port is
 * watched from outside (mach.c), and then nothing is done here. Only sigaction, signal and pthread_create: the others
 * end in sigaction. A handler that may recover gets the signal from the kernel, without us in front. Which one may is
 * asked of dyld, which takes a lock: once, when the handler is installed.
 */
#include "link.h"

#if (defined(__linux__) || defined(__APPLE__)) && (defined(__x86_64__) || defined(__aarch64__))

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/auxv.h>
#include <sys/syscall.h>
#else
#include <mach/mach.h>
#endif

/* The oldest version of dlsym, so that the library loads with the C library of the baseline too (native/build.py). */
#ifdef __GLIBC__
#ifdef __x86_64__
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
#else
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
#endif
#endif

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif
#define EXPORT __attribute__((visibility("default")))

#ifdef __linux__
enum { PAGE_BYTES = 4096 };
#else
enum { PAGE_BYTES = 16384 };
#endif
enum { STACK_BYTES = 256 * 1024 };

struct link harness_link;
static pthread_key_t stack_key;
static int (*set_specific)(pthread_key_t, const void *);

#ifdef __linux__
#define INSERTED_BY "LD_PRELOAD"
typedef uint64_t signal_mask; /* the kernel's, whatever sigset_t says */

static pid_t own_pid(void) { return (pid_t)syscall(SYS_getpid); }

static void block_all(signal_mask *before) {
    signal_mask all = ~0ull;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, before, sizeof all);
}

static void unblock(const signal_mask *before) {
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, before, NULL, sizeof *before);
}

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    return found ? found : dlsym(RTLD_DEFAULT, name);
}

/* Other libraries' constructors may call us before our own has run. */
static sigaction_function *libc_sigaction(void) {
    if (harness_link.sigaction == NULL)
        harness_link.sigaction = (sigaction_function *)next("sigaction");
    return harness_link.sigaction;
}

/* Asked when it first matters (crash.c). */
static int find_reporter(const struct sigaction *action) {
    (void)action;
    return -1;
}

static int stays_behind_us(const struct sigaction *action, int reporter) {
    (void)reporter;
    return action->sa_handler != SIG_IGN;
}

static int is_watched_from_outside(void) { return 0; }

#else
#define INSERTED_BY "DYLD_INSERT_LIBRARIES"
typedef sigset_t signal_mask;

static pid_t own_pid(void) { return getpid(); }

static void block_all(signal_mask *before) {
    signal_mask all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

static void unblock(const signal_mask *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }

static sigaction_function *libc_sigaction(void) {
    harness_link.sigaction = sigaction;
    return sigaction;
}

/* The framework's interpreter is a file called Python. */
static int find_reporter(const struct sigaction *action) {
    Dl_info image;
    if (action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN ||
        !dladdr((const void *)action->sa_sigaction, &image))
        return 0;
    const char *slash = strrchr(image.dli_fname, '/'), *name = slash ? slash + 1 : image.dli_fname;
    return is_reporter_image(strcmp(name, "Python") == 0 ? "python" : name, action->sa_flags);
}

static int stays_behind_us(const struct sigaction *action, int reporter) {
    return action->sa_handler == SIG_DFL || reporter;
}

/* Our death would be told twice. The variable says that a supervisor of ours gave us the port: another's is inherited
 * just so (Crashpad's, below an editor). The port itself says that it was not lost on the way, in a setuid program.
 */
static int is_watched_from_outside(void) {
    exception_mask_t masks[EXC_TYPES_COUNT];
    mach_port_t ports[EXC_TYPES_COUNT];
    exception_behavior_t behaviors[EXC_TYPES_COUNT];
    thread_state_flavor_t flavors[EXC_TYPES_COUNT];
    mach_msg_type_number_t count = EXC_TYPES_COUNT;
    int watched = 0;
    if (getenv("HARNESS_WATCHED") == NULL)
        return 0;
    if (task_get_exception_ports(mach_task_self(), EXC_MASK_CRASH, masks, &count, ports, behaviors, flavors) !=
        KERN_SUCCESS)
        return 0;
    for (mach_msg_type_number_t i = 0; i < count; i++)
        if (MACH_PORT_VALID(ports[i])) {
            watched = 1;
            mach_port_deallocate(mach_task_self(), ports[i]);
        }
    return watched;
}
#endif

/* The entry to use, or NULL when the call is none of our business. */
static struct remembered *entry_for(int signo) {
    int index = harness_fatal_index(signo);
    if (index == -1 || !harness_link.active || own_pid() != harness_link.pid)
        return NULL;
    return &harness_link.table[index];
}

/* --- what is behind us -------------------------------------------------------------------------------------------- */

/* sigaction may be called in a signal handler and in a forked child: nobody is interrupted while writing. */
static void remember(struct remembered *entry, const struct sigaction *action, int reporter) {
    signal_mask before;
    block_all(&before);
    while (__atomic_exchange_n(&entry->writing, 1, __ATOMIC_ACQUIRE))
        sched_yield();
    int other = !entry->current;
    entry->slots[other] = *action;
    entry->reporters[other] = reporter;
    __atomic_store_n(&entry->current, other, __ATOMIC_SEQ_CST);
    __atomic_store_n(&entry->writing, 0, __ATOMIC_RELEASE);
    unblock(&before);
}

static int put_behind_us(struct remembered *entry, int signo, const struct sigaction *action) {
    struct sigaction ours;
    int reporter = find_reporter(action);
    remember(entry, action, reporter);
    if (!stays_behind_us(action, reporter))
        return libc_sigaction()(signo, action, NULL);
    harness_our_action(&ours, action);
    return libc_sigaction()(signo, &ours, NULL);
}

#ifdef __linux__
/* Only the default action has ours in its place; a handler and SIG_IGN are the kernel's as they are. What the kernel
 * makes of the default action (flags, mask) is asked for, so that whoever asks later gets the same answer.
 */
static int change_leaving(int index, int signo, const struct sigaction *wanted, struct sigaction *old) {
    struct sigaction *remembered = &harness_link.defaults[index], before = *remembered, replaced, ours, after;
    int ask = wanted != NULL && wanted->sa_handler == SIG_DFL && own_pid() == harness_link.pid;
    if (libc_sigaction()(signo, wanted, &replaced) == -1)
        return -1;
    harness_leave_action(&ours);
    if (ask && libc_sigaction()(signo, &ours, &after) == 0) {
        if (after.sa_handler == SIG_DFL)
            *remembered = after;
        else if (after.sa_sigaction != harness_on_leaving) /* another thread's, which came in between */
            libc_sigaction()(signo, &after, NULL);
    }
    if (old != NULL)
        *old = replaced.sa_sigaction == harness_on_leaving ? before : replaced;
    return 0;
}

static void tell_leaving(void) {
    for (int i = 0; i < LEAVE_COUNT; i++) {
        struct sigaction ours, *now = &harness_link.defaults[i];
        harness_leave_action(&ours);
        if (libc_sigaction()(harness_leave_signals[i], NULL, now) == 0 && now->sa_handler == SIG_DFL)
            libc_sigaction()(harness_leave_signals[i], &ours, NULL);
    }
    harness_link.tells_leaving = 1;
}
#endif

static int change(int signo, const struct sigaction *wanted, struct sigaction *old) {
#ifdef __linux__
    int leaving = harness_link.tells_leaving ? harness_leave_index(signo) : -1;
    if (leaving != -1)
        return change_leaving(leaving, signo, wanted, old);
#endif
    struct remembered *entry = entry_for(signo);
    if (entry == NULL)
        return libc_sigaction()(signo, wanted, old);
    struct sigaction before = entry->slots[entry->current], after;
    if (wanted != NULL) {
        after = *wanted; /* wanted and old may be the same */
        if (put_behind_us(entry, signo, &after) == -1)
            return -1;
    }
    if (old != NULL)
        *old = before;
    return 0;
}

#ifdef __linux__
EXPORT int sigaction(int signo, const struct sigaction *wanted, struct sigaction *old) {
    return change(signo, wanted, old);
}

EXPORT int __sigaction(int signo, const struct sigaction *wanted, struct sigaction *old) {
    return change(signo, wanted, old);
}

/* With the default action the kernel ends all threads before kill() returns; with a handler another thread may be
 * chosen for it, and this one would go on.
 */
EXPORT int kill(pid_t pid, int signo) {
    if (harness_link.tells_leaving && pid == harness_link.pid && harness_leave_index(signo) != -1 && pid == own_pid())
        harness_leave_by_itself(signo);
    return (int)syscall(SYS_kill, pid, signo);
}

#endif

/* Whoever calls it is told where Python was still running (ending.c). */
const void *harness_exit_caller;

#ifdef __linux__
EXPORT __attribute__((noreturn)) void exit(int status) {
    void (*libc_exit)(int) = (void (*)(int))next("exit");
    harness_exit_caller = __builtin_return_address(0);
    libc_exit(status);
    __builtin_unreachable();
}
#endif

/* --- its relatives ------------------------------------------------------------------------------------------------ */

typedef void handler(int);
#ifdef __linux__
static uint64_t interrupting; /* siginterrupt's memory, bit signo - 1: signal() leaves SA_RESTART out */

/* Nothing here calls the C library's own: looking it up takes the dynamic linker's lock, and all of these may be called
 * in a signal handler.
 */
static int restarting(int signo) {
    return signo > 0 && signo <= 64 && (interrupting >> (signo - 1) & 1) ? 0 : SA_RESTART;
}

static handler *install(int signo, handler *wanted, int flags) {
    struct sigaction action = {.sa_handler = wanted, .sa_flags = flags}, old;
    if (wanted == SIG_ERR || signo < 1 || signo > 64) {
        errno = EINVAL;
        return SIG_ERR;
    }
    if (!(flags & SA_NODEFER))
        sigaddset(&action.sa_mask, signo);
    return change(signo, &action, &old) == -1 ? SIG_ERR : old.sa_handler;
}

EXPORT handler *signal(int signo, handler *wanted) { return install(signo, wanted, restarting(signo)); }
EXPORT handler *bsd_signal(int signo, handler *wanted) { return install(signo, wanted, restarting(signo)); }
EXPORT handler *ssignal(int signo, handler *wanted) { return install(signo, wanted, restarting(signo)); }
EXPORT handler *sysv_signal(int signo, handler *wanted) { return install(signo, wanted, SA_RESETHAND | SA_NODEFER); }
EXPORT handler *__sysv_signal(int signo, handler *wanted) { return install(signo, wanted, SA_RESETHAND | SA_NODEFER); }

EXPORT int sigignore(int signo) {
    struct sigaction action = {.sa_handler = SIG_IGN};
    return change(signo, &action, NULL);
}

EXPORT int siginterrupt(int signo, int interrupt) {
    struct sigaction action;
    if (change(signo, NULL, &action) == -1)
        return -1;
    if (interrupt)
        __atomic_or_fetch(&interrupting, 1ull << (signo - 1), __ATOMIC_SEQ_CST);
    else
        __atomic_and_fetch(&interrupting, ~(1ull << (signo - 1)), __ATOMIC_SEQ_CST);
    action.sa_flags = interrupt ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
    return change(signo, &action, NULL);
}

/* man 3 sigset: SIG_HOLD (2) blocks and leaves the action alone; anything else installs it and unblocks. */
EXPORT handler *sigset(int signo, handler *wanted) {
    struct sigaction action = {.sa_handler = wanted}, old;
    sigset_t this_one, before;
    handler *hold = (handler *)2;
    sigemptyset(&this_one);
    sigaddset(&this_one, signo);
    if (change(signo, wanted == hold ? NULL : &action, &old) == -1 ||
        sigprocmask(wanted == hold ? SIG_BLOCK : SIG_UNBLOCK, &this_one, &before) == -1)
        return SIG_ERR;
    return sigismember(&before, signo) ? hold : old.sa_handler;
}

#else
static handler *our_signal(int signo, handler *wanted) {
    struct sigaction action = {.sa_handler = wanted, .sa_flags = SA_RESTART}, old;
    if (harness_fatal_index(signo) == -1) /* siginterrupt's memory is the C library's */
        return signal(signo, wanted);
    return change(signo, &action, &old) == -1 ? SIG_ERR : old.sa_handler;
}
#endif

/* --- threads ------------------------------------------------------------------------------------------------------ */

#ifdef __linux__
static size_t stack_bytes(void) {
    size_t least = getauxval(AT_MINSIGSTKSZ); /* grows with the CPU's registers (AVX-512, AMX) */
    return (STACK_BYTES + least + 4095) & ~(size_t)4095;
}
#else
static size_t stack_bytes(void) { return STACK_BYTES; }
#endif

static void take_stack_back(void *memory) {
    stack_t now, none = {.ss_flags = SS_DISABLE};
    if (sigaltstack(NULL, &now) == 0 && now.ss_sp == (char *)memory + PAGE_BYTES)
        sigaltstack(&none, NULL);
    munmap(memory, stack_bytes() + PAGE_BYTES);
}

/* With a guard page below. A thread that has one already (or will replace it) is left alone. */
static void give_stack(void) {
    stack_t now, ours = {.ss_size = stack_bytes()};
    if (sigaltstack(NULL, &now) == -1 || !(now.ss_flags & SS_DISABLE))
        return;
    if (set_specific == NULL) /* nobody would take it back */
        return;
    char *memory = mmap(NULL, ours.ss_size + PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return;
    mprotect(memory, PAGE_BYTES, PROT_NONE);
    ours.ss_sp = memory + PAGE_BYTES;
    if (sigaltstack(&ours, NULL) == 0)
        set_specific(stack_key, memory);
}

static void notice_bypassing(void) {
    for (int i = 0; i < FATAL_COUNT; i++) {
        struct remembered *entry = &harness_link.table[i];
        struct sigaction now;
        int current = entry->current;
        if (libc_sigaction()(harness_fatal_signals[i], NULL, &now) == 0 && now.sa_sigaction != harness_on_fatal &&
            stays_behind_us(&entry->slots[current], entry->reporters[current]))
            entry->bypassed = 1;
    }
}

struct start {
    void *(*posix)(void *);
    int (*c11)(void *);
    void *argument;
};

static void *run_thread(void *given) {
    struct start start = *(struct start *)given;
    free(given);
    give_stack();
    return start.posix ? start.posix(start.argument) : (void *)(intptr_t)start.c11(start.argument);
}

#ifdef __linux__
static int run_c11_thread(void *given) { return (int)(intptr_t)run_thread(given); }
#endif

static struct start *prepare(void *(*posix)(void *), int (*c11)(void *), void *argument) {
    struct start *start = harness_link.active ? malloc(sizeof *start) : NULL;
    if (start != NULL) {
        *start = (struct start){posix, c11, argument};
        notice_bypassing();
    }
    return start;
}

#ifdef __linux__
EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *),
                          void *argument) {
    static int (*libc)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    struct start *start = prepare(routine, NULL, argument);
    if (libc == NULL)
        *(void **)&libc = next("pthread_create");
    int failed = start ? libc(thread, attributes, run_thread, start) : libc(thread, attributes, routine, argument);
    if (failed)
        free(start);
    return failed;
}

/* <threads.h> came with glibc 2.28: thrd_t is a word, thrd_success is 0. */
EXPORT int thrd_create(void *thread, int (*routine)(void *), void *argument) {
    static int (*libc)(void *, int (*)(void *), void *);
    struct start *start = prepare(NULL, routine, argument);
    if (libc == NULL)
        *(void **)&libc = next("thrd_create");
    int failed = start ? libc(thread, run_c11_thread, start) : libc(thread, routine, argument);
    if (failed)
        free(start);
    return failed;
}

#else
static int our_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *),
                              void *argument) {
    struct start *start = prepare(routine, NULL, argument);
    if (start == NULL)
        return pthread_create(thread, attributes, routine, argument);
    int failed = pthread_create(thread, attributes, run_thread, start);
    if (failed)
        free(start);
    return failed;
}

/* dyld's list: calls to the second go to the first, in every image but this one. */
__attribute__((used, section("__DATA,__interpose"))) static const void *const interposed[][2] = {
    {(const void *)change, (const void *)sigaction},
    {(const void *)our_signal, (const void *)signal},
    {(const void *)our_pthread_create, (const void *)pthread_create},
};
#endif

/* --- start -------------------------------------------------------------------------------------------------------- */

static void adopt_table(void) {
    harness_link.pid = own_pid();
    for (int i = 0; i < FATAL_COUNT; i++)
        harness_link.table[i].writing = 0; /* its writer was another thread, and is not here */
    notice_bypassing();
#ifdef __linux__
    if (harness_link.pid == 1)
        harness_stop_telling();
#endif
}

#ifdef __linux__
/* From a file, as the dynamic linker has just read many: a filter may kill for prctl. */
static void notice_filter(void) {
    char status[4096];
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC, 0);
    long got = fd < 0 ? 0 : syscall(SYS_read, fd, status, sizeof status - 1);
    if (fd >= 0)
        syscall(SYS_close, fd);
    status[got > 0 ? got : 0] = '\0';
    harness_link.unfiltered = strstr(status, "\nSeccomp:\t0") != NULL;
    harness_link.had_privileges = strstr(status, "\nNoNewPrivs:\t0") != NULL;
}

/* Looked up, not linked: in older C libraries they live in a library of their own. */
static void find_key_functions(void) {
    int (*create)(pthread_key_t *, void (*)(void *));
    *(void **)&create = next("pthread_key_create");
    if (create != NULL && create(&stack_key, take_stack_back) == 0)
        *(void **)&set_specific = next("pthread_setspecific");
}
#else
static void find_key_functions(void) {
    if (pthread_key_create(&stack_key, take_stack_back) == 0)
        set_specific = pthread_setspecific;
}
#endif

int32_t harness_link_start(const char *path) {
    if (harness_link.active || path == NULL || strlen(path) >= sizeof harness_link.address.sun_path)
        return harness_link.active ? 0 : -EINVAL;
    if (is_watched_from_outside())
        return 0;
    harness_link.address.sun_family = AF_UNIX;
    strcpy(harness_link.address.sun_path, path);
    harness_link.pid = own_pid();
    const char *asked = getenv("PYTHONFAULTHANDLER");
    harness_link.asked_for_reporter = asked != NULL && strcmp(asked, "harness") == 0; /* capture/run/launch.py */
#ifdef __linux__
    notice_filter();
#endif
    find_key_functions();
    pthread_atfork(NULL, NULL, adopt_table);
    give_stack();
    for (int i = 0; i < FATAL_COUNT; i++) {
        struct sigaction now;
        if (libc_sigaction()(harness_fatal_signals[i], NULL, &now) == -1)
            return -errno;
        put_behind_us(&harness_link.table[i], harness_fatal_signals[i], &now);
    }
    harness_link.active = 1;
    harness_watch_ending();
    return 0;
}

void harness_link_renew(void) {
    for (int i = 0; i < FATAL_COUNT; i++) {
        struct sigaction now;
        if (harness_link.active && libc_sigaction()(harness_fatal_signals[i], NULL, &now) == 0 &&
            now.sa_handler == SIG_DFL)
            put_behind_us(&harness_link.table[i], harness_fatal_signals[i], &now);
    }
}

__attribute__((constructor)) static void start_if_asked(void) {
    const char *preloaded = getenv(INSERTED_BY);
    if (preloaded == NULL || strstr(preloaded, "libharness") == NULL || harness_link_start(getenv("HARNESS_LINK")))
        return;
#ifdef __linux__
    if (getenv("HARNESS_TELL") != NULL &&
        harness_link.pid != 1) /* the kernel gives the first process of a namespace no signal that it does not handle */
        tell_leaving();
#endif
}

#else
void harness_link_renew(void) {}

int32_t harness_link_start(const char *path) {
    (void)path;
    return -38; /* ENOSYS: this platform has no link yet */
}
#endif
