/* spawner_run.c: the spawner's own process: one thread that waits for the server's messages and
 * for children that are over. */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/shim/job.h"
#include "server/shim/spawner_internal.h"

#define HIGH_FD 10 /* above the numbers that a shim expects */

/* ---- what it may do --------------------------------------------------------------------- */

/* Below the place's, with no way up again in it. */
static int directory_check(const struct spawner_place *place, const char *directory,
                           struct error *error)
{
    size_t length = strlen(place->directory);
    if (strncmp(directory, place->directory, length) != 0 || directory[length] != '/' ||
        strstr(directory + length, "/..") != NULL) {
        return error_set(error, ERROR_PERMISSION_DENIED,
                         "a job's directory '%s' is not below the server's '%s'", directory,
                         place->directory);
    }
    return 0;
}

static bool has_root_group(const struct shim_job *job)
{
    bool found = job->gid == 0;
    for (size_t i = 0; i < job->group_count; i++) {
        found = found || job->groups[i] == 0;
    }
    return found;
}

/* What a server without privileges may ask of one with them. */
static int job_check(const struct spawner_place *place, const struct shim_job *job,
                     struct error *error)
{
    if (job->owner != place->owner) {
        return error_set(error, ERROR_PERMISSION_DENIED,
                         "job '%s': its shim would obey user %u instead of the server's, %u",
                         job->job, job->owner, place->owner);
    }
    if (geteuid() == 0 && place->owner != 0 &&
        (job->uid == 0 || has_root_group(job) || job->nice < 0)) {
        return error_set(error, ERROR_PERMISSION_DENIED,
                         "job '%s' is root's, of root's group or nicer than others: only a server "
                         "that runs as root starts such jobs",
                         job->job);
    }
    return directory_check(place, job->directory, error);
}

/* ---- starting --------------------------------------------------------------------------- */

static int actions_fill(posix_spawn_file_actions_t *actions, int job, int connection, int input)
{
    int result = 0;
    for (int fd = 0; result == 0 && fd < 3; fd++) {
        result = posix_spawn_file_actions_addopen(actions, fd, "/dev/null", O_RDWR, 0);
    }
    result = result != 0 ? result : posix_spawn_file_actions_adddup2(actions, job, 3);
    result = result != 0 ? result : posix_spawn_file_actions_adddup2(actions, connection, 4);
    if (result == 0 && input >= 0) {
        result = posix_spawn_file_actions_adddup2(actions, input, 5);
    }
    return result != 0 ? result
                       : posix_spawn_file_actions_addclosefrom_np(actions, input >= 0 ? 6 : 5);
}

static int attributes_fill(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    int result;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    result = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                                      POSIX_SPAWN_SETSIGDEF);
    result = result != 0 ? result : posix_spawnattr_setsigmask(attributes, &none);
    return result != 0 ? result : posix_spawnattr_setsigdefault(attributes, &all);
}

