/* peer.c: the real progress socket by itself, for the Python package's tests. Prints what it is
 * told, one line each, and does what its standard input says: pause REQUEST | resume REQUEST |
 * notice NUMBER SECONDS | over NUMBER Usage: peer FOLDER; ends with its standard input. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/progress/progress.h"

static void on_told(const struct progress_event *event)
{
    static const char *const names[] = {
        [PROGRESS_HELLO] = "hello",     [PROGRESS_STEP] = "step",
        [PROGRESS_STOPPED] = "stopped", [PROGRESS_LATE] = "late",
        [PROGRESS_RESUMED] = "resumed", [PROGRESS_ACKNOWLEDGED] = "acknowledged",
        [PROGRESS_EXTEND] = "extend"};
    (void)printf("%s %u %" PRId64 "\n", names[event->message->kind], event->rank,
                 event->message->step);
}

static void on_event(void *arg, const struct progress_event *event)
{
    (void)arg;
    if (event->kind == PROGRESS_TOLD) {
        on_told(event);
    } else if (event->kind == PROGRESS_LEFT) {
        (void)printf("left %u\n", event->rank);
    } else {
        (void)printf("%s %" PRIu64 " %" PRId64 "\n",
                     event->kind == PROGRESS_STOOD ? "stood" : "saved", event->request,
                     event->step);
    }
    (void)fflush(stdout);
}

static uint64_t boottime_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void notice(struct progress *progress, uint64_t number, uint64_t seconds)
{
    static const char *const devices[] = {"cpu:0-3"};
    static const uint32_t ranks[] = {0};
    struct progress_notice notice = {.notice = number,
                                     .deadline_ns = boottime_ns() + seconds * NS_PER_S,
                                     .devices = devices,
                                     .device_count = 1,
                                     .ranks = ranks,
                                     .rank_count = 1,
                                     .reason = "a test",
                                     .asked = "save and give back"};
    (void)progress_notice(progress, &notice, boottime_ns());
}

static void obey(struct progress *progress, const char *line)
{
    char word[16] = "";
    uint64_t number = 0, seconds = 0;
    int64_t step = 0;
    struct error error = {0};
    (void)sscanf(line, "%15s %" SCNu64 " %" SCNu64, word, &number, &seconds);
    if (strcmp(word, "resume") == 0) {
        progress_resume(progress, number);
    } else if (strcmp(word, "notice") == 0) {
        notice(progress, number, seconds);
    } else if (strcmp(word, "over") == 0) {
        progress_notice_over(progress, number, "withdrawn", 0, boottime_ns());
    } else if (progress_pause(progress, number, &step, &error) < 0) {
        (void)printf("refused %s\n", error.text);
        (void)fflush(stdout);
    }
}

int main(int count, char **arguments)
{
    char line[128];
    struct progress *progress = NULL;
    struct error error = {0};
    struct progress_options options = {
        .directory = count > 1 ? arguments[1] : ".", .name = "progress", .uid = geteuid()};
    if (progress_create(&options, on_event, NULL, &progress, &error) < 0) {
        (void)fprintf(stderr, "peer: %s\n", error.text);
        return 1;
    }
    (void)printf("ready\n");
    (void)fflush(stdout);
    (void)setvbuf(stdin, NULL, _IONBF, 0); /* what is read ahead would not wake the poll */
    struct pollfd ready[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                             {.fd = progress_fd(progress), .events = POLLIN}};
    while (poll(ready, 2, -1) >= 0) {
        if (ready[0].revents != 0) {
            if (fgets(line, sizeof(line), stdin) == NULL) {
                break;
            }
            obey(progress, line);
        }
        if (ready[1].revents != 0) {
            progress_turn(progress, clock_now_ns());
        }
    }
    progress_destroy(progress);
    return 0;
}
