/* Says a word on each channel, then does what its argument says: crash, or leave with that status. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (write(1, "out\n", 4) != 4 || write(2, "err\n", 4) != 4)
        return 99;
    if (argc > 1 && strcmp(argv[1], "crash") == 0)
        *(volatile int *)8 = 1;
    return argc > 1 ? atoi(argv[1]) : 0;
}
