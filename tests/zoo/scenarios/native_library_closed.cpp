// Faults when its library is unloaded, or when the process exits.

struct Pool {
    volatile long *table;
    ~Pool() { *table = 0; }
};

static volatile long slot;
static Pool pool{&slot};

extern "C" void zoo_lose_pool() { pool.table = nullptr; }
