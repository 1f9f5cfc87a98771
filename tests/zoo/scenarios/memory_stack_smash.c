/* Copies a row into a fixed buffer without looking at its length. */

#include <stddef.h>

void copy_row(const char *row, size_t length) {
    char buffer[16];
    volatile char *out = buffer;

    for (size_t i = 0; i < length; i++)
        out[i] = row[i];
}
