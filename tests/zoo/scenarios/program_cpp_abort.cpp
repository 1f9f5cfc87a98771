#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

static void check_index(int index, int size) {
    if (index >= size)
        abort();
    puts("in bounds");
}

__attribute__((noinline)) static void serve(int index) {
    check_index(index, 3);
    puts("served");
}

int main(int count, char **words) {
    int index = count > 1 && strcmp(words[1], "--control") == 0 ? 1 : 7;
    puts("working");
    fflush(stdout);
    std::thread([index] { serve(index); }).join();
    return 0;
}