/* 0 or an errno. */
static int shim_spawn(const char *program, int job, int connection, int input)
{
    char *const arguments[] = {(char *)"tidepool-shim", NULL};
    char *const environment[] = {NULL}; /* nothing of ours */
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t pid;
    int result = posix_spawn_file_actions_init(&actions);
    if (result != 0) {
        return result;
    }
    result = posix_spawnattr_init(&attributes);
    if (result == 0) {
        result = actions_fill(&actions, job, connection, input);
        result = result != 0 ? result : attributes_fill(&attributes);
        result = result != 0
                     ? result
                     : posix_spawn(&pid, program, &actions, &attributes, arguments, environment);
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    if (result == 0) {
        (void)waitpid(pid, NULL, 0); /* it forks the shim and ends */
    }
    return result;
}

static void descriptor_close(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

/* Moves a descriptor to where it does not stand in the way of the others. */
static void descriptor_raise(int *fd)
{
    int high = *fd < 0 ? -1 : fcntl(*fd, F_DUPFD_CLOEXEC, HIGH_FD);
    descriptor_close(fd);
    *fd = high;
}

/* The job is written again: what was checked is what the shim reads. */
static int start(const struct spawner_place *place, int files[SPAWN_FILES], struct error *error)
{
    struct job_copy copy;
    int result = job_read(files[SPAWN_JOB], &copy, error);
    if (result < 0) {
        return result;
    }
    result = job_check(place, &copy.job, error);
    if (result == 0 && (copy.job.stdin_fd >= 0) != (files[SPAWN_INPUT] >= 0)) {
        result = error_set(error, ERROR_INVALID_ARGUMENT, "start job '%s': its standard input",
                           copy.job.job);
    }
    if (result == 0) {
        descriptor_close(&files[SPAWN_JOB]);
        files[SPAWN_JOB] = result = job_write(&copy.job, error);
    }
    if (result >= 0) {
        int number;
        for (size_t i = 0; i < SPAWN_FILES; i++) {
            descriptor_raise(&files[i]);
        }
        number = shim_spawn(place->program, files[SPAWN_JOB], files[SPAWN_CONNECTION],
                            files[SPAWN_INPUT]);
        result =
            number == 0 ? 0 : error_set_errno(error, number, "start shim '%s'", place->program);
    }
    job_copy_fini(&copy);
    return result;
}

/* ---- by a shim's record ------------------------------------------------------------------ */

/* The server's user may write in the directory; record_read takes only what a shim of ours wrote.
 */
static int record_take_ours(const struct spawner_place *place, const char *directory,
                            struct shim_record *ret_record, struct error *error)
{
    int result = directory_check(place, directory, error);
    return result < 0 ? result : record_read(directory, ret_record, error);
}

static int wake(const struct shim_record *record, struct error *error)
{
    int pidfd = process_open((pid_t)record->shim_pid, record->shim_start);
    if (pidfd < 0) {
        return error_set(error, ERROR_NOT_FOUND, "the shim of job '%s' is gone", record->job);
    }
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGCONT, NULL, 0);
    (void)close(pidfd);
    return 0;
}

/* ---- the process ------------------------------------------------------------------------ */

static int carry_out(const struct spawner_place *place, const struct spawner_request *request,
                     int files[SPAWN_FILES], enum remains *ret_remains, struct error *error)
{
    struct shim_record record;
    int result;
    if (request->kind == SPAWN_START) {
        return start(place, files, error);
    }
    result = record_take_ours(place, request->directory, &record, error);
    if (result == 0 && request->kind == SPAWN_WAKE) {
        return wake(&record, error);
    }
    if (result == 0) {
        *ret_remains = remains_end(&record);
    }
    return result;
}

/* False: the server is gone. */
static bool serve_one(const struct spawner_place *place, int socket)
{
    struct spawner_request request;
    struct spawner_answer answer = {.code = ERROR_NONE};
    struct error error = {.text = ""};
    int files[PACKET_FILES_MAX] = {-1, -1, -1};
    size_t count;
    ssize_t length = packet_receive(socket, &request, sizeof request, files, &count);
    if (length != (ssize_t)sizeof request) {
        return false;
    }
    request.directory[PATH_MAX - 1] = '\0';
    if (carry_out(place, &request, files, &answer.remains, &error) < 0) {
        answer.code = error.code;
        (void)snprintf(answer.text, sizeof answer.text, "%s", error.text);
    }
    for (size_t i = 0; i < PACKET_FILES_MAX; i++) {
        descriptor_close(&files[i]);
    }
    return packet_send(socket, &answer, sizeof answer, NULL, 0) == 0;
}

static void reap(int signals)
{
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) > 0) {
        /* One may stand for many. */
    }
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

/* Ctrl-C and a service manager's TERM are for the server; this ends after it. */
static int signals_settle(void)
{
    sigset_t all, children;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)sigemptyset(&children);
    (void)sigaddset(&children, SIGCHLD);
    return signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
}

_Noreturn void spawner_run(const struct spawner_place *place, int socket)
{
    struct pollfd ready[2] = {{.events = POLLIN}, {.events = POLLIN}};
    (void)setsid();
    (void)umask(077);
    (void)prctl(PR_SET_NAME, "tidepool-spawn");
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)prctl(PR_SET_DUMPABLE, 0);
    socket = dup2(socket, 3);
    (void)syscall(SYS_close_range, 4, ~0U, 0);
    ready[0].fd = fcntl(socket, F_DUPFD_CLOEXEC, HIGH_FD);
    (void)close(socket);
    ready[1].fd = signals_settle();
    while (ready[0].fd >= 0 && (poll(ready, 2, -1) >= 0 || errno == EINTR)) {
        if (ready[1].revents != 0) {
            reap(ready[1].fd);
        }
        if (ready[0].revents != 0 && !serve_one(place, ready[0].fd)) {
            break;
        }
    }
    _exit(0);
}
