#include "server/progress/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/progress/connection.h"
#include "server/progress/pause.h"
#include "server/progress/standing.h"

#define WAITING_MAX 128
#define EVENTS_A_TURN 4
#define BAD_LINES_MAX 100
#define NAME_MAX_BYTES 64

struct progress {
    progress_handler handler;
    void *arg;
    int epoll, listener, directory;
    int spare; /* a descriptor to give up when there is none left for a newcomer */
    char name[NAME_MAX_BYTES];
    uid_t uid;
    uint32_t connection_count, connections_max;
    struct connection *connections; /* newest first */
    struct ranks ranks;
    struct pause pause;
    struct standing standing;
    uint64_t now_ns; /* of the turn */
};

/* ---- sending ---------------------------------------------------------------------------- */

/* Writes what it can now; the rest when the socket takes it. */
static void tell(struct progress *progress, struct connection *connection, const char *line)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = connection};
    if (line == NULL) {
        progress_connection_end(connection); /* no memory: it comes again and is told then */
        return;
    }
    progress_connection_send(connection, line);
    if (connection->output_length > 0 && !connection->ended) {
        (void)epoll_ctl(progress->epoll, EPOLL_CTL_MOD, connection->fd, &event);
    }
}

/* To all that have said hello and can do it. Takes over the line. */
static int tell_all(struct progress *progress, unsigned can, char *line)
{
    int told = 0;
    for (struct connection *c = progress->connections; c != NULL; c = c->next) {
        if (c->greeted && !c->ended && (c->can & can) != 0) {
            tell(progress, c, line);
            told++;
        }
    }
    free(line);
    return told;
}

static void tell_notice(struct progress *progress, struct connection *connection,
                        uint64_t now_boottime_ns)
{
    char *line = progress_line_notice(&progress->standing.notice, now_boottime_ns);
    tell(progress, connection, line);
    free(line);
}

int progress_notice(struct progress *progress, const struct progress_notice *notice,
                    uint64_t now_boottime_ns)
{
    int result = standing_set(&progress->standing, notice);
    char *line = result < 0 ? NULL : progress_line_notice(notice, now_boottime_ns);
    if (line == NULL) {
        return -(int)ERROR_RESOURCE_EXHAUSTED;
    }
    return tell_all(progress, PROGRESS_CAN_NOTICE, line);
}

void progress_notice_over(struct progress *progress, uint64_t notice, const char *result,
                          uint64_t deadline_ns, uint64_t now_boottime_ns)
{
    if (progress->standing.there && progress->standing.notice.notice == notice) {
        if (deadline_ns != 0) {
            progress->standing.notice.deadline_ns = deadline_ns;
        } else {
            standing_end(&progress->standing);
        }
    }
    (void)tell_all(progress, PROGRESS_CAN_NOTICE,
                   progress_line_notice_over(notice, result, deadline_ns, now_boottime_ns));
}

/* ---- pausing ---------------------------------------------------------------------------- */

/* Who is missing, by the first few numbers. */
static int pause_refuse(const struct progress *progress, const struct ranks_figures *figures,
                        struct error *error)
{
    char missing[64] = "";
    for (uint32_t i = 0; i < figures->ranks; i++) {
        size_t used = strlen(missing);
        if (progress->ranks.table[i].can_pause > 0 || used > sizeof(missing) - 16) {
            continue;
        }
        (void)snprintf(missing + used, sizeof(missing) - used, "%s%u", used > 0 ? "," : "", i);
    }
    return error_set(error, ERROR_FAILED_PRECONDITION,
                     "pause: %u of %u ranks can stop at a step; not here or not able: %s",
                     figures->can_pause, figures->ranks, figures->ranks > 0 ? missing : "all");
}

/* The step that runs; of several ranks one more, which one of them may begin before it has heard.
 */
static int64_t pause_step(const struct ranks_figures *figures)
{
    return (figures->step < 0 ? 0 : figures->step) + (figures->ranks == 1 ? 1 : 2);
}

