/* The crash link, signal context: a fatal signal arrives, the process stands still, the supervisor looks, it dies as it
 * would have died.
 *
 * This file holds only what may run in a signal handler: no malloc, no stdio, no locks, system calls and memory of our
 * own. It uses under 2 kB of stack, because the alternate stack may be somebody else's small one; the record is static.
 *
 * Order of events on a fatal signal:
 *   1. Who comes first? With the default action or a known reporter behind us (faulthandler, torch, c10) we look first.
 * Any other handler may recover (a JVM, wasmtime, a garbage collector): it runs first, as it asked to be run, and it is
 * a crash only when it gives up by restoring the default action, or when it returns to the same fault a hundred times
 * in a row.
 *   2. Look: park every other thread, else one of them ends the process with status 0 or heals the fault meanwhile.
 *      Fill the record, connect, write it, allow the supervisor to trace us, wait. One deadline covers all of it; a
 *      supervisor that is stopped, gone or busy costs no more than that.
 *   3. Let go: every remembered action goes back to the kernel, interposed calls pass through from now on, the original
 *      siginfo is queued to this thread, and the handler returns. The next handler and the core see the code, the
 *      address and the pc of the original fault, and the fault cannot heal. The other threads stay parked until the
 *      process is dead, or for LINGER_MS if the handler behind us recovers after all.
 *
 * Rejected: raise() (loses si_code and si_addr), returning to let the fault happen again (it can heal), reading the
 * stack here (unwinders allocate).
 *
 * A program that has put a seccomp filter on itself is not looked at (filtered.c), unless the signal is the filter's
 * own SIGSYS and nobody handles it: a filter that traps does not kill.
 *
 * A second thread that crashes while the first is being looked at waits like a parked one and then dies by itself.
 *
 * macOS (compiled, never run): exception ports come first there (mach.c), and this is for a process that has none. Less
 * is possible: a signal cannot be queued with its siginfo, so the thread sends itself the signal while it is blocked,
 * and the kernel delivers it where the fault was; other threads are suspended, not parked, and go on before the process
 * dies, because nothing in it could wake them later; handlers that may recover never have us in front (interpose.c);
 * si_code tells nothing (code_of), so that a SIGSEGV that somebody sent is taken for a fault.
 */
#include "link.h"

#if (defined(__linux__) || defined(__APPLE__)) && (defined(__x86_64__) || defined(__aarch64__))

#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#else
#include <pthread.h>
#include <sys/sysctl.h>
#include <sys/ucontext.h>
#endif

enum {
    LOOP_LIMIT = 100,
    PARK_MS = 100,         /* a thread that blocks all signals cannot be parked; go on without it */
    PARKED_MOST_MS = 5000, /* a parked thread goes on by itself if it is forgotten */
    LINGER_MS = 1000,      /* a handler behind us that prints and gives up needs less */
    NAME_BYTES = 32,
    NEAR_BYTES = 256 * 1024,
    OVERFLOW_BYTES = 64 * 1024,
    KERNEL_SIGSET_BYTES = 8,
    TASKS_BYTES = 32 * 1024,
};

const int harness_fatal_signals[FATAL_COUNT] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};

int harness_fatal_index(int signo) {
    for (int i = 0; i < FATAL_COUNT; i++)
        if (harness_fatal_signals[i] == signo)
            return i;
    return -1;
}

void harness_our_action(struct sigaction *ours, const struct sigaction *theirs) {
    memset(ours, 0, sizeof *ours);
    ours->sa_sigaction = harness_on_fatal;
    ours->sa_flags = SA_SIGINFO | SA_ONSTACK | (theirs->sa_flags & SA_RESTART);
    memset(&ours->sa_mask, 0xff, sizeof ours->sa_mask);
}

static struct harness_crash record;
static int holding; /* some thread is being looked at, or is about to die of it */

static uint64_t now_ms(void) { return monotonic_ns() / 1000000; }

/* --- system calls ------------------------------------------------------------------------------------------------- */

#ifdef __linux__
static pid_t own_tid(void) { return (pid_t)syscall(SYS_gettid); }

/* Not getpid(): older C libraries remember the parent's in a vfork child. */
static pid_t own_pid(void) { return (pid_t)syscall(SYS_getpid); }

