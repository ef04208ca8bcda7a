/* environment.c: what a job finds in its environment: the client's variables, then the server's. */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/outside/internal.h"

#define OWN_MAX 16

struct variables {
    char **list;
    size_t count;
    bool failed;
};

static void add(struct variables *variables, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(struct variables *variables, const char *format, ...)
{
    va_list values;
    char *text = NULL;
    va_start(values, format);
    if (vasprintf(&text, format, values) < 0) {
        variables->failed = true;
    } else {
        variables->list[variables->count++] = text;
    }
    va_end(values);
}

static bool is_named(const char *variable, const char *name)
{
    size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

static bool is_given(const struct command *command, const char *name)
{
    for (size_t i = 0; i < command->environment_count; i++) {
        if (is_named(command->environment[i], name)) {
            return true;
        }
    }
    return false;
}

/* What the client has set itself stays. */
static void add_standard(struct variables *variables, const struct command *command,
                         const char *name, uint32_t value)
{
    if (!is_given(command, name)) {
        add(variables, "%s=%u", name, value);
    }
}

/* A port of the loopback that nobody uses now. */
static uint32_t port_find(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
                 getsockname(fd, (struct sockaddr *)&address, &size) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return found ? ntohs(address.sin_port) : 29500;
}

static void add_own(struct variables *variables, const struct command *command,
                    const struct outside_lease *lease, const char *folder)
{
    add(variables, "TIDEPOOL_JOB=%s", lease->id);
    add(variables, "TIDEPOOL_LEASE=%llu", (unsigned long long)lease->job);
    add(variables, "TIDEPOOL_TOKEN_FILE=%s/token", folder);
    add(variables, "TIDEPOOL_NOTICE_FILE=%s/notice", folder);
    if (strlen(folder) + sizeof PROGRESS_SOCKET < PROGRESS_PATH_MAX) {
        add(variables, "TIDEPOOL_PROGRESS_SOCKET=%s/" PROGRESS_SOCKET, folder);
    }
    add(variables, "TIDEPOOL_DEVICES=%s", lease->devices);
    add(variables, "TIDEPOOL_GANG_SIZE=%u", lease->device_count);
    add(variables, "TIDEPOOL_RESTART_COUNT=%u", lease->restarts);
    add(variables, "CUDA_VISIBLE_DEVICES="); /* none was granted: none, never all */
    add_standard(variables, command, "OMP_NUM_THREADS", lease->core_count);
    add_standard(variables, command, "PET_NPROC_PER_NODE", lease->device_count);
    add_standard(variables, command, "MASTER_PORT", port_find());
}

char **environment_make(const struct command *command, const struct outside_lease *lease,
                        const char *folder)
{
    struct variables variables = {.list =
                                      calloc(command->environment_count + OWN_MAX, sizeof(char *))};
    if (variables.list == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < command->environment_count; i++) {
        if (!is_named(command->environment[i], "CUDA_VISIBLE_DEVICES")) {
            add(&variables, "%s", command->environment[i]);
        }
    }
    add_own(&variables, command, lease, folder);
    if (variables.failed) {
        environment_free(variables.list);
        return NULL;
    }
    return variables.list;
}

void environment_free(char **environment)
{
    for (size_t i = 0; environment != NULL && environment[i] != NULL; i++) {
        free(environment[i]);
    }
    free(environment);
}