int progress_pause(struct progress *progress, uint64_t request, int64_t *ret_step,
                   struct error *error)
{
    struct ranks_figures figures;
    ranks_figures(&progress->ranks, &figures);
    if (progress->pause.request != 0) {
        return error_set(error, ERROR_FAILED_PRECONDITION, "pause: request %llu stands already",
                         (unsigned long long)progress->pause.request);
    }
    if (figures.ranks == 0 || figures.can_pause < figures.ranks) {
        return pause_refuse(progress, &figures, error);
    }
    pause_begin(&progress->pause, request, pause_step(&figures));
    for (struct connection *c = progress->connections; c != NULL; c = c->next) {
        if (c->greeted && !c->ended && (c->can & PROGRESS_CAN_PAUSE) != 0 &&
            pause_ask(&progress->pause, c->rank, c->pid) < 0) {
            pause_end(&progress->pause);
            return error_set(error, ERROR_RESOURCE_EXHAUSTED, "pause: no memory");
        }
    }
    (void)tell_all(progress, PROGRESS_CAN_PAUSE,
                   progress_line_pause(request, progress->pause.step));
    *ret_step = progress->pause.step;
    return 0;
}

void progress_resume(struct progress *progress, uint64_t request)
{
    pause_end(&progress->pause);
    (void)tell_all(progress, PROGRESS_CAN_PAUSE, progress_line_resume(request));
}

/* ---- hearing ---------------------------------------------------------------------------- */

static void connection_leaves(struct progress *progress, struct connection *connection)
{
    if (connection->greeted) {
        ranks_leave(&progress->ranks, connection->rank,
                    (connection->can & PROGRESS_CAN_PAUSE) != 0);
    }
    connection->greeted = false;
}

/* What stands is told to it at once. */
static void hello_take(struct progress *progress, struct connection *connection,
                       const struct progress_message *message)
{
    bool can_pause = (message->can & PROGRESS_CAN_PAUSE) != 0;
    connection_leaves(progress, connection); /* a further hello tells what it can by now */
    if (ranks_join(&progress->ranks, (uint32_t)message->rank, (uint32_t)message->ranks, can_pause) <
        0) {
        progress_connection_end(connection);
        return;
    }
    connection->greeted = true;
    connection->rank = (uint32_t)message->rank;
    connection->can = message->can;
    if (progress->standing.there && (message->can & PROGRESS_CAN_NOTICE) != 0) {
        tell_notice(progress, connection, standing_now_ns());
    }
    if (progress->pause.request != 0 && can_pause) {
        char *line = progress_line_pause(progress->pause.request, progress->pause.step);
        if (pause_ask(&progress->pause, connection->rank, connection->pid) < 0) {
            progress_connection_end(connection);
        }
        tell(progress, connection, line);
        free(line);
    }
}

static void message_take(struct progress *progress, struct connection *connection,
                         const struct progress_message *message)
{
    switch (message->kind) {
    case PROGRESS_HELLO:
        hello_take(progress, connection, message);
        break;
    case PROGRESS_STEP:
        ranks_step(&progress->ranks, connection->rank, message, progress->now_ns);
        break;
    case PROGRESS_STOPPED:
        ranks_stand(&progress->ranks, connection->rank);
        (void)pause_stands(&progress->pause, message, connection->rank, connection->pid);
        break;
    case PROGRESS_LATE:
        if (pause_late(&progress->pause, (uint64_t)message->request, message->step)) {
            (void)tell_all(progress, PROGRESS_CAN_PAUSE,
                           progress_line_pause(progress->pause.request, progress->pause.step));
        }
        break;
    default:
        break; /* the owner's */
    }
}

static bool notice_acknowledged(const struct progress *progress)
{
    uint64_t notice = progress->standing.notice.notice;
    bool somebody = false;
    for (const struct connection *c = progress->connections; c != NULL; c = c->next) {
        if (c->greeted && !c->ended && (c->can & PROGRESS_CAN_NOTICE) != 0) {
            if (c->acknowledged != notice) {
                return false;
            }
            somebody = true;
        }
    }
    return progress->standing.there && somebody;
}

/* What the message has made complete comes after it, and once. */
static void message_hand_on(struct progress *progress, struct connection *connection,
                            const struct progress_message *message, bool stood)
{
    struct progress_event event = {.kind = PROGRESS_TOLD,
                                   .rank = connection->rank,
                                   .pid = connection->pid,
                                   .message = message};
    bool again = connection->acknowledged == (uint64_t)message->notice;
    progress->handler(progress->arg, &event);
    if (!stood && pause_complete(&progress->pause)) {
        event = (struct progress_event){.kind = PROGRESS_STOOD,
                                        .request = progress->pause.request,
                                        .step = progress->pause.step};
        progress->handler(progress->arg, &event);
    }
    if (message->kind != PROGRESS_ACKNOWLEDGED) {
        return;
    }
    connection->acknowledged = (uint64_t)message->notice;
    if (!again && notice_acknowledged(progress)) {
        event = (struct progress_event){.kind = PROGRESS_SAVED,
                                        .request = progress->standing.notice.notice};
        progress->handler(progress->arg, &event);
    }
}

