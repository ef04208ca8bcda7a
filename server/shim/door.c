#include "server/shim/door.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/shim/address.h"

#define DOOR_WAITING_MAX 64
#define MESSAGES_A_TURN 16 /* a chatty server does not keep the job's output waiting */

void door_init(struct door *door, struct shim *shim, int epoll)
{
    *door = (struct door){.shim = shim, .epoll = epoll, .listener = -1, .server = -1};
    for (int i = 0; i < DOOR_GUESTS_MAX; i++) {
        door->guests[i] = -1;
    }
}

static int watch(const struct door *door, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(door->epoll, EPOLL_CTL_ADD, fd, &event);
}

static void leave(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

/* The socket's file is the server's. Its folder must be, or anybody could take the place of either.
 */
static int place_settle(const char *directory, uid_t owner, const char *socket_path,
                        struct error *error)
{
    struct stat status;
    if (lstat(directory, &status) < 0 || !S_ISDIR(status.st_mode) || status.st_uid != owner ||
        (status.st_mode & 077) != 0) {
        return error_set(error, ERROR_PERMISSION_DENIED,
                         "shim directory '%s': is not one of user %u alone (mode 0700)", directory,
                         owner);
    }
    if (socket_path != NULL && owner != geteuid() && lchown(socket_path, owner, (gid_t)-1) < 0) {
        return error_set_errno(error, errno, "give the socket in '%s' to user %u", directory,
                               owner);
    }
    return 0;
}

int door_open(struct door *door, const char *directory, uid_t owner, struct error *error)
{
    struct shim_address address;
    int result = place_settle(directory, owner, NULL, error);
    int fd = -1;
    if (result < 0 || (result = shim_address_open(&address, directory, error)) < 0) {
        return result;
    }
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address.name, sizeof(address.name)) < 0 ||
        listen(fd, DOOR_WAITING_MAX) < 0 || watch(door, fd) < 0) {
        result = error_set_errno(error, errno, "listen in '%s'", directory);
    } else {
        result = place_settle(directory, owner, address.name.sun_path, error);
    }
    if (result < 0) {
        leave(&fd);
    }
    shim_address_close(&address);
    door->listener = fd;
    door->owner = owner;
    return result;
}

void door_welcome(struct door *door, int fd)
{
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    door->server = fd;
    (void)watch(door, fd);
}

void door_fini(struct door *door)
{
    leave(&door->listener);
    leave(&door->server);
    for (int i = 0; i < DOOR_GUESTS_MAX; i++) {
        leave(&door->guests[i]);
    }
}

/* ---- answers ---------------------------------------------------------------------------- */

static void tell(struct door *door, const struct message *message)
{
    unsigned char bytes[MESSAGE_PACKET_MAX];
    size_t length = message_size(message);
    if (door->server < 0 || length > sizeof(bytes)) {
        return;
    }
    message_encode(message, bytes);
    if (send(door->server, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        leave(&door->server);
    }
}

static void tell_state(struct door *door, uint64_t id)
{
    struct message message;
    const struct shim *shim = door->shim;
    struct shim_record record = shim->record;
    if (shim->record.state != SHIM_ENDED && shim->record.state != SHIM_FAILED) {
        record.log_written = shim->output.written;
        record.log_dropped = shim->output.dropped;
        record.log_lost = shim->output.lost;
    }
    message_init(&message, MESSAGE_STATE, id);
    record_put(&record, &message);
    message.present &= ~(UINT64_C(1) << FIELD_SECRET); /* who asks has shown it */
    message_put(&message, FIELD_FROZEN, shim->frozen);
    message_put(&message, FIELD_STIRRED, shim->stirred);
    tell(door, &message);
}

void door_tell_state(void *arg, const struct shim *shim)
{
    (void)shim;
    tell_state(arg, 0);
}

void door_tell_outcome(void *arg, const struct shim_outcome *outcome)
{
    struct message message;
    message_init(&message, outcome->code == ERROR_NONE ? MESSAGE_DONE : MESSAGE_FAILED,
                 outcome->command);
    message_put(&message, FIELD_TOOK_NS, outcome->took_ns);
    message_put(&message, FIELD_PROCESSES, outcome->processes);
    message_put(&message, FIELD_EMPTY, outcome->empty);
    if (outcome->code != ERROR_NONE) {
        message_put(&message, FIELD_ERROR, outcome->code);
        message_put_string(&message, FIELD_TEXT, outcome->text);
    }
    tell(arg, &message);
}

/* ---- commands --------------------------------------------------------------------------- */

/* Old tokens change nothing. */
static int fence(const struct door *door, const struct message *message, struct error *error)
{
    const struct shim_record *record = &door->shim->record;
    uint64_t epoch = message_number(message, FIELD_EPOCH, 0);
    uint64_t generation = message_number(message, FIELD_GENERATION, 0);
    if (epoch < record->epoch || (epoch == record->epoch && generation < record->generation)) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "job '%s': token %llu.%llu is older than the job's %llu.%llu", record->job,
                         (unsigned long long)epoch, (unsigned long long)generation,
                         (unsigned long long)record->epoch, (unsigned long long)record->generation);
    }
    return 0;
}

static void tell_verified(struct door *door, uint64_t id)
{
    struct shim_outcome outcome = {.command = id};
    outcome.empty = shim_empty(door->shim, &outcome.processes);
    door_tell_outcome(door, &outcome);
}

