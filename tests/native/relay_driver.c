/* Runs the relay as the supervisor does: in a forked child, from a pipe to stdout. stdin is what the command prints.
 * usage: relay_driver CASE_DIR HEAD_BYTES TAIL_BYTES; with REMOVE_CASE set the directory goes away first. */
#include "harness.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    int ends[2], status;
    char chunk[4096];
    if (count != 4 || pipe(ends) == -1)
        return 2;
    int directory = open(words[1], O_RDONLY | O_DIRECTORY);
    if (getenv("REMOVE_CASE"))
        rmdir(words[1]);
    struct harness_bounds bounds = {strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10)};
    struct harness_channel *channel = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t total = 0;
    if (fork() == 0) {
        close(ends[1]);
        struct harness_way way = {"stdout", channel, bounds, ends[0], 1, -1, 1};
        harness_relay(&way, directory);
    }
    close(ends[0]);
    for (ssize_t got; (got = read(0, chunk, sizeof chunk)) > 0; total += (uint64_t)got)
        for (ssize_t done = 0; done < got;)
            done += write(ends[1], chunk + done, (size_t)(got - done));
    close(ends[1]);
    wait(&status);
    return status || !channel->ended || channel->bytes_in != total || channel->bytes_out != total;
}
