#include "server/shim/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/shim/address.h"

struct shim_client {
    struct spawner *spawner;
    char *directory;
    int socket;
    int process; /* a pidfd; -1: not told yet who it is */
    shim_handler handler;
    void *arg;
    uint64_t last_command;
    uint16_t version;           /* the shim's: it may be older than we are */
    uint64_t epoch, generation; /* what commands carry */
    struct shim_record record;
};

static void descriptor_close(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

static struct shim_client *client_create(struct spawner *spawner, const char *directory,
                                         shim_handler handler, void *arg)
{
    struct shim_client *client = calloc(1, sizeof(*client));
    if (client != NULL && (client->directory = strdup(directory)) == NULL) {
        free(client);
        client = NULL;
    }
    if (client != NULL) {
        client->spawner = spawner;
        client->socket = client->process = -1;
        client->version = MESSAGE_VERSION;
        client->handler = handler;
        client->arg = arg;
    }
    return client;
}

void shim_client_destroy(struct shim_client *client)
{
    if (client == NULL) {
        return;
    }
    descriptor_close(&client->socket);
    descriptor_close(&client->process);
    free(client->directory);
    free(client);
}

int shim_client_fd(const struct shim_client *client)
{
    return client->socket;
}

const struct shim_record *shim_client_record(const struct shim_client *client)
{
    return &client->record;
}

void shim_client_set_token(struct shim_client *client, uint64_t epoch, uint64_t generation)
{
    client->epoch = epoch;
    client->generation = generation;
}

void shim_client_wake(const struct shim_client *client)
{
    (void)spawner_wake(client->spawner, client->directory, NULL);
}

/* ---- starting --------------------------------------------------------------------------- */

static int client_spawn(struct shim_client *client, const struct shim_job *job, struct error *error)
{
    int sockets[2];
    int file = job_write(job, error);
    int result = file;
    if (file < 0) {
        return result;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
        (void)close(file);
        return error_set_errno(error, errno, "start job '%s': socket", job->job);
    }
    result = spawner_start(client->spawner, file, sockets[1], job->stdin_fd, error);
    (void)close(file);
    (void)close(sockets[1]);
    client->socket = sockets[0];
    return result;
}

int shim_client_start(struct spawner *spawner, const struct shim_job *job, shim_handler handler,
                      void *arg, struct shim_client **ret_client, struct error *error)
{
    struct shim_client *client;
    int result;
    if (job->directory == NULL || job->directory[0] != '/' || job->arguments[0] == NULL) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "start job '%s': no command, or no absolute directory", job->job);
    }
    client = client_create(spawner, job->directory, handler, arg);
    if (client == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "start job '%s': no memory", job->job);
    }
    shim_client_set_token(client, job->epoch, job->generation);
    result = client_spawn(client, job, error);
    if (result < 0) {
        shim_client_destroy(client);
        return result;
    }
    *ret_client = client;
    return 0;
}

/* ---- finding again ---------------------------------------------------------------------- */

/* Whether the socket's other end is the process of the record. */
static bool owner_right(int socket, const struct shim_record *record)
{
    struct ucred owner;
    socklen_t size = sizeof(owner);
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &owner, &size) == 0 &&
           (uint64_t)owner.pid == record->shim_pid && (owner.uid == geteuid() || owner.uid == 0);
}

static uint64_t command_send(struct shim_client *client, struct message *message)
{
    unsigned char bytes[MESSAGE_PACKET_MAX];
    size_t length = message_size(message);
    if (client->socket < 0 || length > sizeof(bytes)) {
        return 0;
    }
    message->id = ++client->last_command;
    message->version = client->version;
    message_encode(message, bytes);
    return send(client->socket, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)length
               ? message->id
               : 0;
}

