/* Tests server/progress/progress.c and connection.c over real sockets. The clients are this very
 * thread: a turn is taken where one is due, so nothing here waits for time. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/base/clock.h"
#include "server/progress/connection.h"
#include "server/progress/progress.h"

#define TOLD_MAX 8192

struct told {
    enum progress_event_kind kind;
    enum progress_kind what;
    uint32_t rank;
    pid_t pid;
    int64_t step;
    uint64_t request;
};

struct fixture {
    char directory[64];
    struct progress *progress;
    struct told told[TOLD_MAX];
    size_t count;
    uint64_t now_ns;
};

static void on_event(void *arg, const struct progress_event *event)
{
    struct fixture *fixture = arg;
    struct told told = {.kind = event->kind,
                        .rank = event->rank,
                        .pid = event->pid,
                        .step = event->step,
                        .request = event->request};
    if (event->kind == PROGRESS_TOLD) {
        told.what = event->message->kind;
        told.step = event->message->step;
    }
    assert_true(fixture->count < TOLD_MAX);
    fixture->told[fixture->count++] = told;
}

static void listen_with(struct fixture *fixture, uint32_t connections_max)
{
    struct progress_options options = {.directory = fixture->directory,
                                       .name = "progress",
                                       .uid = geteuid(),
                                       .connections_max = connections_max};
    struct error error = {0};
    if (progress_create(&options, on_event, fixture, &fixture->progress, &error) < 0) {
        fail_msg("%s", error.text);
    }
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    if (fixture == NULL) {
        return -1;
    }
    (void)snprintf(fixture->directory, sizeof(fixture->directory), "/tmp/tidepool-progress-XXXXXX");
    if (mkdtemp(fixture->directory) == NULL) {
        return -1;
    }
    listen_with(fixture, 0);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    progress_destroy(fixture->progress);
    int result = rmdir(fixture->directory); /* it leaves nothing there */
    free(fixture);
    return result;
}

/* ---- a client --------------------------------------------------------------------------- */

static int client_connect(const struct fixture *fixture)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/progress", fixture->directory);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Turns until nothing is left to do. */
static void settle(struct fixture *fixture)
{
    struct pollfd ready = {.fd = progress_fd(fixture->progress), .events = POLLIN};
    for (int i = 0; i < 20000 && poll(&ready, 1, 0) > 0; i++) {
        progress_turn(fixture->progress, fixture->now_ns += NS_PER_MS);
    }
    assert_int_equal(poll(&ready, 1, 0), 0);
}

static void say(struct fixture *fixture, int fd, const char *text)
{
    size_t length = strlen(text);
    while (length > 0) {
        ssize_t sent = send(fd, text, length, MSG_NOSIGNAL);
        if (sent < 0) {
            assert_int_equal(errno, EAGAIN);
            settle(fixture);
            continue;
        }
        text += sent;
        length -= (size_t)sent;
    }
    settle(fixture);
}

/* What the listener has sent, as far as it is there. */
static const char *hear(int fd)
{
    static char text[1 << 20];
    size_t length = 0;
    ssize_t got;
    while (length < sizeof(text) - 1 &&
           (got = recv(fd, text + length, sizeof(text) - 1 - length, 0)) > 0) {
        length += (size_t)got;
    }
    text[length] = '\0';
    return text;
}

static bool is_closed(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN);
}

static int rank_join(struct fixture *fixture, unsigned rank, unsigned ranks, const char *can)
{
    char line[128];
    int fd = client_connect(fixture);
    assert_true(fd >= 0);
    (void)snprintf(line, sizeof(line), "{\"hello\":{\"rank\":%u,\"ranks\":%u,\"can\":[%s]}}\n",
                   rank, ranks, can);
    say(fixture, fd, line);
    return fd;
}

static const struct told *last_told(const struct fixture *fixture)
{
    assert_true(fixture->count > 0);
    return &fixture->told[fixture->count - 1];
}

