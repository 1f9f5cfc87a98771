/* The crash link of macOS, from outside: the supervisor's children carry a Mach exception port that is served here.
 *
 * Compiled in the tests, never run. What it relies on was read in xnu-11417 (macOS 15); the files are named.
 *
 * How children get the port: a task inherits its parent's exception ports at fork, spawn and exec, through any number
 * of programs, unless one is setuid (ipc_tt.c: ipc_task_init, ipc_task_reset). So the supervisor wears the port while
 * it spawns the command and takes it off again. Rejected: posix_spawnattr_setexceptionports_np. For a program of the
 * system, /bin/sh for one, the kernel refuses by killing the process that asked (ipc_tt.c: exception_is_identity_
 * protected, set_exception_behavior_violation; the guard is a fatal one since macOS 14.4). A harness that runs in a
 * Python of the system would be killed for wearing one, therefore it does not; insertion and shim remain (interpose.c).
 *
 * Order of events:
 *   1. A fault arrives first, before any handler. It may be recovered from (a JVM, wasmtime), so nothing is held: the
 *      registers and frames are copied, the latest fault of each thread is remembered, and the answer is "not handled".
 *      The kernel goes on to its own handler, which turns the fault into the signal (ux_exception.c).
 *   2. EXC_CRASH arrives when the signal has become death, whatever handlers did before: every other thread is held by
 *      the kernel (kern_sig.c: sig_lock_to_exit), the memory is whole, nobody can heal or outrun it, and no
 *      task_suspend is needed, for which the port of a dying task may not suffice (exception.c, developer mode).
 *   3. The record is the remembered fault of that thread if it had one with this signal, else what it does now (abort).
 *      It goes to the supervisor's socket as a dying process on Linux would send it, with the same deadline, from a
 *      thread of its own, so that the faults of others do not wait. Then the answer is "not handled" again: the crash
 *      reporter gets its turn and the status is the same.
 *
 * Limits: who sent a signal is not told. A thread that recovered from a fault and later dies of the same signal, sent
 * by somebody, is shown with that fault. A program that sets an EXC_CRASH port of its own (Crashpad inside) takes ours
 * away, for itself and all below it, and its crashes are not told. HARNESS_GAVE_UP is never set: on Linux it excludes
 * the reporters (faulthandler, which raises too), and from outside nobody knows whose handler gave up. While the
 * supervisor is stopped, a process that faults waits for it, and one that dies cannot be killed meanwhile; when the
 * supervisor dies the port dies, and the kernel goes on without it.
 */
#include "harness.h"

#include <errno.h>

#if defined(__APPLE__)

#include "link.h"
#include "record.h"

#include <libproc.h>
#include <mach/mig_errors.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FAULTS = EXC_MASK_BAD_ACCESS | EXC_MASK_BAD_INSTRUCTION | EXC_MASK_ARITHMETIC | EXC_MASK_BREAKPOINT,
    RAISE_ID = 2405, /* mach_exc.defs: mach_exception_raise */
    REMEMBERED = 64,
    CS_OPS_STATUS = 0, /* bsd/sys/codesign.h, which no SDK has */
    CS_PLATFORM_BINARY = 0x04000000,
    GENERAL_PROTECTION = 13, /* EXC_I386_GPFLT: x86 gives no address */
    LINUX_FPE_INTDIV = 1,
    LINUX_FPE_FLTUNK = 14,
};

extern int csops(pid_t pid, unsigned int operation, void *to, size_t length);

#pragma pack(push, 4)
struct request { /* what mig makes of mach_exception_raise */
    mach_msg_header_t head;
    mach_msg_body_t body;
    mach_msg_port_descriptor_t thread, task;
    NDR_record_t representation;
    exception_type_t exception;
    mach_msg_type_number_t code_count;
    int64_t codes[2];
};
#pragma pack(pop)
_Static_assert(sizeof(struct request) == 84, "mig packs to 4 bytes");

struct message {
    struct request request;
    mach_msg_max_trailer_t trailer;
};