static void pause_ms(long milliseconds) {
    struct timespec length = {0, milliseconds * 1000000};
    syscall(SYS_nanosleep, &length, NULL);
}

static int open_socket(void) {
    return (int)syscall(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static int connect_socket(int fd, const struct sockaddr_un *to) {
    return (int)syscall(SYS_connect, fd, to, sizeof *to);
}

static long send_part(int fd, const void *data, size_t length) {
    return syscall(SYS_sendto, fd, data, length, MSG_NOSIGNAL, NULL, 0);
}

static long poll_one(struct pollfd *wanted, uint64_t left_ms) {
    struct timespec left = {(time_t)(left_ms / 1000), (long)(left_ms % 1000) * 1000000};
    return syscall(SYS_ppoll, wanted, 1L, &left, NULL, 0L);
}

static void close_socket(int fd) { syscall(SYS_close, fd); }

static int read_peer(int fd, struct ucred *peer) {
    socklen_t length = sizeof *peer;
    return syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, peer, &length) == 0;
}

/* When our supervisor is gone with its directory, anybody may make one of that name, and listen there. */
static int is_own_user(int fd) {
    struct ucred peer;
    return read_peer(fd, &peer) && peer.uid == (uid_t)syscall(SYS_geteuid);
}

static void allow_tracing_by(int fd) {
    struct ucred peer;
    if (read_peer(fd, &peer))
        prctl(PR_SET_PTRACER, (unsigned long)peer.pid, 0, 0, 0); /* EINVAL without Yama: not needed there */
}

long harness_send_self(int signo, siginfo_t *info) {
    return syscall(SYS_rt_tgsigqueueinfo, own_pid(), own_tid(), signo, info);
}

static void send_self(int signo, siginfo_t *info) { harness_send_self(signo, info); }

static int code_of(const siginfo_t *info) { return info->si_code; }

static memory_owner own_memory(void) { return harness_link.pid; }

#else
static pid_t own_tid(void) {
    uint64_t tid = 0;
    pthread_threadid_np(NULL, &tid);
    return (pid_t)tid;
}

static pid_t own_pid(void) { return getpid(); }

static void pause_ms(long milliseconds) {
    struct timespec length = {0, milliseconds * 1000000};
    nanosleep(&length, NULL);
}

/* Never a SIGPIPE: the supervisor may go away between two sends. */
static int open_socket(void) {
    int on = 1, fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd >= 0) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
    }
    return fd;
}

static int connect_socket(int fd, const struct sockaddr_un *to) {
    return connect(fd, (const struct sockaddr *)to, sizeof *to);
}

static long send_part(int fd, const void *data, size_t length) { return send(fd, data, length, 0); }

static long poll_one(struct pollfd *wanted, uint64_t left_ms) { return poll(wanted, 1, (int)left_ms); }

static void close_socket(int fd) { close(fd); }

/* getpeereid is no system call of its own there: nothing that a handler may call. */
static int is_own_user(int fd) {
    (void)fd;
    return 1;
}

static void allow_tracing_by(int fd) { (void)fd; }

/* Blocked here, so it arrives when the handler has returned: at the fault, before anything runs again. */
static void send_self(int signo, siginfo_t *info) {
    (void)info;
    pthread_kill(pthread_self(), signo);
}

/* The kernel has one code for each signal, whether it was a fault or sent by somebody: SEGV_ACCERR, BUS_ADRALN,
 * ILL_ILLTRP (xnu: sendsig in bsd/dev/arm/unix_signal.c; i386's says more of SIGSEGV, but what it says of one that was
 * sent is left from another fault). Rejected: 0, which says that it was sent. On x86 a general protection fault has
 * neither a code nor an address.
 */
static int code_of(const siginfo_t *info) {
    if (info->si_signo == SIGABRT || info->si_signo == SIGSYS)
        return info->si_code == SI_USER ? 0 : info->si_code;
    if (MACHINE == HARNESS_X86_64 && info->si_signo == SIGSEGV && info->si_code == 0 && info->si_addr == NULL)
        return LINUX_SI_KERNEL;
    return HARNESS_UNTOLD;
}

static memory_owner own_memory(void) { return mach_task_self(); }
#endif

