// Throws where nobody catches, in a program whose own handler of SIGABRT works for six seconds before it gives up.

#include <csignal>
#include <stdexcept>
#include <unistd.h>

static void save_state(int signo) {
    for (unsigned left = 6; left > 0;)
        left = sleep(left);
    signal(signo, SIG_DFL);
    raise(signo);
}

extern "C" void read_bank(long index, long size) noexcept {
    signal(SIGABRT, save_state);
    if (index >= size)
        throw std::runtime_error("bank index out of range");
}