static void line_refuse(struct progress *progress, struct connection *connection, const char *line,
                        size_t length, const char *text)
{
    char *answer = progress_line_error(line, length, text);
    tell(progress, connection, answer);
    free(answer);
    if (++connection->bad_lines >= BAD_LINES_MAX) {
        progress_connection_end(connection);
    }
}

static void on_line(void *arg, struct connection *connection, const char *line, size_t length)
{
    struct progress *progress = arg;
    struct progress_message message;
    struct error error = {.text = "line: longer than 65536 bytes"};
    bool stood;
    int result = line == NULL ? -1 : 0;
    if (line != NULL && length == 0) {
        return;
    }
    if (result == 0) {
        result = progress_line_read(line, length, &message, &error);
    }
    if (result == 0 && !connection->greeted && message.kind != PROGRESS_HELLO) {
        result = error_set(&error, ERROR_FAILED_PRECONDITION, "line: hello comes first");
    }
    if (result < 0) {
        line_refuse(progress, connection, line == NULL ? "" : line, length, error.text);
        return;
    }
    connection->bad_lines = 0;
    stood = pause_complete(&progress->pause);
    message_take(progress, connection, &message);
    if (connection->greeted) {
        message_hand_on(progress, connection, &message, stood);
    }
}

/* ---- connections ------------------------------------------------------------------------ */

static void connection_remove(struct progress *progress, struct connection *connection)
{
    struct progress_event event = {
        .kind = PROGRESS_LEFT, .rank = connection->rank, .pid = connection->pid};
    bool greeted = connection->greeted;
    struct connection **from =
        connection->previous == NULL ? &progress->connections : &connection->previous->next;
    *from = connection->next;
    if (connection->next != NULL) {
        connection->next->previous = connection->previous;
    }
    progress->connection_count--;
    connection_leaves(progress, connection);
    progress_connection_destroy(connection);
    if (greeted) {
        progress->handler(progress->arg, &event);
    }
}

static void connection_add(struct progress *progress, struct connection *connection)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(progress->epoll, EPOLL_CTL_ADD, connection->fd, &event) < 0) {
        progress_connection_destroy(connection);
        return;
    }
    connection->next = progress->connections;
    if (connection->next != NULL) {
        connection->next->previous = connection;
    }
    progress->connections = connection;
    progress->connection_count++;
}

/* Room for one more: of those that never said hello the oldest goes. */
static bool room_make(struct progress *progress)
{
    struct connection *oldest = NULL;
    if (progress->connection_count < progress->connections_max) {
        return true;
    }
    for (struct connection *c = progress->connections; c != NULL; c = c->next) {
        oldest = c->greeted ? oldest : c;
    }
    if (oldest == NULL) {
        return false;
    }
    connection_remove(progress, oldest);
    return true;
}

static bool peer_known(const struct progress *progress, int fd, pid_t *ret_pid)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) {
        return false;
    }
    *ret_pid = peer.pid;
    return peer.uid == progress->uid || peer.uid == geteuid() || peer.uid == 0;
}