struct death {
    mach_msg_header_t head;
    struct harness_crash record;
    struct sockaddr_un supervisor;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the next two: the serving thread uses them as well */
static mach_port_t port;
static struct sockaddr_un supervisor;
static int begun;
static struct harness_crash faults[REMEMBERED]; /* of the serving thread */
static int next_fault;

static exception_mask_t own_masks[EXC_TYPES_COUNT];
static mach_port_t own_ports[EXC_TYPES_COUNT];
static exception_behavior_t own_behaviors[EXC_TYPES_COUNT];
static thread_state_flavor_t own_flavors[EXC_TYPES_COUNT];
static mach_msg_type_number_t own_count;

/* --- one exception ------------------------------------------------------------------------------------------------ */

/* As ux_exception and machine_exception translate it. */
static int signal_of(exception_type_t exception, int64_t code) {
    switch (exception) {
    case EXC_BAD_ACCESS:
        return code == KERN_INVALID_ADDRESS || (MACHINE == HARNESS_X86_64 && code == GENERAL_PROTECTION) ? SIGSEGV
                                                                                                         : SIGBUS;
    case EXC_BAD_INSTRUCTION:
        return SIGILL;
    case EXC_ARITHMETIC:
        return SIGFPE;
    default:
        return SIGTRAP;
    }
}

/* In Linux's numbers, which the reader knows. They are macOS's as well, but for SIGFPE and a missing address. What
 * Linux calls SIGSEGV, SEGV_ACCERR is a SIGBUS here: it has a number of ours, because 2 is BUS_ADRERR there, a file
 * that ends.
 */
static int code_of(exception_type_t exception, int64_t code) {
    if (exception == EXC_ARITHMETIC)
        return MACHINE == HARNESS_X86_64 && code == 1 /* EXC_I386_DIV */ ? LINUX_FPE_INTDIV : LINUX_FPE_FLTUNK;
    if (exception == EXC_BAD_INSTRUCTION)
        return ILL_ILLOPC;
    if (exception == EXC_BREAKPOINT)
        return TRAP_BRKPT;
    if (MACHINE == HARNESS_X86_64 && code == GENERAL_PROTECTION)
        return LINUX_SI_KERNEL;
    if (code == KERN_INVALID_ADDRESS)
        return SEGV_MAPERR;
    if (code == KERN_PROTECTION_FAILURE)
        return HARNESS_REFUSED;
    return code == KERN_MEMORY_ERROR ? BUS_ADRERR : BUS_ADRALN;
}

static void copy_thread(struct harness_crash *record, mach_port_t thread, mach_port_t task) {
    machine_state state;
    mach_msg_type_number_t count = STATE_COUNT;
    if (thread_get_state(thread, STATE_FLAVOR, (thread_state_t)&state, &count) != KERN_SUCCESS)
        return; /* another processor's, under Rosetta */
    record->pc = plain_address(*state_pc(&state));
    record->sp = *state_sp(&state);
    record->fp = state_fp(&state);
    copy_state(&state, record->registers);
    copy_frames(record, task);
    copy_pointed_memory(record, task);
}

static void describe(struct harness_crash *record, const struct request *request) {
    thread_identifier_info_data_t identity = {0};
    mach_msg_type_number_t count = THREAD_IDENTIFIER_INFO_COUNT;
    struct proc_taskinfo task;
    memset(record, 0, sizeof *record);
    record->abi = HARNESS_ABI;
    record->size = sizeof *record;
    record->machine = MACHINE;
    record->time_ns = monotonic_ns();
    if (pid_for_task(request->task.name, &record->pid) != KERN_SUCCESS)
        record->pid = 0;
    if (thread_info(request->thread.name, THREAD_IDENTIFIER_INFO, (thread_info_t)&identity, &count) == KERN_SUCCESS)
        record->tid = (int32_t)identity.thread_id;
    copy_thread(record, request->thread.name, request->task.name);
    if (request->exception == EXC_CRASH) {
        record->signo = (int32_t)(request->codes[0] >> 24 & 0xff); /* kern_exit.c: proc_prepareexit */
        if (proc_pidinfo(record->pid, PROC_PIDTASKINFO, 0, &task, sizeof task) == sizeof task)
            record->threads = record->parked = task.pti_threadnum - 1; /* the kernel holds them all */
        return;
    }
    record->signo = signal_of(request->exception, request->codes[0]);
    record->code = code_of(request->exception, request->codes[0]);
    if (request->exception != EXC_BAD_ACCESS)
        record->address = record->pc;
    else if (record->code != LINUX_SI_KERNEL)
        record->address = (uint64_t)request->codes[1];
}

static struct harness_crash *find_fault(int32_t pid, int32_t tid) {
    for (int i = 0; i < REMEMBERED; i++)
        if (faults[i].pid == pid && faults[i].tid == tid)
            return &faults[i];
    return NULL;
}

static void remember(const struct harness_crash *fault) {
    struct harness_crash *entry = find_fault(fault->pid, fault->tid);
    if (entry == NULL) {
        entry = &faults[next_fault];
        next_fault = (next_fault + 1) % REMEMBERED;
    }
    *entry = *fault;
}

/* The fault is the story, if this thread dies of it. An overflow of the main stack faults as SIGBUS and is made a
 * SIGSEGV later (ux_exception.c: handle_ux_exception).
 */
static void recall(struct harness_crash *record) {
    struct harness_crash *fault = find_fault(record->pid, record->tid), now = *record;
    if (fault == NULL)
        return;
    int renamed = fault->signo == SIGBUS && fault->code == HARNESS_REFUSED && now.signo == SIGSEGV;
    if (fault->signo == now.signo || renamed) {
        *record = *fault;
        record->signo = now.signo;
        record->time_ns = now.time_ns;
        record->threads = record->parked = now.threads;
        if (renamed)
            record->code = SEGV_ACCERR;
    }
    memset(fault, 0, sizeof *fault); /* the pid may come again */
}

/* --- the port ----------------------------------------------------------------------------------------------------- */

static void answer_not_handled(const mach_msg_header_t *to) {
    mig_reply_error_t answer = {.NDR = NDR_record, .RetCode = KERN_FAILURE};
    answer.Head.msgh_bits = MACH_MSGH_BITS(MACH_MSGH_BITS_REMOTE(to->msgh_bits), 0);
    answer.Head.msgh_size = sizeof answer;
    answer.Head.msgh_remote_port = to->msgh_remote_port;
    answer.Head.msgh_id = to->msgh_id + 100;
    if (mach_msg(&answer.Head, MACH_SEND_MSG, sizeof answer, 0, MACH_PORT_NULL, MACH_MSG_TIMEOUT_NONE,
                 MACH_PORT_NULL) != MACH_MSG_SUCCESS)
        mach_msg_destroy(&answer.Head);
}

static void *tell(void *given) {
    struct death *death = given;
    harness_tell_and_wait(&death->supervisor, &death->record);
    answer_not_handled(&death->head);
    free(death);
    return NULL;
}

/* The serving thread blocks all signals, and so do those it starts: they are for the supervisor's main thread. */
static int start_thread(void *(*routine)(void *), void *argument) {
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, routine, argument);
    return failed ? failed : pthread_detach(thread);
}

