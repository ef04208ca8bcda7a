/* tidepool-shim: keeps one job of a researcher's own program. Started by the server (or its
 * spawner) with three descriptors: 3 the job (job.h), 4 a connection (message.h), 5 the job's
 * standard input where it has one. Not for the command line. */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/shim/door.h"

enum { JOB_FD = 3, SERVER_FD = 4, STDIN_FD = 5, DESCRIPTORS = 6 };
#define EVENTS_MAX 8
#define OUTPUT_A_TURN (256 << 10) /* commands do not wait behind a job that writes a lot */
#define SHIM_NICE -10

struct loop {
    int epoll, signals;
    struct shim shim;
    struct door door;
};

/* Nobody's signal ends a shim but KILL: what a user sends to all that is theirs is for the job. */
static int signals_settle(void)
{
    sigset_t all, children;
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGSEGV);
    (void)sigdelset(&all, SIGBUS);
    (void)sigdelset(&all, SIGILL);
    (void)sigdelset(&all, SIGFPE);
    (void)sigdelset(&all, SIGABRT);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)sigemptyset(&children);
    (void)sigaddset(&children, SIGCHLD);
    (void)signal(SIGCHLD, SIG_DFL); /* an ignored one would reap by itself */
    return signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void process_settle(void)
{
    struct sched_param normal = {0};
    cpu_set_t all;
    (void)syscall(SYS_close_range, DESCRIPTORS, ~0U, 0);
    (void)syscall(SYS_close_range, JOB_FD, DESCRIPTORS - 1, CLOSE_RANGE_CLOEXEC);
    (void)setsid(); /* the server may have done it */
    (void)umask(077);
    (void)!chdir("/");
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)prctl(PR_SET_DUMPABLE, 0); /* the job may be of the same user: not its memory */
    (void)prctl(PR_SET_NAME, "tidepool-shim");
    memset(&all, 0xff, sizeof(all));
    (void)sched_setaffinity(0, sizeof(all), &all);
    (void)sched_setscheduler(0, SCHED_OTHER, &normal);
    /* Else it waits a tick behind what it is to stop. A plain user may not: then it waits. */
    (void)setpriority(PRIO_PROCESS, 0, SHIM_NICE);
}

static void log_settle(const char *directory)
{
    char path[PATH_MAX];
    int fd;
    (void)snprintf(path, sizeof(path), "%s/shim.log", directory);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)dup2(fd, 2);
        (void)close(fd);
    }
}

static bool watch(const struct loop *loop, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void output_ready(struct loop *loop)
{
    struct output *output = &loop->shim.output;
    uint64_t dropped = output->dropped;
    if (output_pump(output, OUTPUT_A_TURN) < 0 && output->pipe >= 0) {
        (void)close(output->pipe); /* the job has closed it, and may well live on */
        output->pipe = -1;
    }
    if (output->dropped != dropped) { /* who reads along must know what is no longer there */
        door_tell_state(&loop->door, &loop->shim);
    }
}

static void children_ready(struct loop *loop)
{
    struct signalfd_siginfo info;
    while (read(loop->signals, &info, sizeof(info)) > 0) {
        /* One may stand for many: shim_reap takes all. */
    }
    shim_reap(&loop->shim);
}

static void ready(struct loop *loop, int fd)
{
    if (fd == loop->signals) {
        children_ready(loop);
    } else if (fd == loop->shim.output.pipe) {
        output_ready(loop);
    } else {
        (void)door_ready(&loop->door, fd);
    }
}

static int wait_ms(uint64_t next_ns)
{
    uint64_t now_ns = boottime_now_ns();
    uint64_t wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
    if (next_ns == 0) {
        return -1;
    }
    return wait_ns > 60 * NS_PER_S ? 60000 : (int)((wait_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static void loop_run(struct loop *loop)
{
    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        uint64_t next_ns = shim_turn(&loop->shim);
        int count;
        if (shim_over(&loop->shim)) {
            return;
        }
        count = epoll_wait(loop->epoll, events, EVENTS_MAX, wait_ms(next_ns));
        for (int i = 0; i < count; i++) {
            ready(loop, events[i].data.fd);
        }
    }
}

static int job_take(struct job_copy *ret_copy, struct error *error)
{
    int result = job_read(JOB_FD, ret_copy, error);
    (void)close(JOB_FD);
    if (result == 0 && ret_copy->job.stdin_fd >= 0) {
        ret_copy->job.stdin_fd = STDIN_FD;
    } else {
        (void)close(STDIN_FD);
    }
    return result;
}

static void last_word(int fd, const struct error *error)
{
    unsigned char bytes[MESSAGE_PACKET_MAX];
    struct message message;
    message_init(&message, MESSAGE_STATE, 0);
    message_put(&message, FIELD_STATE, SHIM_FAILED);
    message_put(&message, FIELD_STEP, START_SHIM);
    message_put_string(&message, FIELD_TEXT, error->text);
    message_encode(&message, bytes);
    (void)send(fd, bytes, message_size(&message), MSG_NOSIGNAL);
}

/* 0; else the job never ran, and the server was told. */
static int loop_begin(struct loop *loop, struct job_copy *copy, struct error *error)
{
    const struct shim_listener listener = {door_tell_state, door_tell_outcome, &loop->door};
    int stdin_fd = copy->job.stdin_fd;
    int result = 0;
    loop->signals = signals_settle();
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    door_init(&loop->door, &loop->shim, loop->epoll);
    if (loop->signals < 0 || loop->epoll < 0 || !watch(loop, loop->signals)) {
        result = error_set_errno(error, errno, "start shim: signals, events");
    }
    if (result == 0) {
        result = door_open(&loop->door, copy->job.directory, copy->job.owner, error);
    }
    if (result < 0) {
        last_word(SERVER_FD, error);
        job_copy_fini(copy);
        return result;
    }
    door_welcome(&loop->door, SERVER_FD);
    result = shim_init(&loop->shim, copy, &listener, error);
    if (stdin_fd >= 0) {
        (void)close(stdin_fd); /* the job's alone now */
    }
    if (result == 0) {
        (void)watch(loop, loop->shim.output.pipe);
    }
    return result;
}

int main(int count, char **arguments)
{
    static struct loop loop; /* too large for a stack */
    struct job_copy copy;
    struct error error;
    if (count > 1 || fcntl(JOB_FD, F_GETFD) < 0 || fcntl(SERVER_FD, F_GETFD) < 0) {
        (void)fprintf(stderr,
                      "%s speaks version %d of the shim's protocol and is started by tidepoold\n",
                      arguments[0], MESSAGE_VERSION);
        return 2;
    }
    if (fork() > 0) {
        _exit(0); /* so that the shim is nobody's child: its server waits for this one and may
                     forget it */
    }
    process_settle();
    if (job_take(&copy, &error) < 0) {
        last_word(SERVER_FD, &error);
        return 1;
    }
    log_settle(copy.job.directory);
    if (loop_begin(&loop, &copy, &error) == 0) {
        loop_run(&loop);
    }
    door_fini(&loop.door);
    shim_fini(&loop.shim);
    return 0;
}
