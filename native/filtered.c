/* The crash link, signal context: a fatal signal in a program that has put a seccomp filter on itself.
 *
 * Like crash.c this file holds only what may run in a signal handler. Linux only.
 *
 * Such a program is not looked at: the filter may kill for any system call of ours, and then the process would die of
 * SIGSYS instead of its own signal. We step aside with as few calls as possible; the supervisor reads the core.
 *   A fault with the default action behind us: none. The signal is blocked in the context we return to; the fault
 * happens again, and the kernel ends a process whose fault signal is blocked. (It can heal in between: nothing waits
 * here, so that takes another thread and a microsecond.)
 *   A fault with a handler behind us: it is given to the kernel, and the fault happens again. A system call that was
 * trapped (SECCOMP_RET_TRAP) happens again when the program counter stands on it.
 *   Whatever does not happen again (sent, a breakpoint): sent once more by tgkill, or their handler is called here.
 *
 * How a filter is noticed: PR_GET_SECCOMP, where at the start there was none; where there was one already (containers
 * have one that refuses and does not kill), no_new_privs, without which nobody but root may add another. Filters belong
 * to threads: one without a filter is not looked at either, after one with a filter has given its signal back.
 */
#include "link.h"

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))

#include <errno.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { OF_A_FILTER = 1 /* SYS_SECCOMP */, STACK_FAULT = 12, PROTECTION_FAULT = 13 };

/* A filter may refuse to answer. EINVAL: nobody knows the question (qemu's user mode, a kernel without filters). */
static int is_set(int question) {
    int answer = prctl(question, 0, 0, 0, 0);
    return answer > 0 || (answer < 0 && errno != EINVAL);
}

int harness_is_filtered(void) {
    return (harness_link.unfiltered || (harness_link.had_privileges && is_set(PR_GET_NO_NEW_PRIVS))) &&
           is_set(PR_GET_SECCOMP);
}

#ifdef __x86_64__
static void step_back_to_call(ucontext_t *context) { context->uc_mcontext.gregs[REG_RIP] -= 2; }

/* SI_KERNEL is a general protection fault, or a signal frame that the kernel could not write, which is over. */
static int is_trap(const ucontext_t *context) {
    long long trap = context->uc_mcontext.gregs[REG_TRAPNO];
    return trap == PROTECTION_FAULT || trap == STACK_FAULT;
}
#else
static void step_back_to_call(ucontext_t *context) { context->uc_mcontext.pc -= 4; }

static int is_trap(const ucontext_t *context) {
    (void)context;
    return 0;
}
#endif

static int comes_again(int signo, const siginfo_t *info, const ucontext_t *context) {
    if (info->si_code <= 0 || signo == SIGTRAP || signo == SIGABRT)
        return 0;
    if (signo == SIGSYS)
        return info->si_code == OF_A_FILTER;
    if (signo == SIGBUS && info->si_code == BUS_MCEERR_AO)
        return 0;
    return info->si_code != SI_KERNEL || is_trap(context);
}

static void send_again(int signo, ucontext_t *context) {
    pid_t pid = (pid_t)syscall(SYS_getpid);
    harness_set_blocked(context, signo, 0); /* the mask of sigsuspend and ppoll ends with the call */
    if (syscall(SYS_tgkill, pid, (pid_t)syscall(SYS_gettid), signo) != 0)
        syscall(SYS_kill, pid, signo);
}

void harness_step_aside(struct remembered *entry, int signo, siginfo_t *info, void *given) {
    ucontext_t *context = given;
    struct sigaction theirs = entry->slots[__atomic_load_n(&entry->current, __ATOMIC_SEQ_CST)], after = theirs;
    int again = comes_again(signo, info, context), handled = theirs.sa_handler != SIG_DFL;
    if (again && !handled) {
        harness_set_blocked(context, signo, 1);
        return;
    }
    if (!again && (theirs.sa_flags & SA_RESETHAND))
        after.sa_handler = SIG_DFL;
    int refused = harness_link.sigaction(signo, &after, NULL) != 0;
    if (again && !refused) {
        if (signo == SIGSYS)
            step_back_to_call(context);
    } else if (again && theirs.sa_handler == SIG_IGN) {
        harness_set_blocked(context, signo, 1); /* the kernel does not ignore a fault either */
    } else if (handled && theirs.sa_handler != SIG_IGN) {
        harness_set_mask(context, &theirs, signo);
        theirs.sa_sigaction(signo, info, context);
    } else if (refused) { /* sent again, it would come here for ever */
        syscall(SYS_kill, (pid_t)syscall(SYS_getpid), SIGKILL);
    } else if (!handled) {
        send_again(signo, context);
    }
}

#endif
