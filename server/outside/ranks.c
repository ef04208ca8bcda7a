/* ranks.c: a run's progress socket: what its ranks tell becomes events, what the job is to know
 * goes to them and into the notice's file. */
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/outside/internal.h"

#define TELL_NS (100 * NS_PER_MS)
#define LAST_TURNS 64 /* what ranks have written and not waited for; each is some ms at most */
#define DEVICES_MAX 1024
#define ASKED "save and give back"

/* ---- what they tell ---------------------------------------------------------------------------
 */

static void take_step(struct supervisor *supervisor, const struct progress_event *event)
{
    for (size_t i = 0; i < event->message->metric_count && event->rank == 0; i++) {
        if (strcmp(event->message->metrics[i].name, "loss") == 0) {
            supervisor->loss = event->message->metrics[i].value;
        }
    }
    supervisor->progress_news = true;
}

static void tell_extend(const struct supervisor *supervisor, const struct progress_message *message)
{
    struct outside_event event = {.kind = OUTSIDE_EXTEND,
                                  .job = supervisor->job,
                                  .run = supervisor->run,
                                  .tag = (uint64_t)message->notice,
                                  .seconds = message->seconds};
    supervisor->outside->options.notify(supervisor->outside->options.context, &event);
}

static void take_message(struct supervisor *supervisor, const struct progress_event *event)
{
    switch (event->message->kind) {
    case PROGRESS_STEP:
        take_step(supervisor, event);
        break;
    case PROGRESS_STOPPED: /* since before a restart of the server: nobody wants it to stand */
        if (supervisor->pause == 0) {
            progress_resume(supervisor->progress, (uint64_t)event->message->request);
        }
        break;
    case PROGRESS_EXTEND:
        tell_extend(supervisor, event->message);
        break;
    case PROGRESS_HELLO:
        supervisor->progress_news = true;
        break;
    case PROGRESS_LATE:
    case PROGRESS_RESUMED:
    case PROGRESS_ACKNOWLEDGED: /* PROGRESS_SAVED, once it is all of them */
        break;
    }
}

static void on_progress(void *arg, const struct progress_event *event)
{
    struct supervisor *supervisor = arg;
    switch (event->kind) {
    case PROGRESS_TOLD:
        take_message(supervisor, event);
        break;
    case PROGRESS_STOOD:
        if (event->request == supervisor->pause && !supervisor->pause_told) {
            supervisor->pause_told = true;
            supervisor_tell(supervisor, OUTSIDE_FROZEN, supervisor->pause_tag, "");
        }
        break;
    case PROGRESS_SAVED:
        supervisor_tell(supervisor, OUTSIDE_SAVED, event->request, "");
        break;
    case PROGRESS_LEFT:
        supervisor->progress_news = true;
        break;
    }
}

static void tell_figures(struct supervisor *supervisor)
{
    struct outside_event event = {.kind = OUTSIDE_PROGRESS,
                                  .job = supervisor->job,
                                  .run = supervisor->run,
                                  .loss = supervisor->loss};
    progress_figures(supervisor->progress, &event.figures);
    supervisor->outside->options.notify(supervisor->outside->options.context, &event);
}

uint64_t ranks_turn(struct supervisor *supervisor, uint64_t now_ns)
{
    uint64_t due_ns = supervisor->progress_told_ns + TELL_NS;
    if (supervisor->progress == NULL || !supervisor->progress_news) {
        return UINT64_MAX;
    }
    if (now_ns < due_ns) {
        return due_ns;
    }
    supervisor->progress_news = false;
    supervisor->progress_told_ns = now_ns;
    tell_figures(supervisor);
    return UINT64_MAX;
}

void ranks_finish(struct supervisor *supervisor)
{
    struct pollfd ready = {.fd = ranks_fd(supervisor), .events = POLLIN};
    if (supervisor->progress == NULL) {
        return;
    }
    for (int i = 0; i < LAST_TURNS && poll(&ready, 1, 0) > 0; i++) {
        progress_turn(supervisor->progress, clock_now_ns());
    }
    if (supervisor->progress_news) {
        supervisor->progress_news = false;
        tell_figures(supervisor);
    }
}

