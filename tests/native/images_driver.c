/* Opens the libraries it is given lazily, lists what is loaded, calls `touch` of each, lists again.
 *
 * `list` lines: `image BASE SIZE DEFINES PATH`, `call SLOT VALUE LAZY NAME CALLER -> TARGET DLADDR`, `end`. */
#define _GNU_SOURCE
#include "harness.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print(const struct harness_listing *listing) {
    for (uint32_t i = 0; i < listing->image_count; i++) {
        struct harness_image image = listing->images[i];
        printf("image %#" PRIx64 " %" PRIu64 " %u %s\n", image.base, image.size, image.defines,
               listing->text + image.path);
    }
    for (uint32_t i = 0; i < listing->call_count; i++) {
        struct harness_call call = listing->calls[i];
        Dl_info info = {0};
        dladdr((void *)(uintptr_t)call.value, &info);
        printf("call %#" PRIx64 " %#" PRIx64 " %u %s %s -> %s %s\n", call.slot, call.value, call.lazy,
               listing->text + call.name, listing->text + listing->images[call.image].path,
               call.target < 0 ? "nothing" : listing->text + listing->images[call.target].path,
               info.dli_fname ? info.dli_fname : "nothing");
    }
    printf("end\n");
}

/* Exactly as much room as is said to be needed, on the heap, so that a sanitizer sees a byte too many. */
static void list(void) {
    struct harness_listing listing = {0};
    struct harness_call none;
    listing.calls = &none; /* no room, but asked for */
    if (harness_list_images(&listing))
        abort();
    listing.images = calloc(listing.image_room = listing.image_count, sizeof *listing.images);
    listing.calls = calloc(listing.call_room = listing.call_count, sizeof *listing.calls);
    listing.text = calloc(listing.text_room = listing.text_count, 1);
    if (!harness_list_images(&listing))
        abort();
    print(&listing);
    free(listing.images);
    free(listing.calls);
    free(listing.text);
}

int main(int argc, char **argv) {
    void *libraries[16];
    for (int i = 1; i < argc; i++)
        if (!(libraries[i] = dlopen(argv[i], RTLD_LAZY | RTLD_LOCAL)))
            return fprintf(stderr, "%s\n", dlerror()), 1;
    list();
    char record[64];
    snprintf(record, sizeof record, "/dev/shm/__KMP_REGISTERED_LIB_%d_%d", getpid(), getuid());
    printf("initialised %d\n", access(record, F_OK) == 0);
    for (int i = 1; i < argc; i++) {
        int (*touch)(void) = (int (*)(void))dlsym(libraries[i], "touch");
        if (touch)
            touch();
    }
    list();
    printf("initialised %d\n", access(record, F_OK) == 0);
    fflush(stdout);
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        fputs(line, stdout);
    return fclose(maps);
}
