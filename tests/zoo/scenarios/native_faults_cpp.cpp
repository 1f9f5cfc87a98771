// Lets an exception escape from a std::thread; the throw has a named frame of its own.

#include <stdexcept>
#include <thread>

extern "C" __attribute__((noinline)) void zoo_read_shard(int missing) {
    if (missing)
        throw std::runtime_error("shard 7 is missing");
}

extern "C" void zoo_prefetch(int missing) {
    std::thread reader([missing] { zoo_read_shard(missing); });
    reader.join();
}