#define ALL "\"pause\",\"notice\""

/* ---- hearing ---------------------------------------------------------------------------- */

static void a_rank_says_hello_and_how_far_it_is(void **state)
{
    struct fixture *fixture = *state;
    struct ranks_figures figures;
    int fd = rank_join(fixture, 1, 2, ALL);
    say(fixture, fd, "{\"progress\":{\"step\":12}}\n\n{\"progress\":{\"step\":13}}\r\n");
    assert_int_equal(fixture->count, 3);
    assert_int_equal(fixture->told[0].what, PROGRESS_HELLO);
    assert_int_equal(fixture->told[0].pid, getpid());
    assert_int_equal(last_told(fixture)->rank, 1);
    assert_int_equal(last_told(fixture)->step, 13);
    progress_figures(fixture->progress, &figures);
    assert_int_equal(figures.ranks, 2);
    assert_int_equal(figures.here, 1);
    assert_int_equal(figures.step, 13);
    close(fd);
    settle(fixture);
    assert_int_equal(last_told(fixture)->kind, PROGRESS_LEFT);
    progress_figures(fixture->progress, &figures);
    assert_int_equal(figures.here, 0);
}

static void lines_may_come_a_byte_at_a_time(void **state)
{
    struct fixture *fixture = *state;
    static const char text[] = "{\"hello\":{}}\n{\"progress\":{\"step\":5}}\n";
    int fd = client_connect(fixture);
    for (size_t i = 0; i < strlen(text); i++) {
        char byte[2] = {text[i], '\0'};
        say(fixture, fd, byte);
    }
    assert_int_equal(fixture->count, 2);
    assert_int_equal(last_told(fixture)->step, 5);
    assert_string_equal(hear(fd), "");
    close(fd);
}

static void the_last_line_counts_without_its_newline(void **state)
{
    struct fixture *fixture = *state;
    int fd = client_connect(fixture);
    say(fixture, fd, "{\"hello\":{}}\n{\"progress\":{\"step\":6}}");
    shutdown(fd, SHUT_WR);
    settle(fixture);
    assert_int_equal(fixture->count, 3);
    assert_int_equal(fixture->told[1].step, 6);
    assert_int_equal(fixture->told[2].kind, PROGRESS_LEFT);
    assert_true(is_closed(fd));
    close(fd);
}

static void hello_comes_first(void **state)
{
    struct fixture *fixture = *state;
    int fd = client_connect(fixture);
    say(fixture, fd, "{\"progress\":{\"step\":6}}\n");
    assert_int_equal(fixture->count, 0);
    assert_non_null(strstr(hear(fd), "hello comes first"));
    say(fixture, fd, "{\"hello\":{}}\n");
    assert_int_equal(fixture->count, 1); /* it is not too late */
    close(fd);
}

/* ---- what is wrong ---------------------------------------------------------------------- */

static void a_line_that_is_too_long_is_passed_over(void **state)
{
    struct fixture *fixture = *state;
    int fd = rank_join(fixture, 0, 1, ALL);
    char *line = malloc(PROGRESS_LINE_MAX + 2);
    assert_non_null(line);
    memset(line, ' ', PROGRESS_LINE_MAX);
    memcpy(line, "{\"progress\":{\"step\":1}}", 23);
    strcpy(line + PROGRESS_LINE_MAX - 1, "\n"); /* as long as one may be */
    say(fixture, fd, line);
    assert_int_equal(fixture->count, 2);
    assert_string_equal(hear(fd), "");
    strcpy(line + PROGRESS_LINE_MAX - 1, " \n");
    say(fixture, fd, line);
    assert_int_equal(fixture->count, 2);
    assert_non_null(strstr(hear(fd), "longer than 65536 bytes"));
    for (int i = 0; i < 20; i++) { /* a megabyte more of it */
        line[PROGRESS_LINE_MAX] = ' ';
        line[PROGRESS_LINE_MAX + 1] = '\0';
        say(fixture, fd, line);
    }
    assert_non_null(strstr(hear(fd), "longer"));
    say(fixture, fd, "\n{\"progress\":{\"step\":2}}\n");
    assert_int_equal(last_told(fixture)->step, 2);
    assert_string_equal(hear(fd), "");
    free(line);
    close(fd);
}