static void take_death(const struct request *request, struct harness_crash *record) {
    recall(record);
    struct death *death = harness_fatal_index(record->signo) == -1 ? NULL : malloc(sizeof *death);
    if (death == NULL) { /* SIGQUIT and the like, and kills for a bad signature: not a crash of its own */
        answer_not_handled(&request->head);
        return;
    }
    death->head = request->head;
    death->record = *record;
    pthread_mutex_lock(&lock);
    death->supervisor = supervisor;
    pthread_mutex_unlock(&lock);
    if (start_thread(tell, death) != 0)
        tell(death);
}

static int is_exception(const struct request *request) {
    return request->head.msgh_id == RAISE_ID && request->head.msgh_bits & MACH_MSGH_BITS_COMPLEX &&
           request->head.msgh_size >= sizeof *request && request->body.msgh_descriptor_count == 2 &&
           request->thread.type == MACH_MSG_PORT_DESCRIPTOR && request->task.type == MACH_MSG_PORT_DESCRIPTOR &&
           request->code_count == 2;
}

/* Nobody waits for an answer of a port that is dead: the kernel goes on without it. The next watch opens another. */
static void close_port(void) {
    pthread_mutex_lock(&lock);
    mach_port_mod_refs(mach_task_self(), port, MACH_PORT_RIGHT_RECEIVE, -1);
    port = MACH_PORT_NULL;
    pthread_mutex_unlock(&lock);
}