/* ---- what they are told -----------------------------------------------------------------------
 */

void ranks_pause(struct supervisor *supervisor, uint64_t tag)
{
    struct error error = {.text = "it has no progress socket"};
    int64_t step = 0;
    uint64_t request = boottime_now_ns() / NS_PER_US; /* unlike all before, after a restart too */
    if (supervisor->progress == NULL ||
        progress_pause(supervisor->progress, request, &step, &error) < 0) {
        supervisor_tell(supervisor, OUTSIDE_NOT_FROZEN, tag, error.text);
        return;
    }
    supervisor->pause = request;
    supervisor->pause_tag = tag;
    supervisor->pause_told = false;
}

bool ranks_resume(struct supervisor *supervisor)
{
    if (supervisor->pause == 0) {
        return false;
    }
    progress_resume(supervisor->progress, supervisor->pause);
    supervisor->pause = 0;
    return true;
}

/* "cpu:0-3,cpu:4-7" in place; how many. */
static size_t split(char *text, const char **list)
{
    size_t count = 0;
    for (char *id; (id = strsep(&text, ",")) != NULL && count < DEVICES_MAX;) {
        list[count++] = id;
    }
    return count;
}

static void notice_write(struct supervisor *supervisor, const struct progress_notice *notice)
{
    struct error error;
    struct log_text reason;
    char *text = progress_notice_text(notice, boottime_now_ns());
    if (text != NULL && file_write(supervisor->folder, "notice", text, &error) < 0) {
        log_write(LOG_WARN, "outside", "notice not written", "job=%s reason=%s", supervisor->id,
                  log_quote(&reason, error.text));
    }
    free(text);
}

void ranks_notice(struct supervisor *supervisor, const struct outside_notice *notice)
{
    const char *devices[DEVICES_MAX];
    uint32_t ranks[PROGRESS_RANKS_MAX] = {0};
    struct ranks_figures figures = {0};
    char *text = strdup(notice->devices);
    if (text == NULL) {
        return;
    }
    if (supervisor->progress != NULL) {
        progress_figures(supervisor->progress, &figures);
    }
    for (uint32_t i = 0; i < figures.ranks; i++) {
        ranks[i] = i;
    }
    struct progress_notice told = {.notice = notice->number,
                                   .deadline_ns = notice->deadline_boot_ns,
                                   .devices = devices,
                                   .device_count = split(text, devices),
                                   .ranks = ranks,
                                   .rank_count = figures.ranks > 0 ? figures.ranks : 1,
                                   .reason = notice->reason,
                                   .asked = ASKED};
    notice_write(supervisor, &told);
    if (supervisor->progress != NULL && supervisor->notice == notice->number) {
        progress_notice_over(supervisor->progress, notice->number, "extended", told.deadline_ns,
                             boottime_now_ns());
    } else if (supervisor->progress != NULL) {
        (void)progress_notice(supervisor->progress, &told, boottime_now_ns());
    }
    supervisor->notice = notice->number;
    free(text);
}

/* ---- the socket -------------------------------------------------------------------------------
 */

void ranks_open(struct supervisor *supervisor)
{
    struct progress_options options = {
        .directory = supervisor->folder, .name = PROGRESS_SOCKET, .uid = geteuid()};
    struct error error;
    struct log_text reason;
    if (supervisor->progress != NULL) {
        return;
    }
    supervisor->loss = NAN;
    if (progress_create(&options, on_progress, supervisor, &supervisor->progress, &error) < 0) {
        supervisor->progress = NULL; /* a job that tells nothing runs all the same */
        log_write(LOG_WARN, "outside", "no progress socket", "job=%s reason=%s", supervisor->id,
                  log_quote(&reason, error.text));
    }
}

void ranks_close(struct supervisor *supervisor)
{
    progress_destroy(supervisor->progress);
    supervisor->progress = NULL;
}

int ranks_fd(const struct supervisor *supervisor)
{
    return supervisor->progress != NULL ? progress_fd(supervisor->progress) : -1;
}

void ranks_ready(struct supervisor *supervisor)
{
    if (supervisor->progress != NULL) {
        progress_turn(supervisor->progress, clock_now_ns());
    }
}
