#include "server/shim/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/shim/packet.h"
#include "server/shim/tree.h"

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

/* What the child says before it becomes the job; that it has become it shows by the socket's end.
 */
struct word {
    enum { WORD_FAILED, WORD_UNGROUPED, WORD_OUTPUT } kind;
    enum shim_step step;
    int error_number;
};

static void say(int socket, struct word word, int fd)
{
    (void)packet_send(socket, &word, sizeof(word), &fd, fd >= 0 ? 1 : 0);
}

static _Noreturn void child_fail(int socket, enum shim_step step, int error_number)
{
    say(socket, (struct word){WORD_FAILED, step, error_number}, -1);
    _exit(127);
}

/* ---- in the child ----------------------------------------------------------------------- */

static void enter_group(const struct launch *launch, int socket)
{
    int result = launch->cgroup->kind == CGROUP_NONE ? 0 : cgroup_enter(launch->cgroup);
    if (result < 0 && launch->job->cgroup != CGROUP_AUTO) {
        child_fail(socket, START_GROUP, -result);
    }
    if (result < 0) {
        say(socket, (struct word){WORD_UNGROUPED, START_GROUP, -result}, -1);
    }
}

/* The scheduler's class, nice, cores: the server's threads have others, and so has the shim. */
static void set_scheduling(const struct shim_job *job, int socket)
{
    struct sched_param normal = {0};
    cpu_set_t cpus;
    (void)sched_setscheduler(0, SCHED_OTHER, &normal);
    /* A plain user may not be nicer than it is: the next best thing is what it has. */
    (void)setpriority(PRIO_PROCESS, 0, job->nice);
    memset(&cpus, 0xff, sizeof(cpus));
    if (job->cpus != NULL && cpus_parse(job->cpus, &cpus, NULL) < 0) {
        child_fail(socket, START_LIMITS, EINVAL);
    }
    if (sched_setaffinity(0, sizeof(cpus), &cpus) < 0) {
        child_fail(socket, START_LIMITS, errno);
    }
}

static void set_limits(const struct shim_job *job, int socket)
{
    for (size_t i = 0; i < job->limit_count; i++) {
        struct rlimit limit = {job->limits[i].soft, job->limits[i].hard};
        if (setrlimit((__rlimit_resource_t)job->limits[i].resource, &limit) < 0) {
            child_fail(socket, START_LIMITS, errno);
        }
    }
}

static void become_user(const struct shim_job *job, int socket)
{
    if (geteuid() != 0) {
        if (job->uid != geteuid() || job->gid != getegid()) {
            child_fail(socket, START_USER, EPERM);
        }
        return;
    }
    if (setgroups(job->group_count, job->groups) < 0 ||
        setresgid(job->gid, job->gid, job->gid) < 0 ||
        setresuid(job->uid, job->uid, job->uid) < 0) {
        child_fail(socket, START_USER, errno);
    }
    if (job->uid != 0 && setuid(0) == 0) {
        child_fail(socket, START_USER, EPERM);
    }
}

static void open_output(const struct shim_job *job, int socket)
{
    struct stat status;
    int fd;
    if (job->output == NULL) {
        return;
    }
    /* Not blocking: a pipe without a reader would hold up the shim. */
    fd = open(job->output, O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0 || fstat(fd, &status) < 0) {
        child_fail(socket, START_OUTPUT, errno);
    }
    if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode)) {
        child_fail(socket, START_OUTPUT, EINVAL);
    }
    say(socket, (struct word){WORD_OUTPUT, START_OUTPUT, 0}, fd);
    (void)close(fd);
}

static void set_descriptors(const struct launch *launch, int socket)
{
    int input = launch->stdin_fd >= 0 ? launch->stdin_fd : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (input < 0 || dup2(input, 0) < 0 || dup2(launch->output_fd, 1) < 0 ||
        dup2(launch->output_fd, 2) < 0 ||
        syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC) < 0) {
        child_fail(socket, START_SHIM, errno);
    }
}

/* Ignored signals outlive exec, and so does the mask. By the kernel's own call: the library keeps
 * two signals to itself, and its posix_spawn leaves them ignored. */
static void set_signals(void)
{
    static const uint64_t standard[8]; /* no larger a struct on any machine: all 0 is the default */
    sigset_t none;
    for (int signal = 1; signal < NSIG; signal++) {
        (void)syscall(SYS_rt_sigaction, signal, standard, NULL, sizeof(uint64_t));
    }
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static const char **environment_with(const char *const *environment, const char *tag)
{
    size_t count = 0;
    const char **all;
    while (environment[count] != NULL) {
        count++;
    }
    all = calloc(count + 2, sizeof(*all));
    if (all != NULL) {
        memcpy(all, environment, count * sizeof(*all));
        all[count] = tag;
    }
    return all;
}

static const char *path_of(const char *const *environment)
{
    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, "PATH=", 5) == 0) {
            return *environment + 5;
        }
    }
    return DEFAULT_PATH;
}

static int execute_one(const char *path, const char *const *arguments, const char **environment,
                       int socket)
{
    (void)execve(path, (char *const *)arguments, (char *const *)environment);
    if (errno == ENOENT && access(path, F_OK) == 0) {
        child_fail(socket, START_INTERPRETER,
                   ENOENT); /* it is there: its first line names nothing */
    }
    return errno;
}

/* Each folder of PATH in turn; unlike a shell, never as a script of /bin/sh when it is no program.
 */
