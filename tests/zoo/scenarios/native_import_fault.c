/* An extension module that faults in its init function. Laid out by hand (PyModuleDef, PEP 3121: the same words in
 * every 3.x with the GIL), so that one build serves every interpreter. */

#include <stddef.h>
#include <stdlib.h>

static struct {
    long refcount;
    void *type, *init;
    long index;
    void *copy;
    const char *name, *doc;
    long size;
    void *methods, *slots, *traverse, *clear, *free;
} definition = {.refcount = 1, .name = "native_import_fault", .size = -1};

extern void *PyModule_Create2(void *definition, int api_version);

static long tokens = 3;

__attribute__((noinline)) static long zoo_count_tokens(const volatile long *table) { return *table; }

void *PyInit_native_import_fault(void) {
    definition.size = zoo_count_tokens(getenv("ZOO_NO_TABLE") ? NULL : &tokens) > 0 ? -1 : 0;
    return PyModule_Create2(&definition, 1013);
}
