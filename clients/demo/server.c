#include "clients/demo/server.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/base/clock.h"

#define START_NS (30 * NS_PER_S)
#define STOP_NS (20 * NS_PER_S)
#define CALL_NS (5 * NS_PER_S)
#define TRY_NS (20 * NS_PER_MS)

static void sleep_ns(uint64_t ns)
{
    struct timespec time = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    nanosleep(&time, NULL);
}

static int on_remove(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

/* What an earlier demo left is in the way: its jobs would go on. */
static int folder_clean(const struct demo_server *server, const char *name, struct error *error)
{
    char path[600];
    snprintf(path, sizeof(path), "%s/%s", server->folder, name);
    if (nftw(path, on_remove, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT) {
        return error_set_errno(error, errno, "remove '%s'", path);
    }
    if (mkdir(path, 0700) < 0) {
        return error_set_errno(error, errno, "create '%s'", path);
    }
    return 0;
}

static int folder_prepare(struct demo_server *server, const char *build, struct error *error)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/demo", build);
    if (mkdir(path, 0777) < 0 && errno != EEXIST) {
        return error_set_errno(error, errno, "create '%s'", path);
    }
    char *absolute = realpath(path, NULL);
    if (absolute == NULL || strlen(absolute) >= sizeof(server->folder)) {
        int result = error_set_errno(error, absolute == NULL ? errno : ENAMETOOLONG, "'%s'", path);
        free(absolute);
        return result;
    }
    strcpy(server->folder, absolute);
    free(absolute);
    char lock[600];
    snprintf(lock, sizeof(lock), "%s/lock", server->folder);
    server->lock = open(lock, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (server->lock < 0 || flock(server->lock, LOCK_EX | LOCK_NB) < 0) {
        return error_set_errno(error, errno, "'%s' is used by another 'make run'", server->folder);
    }
    static const char *const names[] = {"state", "models", "again"};
    int result = 0;
    for (size_t i = 0; i < 3 && result == 0; i++) {
        result = folder_clean(server, names[i], error);
    }
    return result;
}

/* In the child: only what is safe between fork and exec. */
static void child_run(char *const *arguments, int log_fd, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* a demo that is killed takes its server with it */
    setpgid(0, 0); /* Ctrl-C is for the demo, which then ends the server in order */
    if (getppid() != parent || dup2(log_fd, STDOUT_FILENO) < 0 || dup2(log_fd, STDERR_FILENO) < 0) {
        _exit(126);
    }
    execv(arguments[0], arguments);
    _exit(127);
}

static int child_start(struct demo_server *server, const char *build, const char *config,
                       struct error *error)
{
    char binary[600], state[600], models[600], log[600];
    snprintf(binary, sizeof(binary), "%s/tidepoold", build);
    snprintf(state, sizeof(state), "%s/state", server->folder);
    snprintf(models, sizeof(models), "%s/models", server->folder);
    snprintf(log, sizeof(log), "%s/tidepoold.log", server->folder);
    char config_path[600], config_option[] = "--config", state_option[] = "--state",
                           models_option[] = "--model-repository";
    snprintf(config_path, sizeof(config_path), "%s", config);
    char *const arguments[] = {binary, config_option, config_path, state_option,
                               state,  models_option, models,      NULL};
    int log_fd = open(log, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (log_fd < 0) {
        return error_set_errno(error, errno, "create '%s'", log);
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        child_run(arguments, log_fd, parent);
    }
    close(log_fd);
    if (pid < 0) {
        return error_set_errno(error, errno, "start '%s'", binary);
    }
    server->pid = pid;
    return 0;
}

int demo_server_check(struct demo_server *server, struct error *error)
{
    int status = 0;
    if (server->pid == 0 || waitpid(server->pid, &status, WNOHANG) != server->pid) {
        return 0;
    }
    server->pid = 0;
    return error_set(error, ERROR_INTERNAL, "tidepoold has ended (%s %d)",
                     WIFSIGNALED(status) ? "signal" : "exit code",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void inference_find(struct demo_server *server, const Tidepool__V1__Status *status)
{
    for (size_t i = 0; i < status->n_listeners; i++) {
        const Tidepool__V1__Listener *listener = status->listeners[i];
        for (size_t j = 0; j < listener->n_services; j++) {
            bool inference = strstr(listener->services[j], "inference") != NULL;
            if (inference && strncmp(listener->address, "unix:", 5) != 0) {
                snprintf(server->inference, sizeof(server->inference), "%s", listener->address);
            }
        }
    }
}

/* One try to reach the server; 0 also when it is not ready yet. */
static int ready_try(struct demo_server *server, bool *ret_ready)
{
    struct grpc_client_options options = {.address = server->socket};
    Tidepool__V1__GetStatusRequest request = TIDEPOOL__V1__GET_STATUS_REQUEST__INIT;
    Tidepool__V1__Status *status = NULL;
    *ret_ready = false;
    if (server->client == NULL && grpc_client_create(&options, &server->client, NULL) < 0) {
        return 0;
    }
    int result = control_call(server->client, "GetStatus", &request.base, CALL_NS, &status, NULL);
    if (result == -(int)ERROR_UNAVAILABLE) {
        grpc_client_destroy(server->client);
        server->client = NULL;
        return 0;
    }
    if (result == 0) {
        inference_find(server, status);
        *ret_ready = status->ready;
        control_free(status);
    }
    return result;
}

int demo_server_start(struct demo_server *server, const char *build, const char *config,
                      struct error *error)
{
    memset(server, 0, sizeof(*server));
    server->lock = -1;
    int result = folder_prepare(server, build, error);
    if (result == 0) {
        snprintf(server->socket, sizeof(server->socket), "unix:%s/state/tidepool.sock",
                 server->folder);
        result = child_start(server, build, config, error);
    }
    uint64_t end = clock_now_ns() + START_NS;
    bool ready = false;
    while (result == 0 && !ready) {
        result = demo_server_check(server, error);
        if (result == 0 && ready_try(server, &ready) < 0) {
            result = error_set(error, ERROR_INTERNAL, "tidepoold does not tell its status");
        }
        if (result == 0 && !ready && clock_now_ns() >= end) {
            result =
                error_set(error, ERROR_DEADLINE_EXCEEDED,
                          "tidepoold was not ready in time; see %s/tidepoold.log", server->folder);
        }
        if (result == 0 && !ready) {
            sleep_ns(TRY_NS);
        }
    }
    if (result == 0 && server->inference[0] == '\0') {
        result = error_set(error, ERROR_FAILED_PRECONDITION,
                           "the configuration has no TCP listener for inference");
    }
    return result;
}

void demo_server_stop(struct demo_server *server)
{
    grpc_client_destroy(server->client);
    server->client = NULL;
    uint64_t end = clock_now_ns() + STOP_NS;
    if (server->pid != 0) {
        kill(server->pid, SIGTERM);
    }
    while (server->pid != 0 && demo_server_check(server, NULL) == 0) {
        if (clock_now_ns() >= end) {
            kill(server->pid, SIGKILL);
        }
        sleep_ns(TRY_NS);
    }
    if (server->lock >= 0) {
        close(server->lock);
        server->lock = -1;
    }
}
