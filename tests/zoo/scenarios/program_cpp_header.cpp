#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

__attribute__((noinline)) static size_t longest(const std::vector<std::string> *names) {
    size_t most = 0;
    for (const std::string &name : *names)
        most = name.size() > most ? name.size() : most;
    return most;
}

int main(int count, char **words) {
    bool control = count > 1 && strcmp(words[1], "--control") == 0;
    std::vector<std::string> names{"a", "bc"};
    printf("%zu\n", longest(control ? &names : nullptr));
    return 0;
}
