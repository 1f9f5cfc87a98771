/* A C library that checks its own state with assert(3). */

#undef NDEBUG
#include <assert.h>

void add_vectors(long ntotal, long expected) { assert(ntotal == expected); }