static int execute_in_path(const char *const *arguments, const char **environment, int socket)
{
    int reason = ENOENT;
    for (const char *at = path_of(environment); at != NULL;) {
        char path[PATH_MAX];
        int length = (int)strcspn(at, ":");
        int tried;
        if (snprintf(path, sizeof(path), "%.*s%s%s", length, at, length > 0 ? "/" : "./",
                     arguments[0]) < (int)sizeof(path)) {
            tried = execute_one(path, arguments, environment, socket);
            reason = tried == ENOENT || tried == ENOTDIR ? reason : tried;
            if (tried != ENOENT && tried != ENOTDIR && tried != EACCES) {
                break;
            }
        }
        at = at[length] == ':' ? at + length + 1 : NULL;
    }
    return reason;
}

static _Noreturn void child_run(const struct launch *launch, pid_t shim, int socket)
{
    const struct shim_job *job = launch->job;
    const char **environment = environment_with(job->environment, launch->tag);
    if (environment == NULL) {
        child_fail(socket, START_SHIM, ENOMEM);
    }
    (void)setsid();
    enter_group(launch, socket);
    set_scheduling(job, socket);
    set_limits(job, socket);
    become_user(job, socket);
    /* After the change of user, which would take it back; the shim may have died before. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != shim) {
        _exit(127);
    }
    (void)umask(job->umask);
    if (job->working_directory != NULL && chdir(job->working_directory) < 0) {
        child_fail(socket, START_DIRECTORY, errno);
    }
    open_output(job, socket);
    set_descriptors(launch, socket);
    set_signals();
    child_fail(socket, START_EXECUTE,
               strchr(job->arguments[0], '/') != NULL
                   ? execute_one(job->arguments[0], job->arguments, environment, socket)
                   : execute_in_path(job->arguments, environment, socket));
}

/* ---- in the shim ------------------------------------------------------------------------ */

/* Until the socket ends: the child has become the job, or has failed. */
static void listen_to(int socket, struct launched *launched)
{
    struct word word;
    int files[PACKET_FILES_MAX];
    size_t count;
    while (packet_receive(socket, &word, sizeof(word), files, &count) == (ssize_t)sizeof(word)) {
        if (word.kind == WORD_OUTPUT && count == 1) {
            launched->copy = files[0];
        }
        if (word.kind == WORD_UNGROUPED) {
            launched->grouped = false;
        }
        if (word.kind == WORD_FAILED) {
            launched->step = word.step;
            launched->error_number = word.error_number;
        }
    }
}

/* After exec: before, the file is not the user's. Who may not be raised stays as it is. */
static void set_oom_score(pid_t pid, int score)
{
    char path[64];
    int fd;
    (void)snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", pid);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)dprintf(fd, "%d", score);
        (void)close(fd);
    }
}

static int step_error(const struct launch *launch, const struct launched *launched,
                      struct error *error)
{
    const struct shim_job *job = launch->job;
    switch (launched->step) {
    case START_EXECUTE:
        return error_set_errno(error, launched->error_number, "execute '%s'", job->arguments[0]);
    case START_INTERPRETER:
        return error_set_errno(error, launched->error_number, "execute '%s': its interpreter",
                               job->arguments[0]);
    case START_DIRECTORY:
        return error_set_errno(error, launched->error_number, "working directory '%s'",
                               job->working_directory);
    case START_OUTPUT:
        return error_set_errno(error, launched->error_number, "open output '%s'", job->output);
    case START_USER:
        return error_set_errno(error, launched->error_number, "become user %u, group %u", job->uid,
                               job->gid);
    case START_LIMITS:
        return error_set_errno(error, launched->error_number, "set the job's cores and limits");
    case START_GROUP:
        return error_set_errno(error, launched->error_number, "enter control group '%s'",
                               launch->cgroup->path);
    default:
        return error_set_errno(error, launched->error_number, "start a process");
    }
}

static int launch_failed(const struct launch *launch, struct launched *launched,
                         struct launched *ret_launched, struct error *error)
{
    if (launched->pid > 0) {
        (void)waitpid(launched->pid, NULL, 0);
    }
    if (launched->copy >= 0) {
        (void)close(launched->copy);
    }
    launched->copy = -1;
    launched->pid = 0;
    *ret_launched = *launched;
    return step_error(launch, launched, error);
}

int launch(const struct launch *launch, struct launched *ret_launched, struct error *error)
{
    struct launched launched = {.copy = -1, .grouped = launch->cgroup->kind != CGROUP_NONE};
    struct process leader;
    pid_t shim = getpid();
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
        launched.step = START_SHIM;
        launched.error_number = errno;
        return launch_failed(launch, &launched, ret_launched, error);
    }
    launched.pid = fork();
    if (launched.pid == 0) {
        (void)close(sockets[0]);
        child_run(launch, shim, sockets[1]);
    }
    if (launched.pid < 0) {
        launched.step = START_SHIM;
        launched.error_number = errno;
    }
    (void)close(sockets[1]);
    listen_to(sockets[0], &launched);
    (void)close(sockets[0]);
    if (launched.step != START_NOTHING) {
        return launch_failed(launch, &launched, ret_launched, error);
    }
    if (process_read(launched.pid, &leader)) {
        launched.start = leader.start;
    }
    set_oom_score(launched.pid, launch->job->oom_score);
    *ret_launched = launched;
    return 0;
}
