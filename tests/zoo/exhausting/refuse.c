/* Preloaded into `harness run` alone: makes the machine refuse what the test asks for, in one phase of the run.
 *
 * HARNESS_REFUSES is PHASE:CALLS:ERRNO. Phases: start (from the loading of `run` until the command runs), running, crash (while a connection of the
 * crash link is open), report (from the closing of the crash link on). CALLS is a list with commas of names of functions,
 * all of which fail from then on, or one KEY (below), of which the first call fails. With HARNESS_NOTES, a file, nothing
 * fails: each key of the phases crash and report is written there once, with the phase before it.
 *
 * A key is a call and what it was about: FUNCTION PATH, with # for each number, hexadecimal or not. Only the process that this was loaded into
 * is refused anything: not the tools, the relays, nor the command, which does not even have this library.
 *
 * Every wrapper passes six words on, whatever the function takes; a floating point argument would not survive.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

enum { SYS_WRITE = 1, MOST_KEYS = 4096, LONGEST_KEY = 200, NOTES_FD = 900, EMPTY = 0, FAILED = -1 };
enum phase { LOADING, START, RUNNING, CRASH, REPORT };
static const char *const PHASES[] = {"", "start", "running", "crash", "report"};

/* Not from headers, which declare the wrapped functions with other types. */
extern char **environ;
extern int *__errno_location(void);
extern char *getenv(const char *name);
extern int unsetenv(const char *name);
extern int getpid(void);
extern long strtol(const char *text, char **end, int base);
extern int snprintf(char *to, size_t size, const char *format, ...);
extern size_t strlen(const char *text);
extern char *strstr(const char *text, const char *part);
extern char *strchr(const char *text, int character);
extern int strcmp(const char *one, const char *other);
extern int strncmp(const char *one, const char *other, size_t most);
extern char *strcpy(char *to, const char *from);
extern long fork(void);

typedef long function(long, long, long, long, long, long);

static int self, armed, taking_notes, fired, inside;
static enum phase phase, wanted;
static long refusal;
static long listener = -1, connection = -1;
static char calls[LONGEST_KEY + 2];
static char known[MOST_KEYS][LONGEST_KEY];
static int known_count;

static function *real(const char *name) { return (function *)dlsym(RTLD_NEXT, name); }

static long raw(const char *name, long a, long b, long c, long d) { return real(name)(a, b, c, d, 0, 0); }

__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("HARNESS_REFUSES"), *notes = getenv("HARNESS_NOTES");
    if (given == NULL && notes == NULL)
        return;
    if (notes != NULL) {
        long fd = raw("open", (long)notes, 02001 | 0100, 0600, 0); /* O_WRONLY, O_APPEND, O_CREAT */
        raw("dup2", fd, NOTES_FD, 0, 0);
        raw("fcntl", NOTES_FD, 2, 1, 0); /* F_SETFD, FD_CLOEXEC */
        raw("close", fd, 0, 0, 0);
        taking_notes = 1;
    } else {
        const char *first = strchr(given, ':'), *last = given + strlen(given);
        while (*last != ':')
            last--;
        for (int i = START; i <= REPORT; i++)
            if (strncmp(given, PHASES[i], strlen(PHASES[i])) == 0)
                wanted = (enum phase)i;
        snprintf(calls, sizeof calls, ",%.*s,", (int)(last - first - 1), first + 1);
        refusal = strtol(last + 1, NULL, 10);
    }
    unsetenv("HARNESS_REFUSES");
    unsetenv("HARNESS_NOTES");
    unsetenv("LD_PRELOAD");
    self = getpid();
    armed = 1;
}

/* What a call is about: the path that it names, or the one behind its descriptor. */
static void describe(char *key, const char *name, const char *listed, long first, long second) {
    char path[LONGEST_KEY] = "";
    const char *at = NULL;
    if (strstr(",open,open64,opendir,mkdir,stat,lstat,readlink,unlink,rmdir,rename,chmod,statvfs,statvfs64,", listed))
        at = (const char *)first;
    else if (strstr(",openat,openat64,fstatat,statx,readlinkat,unlinkat,faccessat,", listed))
        at = (const char *)second;
    else if (strstr(",read,write,pread,pread64,lseek,lseek64,fstat,ioctl,fcntl,close,", listed)) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%ld", first);
        long length = raw("readlink", (long)link, (long)path, sizeof path - 1, 0);
        path[length > 0 ? length : 0] = 0;
        at = path;
    }
    if (at != NULL && (strstr(at, "/__pycache__") || strstr(at, ".py") || strstr(at, "/lib-dynload") ||
                       strstr(at, "-packages/")))
        at = "what is imported";
    if (at != NULL && strstr(at, "/dpkg/info/"))
        at = "what is installed";
    size_t used = (size_t)snprintf(key, LONGEST_KEY, "%s ", name);
    for (; at != NULL && *at && used < LONGEST_KEY - 2; at++) {
        int digit = (*at >= '0' && *at <= '9') || (key[used - 1] == '#' && *at >= 'a' && *at <= 'f');
        if (!digit || key[used - 1] != '#')
            key[used++] = digit ? '#' : *at;
    }
    key[used] = 0;
}

