/* What kill_filter.py does under a seccomp filter of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { EMULATED_FD = 1000 };

/* The action for what our own handler would call; everything else is allowed. `more`: one more call, or -1. */
int put_filter_on(unsigned action, int more) {
    int calls[] = {SYS_socket, SYS_connect,           SYS_openat,     SYS_process_vm_readv,
                   SYS_ptrace, SYS_rt_tgsigqueueinfo, SYS_getdents64, more};
    enum { COUNT = sizeof calls / sizeof *calls };
    struct sock_filter code[COUNT + 3];
    code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++)
        code[i + 1] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], (unsigned char)(COUNT - i), 0);
    code[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    struct sock_fprog program = {COUNT + 3, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

void kill_for_all_but(int more) { put_filter_on(SECCOMP_RET_KILL_PROCESS, more); }
void refuse_all_but(int more) { put_filter_on(SECCOMP_RET_ERRNO | EPERM, more); }
int sigaction_call(void) { return SYS_rt_sigaction; }

void read_null(void) { *(volatile int *)8; }
void divide_by_zero(void) {
    volatile int zero = 0;
    zero = 7 / zero;
}
void breakpoint(void) {
#ifdef __x86_64__
    __asm__ volatile("int3");
#else
    __asm__ volatile("brk #0");
#endif
}

static void emulate_open(int signo, siginfo_t *info, void *given) {
    ucontext_t *context = given;
    (void)signo;
    if (info->si_syscall != SYS_openat)
        _exit(40);
#ifdef __x86_64__
    context->uc_mcontext.gregs[REG_RAX] = EMULATED_FD;
#else
    context->uc_mcontext.regs[0] = EMULATED_FD;
#endif
}

/* As sandboxes of browsers do: a trapped call is answered by a handler. */
void open_by_emulation(void) {
    struct sigaction action = {.sa_sigaction = emulate_open, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    put_filter_on(SECCOMP_RET_TRAP, -1);
    for (int i = 0; i < 3; i++)
        if (syscall(SYS_openat, -1, "/nowhere", 0, 0) != EMULATED_FD)
            _exit(41);
    _exit(30);
}

static void leave(int signo) { _exit(30 + (signo == SIGSEGV)); }

void handle_fault(void) {
    signal(SIGSEGV, leave);
    kill_for_all_but(-1);
    read_null();
}
