/* A parallel loop whose second half reads through a bad pointer: that half always belongs to the other thread. */

#include <omp.h>

__attribute__((noinline)) static long zoo_score_row(const volatile long *row) { return *row + 1; }

long zoo_score_rows(const long *good, const long *suspect) {
    long total = 0;

#pragma omp parallel num_threads(2) reduction(+ : total)
    total += zoo_score_row(omp_get_thread_num() == 0 ? good : suspect);
    return total;
}