static void newcomer_refuse(int fd, const char *text)
{
    char *line = progress_line_error("", 0, text);
    if (line != NULL) {
        (void)send(fd, line, strlen(line), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    free(line);
    (void)close(fd);
}

/* Without a descriptor the one who waits would be ready for ever: it is turned away. */
static void spare_use(struct progress *progress)
{
    (void)close(progress->spare);
    (void)close(accept4(progress->listener, NULL, NULL, SOCK_CLOEXEC));
    progress->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void newcomer_accept(struct progress *progress)
{
    struct connection *connection;
    pid_t pid = 0;
    int fd = accept4(progress->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) {
            spare_use(progress);
        }
        return;
    }
    if (!peer_known(progress, fd, &pid)) {
        newcomer_refuse(fd, "this socket is another user's");
    } else if (!room_make(progress)) {
        newcomer_refuse(fd, "this job has too many connections");
    } else if ((connection = progress_connection_create(fd, pid)) != NULL) {
        connection_add(progress, connection);
    }
}

static void connection_ready(struct progress *progress, struct connection *connection,
                             uint32_t events)
{
    struct epoll_event quiet = {.events = EPOLLIN, .data.ptr = connection};
    if ((events & EPOLLOUT) != 0) {
        progress_connection_flush(connection);
        if (connection->output_length == 0) {
            (void)epoll_ctl(progress->epoll, EPOLL_CTL_MOD, connection->fd, &quiet);
        }
    }
    if ((events & ~(uint32_t)EPOLLOUT) != 0 && !connection->ended) {
        progress_connection_read(connection, on_line, progress);
    }
}

static void ended_remove(struct progress *progress)
{
    struct connection *next;
    for (struct connection *c = progress->connections; c != NULL; c = next) {
        next = c->next;
        if (c->ended) {
            connection_remove(progress, c);
        }
    }
}

void progress_turn(struct progress *progress, uint64_t now_ns)
{
    struct epoll_event events[EVENTS_A_TURN];
    bool newcomers = false;
    int count = epoll_wait(progress->epoll, events, EVENTS_A_TURN, 0);
    progress->now_ns = now_ns;
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == NULL) {
            newcomers = true; /* afterwards: it may take others away */
        } else {
            connection_ready(progress, events[i].data.ptr, events[i].events);
        }
    }
    if (newcomers) {
        newcomer_accept(progress);
    }
    ended_remove(progress);
}

/* ---- begin and end ---------------------------------------------------------------------- */

/* By the directory's descriptor: a path of any length fits into an address then. */
static int listener_bind(struct progress *progress, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s",
                   progress->directory, progress->name);
    (void)unlinkat(progress->directory, progress->name, 0);
    /* The file gets the socket's own mode: at no moment may others connect. */
    if (fchmod(progress->listener, 0600) < 0 ||
        bind(progress->listener, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(progress->listener, WAITING_MAX) < 0 ||
        epoll_ctl(progress->epoll, EPOLL_CTL_ADD, progress->listener, &event) < 0) {
        return error_set_errno(error, errno, "listen on '%s'", progress->name);
    }
    if (progress->uid != geteuid() && fchownat(progress->directory, progress->name, progress->uid,
                                               (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0) {
        return error_set_errno(error, errno, "give '%s' to user %u", progress->name, progress->uid);
    }
    return 0;
}

static int progress_open(struct progress *progress, const char *directory, struct error *error)
{
    progress->directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (progress->directory < 0) {
        return error_set_errno(error, errno, "open '%s'", directory);
    }
    progress->epoll = epoll_create1(EPOLL_CLOEXEC);
    progress->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    progress->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (progress->epoll < 0 || progress->listener < 0 || progress->spare < 0) {
        return error_set_errno(error, errno, "open the progress socket in '%s'", directory);
    }
    return listener_bind(progress, error);
}

int progress_create(const struct progress_options *options, progress_handler handler, void *arg,
                    struct progress **ret_progress, struct error *error)
{
    int result;
    struct progress *progress = calloc(1, sizeof(*progress));
    if (progress == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "progress socket: no memory");
    }
    progress->handler = handler;
    progress->arg = arg;
    progress->epoll = progress->listener = progress->directory = progress->spare = -1;
    progress->uid = options->uid;
    progress->connections_max =
        options->connections_max > 0 ? options->connections_max : PROGRESS_CONNECTIONS_MAX;
    (void)snprintf(progress->name, sizeof(progress->name), "%s", options->name);
    result = progress_open(progress, options->directory, error);
    if (result < 0) {
        progress_destroy(progress);
        return result;
    }
    *ret_progress = progress;
    return 0;
}

static void descriptor_close(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

void progress_destroy(struct progress *progress)
{
    if (progress == NULL) {
        return;
    }
    while (progress->connections != NULL) {
        struct connection *connection = progress->connections;
        progress->connections = connection->next;
        progress_connection_destroy(connection);
    }
    if (progress->directory >= 0) {
        (void)unlinkat(progress->directory, progress->name, 0);
    }
    descriptor_close(progress->listener);
    descriptor_close(progress->epoll);
    descriptor_close(progress->directory);
    descriptor_close(progress->spare);
    ranks_fini(&progress->ranks);
    pause_fini(&progress->pause);
    standing_end(&progress->standing);
    free(progress);
}

int progress_fd(const struct progress *progress)
{
    return progress->epoll;
}

void progress_figures(const struct progress *progress, struct ranks_figures *ret_figures)
{
    ranks_figures(&progress->ranks, ret_figures);
}
