/* Programs of other people that live with signal handlers. None of them knows that anybody stands before it.
 *
 * The functions return what Python is to print; what a handler itself says goes straight to descriptor 1. */

#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define API __attribute__((noinline, visibility("default")))
#define PAGE 4096

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0)
        _exit(99);
}

API long read_word(const volatile long *address) { return *address + 1; }

static int set_handler(int signo, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};

    return sigaction(signo, &action, NULL);
}

/* "default", "ignored" or "handler", then the flags and how many signals are in the mask. */
API int describe(int signo, char *text, size_t size) {
    struct sigaction action;
    int masked = 0;

    if (sigaction(signo, NULL, &action) != 0)
        return -1;
    for (int other = 1; other < 32; other++)
        masked += sigismember(&action.sa_mask, other) == 1;
    /* 0x04000000 is SA_RESTORER, which belongs to libc. */
    return snprintf(text, size, "%s flags=%#x masked=%d",
                    action.sa_handler == SIG_DFL   ? "default"
                    : action.sa_handler == SIG_IGN ? "ignored"
                                                   : "handler",
                    (unsigned)action.sa_flags & ~0x04000000u, masked);
}

/* Recovery by siglongjmp. */

static __thread sigjmp_buf comeback;
static __thread volatile long recovered;

static void jump_back(int signo, siginfo_t *info, void *context) {
    (void)info, (void)context;
    siglongjmp(comeback, signo);
}

API int install_jump_back(int signo, int flags) { return set_handler(signo, jump_back, flags); }

/* The same instruction faults at the same address on the same thread, again and again. */
API long recover_many(const long *address, long times, int save_mask) {
    recovered = 0;
    for (volatile long i = 0; i < times; i++) {
        if (sigsetjmp(comeback, save_mask) == 0)
            read_word(address);
        else
            recovered++;
    }
    return recovered;
}

/* The kernel's own interface: no libc function sees it. */

struct kernel_action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

#if defined(__x86_64__)
#define KERNEL_RESTORER 0x04000000
void return_from_signal(void);
__asm__(".text\n.type return_from_signal, @function\nreturn_from_signal: mov $15, %eax\n syscall\n");
#else
#define KERNEL_RESTORER 0
#define return_from_signal NULL
#endif

API long install_jump_back_by_syscall(int signo) {
    struct kernel_action action = {jump_back, SA_SIGINFO | SA_NODEFER | KERNEL_RESTORER, return_from_signal, 0};

    return syscall(SYS_rt_sigaction, signo, &action, NULL, sizeof action.mask);
}

/* A page that the handler makes accessible: returning from the handler goes on with the program. */

static char *page;
static volatile long opened;

static void open_page(int signo, siginfo_t *info, void *context) {
    (void)signo, (void)context;
    opened += info->si_addr == page && mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0;
}

__attribute__((noinline)) static void open_page_with_big_frame(int signo, siginfo_t *info, void *context) {
    volatile char scratch[200 * 1024];

    for (size_t i = 0; i < sizeof scratch; i += 512)
        scratch[i] = (char)i;
    open_page(signo, info, context);
}

API long touch_closed_page(int big, long times) {
    opened = 0;
    page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (set_handler(SIGSEGV, big ? open_page_with_big_frame : open_page, 0) != 0)
        return -1;
    for (long i = 0; i < times; i++) {
        mprotect(page, PAGE, PROT_NONE);
        read_word((long *)page);
    }
    return opened;
}

/* Handlers that give up, each in its own way. */

static struct sigaction previous;

static void restore_default(int signo) {
    struct sigaction action = {.sa_handler = SIG_DFL};

    sigaction(signo, &action, NULL);
}

static void give_up_by_returning(int signo, siginfo_t *info, void *context) {
    (void)info, (void)context;
    say("handler: default restored, returning\n");
    restore_default(signo);
}

static void give_up_by_raising(int signo, siginfo_t *info, void *context) {
    (void)info, (void)context;
    say("handler: default restored, raising\n");
    restore_default(signo);
    raise(signo);
}

static void give_up_to_previous(int signo, siginfo_t *info, void *context) {
    (void)info, (void)context;
    say("handler: previous one restored, returning\n");
    sigaction(signo, &previous, NULL);
}

static void give_up_by_exiting(int signo, siginfo_t *info, void *context) {
    (void)signo, (void)info, (void)context;
    say("handler: leaving with 42\n");
    _exit(42);
}

static void fault_again(int signo, siginfo_t *info, void *context) {
    (void)signo, (void)info, (void)context;
    say("handler: faulting\n");
    read_word(NULL);
}

static void run_into_undefined(int signo, siginfo_t *info, void *context) {
    (void)signo, (void)info, (void)context;
#if defined(__x86_64__)
    __asm__ volatile("ud2");
#elif defined(__aarch64__)
    __asm__ volatile("udf #0");
#endif
}

