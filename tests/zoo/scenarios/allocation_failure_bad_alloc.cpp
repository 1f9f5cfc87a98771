#include <cstddef>
#include <cstring>

extern "C" char *build_index(size_t bytes) {
    char *vectors = new char[bytes];
    memset(vectors, 1, 4096);
    return vectors;
}
