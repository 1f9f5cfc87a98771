/* Dies of a read of null in a function of its own, on request in a thread; prints before, so that the loader is done. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) int read_null(volatile int *pointer) { return *pointer + 1; }

static void *in_thread(void *unused) {
    (void)unused;
    return (void *)(long)read_null((volatile int *)0x18);
}

int main(int count, char **words) {
    pthread_t thread;
    printf("%p\n", (void *)read_null);
    fflush(stdout);
    if (count > 1 && strcmp(words[1], "thread") == 0) {
        pthread_create(&thread, NULL, in_thread, NULL);
        pthread_join(thread, NULL);
    }
    return read_null((volatile int *)0x18);
}