/* --- registers ---------------------------------------------------------------------------------------------------- */

#if defined(__APPLE__)
static uint64_t *pc_of(ucontext_t *context) { return state_pc(&context->uc_mcontext->__ss); }
static uint64_t *sp_of(ucontext_t *context) { return state_sp(&context->uc_mcontext->__ss); }
static uint64_t fp_of(ucontext_t *context) { return state_fp(&context->uc_mcontext->__ss); }
static void copy_registers(ucontext_t *context, uint64_t *registers) {
    copy_state(&context->uc_mcontext->__ss, registers);
}
#ifdef __aarch64__
static uint64_t lr_of(ucontext_t *context) { return plain_address(context->uc_mcontext->__ss.__lr); }
#endif

#elif defined(__x86_64__)
static uint64_t *pc_of(ucontext_t *context) { return (uint64_t *)&context->uc_mcontext.gregs[REG_RIP]; }
static uint64_t *sp_of(ucontext_t *context) { return (uint64_t *)&context->uc_mcontext.gregs[REG_RSP]; }
static uint64_t fp_of(ucontext_t *context) { return (uint64_t)context->uc_mcontext.gregs[REG_RBP]; }

enum { MACHINE = HARNESS_X86_64, REGISTERS = NGREG };
static uint64_t *register_at(ucontext_t *context, int i) { return (uint64_t *)&context->uc_mcontext.gregs[i]; }
#else
static uint64_t *pc_of(ucontext_t *context) { return (uint64_t *)&context->uc_mcontext.pc; }
static uint64_t *sp_of(ucontext_t *context) { return (uint64_t *)&context->uc_mcontext.sp; }
static uint64_t fp_of(ucontext_t *context) { return context->uc_mcontext.regs[29]; }
static uint64_t lr_of(ucontext_t *context) { return context->uc_mcontext.regs[30]; }

enum { MACHINE = HARNESS_AARCH64, REGISTERS = 34 };
static uint64_t *register_at(ucontext_t *context, int i) {
    mcontext_t *machine = &context->uc_mcontext;
    return (uint64_t *)(i < 31    ? &machine->regs[i]
                        : i == 31 ? &machine->sp
                        : i == 32 ? &machine->pc
                                  : &machine->pstate);
}
#endif

#ifdef __linux__
static void copy_registers(ucontext_t *context, uint64_t *registers) {
    for (int i = 0; i < REGISTERS; i++)
        registers[i] = *register_at(context, i);
}

static void exchange_registers(ucontext_t *context, uint64_t *registers) {
    for (int i = 0; i < REGISTERS; i++) {
        uint64_t value = *register_at(context, i);
        *register_at(context, i) = registers[i];
        registers[i] = value;
    }
}
#endif

/* --- the other threads -------------------------------------------------------------------------------------------- */

#ifdef __linux__
static char tasks[TASKS_BYTES]; /* directory entries of /proc/self/task */
static int parked;
static uint64_t held_until_ms; /* 0: not known yet */

static int is_held(void) {
    uint64_t until = __atomic_load_n(&held_until_ms, __ATOMIC_SEQ_CST);
    return until == 0 || now_ms() < until;
}

static void wait_released(void) {
    __atomic_add_fetch(&parked, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&holding, __ATOMIC_SEQ_CST) && is_held()) {
        struct timespec slice = {0, 200 * 1000000};
        syscall(SYS_futex, &holding, FUTEX_WAIT_PRIVATE, 1, &slice, NULL, 0);
    }
    __atomic_sub_fetch(&parked, 1, __ATOMIC_SEQ_CST);
}

static void on_park(int signo) {
    (void)signo;
    int saved = errno;
    wait_released();
    errno = saved;
}

/* The highest real-time signal that nobody uses: 0 when there is none. */
static int take_park_signal(void) {
    for (int signo = 64; signo > 34; signo--) {
        struct sigaction now, ours = {.sa_handler = on_park, .sa_flags = SA_RESTART | SA_ONSTACK};
        if (harness_link.sigaction(signo, NULL, &now) == 0 &&
            (now.sa_handler == SIG_DFL || now.sa_handler == on_park)) {
            memset(&ours.sa_mask, 0xff, sizeof ours.sa_mask);
            /* c10's reporter asks each thread for its stack by this one, and waits for the answer. */
            *(uint64_t *)&ours.sa_mask &= ~(1ull << (SIGUSR2 - 1));
            return harness_link.sigaction(signo, &ours, NULL) == 0 ? signo : 0;
        }
    }
    return 0;
}

