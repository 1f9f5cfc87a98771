/* How a record gets its registers and its memory, whether the dying process writes it (crash.c, signal context) or the
 * supervisor reads it out of the process (mach.c). Not public.
 *
 * Static functions, no object file: what crash.c may call is checked from its own symbols.
 */
#ifndef HARNESS_RECORD_H
#define HARNESS_RECORD_H

#include "harness.h"

#include <stddef.h>
#include <time.h>

/* The clock of Python's time.monotonic(). */
static inline uint64_t monotonic_ns(void) {
    struct timespec now;
#ifdef __APPLE__
    clock_gettime(CLOCK_UPTIME_RAW, &now);
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#ifdef __linux__
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

typedef pid_t memory_owner;

/* Reads memory that may not be there. */
static inline int read_memory(memory_owner owner, uint64_t address, void *to, size_t length) {
    struct iovec local = {to, length}, remote = {(void *)address, length};
    return syscall(SYS_process_vm_readv, (long)owner, &local, 1L, &remote, 1L, 0L) == (long)length;
}

static inline uint64_t plain_address(uint64_t address) { return address; }

#else
#include <mach/mach.h>

enum { LINUX_SI_KERNEL = 0x80 }; /* the record's codes are Linux's */

typedef mach_port_t memory_owner;

static inline int read_memory(memory_owner owner, uint64_t address, void *to, size_t length) {
    vm_size_t got = 0;
    return vm_read_overwrite(owner, address, length, (vm_address_t)to, &got) == KERN_SUCCESS && got == length;
}

#ifdef __x86_64__
typedef _STRUCT_X86_THREAD_STATE64 machine_state;
enum { MACHINE = HARNESS_X86_64, STATE_FLAVOR = x86_THREAD_STATE64, STATE_COUNT = x86_THREAD_STATE64_COUNT };

static inline uint64_t plain_address(uint64_t address) { return address; }

static inline uint64_t *state_pc(machine_state *state) { return (uint64_t *)&state->__rip; }
static inline uint64_t *state_sp(machine_state *state) { return (uint64_t *)&state->__rsp; }
static inline uint64_t state_fp(const machine_state *state) { return state->__rbp; }

/* In the order of Linux's gregs (sys/ucontext.h), which is the record's. */
static inline void copy_state(const machine_state *state, uint64_t *registers) {
    const uint64_t ordered[] = {state->__r8,  state->__r9,  state->__r10, state->__r11, state->__r12, state->__r13,
                                state->__r14, state->__r15, state->__rdi, state->__rsi, state->__rbp, state->__rbx,
                                state->__rdx, state->__rax, state->__rcx, state->__rsp, state->__rip, state->__rflags};
    for (size_t i = 0; i < sizeof ordered / sizeof *ordered; i++)
        registers[i] = ordered[i];
}
#else
typedef _STRUCT_ARM_THREAD_STATE64 machine_state;
enum { MACHINE = HARNESS_AARCH64, STATE_FLAVOR = ARM_THREAD_STATE64, STATE_COUNT = ARM_THREAD_STATE64_COUNT };

/* System libraries sign their return addresses in the bits above the 47 of a user address. */
static inline uint64_t plain_address(uint64_t address) { return address & 0x00007fffffffffffull; }

static inline uint64_t *state_pc(machine_state *state) { return (uint64_t *)&state->__pc; }
static inline uint64_t *state_sp(machine_state *state) { return (uint64_t *)&state->__sp; }
static inline uint64_t state_fp(const machine_state *state) { return state->__fp; }

/* x0 to x30, sp, pc, pstate, as on Linux. */
static inline void copy_state(const machine_state *state, uint64_t *registers) {
    for (int i = 0; i < 29; i++)
        registers[i] = state->__x[i];
    registers[29] = state->__fp;
    registers[30] = state->__lr;
    registers[31] = state->__sp;
    registers[32] = state->__pc;
    registers[33] = state->__cpsr;
}
#endif
#endif

/* Raw return addresses, by frame pointers: what is left when every tool fails. */
static inline void copy_frames(struct harness_crash *record, memory_owner owner) {
    uint64_t pair[2], fp = record->fp;
    record->frame_count = 0;
    while (record->frame_count < HARNESS_FRAMES && read_memory(owner, fp, pair, sizeof pair) && pair[0] > fp) {
        record->frames[record->frame_count++] = plain_address(pair[1]);
        fp = pair[0];
    }
}

static inline void copy_pointed_memory(struct harness_crash *record, memory_owner owner) {
    record->memory_count = 0;
    for (int i = 0; i < HARNESS_REGISTERS && record->memory_count < HARNESS_MEMORIES; i++) {
        struct harness_memory *memory = &record->memories[record->memory_count];
        memory->address = record->registers[i];
        if (memory->address > 4096 && read_memory(owner, memory->address, memory->bytes, sizeof memory->bytes))
            record->memory_count++;
    }
}

#endif
