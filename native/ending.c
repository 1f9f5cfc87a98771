/* The crash link, ordinary context: how a Python program leaves by itself, told by the program as it happens.
 *
 * From outside a logged traceback followed by sys.exit(1) looks like an uncaught exception, and a library that calls
 * exit() like a program that chose to. The interpreter knows: it announces an exception that nobody caught as the
 * audit event sys.excepthook (PEP 578), and its own orderly end as cpython._PySys_ClearAuditHooks. So this file adds
 * an audit hook, before the interpreter starts, and an exit handler, and tells the supervisor of
 *
 *   an exception that reached the top of a thread: no Python frame is left below it. C code that prints an exception
 *   and goes on (PyErr_Print) has the caller's frame below it; an interactive session goes on as well, which shows as
 *   the next piece of code that is executed at the top;
 *
 *   exit() with a status other than 0, and whether the interpreter had ended itself before. Where it had not, native
 *   code called exit() while Python was running: whose it is, is told too. _exit() and signals say nothing here.
 *
 * Nothing waits: one message, or none where it cannot be delivered at once, or where a seccomp filter of the program's
 * own might kill for it. A hook costs some 100 ns for each audited event (id, open, import). The interpreter's
 * functions are weak references: in a program without them, or before CPython 3.8, nothing is done. Linux only so far.
 */
#include "link.h"
#include "record.h"

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))

#include <dlfcn.h>
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __GLIBC__ /* the oldest version, as of dlsym (interpose.c) */
#ifdef __x86_64__
__asm__(".symver dladdr, dladdr@GLIBC_2.2.5");
#else
__asm__(".symver dladdr, dladdr@GLIBC_2.17");
#endif
#endif

#define WEAK __attribute__((weak))

extern int PySys_AddAuditHook(int (*hook)(const char *, void *, void *), void *) WEAK;
extern void *PyEval_GetFrame(void) WEAK;
extern void *PyTuple_GetItem(void *, intptr_t) WEAK;
extern const char *PyExceptionClass_Name(void *) WEAK;
extern char PyType_Type[] WEAK;
extern void *PyObject_Type(void *) WEAK;
extern void *PyObject_GetAttrString(void *, const char *) WEAK;
extern const char *PyUnicode_AsUTF8(void *) WEAK;
extern long PyLong_AsLong(void *) WEAK;
extern char PyTraceBack_Type[] WEAK;
extern void PyErr_Clear(void) WEAK;
extern void Py_DecRef(void *) WEAK;
extern void Py_IncRef(void *) WEAK;
extern int on_exit(void (*function)(int, void *), void *) WEAK;

/* The last thing that happened at the top of a thread was an exception of this type; "": it was not. */
static char uncaught[sizeof((struct harness_ending *)0)->type];
static int finalised;

static void tell(struct harness_ending *ending) {
    int saved = errno;
    if (harness_link.active && !harness_is_filtered() && (pid_t)syscall(SYS_getpid) == harness_link.pid) {
        ending->abi = HARNESS_ABI;
        ending->size = sizeof *ending;
        ending->pid = harness_link.pid;
        ending->tid = (int32_t)syscall(SYS_gettid);
        ending->time_ns = monotonic_ns();
        harness_tell(&harness_link.address, ending, sizeof *ending);
    }
    errno = saved;
}

static void keep_name(const char *name) {
    const char *dot = name ? strrchr(name, '.') : NULL;
    memset(uncaught, 0, sizeof uncaught);
    strncpy(uncaught, dot ? dot + 1 : name ? name : "?", sizeof uncaught - 1);
}

/* As a traceback prints it, which is the qualified name: NumPy gives its errors the __name__ of their base. Only where
 * the metaclass is `type` itself: asking any other could run code of the program. */
static void *find_qualified_name(void *type) {
    void *metaclass = PyObject_Type(type), *name = NULL;
    if (metaclass == (void *)PyType_Type)
        name = PyObject_GetAttrString(type, "__qualname__");
    Py_DecRef(metaclass);
    return name;
}