static void note(const char *key) {
    char line[LONGEST_KEY + 16];
    for (int i = 0; i < known_count; i++)
        if (strcmp(known[i], key) == 0)
            return;
    if (known_count < MOST_KEYS)
        strcpy(known[known_count++], key);
    int length = snprintf(line, sizeof line, "%s:%s\n", PHASES[phase], key);
    raw("write", NOTES_FD, (long)line, length, 0);
}

static int is_refused(const char *name, long first, long second) {
    if (!armed || inside || getpid() != self)
        return 0;
    if (phase == LOADING && first != 0 && strncmp(name, "open", 4) == 0 && strstr((const char *)first, "/commands/"))
        phase = strstr((const char *)first, "/run.") ? START : LOADING;
    if (!taking_notes && phase != wanted)
        return 0;
    int kept = *__errno_location(), refused = 0;
    char key[LONGEST_KEY], listed[64];
    inside = 1;
    snprintf(listed, sizeof listed, ",%s,", name);
    if (strstr(calls, listed) != NULL) {
        refused = 1;
    } else if ((taking_notes && phase >= CRASH) || (strchr(calls, ' ') != NULL && !fired)) {
        describe(key, name, listed, first, second);
        if (taking_notes)
            note(key);
        else
            refused = fired = strncmp(calls + 1, key, strlen(calls) - 2) == 0 && strlen(key) == strlen(calls) - 2;
    }
    inside = 0;
    *__errno_location() = refused ? (int)refusal : kept;
    return refused;
}

#define PASS(name, failure)                                                                                            \
    long name(long a, long b, long c, long d, long e, long f) {                                                        \
        static function *next;                                                                                         \
        if (next == NULL)                                                                                              \
            next = real(#name);                                                                                        \
        return is_refused(#name, a, b) ? failure : next(a, b, c, d, e, f);                                             \
    }

PASS(open, FAILED)
PASS(open64, FAILED)
PASS(openat, FAILED)
PASS(openat64, FAILED)
PASS(opendir, EMPTY)
PASS(fdopendir, EMPTY)
PASS(read, FAILED)
PASS(write, FAILED)
PASS(pread, FAILED)
PASS(pread64, FAILED)
PASS(lseek64, FAILED)
PASS(stat, FAILED)
PASS(lstat, FAILED)
PASS(fstat, FAILED)
PASS(fstatat, FAILED)
PASS(readlink, FAILED)
PASS(ioctl, FAILED)
PASS(mkdir, FAILED)
PASS(rmdir, FAILED)
PASS(unlink, FAILED)
PASS(rename, FAILED)
PASS(chmod, FAILED)
PASS(dup, FAILED)
PASS(dup2, FAILED)
PASS(dup3, FAILED)
PASS(pipe, FAILED)
PASS(pipe2, FAILED)
PASS(memfd_create, FAILED)
PASS(mmap, FAILED)
PASS(mmap64, FAILED)
PASS(socket, FAILED)
PASS(bind, FAILED)
PASS(listen, FAILED)
PASS(recv, FAILED)
PASS(getsockopt, FAILED)
PASS(setsockopt, FAILED)
PASS(poll, FAILED)
PASS(waitpid, FAILED)
PASS(wait4, FAILED)
PASS(waitid, FAILED)
PASS(kill, FAILED)
PASS(prlimit, FAILED)
PASS(prlimit64, FAILED)
PASS(setrlimit, FAILED)
PASS(statvfs, FAILED)
PASS(statvfs64, FAILED)
PASS(syscall, FAILED)
PASS(openpty, FAILED)
PASS(fcntl, FAILED)
PASS(fcntl64, FAILED)
PASS(execve, FAILED)

static long start(const char *name, function *next) {
    if (is_refused(name, 0, 0))
        return -1;
    return next(0, 0, 0, 0, 0, 0);
}

long fork(void) { return start("fork", real("fork")); }

/* Its caller may not return from vfork's own frame; a plain fork serves. Only the command is started by it. */
long vfork(void) {
    long pid = start("vfork", real("fork"));
    if (pid > 0 && phase == START && armed && getpid() == self)
        phase = RUNNING;
    return pid;
}

long posix_spawn(long a, long b, long c, long d, long e, long f) {
    return is_refused("posix_spawn", 0, 0) ? refusal : real("posix_spawn")(a, b, c, d, e, f);
}

static long take(const char *name, long a, long b, long c, long d) {
    long fd = is_refused(name, a, b) ? -1 : raw(name, a, b, c, d);
    if (fd >= 0 && armed && getpid() == self) {
        listener = a;
        connection = fd;
        phase = CRASH;
    }
    return fd;
}

long accept(long a, long b, long c) { return take("accept", a, b, c, 0); }
long accept4(long a, long b, long c, long d) { return take("accept4", a, b, c, d); }

long close(long fd) {
    long failed = is_refused("close", fd, 0); /* the kernel closes it all the same */
    long done = raw("close", fd, 0, 0, 0);
    if (armed && getpid() == self) {
        if (fd == connection && phase == CRASH) {
            phase = RUNNING;
            connection = -1;
        } else if (fd == listener && phase > START) {
            phase = REPORT;
        }
    }
    return failed ? -1 : done;
}