static void a_hundred_bad_lines_in_a_row_are_enough(void **state)
{
    struct fixture *fixture = *state;
    int fd = rank_join(fixture, 0, 1, ALL);
    for (int i = 0; i < 99; i++) {
        say(fixture, fd, "no\n");
    }
    say(fixture, fd, "{\"progress\":{\"step\":1}}\n"); /* in a row, it says */
    for (int i = 0; i < 99; i++) {
        say(fixture, fd, "no\n");
    }
    assert_false(is_closed(fd) && hear(fd)[0] == '\0');
    assert_int_equal(last_told(fixture)->kind, PROGRESS_TOLD);
    say(fixture, fd, "no\n{\"progress\":{\"step\":2}}\n");
    (void)hear(fd);
    assert_true(is_closed(fd));
    assert_int_equal(last_told(fixture)->kind, PROGRESS_LEFT); /* nothing after it counted */
    close(fd);
}

static void garbage_is_answered_and_nothing_else_happens(void **state)
{
    struct fixture *fixture = *state;
    int fd = client_connect(fixture);
    static const char bytes[] = "\0\xff\xfe{\n\n\"\\u0000\"\n{\"hello\":{\"rank\":1e3}}\n";
    assert_int_equal(send(fd, bytes, sizeof(bytes) - 1, 0), sizeof(bytes) - 1);
    settle(fixture);
    assert_int_equal(fixture->count, 0);
    const char *heard = hear(fd);
    assert_non_null(strstr(heard, "hello.rank: must be a whole number"));
    assert_int_equal(strncmp(heard, "{\"error\":{\"line\":\"", 18), 0);
    assert_false(is_closed(fd));
    close(fd);
}

static void who_does_not_read_is_cut_off(void **state)
{
    struct fixture *fixture = *state;
    char reason[4096];
    struct progress_notice notice = {.deadline_ns = 1, .reason = reason, .asked = "save"};
    int fd = rank_join(fixture, 0, 1, ALL);
    int other = rank_join(fixture, 0, 1, ALL);
    size_t heard = 0;
    memset(reason, 'x', sizeof(reason) - 1);
    reason[sizeof(reason) - 1] = '\0';
    for (int i = 0; i < 400; i++) {
        notice.notice++;
        assert_true(progress_notice(fixture->progress, &notice, 0) >= 1);
        settle(fixture);
        heard += strlen(hear(other));
    }
    assert_true(heard > 400 * sizeof(reason)); /* the other one lost nothing */
    assert_int_equal(last_told(fixture)->kind, PROGRESS_LEFT);
    assert_int_equal(progress_notice(fixture->progress, &notice, 0), 1);
    close(fd);
    close(other);
}

static void what_the_socket_does_not_take_goes_later(void **state)
{
    struct fixture *fixture = *state;
    char reason[8192];
    struct progress_notice notice = {.deadline_ns = 1, .reason = reason, .asked = "save"};
    int fd = rank_join(fixture, 0, 1, ALL);
    int size = 4096;
    size_t heard = 0;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
    memset(reason, 'x', sizeof(reason) - 1);
    reason[sizeof(reason) - 1] = '\0';
    for (int i = 0; i < 40; i++) { /* more than the socket holds, less than is kept */
        notice.notice++;
        assert_int_equal(progress_notice(fixture->progress, &notice, 0), 1);
    }
    for (int i = 0; i < 200; i++) {
        const char *text = hear(fd);
        for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
            heard++;
        }
        progress_turn(fixture->progress, 0);
    }
    assert_int_equal(heard, 40);
    say(fixture, fd, "{\"progress\":{\"step\":1}}\n");
    assert_int_equal(last_told(fixture)->step, 1);
    close(fd);
}