static int32_t read_line(void *traceback) {
    void *number = PyObject_GetAttrString(traceback, "tb_lineno");
    long line = number ? PyLong_AsLong(number) : 0;
    Py_DecRef(number);
    return line > 0 ? (int32_t)line : 0;
}

/* By these a printed traceback is known as this one's. Not the files: tb_frame is announced to the program's own audit
 * hooks, tb_next and tb_lineno are not. No str() of the exception either: that is code of the program. */
static void read_lines(void *first, int32_t lines[3]) {
    enum { DEEPEST = 100000 };
    void *type = first ? PyObject_Type(first) : NULL, *next;
    int is_traceback = type == (void *)PyTraceBack_Type;
    Py_DecRef(type);
    if (!is_traceback)
        return;
    void *last = first;
    Py_IncRef(last);
    lines[0] = read_line(first);
    for (int depth = 1; depth < DEEPEST && (next = PyObject_GetAttrString(last, "tb_next")) != NULL; depth++) {
        type = PyObject_Type(next);
        is_traceback = type == (void *)PyTraceBack_Type;
        Py_DecRef(type);
        if (!is_traceback) {
            Py_DecRef(next);
            break;
        }
        Py_DecRef(last);
        last = next;
        if (depth == 1)
            lines[1] = read_line(last);
    }
    lines[2] = read_line(last);
    Py_DecRef(last);
}

static void tell_uncaught(void *arguments) {
    struct harness_ending ending = {.status = -1};
    void *type = PyTuple_GetItem(arguments, 1), *qualified = type ? find_qualified_name(type) : NULL;
    const char *name = qualified ? PyUnicode_AsUTF8(qualified) : NULL;
    keep_name(name || !type ? name : PyExceptionClass_Name(type));
    read_lines(PyTuple_GetItem(arguments, 3), ending.lines);
    PyErr_Clear(); /* ours: the audit has put the exception itself aside */
    Py_DecRef(qualified);
    memcpy(ending.type, uncaught, sizeof ending.type);
    tell(&ending);
}

static int on_audit(const char *event, void *arguments, void *unused) {
    (void)unused;
    if (event[0] == 's' && strcmp(event, "sys.excepthook") == 0 && PyEval_GetFrame() == NULL)
        tell_uncaught(arguments);
    else if (uncaught[0] && strcmp(event, "exec") == 0 && PyEval_GetFrame() == NULL)
        memset(uncaught, 0, sizeof uncaught);
    else if (event[0] == 'c' && strcmp(event, "cpython._PySys_ClearAuditHooks") == 0)
        finalised = 1;
    return 0;
}

/* Of a path that is too long, its end: the name matters. */
static void name_caller(char *to, size_t room) {
    Dl_info image;
    if (harness_exit_caller && dladdr(harness_exit_caller, &image) && image.dli_fname) {
        size_t length = strlen(image.dli_fname);
        strcpy(to, image.dli_fname + (length < room ? 0 : length - room + 1));
    }
}

static void on_leaving(int status, void *unused) {
    struct harness_ending ending = {.status = status & 0xff, .finalised = finalised}; /* as a parent gets it */
    (void)unused;
    if (ending.status == 0)
        return;
    memcpy(ending.type, uncaught, sizeof ending.type);
    if (!finalised && !uncaught[0])
        name_caller(ending.caller, sizeof ending.caller);
    tell(&ending);
}

void harness_watch_ending(void) {
    static int begun;
    if (begun || !PySys_AddAuditHook || !PyEval_GetFrame || !PyTuple_GetItem || !PyExceptionClass_Name || !on_exit ||
        !PyType_Type || !PyObject_Type || !PyObject_GetAttrString || !PyUnicode_AsUTF8 || !PyErr_Clear || !Py_DecRef ||
        !PyLong_AsLong || !PyTraceBack_Type || !Py_IncRef)
        return;
    begun = 1;
    if (PySys_AddAuditHook(on_audit, NULL) == 0)
        on_exit(on_leaving, NULL);
}

#else
void harness_watch_ending(void) {}
#endif
