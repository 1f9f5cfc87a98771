// Lets an exception escape from the function of a std::thread.

#include <stdexcept>
#include <thread>

extern "C" void prefetch(int missing) {
    std::thread reader([missing] {
        if (missing)
            throw std::runtime_error("shard 7 is missing");
    });
    reader.join();
}