/* ---- bounds ----------------------------------------------------------------------------- */

static void strangers_make_room_and_members_do_not(void **state)
{
    struct fixture *fixture = *state;
    progress_destroy(fixture->progress);
    listen_with(fixture, 3);
    int member = rank_join(fixture, 0, 1, ALL);
    int silent = client_connect(fixture);
    settle(fixture);
    int second = rank_join(fixture, 0, 1, ALL);
    assert_false(is_closed(silent));
    int third = rank_join(fixture, 0, 1, ALL);
    assert_true(is_closed(silent));
    assert_false(is_closed(member) || is_closed(second) || is_closed(third));
    int fourth = client_connect(fixture);
    settle(fixture);
    assert_non_null(strstr(hear(fourth), "too many connections"));
    assert_true(is_closed(fourth));
    close(member);
    settle(fixture);
    int fifth = rank_join(fixture, 0, 1, ALL);
    assert_false(is_closed(fifth));
    close(silent), close(second), close(third), close(fourth), close(fifth);
}

static void without_descriptors_newcomers_are_turned_away(void **state)
{
    struct fixture *fixture = *state;
    struct rlimit before, none;
    int fd = client_connect(fixture);
    int highest = dup(fd);
    close(highest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){(rlim_t)highest, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    settle(fixture); /* would turn for ever */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(is_closed(fd));
    close(fd);
    fd = rank_join(fixture, 0, 1, ALL);
    assert_int_equal(last_told(fixture)->what, PROGRESS_HELLO);
    close(fd);
}

static void one_turn_reads_a_bounded_part(void **state)
{
    struct fixture *fixture = *state;
    int fd = rank_join(fixture, 0, 1, ALL);
    char text[65536] = "";
    size_t length = 0;
    while (length < 60000) {
        length +=
            (size_t)snprintf(text + length, sizeof(text) - length, "{\"progress\":{\"step\":1}}\n");
    }
    assert_int_equal(send(fd, text, length, 0), (ssize_t)length);
    size_t before = fixture->count;
    progress_turn(fixture->progress, 1);
    assert_true(fixture->count - before <= CONNECTION_READ_BYTES / 23);
    settle(fixture);
    assert_int_equal(fixture->count - before, length / strlen("{\"progress\":{\"step\":1}}\n"));
    close(fd);
}

/* ---- notices and pauses ----------------------------------------------------------------- */

static void a_notice_stands_until_it_is_over(void **state)
{
    struct fixture *fixture = *state;
    static const char *const devices[] = {"cpu:0-3"};
    uint64_t now_ns = 5 * NS_PER_S;
    struct progress_notice notice = {.notice = 3,
                                     .deadline_ns = UINT64_C(1) << 62,
                                     .devices = devices,
                                     .device_count = 1,
                                     .reason = "load",
                                     .asked = "save and give back"};
    int fd = rank_join(fixture, 0, 1, ALL);
    int deaf = rank_join(fixture, 0, 1, "\"pause\"");
    assert_int_equal(progress_notice(fixture->progress, &notice, now_ns), 1);
    assert_non_null(strstr(hear(fd), "\"devices\":[\"cpu:0-3\"]"));
    int late = rank_join(fixture, 0, 1, ALL); /* hears it too */
    assert_non_null(strstr(hear(late), "\"notice\":3"));
    say(fixture, late, "{\"acknowledged\":{\"notice\":3}}\n");
    assert_int_equal(last_told(fixture)->what, PROGRESS_ACKNOWLEDGED);
    progress_notice_over(fixture->progress, 3, "extended", UINT64_C(1) << 61, now_ns);
    assert_non_null(strstr(hear(fd), "\"result\":\"extended\",\"deadline_s\":"));
    int later = rank_join(fixture, 0, 1, ALL);
    assert_non_null(strstr(hear(later), "2305843009213693952"));
    progress_notice_over(fixture->progress, 3, "withdrawn", 0, now_ns);
    assert_non_null(strstr(hear(fd), "withdrawn"));
    int last = rank_join(fixture, 0, 1, ALL);
    assert_string_equal(hear(last), "");
    assert_string_equal(hear(deaf), "");
    close(fd), close(deaf), close(late), close(later), close(last);
}

static void saved_is_when_all_that_heard_the_notice_say_so(void **state)
{
    struct fixture *fixture = *state;
    struct progress_notice notice = {
        .notice = 3, .deadline_ns = 1, .reason = "load", .asked = "save and give back"};
    int first = rank_join(fixture, 0, 2, ALL), second = rank_join(fixture, 1, 2, ALL);
    int deaf = rank_join(fixture, 0, 2, "");
    say(fixture, first, "{\"acknowledged\":{\"notice\":3}}\n"); /* of none that stands */
    assert_int_equal(last_told(fixture)->kind, PROGRESS_TOLD);
    notice.notice = 4;
    assert_int_equal(progress_notice(fixture->progress, &notice, 0), 2);
    say(fixture, first, "{\"acknowledged\":{\"notice\":4}}\n");
    say(fixture, second, "{\"acknowledged\":{\"notice\":3}}\n");
    assert_int_equal(last_told(fixture)->kind, PROGRESS_TOLD);
    say(fixture, second, "{\"acknowledged\":{\"notice\":4}}\n");
    assert_int_equal(last_told(fixture)->kind, PROGRESS_SAVED);
    assert_int_equal(last_told(fixture)->request, 4);
    say(fixture, second, "{\"acknowledged\":{\"notice\":4}}\n");
    assert_int_equal(last_told(fixture)->kind, PROGRESS_TOLD);
    close(first), close(second), close(deaf);
}

static int64_t pause_all(struct fixture *fixture, uint64_t request)
{
    struct error error = {0};
    int64_t step = -1;
    if (progress_pause(fixture->progress, request, &step, &error) < 0) {
        fail_msg("%s", error.text);
    }
    return step;
}

static void all_ranks_stop_before_the_same_step(void **state)
{
    struct fixture *fixture = *state;
    int first = rank_join(fixture, 0, 2, ALL), second = rank_join(fixture, 1, 2, ALL);
    say(fixture, first, "{\"progress\":{\"step\":12}}\n");
    say(fixture, second, "{\"progress\":{\"step\":11}}\n");
    assert_int_equal(pause_all(fixture, 7), 14);
    assert_string_equal(hear(first), "{\"pause\":{\"request\":7,\"step\":14}}\n");
    assert_string_equal(hear(second), "{\"pause\":{\"request\":7,\"step\":14}}\n");
    say(fixture, first, "{\"stopped\":{\"request\":7,\"step\":14}}\n");
    assert_int_equal(last_told(fixture)->kind, PROGRESS_TOLD);
    say(fixture, second, "{\"stopped\":{\"request\":7,\"step\":14}}\n");
    assert_int_equal(last_told(fixture)->kind, PROGRESS_STOOD);
    assert_int_equal(last_told(fixture)->request, 7);
    say(fixture, second, "{\"stopped\":{\"request\":7,\"step\":14}}\n");
    assert_int_equal(last_told(fixture)->kind, PROGRESS_TOLD); /* that comes once */
    progress_resume(fixture->progress, 8);
    assert_string_equal(hear(first), "{\"resume\":{\"request\":8}}\n");
    say(fixture, first, "{\"resumed\":{\"request\":8}}\n");
    assert_int_equal(last_told(fixture)->what, PROGRESS_RESUMED);
    assert_int_equal(pause_all(fixture, 9), 14);
    close(first), close(second);
}

static void a_late_rank_moves_the_step_for_the_others(void **state)
{
    struct fixture *fixture = *state;
    int first = rank_join(fixture, 0, 2, ALL), second = rank_join(fixture, 1, 2, ALL);
    say(fixture, first, "{\"progress\":{\"step\":12}}\n");
    (void)pause_all(fixture, 7);
    (void)hear(first), (void)hear(second);
    say(fixture, first, "{\"stopped\":{\"request\":7,\"step\":14}}\n");
    say(fixture, second, "{\"late\":{\"request\":7,\"step\":15}}\n");
    assert_string_equal(hear(first), "{\"pause\":{\"request\":7,\"step\":18}}\n");
    assert_string_equal(hear(second), "{\"pause\":{\"request\":7,\"step\":18}}\n");
    say(fixture, second, "{\"stopped\":{\"request\":7,\"step\":18}}\n");
    assert_int_equal(last_told(fixture)->kind, PROGRESS_TOLD); /* the first one goes on */
    say(fixture, first, "{\"stopped\":{\"request\":7,\"step\":18}}\n");
    assert_int_equal(last_told(fixture)->kind, PROGRESS_STOOD);
    assert_int_equal(last_told(fixture)->step, 18);
    close(first), close(second);
}

static void a_pause_is_refused_where_a_rank_is_missing(void **state)
{
    struct fixture *fixture = *state;
    struct error error = {0};
    int64_t step;
    assert_int_equal(progress_pause(fixture->progress, 7, &step, &error),
                     -(int)ERROR_FAILED_PRECONDITION);
    int first = rank_join(fixture, 0, 3, ALL), second = rank_join(fixture, 1, 3, "\"notice\"");
    assert_true(progress_pause(fixture->progress, 7, &step, &error) < 0);
    assert_non_null(strstr(error.text, "1 of 3 ranks"));
    assert_non_null(strstr(error.text, "not able: 1,2"));
    int third = rank_join(fixture, 2, 3, ALL);
    say(fixture, second, "{\"hello\":{\"rank\":1,\"ranks\":3,\"can\":[\"pause\"]}}\n"); /* by now */
    assert_int_equal(pause_all(fixture, 7), 2);
    assert_true(progress_pause(fixture->progress, 8, &step, &error) < 0); /* one at a time */
    close(first), close(second), close(third);
}

static void a_rank_that_is_gone_does_not_stand(void **state)
{
    struct fixture *fixture = *state;
    int first = rank_join(fixture, 0, 2, ALL), second = rank_join(fixture, 1, 2, ALL);
    (void)pause_all(fixture, 7);
    close(second);
    say(fixture, first, "{\"stopped\":{\"request\":7,\"step\":2}}\n");
    assert_int_not_equal(last_told(fixture)->kind, PROGRESS_STOOD);
    second = rank_join(fixture, 1, 2, ALL); /* the same process, once more: hears it again */
    assert_string_equal(hear(second), "{\"pause\":{\"request\":7,\"step\":2}}\n");
    say(fixture, second, "{\"stopped\":{\"request\":7,\"step\":2}}\n");
    assert_int_equal(last_told(fixture)->kind, PROGRESS_STOOD);
    close(first), close(second);
}

static void many_ranks_stop_together(void **state)
{
    struct fixture *fixture = *state;
    enum { RANKS = 200 };
    int fds[RANKS];
    for (unsigned i = 0; i < RANKS; i++) {
        fds[i] = rank_join(fixture, i, RANKS, ALL);
        say(fixture, fds[i], "{\"progress\":{\"step\":100,\"step_s\":0.01}}\n");
    }
    assert_int_equal(pause_all(fixture, 7), 102);
    for (unsigned i = 0; i < RANKS; i++) {
        assert_string_equal(hear(fds[i]), "{\"pause\":{\"request\":7,\"step\":102}}\n");
        assert_int_not_equal(last_told(fixture)->kind, PROGRESS_STOOD);
        say(fixture, fds[i], "{\"stopped\":{\"request\":7,\"step\":102}}\n");
    }
    assert_int_equal(last_told(fixture)->kind, PROGRESS_STOOD);
    for (unsigned i = 0; i < RANKS; i++) {
        close(fds[i]);
    }
    settle(fixture);
    struct ranks_figures figures;
    progress_figures(fixture->progress, &figures);
    assert_int_equal(figures.here, 0);
}

/* ---- the socket ------------------------------------------------------------------------- */

static void the_next_server_takes_the_socket_over(void **state)
{
    struct fixture *fixture = *state;
    struct progress *former = fixture->progress;
    int fd = rank_join(fixture, 0, 1, ALL);
    listen_with(fixture, 0); /* the file of one that was killed is still there */
    int again = rank_join(fixture, 0, 1, ALL);
    assert_int_equal(last_told(fixture)->what, PROGRESS_HELLO);
    progress_resume(fixture->progress, 8); /* whatever stands since before is let go */
    assert_string_equal(hear(again), "{\"resume\":{\"request\":8}}\n");
    close(fd), close(again);
    progress_destroy(fixture->progress);
    fixture->progress = former;
}

static void only_the_jobs_user_may_connect(void **state)
{
    struct fixture *fixture = *state;
    char path[128];
    struct stat status;
    (void)snprintf(path, sizeof(path), "%s/progress", fixture->directory);
    assert_int_equal(lstat(path, &status), 0);
    assert_true(S_ISSOCK(status.st_mode));
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(status.st_uid, geteuid());
}

static void a_path_of_any_length_will_do(void **state)
{
    struct fixture *fixture = *state;
    char inner[320];
    struct progress_options options = {.directory = inner, .name = "progress", .uid = geteuid()};
    struct progress *progress = NULL;
    struct error error = {0};
    size_t used = (size_t)snprintf(inner, sizeof(inner), "%s/", fixture->directory);
    memset(inner + used, 'd', 200);
    inner[used + 200] = '\0';
    assert_int_equal(mkdir(inner, 0700), 0);
    assert_int_equal(progress_create(&options, on_event, fixture, &progress, &error), 0);
    progress_destroy(progress);
    assert_int_equal(rmdir(inner), 0);
    assert_int_equal(progress_create(&options, on_event, fixture, &progress, &error),
                     -(int)ERROR_NOT_FOUND);
    assert_non_null(strstr(error.text, "dddd"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_rank_says_hello_and_how_far_it_is),
        TEST(lines_may_come_a_byte_at_a_time),
        TEST(the_last_line_counts_without_its_newline),
        TEST(hello_comes_first),
        TEST(a_line_that_is_too_long_is_passed_over),
        TEST(a_hundred_bad_lines_in_a_row_are_enough),
        TEST(garbage_is_answered_and_nothing_else_happens),
        TEST(who_does_not_read_is_cut_off),
        TEST(what_the_socket_does_not_take_goes_later),
        TEST(strangers_make_room_and_members_do_not),
        TEST(without_descriptors_newcomers_are_turned_away),
        TEST(one_turn_reads_a_bounded_part),
        TEST(a_notice_stands_until_it_is_over),
        TEST(saved_is_when_all_that_heard_the_notice_say_so),
        TEST(all_ranks_stop_before_the_same_step),
        TEST(a_late_rank_moves_the_step_for_the_others),
        TEST(a_pause_is_refused_where_a_rank_is_missing),
        TEST(a_rank_that_is_gone_does_not_stand),
        TEST(many_ranks_stop_together),
        TEST(the_next_server_takes_the_socket_over),
        TEST(only_the_jobs_user_may_connect),
        TEST(a_path_of_any_length_will_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