struct directory_entry { /* struct linux_dirent64, man 2 getdents */
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

static pid_t parse_tid(const char *name) {
    pid_t tid = 0;
    for (; *name >= '0' && *name <= '9'; name++)
        tid = tid * 10 + (*name - '0');
    return *name ? 0 : tid;
}

/* Signals every other thread; returns how many there are. */
static int signal_others(int signo, pid_t self) {
    int count = 0, directory = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY, 0);
    if (directory < 0)
        return 0;
    for (long got; (got = syscall(SYS_getdents64, directory, tasks, sizeof tasks)) > 0;)
        for (long at = 0; at < got;) {
            const struct directory_entry *entry = (const struct directory_entry *)(tasks + at);
            pid_t tid = parse_tid(entry->name);
            if (tid != 0 && tid != self && syscall(SYS_tgkill, harness_link.pid, tid, signo) == 0)
                count++;
            at += entry->length;
        }
    syscall(SYS_close, directory);
    return count;
}

static void park_others(pid_t self) {
    int signo = take_park_signal();
    __atomic_store_n(&held_until_ms, now_ms() + PARKED_MOST_MS, __ATOMIC_SEQ_CST);
    record.threads = signo ? signal_others(signo, self) : 0;
    uint64_t until = now_ms() + PARK_MS;
    while (__atomic_load_n(&parked, __ATOMIC_SEQ_CST) < record.threads && now_ms() < until)
        pause_ms(1);
    record.parked = __atomic_load_n(&parked, __ATOMIC_SEQ_CST);
}

