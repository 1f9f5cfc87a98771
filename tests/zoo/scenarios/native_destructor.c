/* Faults when the process has left main: the interpreter is gone by then. */

#include <stddef.h>

static volatile long pool = 41;
static volatile long *table = &pool;

void zoo_lose_pool(void) { table = NULL; }

__attribute__((destructor)) static void zoo_release_pool(void) { *table = 0; }