static volatile int child_status;

static void fork_and_jump_back(int signo, siginfo_t *info, void *context) {
    pid_t child = fork();
    int status = -1;

    if (child == 0)
        _exit(7);
    waitpid(child, &status, 0);
    child_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    jump_back(signo, info, context);
}

API int get_child_status(void) { return child_status; }

API int install(int signo, const char *name, int flags) {
    static const struct {
        const char *name;
        void (*handler)(int, siginfo_t *, void *);
    } known[] = {
        {"give_up_by_returning", give_up_by_returning},
        {"give_up_by_raising", give_up_by_raising},
        {"give_up_to_previous", give_up_to_previous},
        {"give_up_by_exiting", give_up_by_exiting},
        {"fault_again", fault_again},
        {"run_into_undefined", run_into_undefined},
        {"fork_and_jump_back", fork_and_jump_back},
    };

    sigaction(signo, NULL, &previous);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0)
            return set_handler(signo, known[i].handler, flags);
    return -1;
}

/* An alternate stack of the program's own, about as small as the kernel allows. */

static stack_t small;
static volatile int on_small_stack;

static void note_stack_and_jump_back(int signo, siginfo_t *info, void *context) {
    char here;

    on_small_stack += &here >= (char *)small.ss_sp && &here < (char *)small.ss_sp + small.ss_size;
    jump_back(signo, info, context);
}

API int recover_on_small_stack(long times) {
    long minimum = sysconf(_SC_MINSIGSTKSZ);
    stack_t before;

    small.ss_size = minimum > 4096 ? (size_t)minimum + 4096 : 8192;
    small.ss_sp = malloc(small.ss_size);
    on_small_stack = 0;
    if (sigaltstack(&small, &before) != 0)
        return -1;
    if (set_handler(SIGSEGV, note_stack_and_jump_back, SA_ONSTACK) != 0 || recover_many(NULL, times, 1) != times)
        return -1;
    sigaltstack(&before, NULL);
    return on_small_stack;
}

/* Threads. */

static void *fault_in_thread(void *address) { return (void *)read_word(address); }

API int start_faulting_thread(void) {
    pthread_t thread;

    return pthread_create(&thread, NULL, fault_in_thread, NULL);
}

static pthread_barrier_t both_ready;

static void *fault_on_hole(void *hole) {
    pthread_barrier_wait(&both_ready);
    return (void *)read_word(hole);
}

static void *fill_hole_later(void *hole) {
    pthread_barrier_wait(&both_ready);
    usleep(50 * 1000);
    return mmap(hole, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

API int fault_while_sibling_heals(void) {
    char *around = mmap(NULL, 3 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t threads[2];

    munmap(around + PAGE, PAGE);
    pthread_barrier_init(&both_ready, NULL, 2);
    if (pthread_create(&threads[0], NULL, fill_hole_later, around + PAGE) != 0 ||
        pthread_create(&threads[1], NULL, fault_on_hole, around + PAGE) != 0)
        return -1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

/* A child that shares our memory and sets its signals as it likes before exec, as every launcher does. */

API int run_vfork_child_with_default_signals(void) {
    static char *const argv[] = {"true", NULL};
    static char *const environment[] = {NULL};
    int status = -1;
    pid_t child = vfork();

    if (child == 0) {
        for (int signo = 1; signo < 32; signo++)
            signal(signo, SIG_DFL);
        execve("/bin/true", argv, environment);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return status;
}

/* signal(3) and its relatives differ in flags; each returns what was there before. Some are deprecated: that they are
 * called all the same is the point. */

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static void do_nothing(int signo) { (void)signo; }

API int walk_signal_family(char *text, size_t size) {
    static const struct {
        const char *name;
        sighandler_t (*set)(int, sighandler_t);
    } family[] = {{"signal", signal}, {"ssignal", ssignal}, {"sysv_signal", sysv_signal}, {"sigset", sigset}};
    size_t used = 0;

    for (size_t i = 0; i < sizeof family / sizeof family[0]; i++) {
        signal(SIGFPE, SIG_DFL);
        int was_default = family[i].set(SIGFPE, do_nothing) == SIG_DFL;
        used += (size_t)snprintf(text + used, size - used, "%s %d ", family[i].name, was_default);
        used += (size_t)describe(SIGFPE, text + used, size - used);
        int was_ours = family[i].set(SIGFPE, SIG_IGN) == do_nothing;
        used += (size_t)snprintf(text + used, size - used, ", %d ", was_ours);
        used += (size_t)describe(SIGFPE, text + used, size - used);
        used += (size_t)snprintf(text + used, size - used, "\n");
    }
    return (int)used;
}

API int change_interruption(int signo, int interrupts) { return siginterrupt(signo, interrupts); }

API int ignore_signal(int signo) { return sigignore(signo); }