static int client_connect(struct shim_client *client, const char *directory, struct error *error)
{
    struct shim_address address;
    struct message hello;
    int result = shim_address_open(&address, directory, error);
    if (result < 0) {
        return result;
    }
    client->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (client->socket < 0 ||
        connect(client->socket, (const struct sockaddr *)&address.name, sizeof(address.name)) < 0) {
        char reason[64];
        result = error_set(error, ERROR_UNAVAILABLE, "connect to the shim in '%s': %s; try again",
                           directory, strerror_r(errno, reason, sizeof(reason)));
    } else if (!owner_right(client->socket, &client->record)) {
        result =
            error_set(error, ERROR_PERMISSION_DENIED,
                      "connect to the shim in '%s': its socket is another process's", directory);
    }
    shim_address_close(&address);
    if (result == 0) {
        message_init(&hello, MESSAGE_HELLO, 0);
        message_put_bytes(&hello, FIELD_SECRET, client->record.secret, SHIM_SECRET_SIZE);
        if (command_send(client, &hello) == 0) {
            result = error_set(error, ERROR_UNAVAILABLE,
                               "connect to the shim in '%s': it does not read", directory);
        }
    }
    return result;
}

static bool record_final(const struct shim_record *record)
{
    return record->state == SHIM_ENDED || record->state == SHIM_FAILED;
}

static int client_recognise(struct shim_client *client, bool *ret_there, struct error *error)
{
    char boot[BOOT_ID_SIZE];
    int result = boot_id_read(boot, error);
    *ret_there = false;
    if (result < 0 || strcmp(boot, client->record.boot) != 0) {
        return result;
    }
    client->process = process_open((pid_t)client->record.shim_pid, client->record.shim_start);
    *ret_there = client->process >= 0 && !process_over(client->process);
    return 0;
}

int shim_client_find(struct spawner *spawner, const char *directory, shim_handler handler,
                     void *arg, struct shim_record *ret_record, struct shim_client **ret_client,
                     struct error *error)
{
    struct shim_client *client = client_create(spawner, directory, handler, arg);
    bool there = false;
    int result;
    if (client == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "find shim in '%s': no memory",
                         directory);
    }
    result = record_read(directory, &client->record, error);
    if (result == 0) {
        result = client_recognise(client, &there, error);
    }
    if (result == 0 && there) {
        shim_client_set_token(client, client->record.epoch, client->record.generation);
        client->version = client->record.version;
        shim_client_wake(client);
        result = client_connect(client, directory, error);
        /* One that has told the end and is about to go has no door any more. */
        if (result == -(int)ERROR_UNAVAILABLE && record_final(&client->record)) {
            result = 0;
            there = false;
        }
    }
    if (result == 0) {
        *ret_record = client->record;
        *ret_client = there ? client : NULL;
    }
    if (result < 0 || !there) {
        shim_client_destroy(client);
    }
    return result;
}

/* ---- commands --------------------------------------------------------------------------- */

static void command_init(const struct shim_client *client, struct message *message,
                         enum message_type type)
{
    message_init(message, type, 0);
    message_put(message, FIELD_EPOCH, client->epoch);
    message_put(message, FIELD_GENERATION, client->generation);
}

static uint64_t command_plain(struct shim_client *client, enum message_type type)
{
    struct message message;
    command_init(client, &message, type);
    return command_send(client, &message);
}

static uint64_t command_bounded(struct shim_client *client, enum message_type type,
                                uint32_t bound_ms)
{
    struct message message;
    command_init(client, &message, type);
    message_put(&message, FIELD_BOUND_MS, bound_ms);
    return command_send(client, &message);
}

uint64_t shim_client_freeze(struct shim_client *client, uint32_t bound_ms)
{
    return command_bounded(client, MESSAGE_FREEZE, bound_ms);
}

uint64_t shim_client_kill(struct shim_client *client, uint32_t bound_ms)
{
    return command_bounded(client, MESSAGE_KILL, bound_ms);
}

uint64_t shim_client_thaw(struct shim_client *client)
{
    return command_plain(client, MESSAGE_THAW);
}

uint64_t shim_client_verify(struct shim_client *client)
{
    return command_plain(client, MESSAGE_VERIFY);
}

uint64_t shim_client_close(struct shim_client *client)
{
    return command_plain(client, MESSAGE_CLOSE);
}

