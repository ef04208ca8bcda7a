/* spawner.c: the server's side: forks it, asks it. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/shim/spawner_internal.h"

struct spawner {
    pthread_mutex_t lock; /* a question and its answer */
    int socket;
    pid_t pid;
};

int spawner_create(const struct spawner_rules *rules, struct spawner **ret_spawner,
                   struct error *error)
{
    struct spawner_place place = {.owner = rules->owner};
    struct spawner *spawner;
    int sockets[2];
    if (snprintf(place.program, PATH_MAX, "%s", rules->program) >= PATH_MAX ||
        snprintf(place.directory, PATH_MAX, "%s", rules->directory) >= PATH_MAX ||
        place.directory[0] != '/') {
        return error_set(
            error, ERROR_INVALID_ARGUMENT,
            "start the spawner: '%s' or '%s' is too long a path or not an absolute one",
            rules->program, rules->directory);
    }
    spawner = calloc(1, sizeof *spawner);
    if (spawner == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
        free(spawner);
        return error_set_errno(error, errno, "start the spawner: socket");
    }
    spawner->pid = fork();
    if (spawner->pid == 0) {
        spawner_run(&place, sockets[1]);
    }
    (void)close(sockets[1]);
    if (spawner->pid < 0) {
        int number = errno;
        (void)close(sockets[0]);
        free(spawner);
        return error_set_errno(error, number, "start the spawner: fork");
    }
    spawner->socket = sockets[0];
    (void)pthread_mutex_init(&spawner->lock, NULL);
    *ret_spawner = spawner;
    return 0;
}

void spawner_destroy(struct spawner *spawner)
{
    if (spawner != NULL) {
        (void)close(spawner->socket);
        (void)waitpid(spawner->pid, NULL, 0);
        (void)pthread_mutex_destroy(&spawner->lock);
        free(spawner);
    }
}

static int ask(struct spawner *spawner, const struct spawner_request *request, const int *files,
               size_t count, struct spawner_answer *answer, struct error *error)
{
    int none[PACKET_FILES_MAX];
    size_t none_count;
    ssize_t length;
    (void)pthread_mutex_lock(&spawner->lock);
    length = packet_send(spawner->socket, request, sizeof *request, files, count);
    if (length == 0) {
        length = packet_receive(spawner->socket, answer, sizeof *answer, none, &none_count);
    }
    (void)pthread_mutex_unlock(&spawner->lock);
    if (length != (ssize_t)sizeof *answer) {
        return error_set(error, ERROR_UNAVAILABLE,
                         "the process that starts jobs is gone: restart the server; jobs go on");
    }
    return answer->code == ERROR_NONE ? 0 : error_set(error, answer->code, "%s", answer->text);
}

int spawner_start(struct spawner *spawner, int job, int connection, int input, struct error *error)
{
    const struct spawner_request request = {.kind = SPAWN_START};
    const int files[SPAWN_FILES] = {
        [SPAWN_JOB] = job, [SPAWN_CONNECTION] = connection, [SPAWN_INPUT] = input};
    struct spawner_answer answer;
    return ask(spawner, &request, files, input >= 0 ? SPAWN_FILES : SPAWN_INPUT, &answer, error);
}

static int ask_about(struct spawner *spawner, int kind, const char *directory,
                     struct spawner_answer *answer, struct error *error)
{
    struct spawner_request request = {.kind = kind};
    if (snprintf(request.directory, PATH_MAX, "%s", directory) >= PATH_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "too long a path: '%.64s…'", directory);
    }
    return ask(spawner, &request, NULL, 0, answer, error);
}

int spawner_end(struct spawner *spawner, const char *directory, enum remains *ret_remains,
                struct error *error)
{
    struct spawner_answer answer;
    int result = ask_about(spawner, SPAWN_END, directory, &answer, error);
    if (result == 0) {
        *ret_remains = answer.remains;
    }
    return result;
}

int spawner_wake(struct spawner *spawner, const char *directory, struct error *error)
{
    struct spawner_answer answer;
    return ask_about(spawner, SPAWN_WAKE, directory, &answer, error);
}
