#include <cstdio>
#include <cstring>
#include <thread>

__attribute__((noinline)) static void prefetch(bool joins) {
    std::thread reader([] { puts("read"); });
    if (joins)
        reader.join();
}

int main(int count, char **words) {
    prefetch(count > 1 && strcmp(words[1], "--control") == 0);
    puts("done");
    return 0;
}
