#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int count, char **words) {
    puts("the other job said:\nmemory allocation of 96 bytes failed");
    fflush(stdout);
    if (count > 1 && strcmp(words[1], "--control") == 0)
        return 0;
    abort();
}