uint64_t shim_client_signal(struct shim_client *client, int signal, bool leader_only)
{
    struct message message;
    command_init(client, &message, MESSAGE_SIGNAL);
    message_put(&message, FIELD_SIGNAL, (uint64_t)signal);
    message_put(&message, FIELD_LEADER_ONLY, leader_only);
    return command_send(client, &message);
}

uint64_t shim_client_pin(struct shim_client *client, const char *cpus)
{
    struct message message;
    command_init(client, &message, MESSAGE_PIN);
    message_put_string(&message, FIELD_CPUS, cpus);
    return command_send(client, &message);
}

uint64_t shim_client_update(struct shim_client *client, const struct shim_record *record)
{
    struct message message;
    message_init(&message, MESSAGE_UPDATE, 0);
    message_put_string(&message, FIELD_LEASE, record->lease);
    message_put_string(&message, FIELD_DEVICES, record->devices);
    message_put_bytes(&message, FIELD_TOKEN, record->token, record->token_size);
    message_put(&message, FIELD_EPOCH, record->epoch);
    message_put(&message, FIELD_GENERATION, record->generation);
    message_put(&message, FIELD_NOTICE_DEADLINE, record->notice_deadline_ns);
    message_put(&message, FIELD_KILL_DEADLINE, record->kill_deadline_ns);
    return command_send(client, &message);
}

/* ---- reports ---------------------------------------------------------------------------- */

static void report_lost(struct shim_client *client, const char *text)
{
    struct shim_report report = {.kind = SHIM_LOST, .record = &client->record, .text = text};
    descriptor_close(&client->socket);
    client->handler(client->arg, &report);
}

static bool report_state(struct shim_client *client, const struct message *message)
{
    struct shim_report report = {.kind = SHIM_STATE, .record = &client->record};
    if (record_take(&client->record, message, NULL) < 0) {
        return false;
    }
    if (client->process < 0) {
        client->process = process_open((pid_t)client->record.shim_pid, client->record.shim_start);
    }
    report.frozen = message_number(message, FIELD_FROZEN, 0) != 0;
    report.stirred = message_number(message, FIELD_STIRRED, 0);
    report.command = message->id;
    report.text = client->record.text;
    client->handler(client->arg, &report);
    return true;
}

static void report_outcome(struct shim_client *client, const struct message *message)
{
    struct shim_report report = {.command = message->id, .record = &client->record};
    report.kind = message->type == MESSAGE_DONE ? SHIM_DONE : SHIM_FAILED_COMMAND;
    report.empty = message_number(message, FIELD_EMPTY, 0) != 0;
    report.processes = message_number(message, FIELD_PROCESSES, 0);
    report.took_ns = message_number(message, FIELD_TOOK_NS, 0);
    report.code = (enum error_code)message_number(message, FIELD_ERROR, ERROR_NONE);
    report.text = message_string(message, FIELD_TEXT);
    client->handler(client->arg, &report);
}

static bool report_take(struct shim_client *client, const unsigned char *bytes, size_t length)
{
    struct message message;
    if (length > MESSAGE_PACKET_MAX || message_decode(bytes, length, &message, NULL) < 0) {
        return false;
    }
    switch (message.type) {
    case MESSAGE_STATE:
        return report_state(client, &message);
    case MESSAGE_DONE:
    case MESSAGE_FAILED:
        report_outcome(client, &message);
        return true;
    default:
        return true; /* of a later version */
    }
}

void shim_client_turn(struct shim_client *client)
{
    while (client->socket >= 0) {
        unsigned char bytes[MESSAGE_PACKET_MAX];
        ssize_t length = recv(client->socket, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_TRUNC);
        if (length < 0 && errno == EINTR) {
            continue;
        }
        if (length < 0 && errno == EAGAIN) {
            return;
        }
        if (length <= 0) {
            report_lost(client, "the shim is gone or has a newer server");
        } else if (!report_take(client, bytes, (size_t)length)) {
            report_lost(client, "the shim speaks otherwise than agreed");
        }
    }
}