static void release_others(void) {
    __atomic_store_n(&held_until_ms, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&holding, 0, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &holding, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

/* Released, one of them could still end the process with another status: they stay parked until it is dead. */
static void let_go_of_others(void) { __atomic_store_n(&held_until_ms, now_ms() + LINGER_MS, __ATOMIC_SEQ_CST); }

#else
static thread_act_array_t others;
static mach_msg_type_number_t others_count;

static void wait_released(void) {
    uint64_t until = now_ms() + PARKED_MOST_MS;
    while (__atomic_load_n(&holding, __ATOMIC_SEQ_CST) && now_ms() < until)
        pause_ms(5);
}

static void park_others(pid_t self) {
    (void)self;
    mach_port_t own = mach_thread_self();
    record.threads = record.parked = 0;
    if (task_threads(mach_task_self(), &others, &others_count) != KERN_SUCCESS)
        others_count = 0;
    for (mach_msg_type_number_t i = 0; i < others_count; i++) {
        record.threads += others[i] != own;
        if (others[i] == own || thread_suspend(others[i]) != KERN_SUCCESS) {
            mach_port_deallocate(mach_task_self(), others[i]);
            others[i] = MACH_PORT_NULL;
        }
        record.parked += others[i] != MACH_PORT_NULL;
    }
    mach_port_deallocate(mach_task_self(), own);
}

static void let_go_of_others(void) {
    for (mach_msg_type_number_t i = 0; i < others_count; i++)
        if (others[i] != MACH_PORT_NULL) {
            thread_resume(others[i]);
            mach_port_deallocate(mach_task_self(), others[i]);
        }
    if (others_count > 0)
        vm_deallocate(mach_task_self(), (vm_address_t)others, others_count * sizeof *others);
    others_count = 0;
    __atomic_store_n(&holding, 0, __ATOMIC_SEQ_CST);
}
#endif

/* --- talking to the supervisor ------------------------------------------------------------------------------------ */

static int connect_until(const struct sockaddr_un *to, uint64_t until) {
    int fd = open_socket();
    while (fd >= 0 && connect_socket(fd, to) != 0) {
        if (errno != EAGAIN || now_ms() >= until) { /* EAGAIN: its queue is full (Linux; macOS refuses) */
            close_socket(fd);
            return -1;
        }
        pause_ms(5);
    }
    if (fd >= 0 && !is_own_user(fd)) {
        close_socket(fd);
        return -1;
    }
    return fd;
}

static int wait_until(int fd, short events, uint64_t until) {
    for (uint64_t now = now_ms(); now < until; now = now_ms()) {
        struct pollfd wanted = {.fd = fd, .events = events};
        if (poll_one(&wanted, until - now) > 0)
            return wanted.revents & events;
    }
    return 0;
}

static int send_record(int fd, const struct harness_crash *crash, uint64_t until) {
    const char *data = (const char *)crash;
    for (size_t sent = 0; sent < sizeof *crash;) {
        long part = send_part(fd, data + sent, sizeof *crash - sent);
        if (part > 0)
            sent += (size_t)part;
        else if (errno != EAGAIN || !wait_until(fd, POLLOUT, until))
            return 0;
    }
    return 1;
}

void harness_tell_and_wait(const struct sockaddr_un *supervisor, const struct harness_crash *crash) {
    uint64_t until = now_ms() + DEADLINE_MS;
    int fd = connect_until(supervisor, until);
    if (fd < 0)
        return;
    allow_tracing_by(fd);
    if (send_record(fd, crash, until))
        wait_until(fd, POLLIN | POLLHUP, until);
    close_socket(fd);
}

#ifdef __linux__
void harness_tell(const struct sockaddr_un *supervisor, const void *message, size_t length) {
    int fd = connect_until(supervisor, 0);
    if (fd < 0)
        return;
    send_part(fd, message, length);
    close_socket(fd);
}
#endif

/* --- one crash ---------------------------------------------------------------------------------------------------- */

static void fill_record(int signo, const siginfo_t *info, ucontext_t *context, int flags) {
    record.abi = HARNESS_ABI;
    record.size = sizeof record;
    record.pid = harness_link.pid;
    record.tid = own_tid();
    record.time_ns = monotonic_ns();
    record.signo = signo;
    record.code = code_of(info);
    record.address = (uint64_t)info->si_addr;
    record.sender = record.code <= 0 ? info->si_pid : 0;
    record.flags = flags;
    record.pc = *pc_of(context);
    record.sp = *sp_of(context);
    record.fp = fp_of(context);
    for (int i = 0; i < FATAL_COUNT; i++)
        record.bypassed |= harness_link.table[i].bypassed << i;
    record.machine = MACHINE;
    copy_registers(context, record.registers);
    copy_frames(&record, own_memory());
    copy_pointed_memory(&record, own_memory());
}

/* A jump to nowhere has no frame to start from: shown as its caller's while the supervisor looks. */
static int show_caller(int signo, const siginfo_t *info, ucontext_t *context) {
    uint64_t return_address;
    if ((signo != SIGSEGV && signo != SIGBUS) || (uint64_t)info->si_addr != *pc_of(context))
        return 0;
#ifdef __x86_64__
    if (!read_memory(own_memory(), *sp_of(context), &return_address, sizeof return_address))
        return 0;
    *sp_of(context) += 8;
#else
    return_address = lr_of(context);
#endif
    *pc_of(context) = return_address;
    return 1;
}

/* 0: another thread came first; what it started ends this one as well. */
static int look(int signo, const siginfo_t *info, ucontext_t *context, int flags) {
    int nobody = 0;
    if (!__atomic_compare_exchange_n(&holding, &nobody, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        wait_released();
        return 0;
    }
    uint64_t pc = *pc_of(context), sp = *sp_of(context);
    park_others(own_tid());
    fill_record(signo, info, context, flags);
    int repaired = show_caller(signo, info, context);
    harness_tell_and_wait(&harness_link.address, &record);
    if (repaired) {
        *pc_of(context) = pc;
        *sp_of(context) = sp;
    }
    return 1;
}

#ifdef __linux__
void harness_set_blocked(void *given, int signo, int blocked) {
    ucontext_t *context = given;
    uint64_t mask, bit = 1ull << (signo - 1);
    memcpy(&mask, &context->uc_sigmask, sizeof mask); /* the kernel's 8 bytes, whatever the type says */
    mask = blocked ? mask | bit : mask & ~bit;
    memcpy(&context->uc_sigmask, &mask, sizeof mask);
}

static void on_its_own_terms(int signo, siginfo_t *info, void *context);

static int is_ours(const struct sigaction *action) {
    return action->sa_sigaction == harness_on_fatal || action->sa_sigaction == on_its_own_terms;
}
#else
static int is_ours(const struct sigaction *action) { return action->sa_sigaction == harness_on_fatal; }
#endif

#ifdef __linux__
/* --- a reporter that faults itself -------------------------------------------------------------------------------- */

/* faulthandler of 3.14 and later walks the C stack too, and faults where that is damaged ("stack smashing detected").
 * Where nobody but harness asked for it, the process dies of what it was dying of.
 */
static siginfo_t first_info;

static void on_fault_of_reporter(int signo, siginfo_t *info, void *context) {
    struct sigaction plain = {.sa_handler = SIG_DFL};
    (void)info;
    harness_link.sigaction(signo, &plain, NULL);
    harness_link.sigaction(first_info.si_signo, &plain, NULL);
    harness_set_blocked(context, first_info.si_signo, 0);
    harness_send_self(first_info.si_signo, &first_info);
}

static int read_image_name(uint64_t address, char name[NAME_BYTES]);

static int is_faulthandler(const struct sigaction *action) {
    char name[NAME_BYTES];
    return (action->sa_flags & SA_NODEFER) != 0 && action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN &&
           read_image_name((uint64_t)action->sa_sigaction, name) &&
           (starts_with(name, "python") || starts_with(name, "libpython") || starts_with(name, "faulthandler"));
}

/* Only what a damaged stack can bring about, and only instead of faulthandler's own. */
static void outlive_reporter(int signo, const siginfo_t *info) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    struct sigaction now, ours = {.sa_sigaction = on_fault_of_reporter, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    memset(&ours.sa_mask, 0xff, sizeof ours.sa_mask);
    if (!harness_link.asked_for_reporter || harness_link.sigaction(signo, NULL, &now) != 0 || !is_faulthandler(&now))
        return;
    first_info = *info;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (faults[i] != signo && harness_link.sigaction(faults[i], NULL, &now) == 0 && is_faulthandler(&now))
            harness_link.sigaction(faults[i], &ours, NULL);
}
#endif

static void die_as_before(int signo, siginfo_t *info, void *context) {
    harness_link.active = 0;
    for (int i = 0; i < FATAL_COUNT; i++) {
        const struct remembered *entry = &harness_link.table[i];
        struct sigaction now;
        if (harness_link.sigaction(harness_fatal_signals[i], NULL, &now) == 0 && is_ours(&now))
            harness_link.sigaction(harness_fatal_signals[i], &entry->slots[entry->current], NULL);
    }
#ifdef __linux__
    outlive_reporter(signo, info);
    harness_stop_telling();
    harness_set_blocked(context, signo, 0);
#else
    (void)context;
#endif
    let_go_of_others();
    send_self(signo, info);
}

#ifdef __linux__
/* --- a handler that may recover ----------------------------------------------------------------------------------- */

/* What a thread remembers of a fault while a handler that may recover deals with it. */
struct stash {
    siginfo_t info;
    uint64_t pc, sp, frame;
    uint64_t registers[HARNESS_REGISTERS];
    int repeated;
    uint64_t repeated_pc, repeated_address;
};

static __thread struct stash stash __attribute__((tls_model("initial-exec")));

static int is_on_alternate_stack(void) {
    stack_t now;
    return sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_ONSTACK);
}

void harness_set_mask(const void *given, const struct sigaction *action, int signo) {
    const ucontext_t *context = given;
    uint64_t mask, more;
    memcpy(&mask, &context->uc_sigmask, sizeof mask);
    memcpy(&more, &action->sa_mask, sizeof more);
    mask &= ~(1ull << (signo - 1)); /* else it would not have come; sigsuspend and ppoll have masks of their own */
    mask |= more | (action->sa_flags & SA_NODEFER ? 0 : 1ull << (signo - 1));
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, (long)KERNEL_SIGSET_BYTES);
}

/* Whatever comes next is another story, unless it is the same fault: a handler that changes the pc has recovered. */
static void returned(ucontext_t *context) {
    stash.frame = 0;
    stash.repeated = *pc_of(context) == stash.pc ? stash.repeated + 1 : 0;
}

/* Runs on the stack, with the mask and the flags that the handler asked the kernel for. */
static void on_its_own_terms(int signo, siginfo_t *info, void *context) {
    struct remembered *entry = &harness_link.table[harness_fatal_index(signo)];
    struct sigaction theirs = entry->slots[entry->current], ours;
    harness_our_action(&ours, &theirs);
    if (harness_link.active)
        harness_link.sigaction(signo, &ours, NULL);
    if (theirs.sa_handler == SIG_DFL || theirs.sa_handler == SIG_IGN) { /* another thread changed it meanwhile */
        send_self(signo, info);
        return;
    }
    if (theirs.sa_flags & SA_RESETHAND)
        entry->slots[entry->current].sa_handler = SIG_DFL;
    stash.frame = (uint64_t)__builtin_frame_address(0);
    theirs.sa_sigaction(signo, info, context); /* three arguments in any case, as the kernel does */
    returned(context);
}

/* A handler without SA_ONSTACK must not run on the alternate stack we are on: let the kernel deliver it again. */
static void deliver_again(const struct sigaction *action, int signo, siginfo_t *info) {
    struct sigaction theirs = *action;
    theirs.sa_sigaction = on_its_own_terms;
    theirs.sa_flags = (theirs.sa_flags & ~SA_RESETHAND) | SA_SIGINFO;
    harness_link.sigaction(signo, &theirs, NULL);
    send_self(signo, info);
}

/* Bare, the kernel could not start a handler on a stack that is full, and would end the process. */
static int has_no_room(const struct sigaction *action, int signo, const siginfo_t *info, ucontext_t *context) {
    uint64_t above = (uint64_t)info->si_addr - (*sp_of(context) - OVERFLOW_BYTES);
    return signo == SIGSEGV && info->si_code > 0 && above < OVERFLOW_BYTES + 4096 && !(action->sa_flags & SA_ONSTACK) &&
           is_on_alternate_stack();
}

static void let_it_try(struct remembered *entry, int signo, siginfo_t *info, ucontext_t *context) {
    struct sigaction action = entry->slots[entry->current];
    stash.info = *info;
    stash.pc = *pc_of(context);
    stash.sp = *sp_of(context);
    copy_registers(context, stash.registers);
    stash.frame = (uint64_t)__builtin_frame_address(0);
    if (!(action.sa_flags & SA_ONSTACK) && is_on_alternate_stack()) {
        deliver_again(&action, signo, info);
        return;
    }
    if (action.sa_flags & SA_RESETHAND)
        entry->slots[entry->current].sa_handler = SIG_DFL;
    harness_set_mask(context, &action, signo);
    action.sa_sigaction(signo, info, context);
    returned(context);
}

/* The same fault again and again: the handler returns and nothing changes. */
static int is_loop(const siginfo_t *info, ucontext_t *context) {
    uint64_t pc = *pc_of(context), address = (uint64_t)info->si_addr;
    if (info->si_code <= 0)
        return 0;
    if (stash.repeated_pc != pc || stash.repeated_address != address)
        stash.repeated = 0;
    stash.repeated_pc = pc;
    stash.repeated_address = address;
    return stash.repeated == LOOP_LIMIT;
}

/* raise() from within a handler that gave up: the fault it was called for is the story. Where the signal was blocked
 * it arrives after the handler's return, before anything else has run.
 */
static int is_giving_up(int signo, const siginfo_t *info, ucontext_t *context) {
    uint64_t pc = *pc_of(context), sp = *sp_of(context);
    int inside = stash.frame != 0 && sp < stash.frame && stash.frame - sp < NEAR_BYTES;
    return info->si_code <= 0 && info->si_pid == harness_link.pid && stash.info.si_signo == signo &&
           (inside || (pc == stash.pc && sp == stash.sp));
}

/* The file name of the image that holds an address; dladdr would take the dynamic linker's lock. */
static __attribute__((noinline)) int read_image_name(uint64_t address, char name[NAME_BYTES]) {
    char chunk[512];
    uint64_t bounds[2] = {0, 0};
    int field = 0, length = 0, found = 0; /* field: begin, end, all the rest */
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY, 0);
    for (long got; fd >= 0 && !found && (got = syscall(SYS_read, fd, chunk, sizeof chunk)) > 0;)
        for (long i = 0; i < got && !found; i++) {
            char c = chunk[i];
            if (c == '\n') {
                name[length] = '\0';
                found = bounds[0] <= address && address < bounds[1];
                bounds[0] = bounds[1] = 0;
                field = length = 0;
            } else if (field < 2 && (c == '-' || c == ' ')) {
                field++;
            } else if (field < 2) {
                bounds[field] = bounds[field] * 16 + (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
            } else if (c == '/') {
                length = 0;
            } else if (length < NAME_BYTES - 1) {
                name[length++] = c;
            }
        }
    if (fd >= 0)
        syscall(SYS_close, fd);
    return found;
}

static int is_reporter(const struct sigaction *action) {
    char name[NAME_BYTES];
    return read_image_name((uint64_t)action->sa_sigaction, name) && is_reporter_image(name, action->sa_flags);
}

/* Asked once per action, when it first matters. */
static int may_recover(struct remembered *entry) {
    int current = __atomic_load_n(&entry->current, __ATOMIC_SEQ_CST);
    if (entry->slots[current].sa_handler == SIG_DFL)
        return 0;
    if (entry->reporters[current] == -1)
        entry->reporters[current] = is_reporter(&entry->slots[current]);
    return !entry->reporters[current];
}

static __attribute__((noinline)) int is_traced(void) {
    char status[512], *found;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY, 0);
    long got = fd < 0 ? 0 : syscall(SYS_read, fd, status, sizeof status - 1);
    if (fd >= 0)
        syscall(SYS_close, fd);
    status[got > 0 ? got : 0] = '\0';
    found = strstr(status, "TracerPid:\t");
    return found != NULL && found[11] != '0';
}

