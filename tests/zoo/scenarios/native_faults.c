/* One faulty function per way of dying in native code. Pointers, counts and
 * callbacks come from Python.
 *
 * Nothing here is undefined by accident: volatile keeps the access, noinline
 * keeps the frame that is to be blamed. */

#undef NDEBUG
#define _GNU_SOURCE
#include <assert.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define ZOO __attribute__((noinline, visibility("default")))

/* Memory. */

ZOO long zoo_read(const volatile long *address) { return *address + 1; }

ZOO void zoo_write(volatile long *address) { *address = 7; }

struct table {
    char name[24];
    volatile long rows; /* at 0x18 */
};

ZOO long zoo_read_row_count(const struct table *table) { return table->rows + 1; }

static const long vocabulary_size[1024] __attribute__((aligned(4096))) = {50257};

/* `writable` is the caller's own long; without it the constant, in a page of
 * the library mapped r--, is written. */
ZOO void zoo_write_constant(volatile long *writable) {
    volatile long *target = writable ? writable : (volatile long *)vocabulary_size;

    *target = 50258;
}

ZOO void zoo_fill(char *start, size_t length) { memset(start, 0x5a, length); }

/* Jumps: the result is used, so that the call is not turned into a jump and
 * this frame stays. */

ZOO long zoo_call(long (*function)(void)) { return function() + 1; }

ZOO long zoo_answer(void) { return 41; }

ZOO long zoo_apply(void *(*function)(void *), void *argument) { return function(argument) != NULL; }

/* Leaves for the start of `function` with `lure` where the return address
 * belongs: no call has led there. */
ZOO void zoo_stray(void *(*function)(void *), void *argument, const void *lure) {
#if defined(__x86_64__)
    __asm__ volatile("push %2\n\tjmp *%0" : : "r"(function), "D"(argument), "r"(lure) : "memory");
#else
    (void)lure;
    function(argument);
#endif
}

/* Threads. */

static void *read_in_thread(void *address) { return (void *)zoo_read(address); }

ZOO int zoo_read_in_native_thread(void *address) {
    pthread_t thread;

    if (pthread_create(&thread, NULL, read_in_thread, address) != 0)
        return -1;
    return pthread_join(thread, NULL);
}

struct call {
    void *(*enter)(void);
    void *(*function)(void *);
    void *argument;
};

static void *call_in_thread(void *work) {
    const struct call *call = work;

    if (call->enter)
        call->enter();
    return call->function(call->argument);
}

/* `enter` is called first, on that thread: PyGILState_Ensure, or nothing. */
ZOO int zoo_call_in_native_thread(void *(*enter)(void), void *(*function)(void *), void *argument) {
    struct call call = {enter, function, argument};
    pthread_t thread;

    if (pthread_create(&thread, NULL, call_in_thread, &call) != 0)
        return -1;
    return pthread_join(thread, NULL);
}

static pthread_barrier_t start_line;

static void *read_after_start_line(void *address) {
    pthread_barrier_wait(&start_line);
    return (void *)zoo_read(address);
}

ZOO int zoo_read_in_two_threads(void *address) {
    pthread_t threads[2];

    pthread_barrier_init(&start_line, NULL, 2);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, read_after_start_line, address) != 0)
            return -1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

/* Stacks. */

ZOO long zoo_descend(long depth) {
    volatile char frame[512];

    frame[0] = (char)depth;
    return depth == 0 ? frame[0] : zoo_descend(depth - 1) + frame[0];
}

static void *descend_in_thread(void *depth) { return (void *)zoo_descend((long)(intptr_t)depth); }

ZOO int zoo_descend_in_small_thread(long depth) {
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, 64 * 1024) != 0)
        return -1;
    if (pthread_create(&thread, &attributes, descend_in_thread, (void *)(intptr_t)depth) != 0)
        return -1;
    return pthread_join(thread, NULL);
}

/* Small frames of its own; on each level it calls a function that needs far
 * more of the stack, and returns. */
ZOO long zoo_descend_printing(void *(*format)(const char *, ...), long depth) {
    volatile char frame[16];

    frame[0] = format("%ld", depth) != NULL;
    return depth == 0 ? frame[0] : zoo_descend_printing(format, depth - 1) + frame[0];
}

/* A tree walk that asks Python for each node, with a frame of 16 KiB. */
ZOO long zoo_visit(long (*visitor)(long), long node) {
    volatile char scratch[16 * 1024];

    scratch[0] = scratch[sizeof scratch - 1] = 1;
    return visitor(node) + scratch[0];
}

/* Giving up. */

ZOO void zoo_abort_unless(int healthy) {
    if (!healthy)
        abort();
}

ZOO void zoo_assert_total(long total, long expected) { assert(total == expected); }

/* Instructions. */

ZOO int zoo_divide(int numerator, int denominator) {
    volatile int divisor = denominator;

    return numerator / divisor;
}

ZOO void zoo_undefined_instruction(int reached) {
    if (!reached)
        return;
#if defined(__x86_64__)
    __asm__ volatile("ud2");
#elif defined(__aarch64__)
    __asm__ volatile("udf #0");
#endif
}

ZOO void zoo_breakpoint(int reached) {
    if (!reached)
        return;
#if defined(__x86_64__)
    __asm__ volatile("int3");
#elif defined(__aarch64__)
    __asm__ volatile("brk #0");
#endif
}

/* From now on getpriority(2), which nothing else here uses, raises SIGSYS. */
static int forbid_getpriority(void) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof program[0], program};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

ZOO int zoo_read_priority(int forbidden) {
    if (forbidden && forbid_getpriority() != 0)
        return -1;
    return getpriority(PRIO_PROCESS, 0) + 1;
}
