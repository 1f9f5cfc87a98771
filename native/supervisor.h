/* What the files of the supervisor share; nobody outside calls it. */
#ifndef HARNESS_SUPERVISOR_H
#define HARNESS_SUPERVISOR_H

#include "harness.h"

#include <signal.h>

/* Fills in a record, also in a signal handler. */
void harness_note_signal(struct harness_signal *record, const siginfo_t *info);

/* Signals of libc's own that the supervisor ignores, as bits: what it starts does not. */
extern uint64_t harness_survived;

#endif
