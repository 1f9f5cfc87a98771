// Forgets a thread that still runs: its destructor calls std::terminate(), and no exception is there.

#include <thread>

extern "C" void load(long forget) {
    std::thread loader([] {});
    if (!forget)
        loader.join();
}