static void look_and_die(int signo, siginfo_t *info, ucontext_t *context, int flags) {
    if (is_giving_up(signo, info, context)) {
        exchange_registers(context, stash.registers);
        look(signo, &stash.info, context, flags | HARNESS_GAVE_UP);
        exchange_registers(context, stash.registers);
    } else {
        look(signo, info, context, flags);
    }
    die_as_before(signo, info, context);
}

void harness_on_fatal(int signo, siginfo_t *info, void *context) {
    int saved = errno;
    struct remembered *entry = &harness_link.table[harness_fatal_index(signo)];
    if ((signo != SIGSYS || entry->slots[entry->current].sa_handler != SIG_DFL) && harness_is_filtered()) {
        harness_step_aside(entry, signo, info, context);
        errno = saved;
        return;
    }
    const struct sigaction *action = &entry->slots[entry->current];
    int recovers = may_recover(entry);
    if (own_pid() != harness_link.pid) { /* a vfork child: the table is its parent's, as its actions are */
        struct sigaction inherited = *action;
        harness_link.sigaction(signo, &inherited, NULL);
        send_self(signo, info);
    } else if (recovers && (is_loop(info, context) || has_no_room(action, signo, info, context))) {
        if (look(signo, info, context, stash.repeated == LOOP_LIMIT ? HARNESS_LOOP : 0))
            release_others(); /* it may yet recover, and crash another time */
        let_it_try(entry, signo, info, context);
    } else if (recovers) {
        let_it_try(entry, signo, info, context);
    } else if (signo == SIGTRAP && is_traced()) { /* a debugger's breakpoint is none of our business */
        die_as_before(signo, info, context);
    } else {
        look_and_die(signo, info, context, 0);
    }
    errno = saved;
}

#else
/* --- without handlers that may recover -----------------------------------------------------------------------------
 */

static __attribute__((noinline)) int is_traced(void) {
    struct kinfo_proc info = {.kp_proc.p_flag = 0};
    int name[] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, getpid()};
    size_t length = sizeof info;
    return sysctl(name, 4, &info, &length, NULL, 0) == 0 && (info.kp_proc.p_flag & P_TRACED);
}

void harness_on_fatal(int signo, siginfo_t *info, void *context) {
    int saved = errno;
    if (own_pid() == harness_link.pid && !(signo == SIGTRAP && is_traced()))
        look(signo, info, context, 0);
    die_as_before(signo, info, context);
    errno = saved;
}
#endif

#endif
