/* Births and deaths of processes as the kernel tells them, where it tells them: Linux's process connector.
 *
 * The supervisor scans the process table as well, and that is enough for a process that lives some milliseconds. A
 * worker that dies at once is gone before any scan; its parent has collected it, and only this channel still has its
 * status, with the time to order it by. Needs the initial pid namespace and, before Linux 6.6, root: without them it
 * opens and stays silent, or does not open, and the scans remain.
 *
 * Every process of the machine is reported, and every thread. A filter in the kernel lets through only births,
 * new programs and ends of whole processes, so that a program which makes many threads does not wake the supervisor for
 * each.
 */
#include "harness.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__
#include <arpa/inet.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <sys/socket.h>

static int subscribe(int fd) {
    char request[NLMSG_SPACE(sizeof(struct cn_msg) + sizeof(enum proc_cn_mcast_op))]
        __attribute__((aligned(NLMSG_ALIGNTO))) = {0};
    enum proc_cn_mcast_op listen = PROC_CN_MCAST_LISTEN;
    struct nlmsghdr *header = (struct nlmsghdr *)request;
    struct cn_msg *connector = NLMSG_DATA(header);
    header->nlmsg_len = NLMSG_LENGTH(sizeof *connector + sizeof listen);
    header->nlmsg_type = NLMSG_DONE;
    connector->id.idx = CN_IDX_PROC;
    connector->id.val = CN_VAL_PROC;
    connector->len = sizeof listen;
    memcpy(connector->data, &listen, sizeof listen);
    return send(fd, request, header->nlmsg_len, 0) == -1 ? -errno : 0;
}

#define AT(field) (NLMSG_HDRLEN + offsetof(struct cn_msg, data) + offsetof(struct proc_event, field))
#define WHEN(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(value), yes, no)
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, AT(field))

/* The first thread has the number of its process. A kernel that refuses the filter leaves the sorting out to us. */
static void drop_threads(int fd) {
    struct sock_filter code[] = {
        LOAD(what),
        WHEN(PROC_EVENT_FORK, 0, 4),
        LOAD(event_data.fork.child_tgid),
        BPF_STMT(BPF_MISC | BPF_TAX, 0),
        LOAD(event_data.fork.child_pid),
        BPF_JUMP(BPF_JMP | BPF_JA, 5, 0, 0),
        WHEN(PROC_EVENT_EXEC, 1, 0),
        WHEN(PROC_EVENT_EXIT, 0, 5),
        LOAD(event_data.exit.process_tgid),
        BPF_STMT(BPF_MISC | BPF_TAX, 0),
        LOAD(event_data.exit.process_pid),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

int32_t harness_processes_open(void) {
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = CN_IDX_PROC};
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_CONNECTOR);
    if (fd == -1)
        return -errno;
    drop_threads(fd);
    int failed = bind(fd, (struct sockaddr *)&address, sizeof address) == -1 ? -errno : subscribe(fd);
    if (!failed)
        return fd;
    close(fd);
    return failed;
}

static int translate(const struct proc_event *event, struct harness_process *process) {
    process->time_ns = event->timestamp_ns;
    if (event->what == PROC_EVENT_FORK) {
        process->pid = event->event_data.fork.child_tgid;
        process->ppid = event->event_data.fork.parent_tgid;
        return event->event_data.fork.child_pid == event->event_data.fork.child_tgid;
    }
    if (event->what == PROC_EVENT_EXEC) {
        process->pid = event->event_data.exec.process_tgid;
        process->ppid = HARNESS_EXEC;
        return event->event_data.exec.process_pid == event->event_data.exec.process_tgid;
    }
    if (event->what == PROC_EVENT_EXIT) {
        process->pid = event->event_data.exit.process_tgid;
        process->status = (int32_t)event->event_data.exit.exit_code;
        return event->event_data.exit.process_pid == event->event_data.exit.process_tgid;
    }
    return 0;
}

int32_t harness_processes_read(int32_t fd, struct harness_process *processes, int32_t most) {
    char buffer[1024] __attribute__((aligned(8)));
    int32_t count = 0;
    while (count < most) {
        ssize_t got = recv(fd, buffer, sizeof buffer, 0);
        if (got == -1 && errno == ENOBUFS) /* the kernel had to drop some; the scans remain */
            continue;
        if (got <= 0)
            break;
        const struct nlmsghdr *header = (const struct nlmsghdr *)buffer;
        const struct cn_msg *connector = NLMSG_DATA(header);
        struct proc_event event;
        if (got < (ssize_t)(NLMSG_HDRLEN + sizeof *connector) || connector->id.idx != CN_IDX_PROC)
            continue;
        memset(&event, 0, sizeof event);
        memcpy(&event, connector->data, connector->len < sizeof event ? connector->len : sizeof event);
        memset(&processes[count], 0, sizeof *processes);
        count += translate(&event, &processes[count]);
    }
    return count;
}
#else
int32_t harness_processes_open(void) { return -ENOSYS; }

int32_t harness_processes_read(int32_t fd, struct harness_process *processes, int32_t most) {
    (void)fd, (void)processes, (void)most;
    return -ENOSYS;
}
#endif
