/* Calls that come back after a while, or never. */
#include <stdint.h>
#include <time.h>

static volatile uint64_t rounds_done;

/* 0 rounds: for ever. */
void zoo_spin(uint64_t rounds) {
    for (uint64_t round = 0; rounds == 0 || round < rounds; round++)
        rounds_done = round;
}

void zoo_sleep(uint64_t milliseconds) {
    struct timespec left = {(time_t)(milliseconds / 1000), (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}
