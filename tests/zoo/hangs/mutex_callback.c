/* A library with a lock of its own that calls back while it has it. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static volatile int is_owned, is_wanted;
static const char *news, *place_of_news;

/* Both are to live as long as the program. */
void zoo_tell_by(const char *file, const char *place) {
    news = file, place_of_news = place;
}

/* Calls back when somebody else is about to ask for the lock, and tells right before: afterwards nobody may be able to. */
void zoo_visit(void (*visitor)(void)) {
    struct timespec moment = {0, 50000000};
    pthread_mutex_lock(&table);
    is_owned = 1;
    while (!is_wanted)
        nanosleep(&moment, NULL);
    nanosleep(&moment, NULL);
    if (news)
        rename(news, place_of_news);
    visitor();
    is_wanted = is_owned = 0;
    pthread_mutex_unlock(&table);
}

int zoo_is_owned(void) {
    return is_owned;
}

void zoo_add_row(void) {
    is_wanted = 1;
    pthread_mutex_lock(&table);
    pthread_mutex_unlock(&table);
}