static void take(const struct request *request) {
    static struct harness_crash record;
    describe(&record, request);
    mach_port_deallocate(mach_task_self(), request->thread.name);
    mach_port_deallocate(mach_task_self(), request->task.name);
    if (request->exception == EXC_CRASH) {
        take_death(request, &record);
    } else {
        remember(&record);
        answer_not_handled(&request->head);
    }
}

/* A message that is too large, or whose rights could not be had, is lost, and with it its sender's wait; the next may
 * be well. Any other error would come again at once.
 */
static void *serve(void *unused) {
    static struct message message;
    (void)unused;
    for (;;) {
        kern_return_t got = mach_msg(&message.request.head, MACH_RCV_MSG, 0, sizeof message, port,
                                     MACH_MSG_TIMEOUT_NONE, MACH_PORT_NULL);
        int kind = got & ~MACH_MSG_MASK;
        if (got == MACH_MSG_SUCCESS && is_exception(&message.request)) {
            take(&message.request);
        } else if (got == MACH_MSG_SUCCESS || kind == MACH_RCV_BODY_ERROR) {
            mach_msg_destroy(&message.request.head);
        } else if (kind != MACH_RCV_TOO_LARGE && kind != MACH_RCV_HEADER_ERROR) {
            close_port();
            return NULL;
        }
    }
}

static int open_port(void) {
    sigset_t all, before;
    if (mach_port_allocate(mach_task_self(), MACH_PORT_RIGHT_RECEIVE, &port) != KERN_SUCCESS)
        return -ENOMEM;
    int failed =
        mach_port_insert_right(mach_task_self(), port, port, MACH_MSG_TYPE_MAKE_SEND) == KERN_SUCCESS ? 0 : ENOMEM;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (!failed)
        failed = start_thread(serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        mach_port_mod_refs(mach_task_self(), port, MACH_PORT_RIGHT_RECEIVE, -1);
        port = MACH_PORT_NULL;
    }
    return -failed;
}

static int is_of_the_system(void) {
    uint32_t flags = 0;
    return csops(getpid(), CS_OPS_STATUS, &flags, sizeof flags) != 0 || flags & CS_PLATFORM_BINARY;
}

static int wear_port(void) {
    own_count = EXC_TYPES_COUNT;
    if (task_swap_exception_ports(mach_task_self(), FAULTS | EXC_MASK_CRASH, port,
                                  (exception_behavior_t)(EXCEPTION_DEFAULT | MACH_EXCEPTION_CODES),
                                  MACHINE_THREAD_STATE, own_masks, &own_count, own_ports, own_behaviors,
                                  own_flavors) == KERN_SUCCESS)
        return 0;
    own_count = 0;
    return -EPERM;
}

/* A second one would take our own port for the one to put back. */
int32_t harness_watch_begin(const char *path) {
    if (begun)
        return -EBUSY;
    if (strlen(path) >= sizeof supervisor.sun_path)
        return -ENAMETOOLONG;
    if (is_of_the_system())
        return -EPERM;
    pthread_mutex_lock(&lock);
    supervisor.sun_family = AF_UNIX;
    strcpy(supervisor.sun_path, path);
    int failed = port == MACH_PORT_NULL ? open_port() : 0;
    if (!failed)
        failed = wear_port();
    pthread_mutex_unlock(&lock);
    begun = !failed;
    return failed;
}

void harness_watch_end(void) {
    for (mach_msg_type_number_t i = 0; i < own_count; i++) {
        task_set_exception_ports(mach_task_self(), own_masks[i], own_ports[i], own_behaviors[i], own_flavors[i]);
        if (MACH_PORT_VALID(own_ports[i]))
            mach_port_deallocate(mach_task_self(), own_ports[i]);
    }
    own_count = 0;
    begun = 0;
}

#else
int32_t harness_watch_begin(const char *path) {
    (void)path;
    return -ENOSYS;
}

void harness_watch_end(void) {}
#endif