/* Those that are answered by their outcome, later or from within. */
static bool command_is_slow(const struct message *message)
{
    return message->type == MESSAGE_FREEZE || message->type == MESSAGE_KILL;
}

static int command_close(struct shim *shim, struct error *error)
{
    if (shim->record.state != SHIM_ENDED) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "job '%s': has not ended; its shim stays", shim->record.job);
    }
    shim->closed = true;
    shim->record_stale = false; /* the server has it now */
    return 0;
}

static int command_run(struct door *door, const struct message *message, struct error *error)
{
    struct shim *shim = door->shim;
    uint64_t bound_ns = message_number(message, FIELD_BOUND_MS, 0) * NS_PER_MS;
    switch (message->type) {
    case MESSAGE_FREEZE:
        return shim_freeze(shim, message->id, bound_ns, error);
    case MESSAGE_KILL:
        return shim_kill(shim, message->id, bound_ns, error);
    case MESSAGE_THAW:
        return shim_thaw(shim, error);
    case MESSAGE_SIGNAL:
        return shim_signal(shim, (int)message_number(message, FIELD_SIGNAL, 0),
                           message_number(message, FIELD_LEADER_ONLY, 0) != 0, error);
    case MESSAGE_PIN:
        return shim_pin(shim, message_string(message, FIELD_CPUS), error);
    case MESSAGE_UPDATE:
        return shim_update(shim, message, error);
    case MESSAGE_CLOSE:
        return command_close(shim, error);
    default:
        return error_set(error, ERROR_UNIMPLEMENTED, "shim: no command %u", message->type);
    }
}

static void command_take(struct door *door, const struct message *message)
{
    struct shim_outcome outcome = {.command = message->id};
    struct error error;
    int result;
    if (message->type == MESSAGE_VERIFY) {
        tell_verified(door, message->id);
        return;
    }
    result = fence(door, message, &error);
    if (result == 0) {
        result = command_run(door, message, &error);
    }
    if (result == 0 && command_is_slow(message)) {
        return;
    }
    if (result < 0) {
        outcome.code = (enum error_code) - result;
        (void)snprintf(outcome.text, sizeof(outcome.text), "%s", error.text);
    }
    door_tell_outcome(door, &outcome);
}

/* ---- connections ------------------------------------------------------------------------ */

/* One whole message: its length; 0: nothing now; -1: the connection is over or breaks the rules. */
static int receive(int fd, unsigned char *bytes, struct message *message)
{
    struct error error;
    struct log_text reason;
    ssize_t length = recv(fd, bytes, MESSAGE_PACKET_MAX, MSG_DONTWAIT | MSG_TRUNC);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (length <= 0 || length > MESSAGE_PACKET_MAX) {
        return -1;
    }
    if (message_decode(bytes, (size_t)length, message, &error) < 0) {
        log_write(LOG_WARN, "shim", "message refused", "reason=%s", log_quote(&reason, error.text));
        return -1;
    }
    return (int)length;
}

static void server_ready(struct door *door)
{
    for (int i = 0; i < MESSAGES_A_TURN && door->server >= 0; i++) {
        unsigned char bytes[MESSAGE_PACKET_MAX];
        struct message message;
        int length = receive(door->server, bytes, &message);
        if (length == 0) {
            return;
        }
        if (length < 0) {
            leave(&door->server);
        } else {
            command_take(door, &message);
        }
    }
}

static bool secret_right(const struct shim_record *record, const struct message *message)
{
    struct wire_text secret = message_bytes(message, FIELD_SECRET);
    unsigned char difference = 0;
    if (message->type != MESSAGE_HELLO || secret.length != sizeof(record->secret)) {
        return false;
    }
    for (size_t i = 0; i < secret.length; i++) { /* as long for any secret */
        difference |= secret.data[i] ^ record->secret[i];
    }
    return difference == 0;
}

static void guest_ready(struct door *door, int *guest)
{
    unsigned char bytes[MESSAGE_PACKET_MAX];
    struct message message;
    int length = receive(*guest, bytes, &message);
    if (length > 0 && secret_right(&door->shim->record, &message)) {
        leave(&door->server);
        door->server = *guest;
        *guest = -1;
        tell_state(door, message.id);
    } else if (length != 0) {
        leave(guest);
    }
}

static bool peer_trusted(const struct door *door, int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == door->owner || peer.uid == geteuid() || peer.uid == 0);
}

static void guest_arrives(struct door *door)
{
    int fd = accept4(door->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    if (!peer_trusted(door, fd) || watch(door, fd) < 0) {
        leave(&fd);
        return;
    }
    leave(&door->guests[DOOR_GUESTS_MAX - 1]);
    memmove(door->guests + 1, door->guests, sizeof(door->guests) - sizeof(door->guests[0]));
    door->guests[0] = fd;
}

bool door_ready(struct door *door, int fd)
{
    if (fd == door->listener) {
        guest_arrives(door);
        return true;
    }
    if (fd == door->server) {
        server_ready(door);
        return true;
    }
    for (int i = 0; i < DOOR_GUESTS_MAX; i++) {
        if (fd == door->guests[i]) {
            guest_ready(door, &door->guests[i]);
            return true;
        }
    }
    return false;
}
