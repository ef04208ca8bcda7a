/* supervisor.c: the server's side of one run: orders become commands to its shim, the shim's
 * reports become events. It keeps the time of commands: a shim that is stopped is woken, one that
 * stays silent while its job is to be ended is ended with it (remains.h). */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/folder.h"
#include "server/base/options.h"
#include "server/outside/internal.h"
#include "server/shim/remains.h"

#define FREEZE_BOUND_MS 3000
#define SILENT_NS NS_PER_S /* beyond a command's bound, and again after it was woken */
#define LOOK_AGAIN_NS (50 * NS_PER_MS)
#define FIND_NS (3 * NS_PER_S) /* a shim that was just being started shows by then */
#define REMAINS_NS (10 * NS_PER_S)
#define LINGER_MS 60000
#define GRACE_MS 2000
#define OOM_SCORE 500
#define GROUPS_MAX 256

/* ---- events ------------------------------------------------------------------------------------
 */

void supervisor_tell(const struct supervisor *supervisor, enum outside_event_kind kind,
                     uint64_t tag, const char *text)
{
    struct outside_event event = {.kind = kind,
                                  .job = supervisor->job,
                                  .run = supervisor->run,
                                  .tag = tag,
                                  .frozen = supervisor->frozen,
                                  .record = supervisor->record};
    (void)snprintf(event.text, sizeof event.text, "%s", text);
    supervisor->outside->options.notify(supervisor->outside->options.context, &event);
}

static void tell_lost(struct supervisor *supervisor, bool empty, const char *text)
{
    struct outside_event event = {.kind = OUTSIDE_LOST,
                                  .job = supervisor->job,
                                  .run = supervisor->run,
                                  .empty = empty,
                                  .record = supervisor->record};
    (void)snprintf(event.text, sizeof event.text, "%s", text);
    supervisor->over = true;
    supervisor->remains_ns = 0;
    supervisor->outside->options.notify(supervisor->outside->options.context, &event);
}

static void tell_end(struct supervisor *supervisor, enum outside_event_kind kind, const char *text)
{
    if (!supervisor->over) {
        ranks_finish(supervisor);
        supervisor->over = true;
        supervisor->remains_ns = supervisor->kill_at_ns = supervisor->kill_until_ns = 0;
        supervisor_tell(supervisor, kind, 0, text);
    }
}

/* What was asked of it is not done. */
static void refuse_awaited(struct supervisor *supervisor, const char *text)
{
    if (supervisor->freeze != 0) {
        supervisor->freeze = 0;
        supervisor_tell(supervisor, OUTSIDE_NOT_FROZEN, supervisor->freeze_tag, text);
    }
    if (supervisor->thaw != 0) {
        supervisor->thaw = 0;
        supervisor_tell(supervisor, OUTSIDE_NOT_THAWED, supervisor->thaw_tag, text);
    }
    supervisor->kill = supervisor->answer_by_ns = 0;
}

/* ---- reports -----------------------------------------------------------------------------------
 */

static void report_state(struct supervisor *supervisor, const struct shim_report *report)
{
    uint64_t dropped = supervisor->record.log_dropped;
    supervisor->record = *report->record;
    supervisor->frozen = report->frozen;
    if (supervisor->state_awaited) {
        supervisor->state_awaited = supervisor->woken = false;
        supervisor->answer_by_ns = 0;
    }
    switch ((enum shim_state)supervisor->record.state) {
    case SHIM_RUNNING:
        supervisor->remains_ns = 0;
        if (!supervisor->running_told) {
            supervisor->running_told = true;
            ranks_open(supervisor); /* found again: for ranks that have been waiting for us */
            supervisor_tell(supervisor, OUTSIDE_RUNNING, 0, "");
        } else if (supervisor->record.log_dropped != dropped) {
            supervisor_tell(supervisor, OUTSIDE_LOG_MOVED, 0, "");
        }
        break;
    case SHIM_ENDED:
        tell_end(supervisor, OUTSIDE_ENDED, "");
        break;
    case SHIM_FAILED:
        tell_end(supervisor, OUTSIDE_NOT_STARTED, supervisor->record.text);
        break;
    case SHIM_STARTING:
    case SHIM_EXITED: /* the rest of it is being ended */
        break;
    }
}

static void report_outcome(struct supervisor *supervisor, const struct shim_report *report)
{
    bool done = report->kind == SHIM_DONE;
    if (report->command == supervisor->freeze && supervisor->freeze != 0) {
        supervisor->freeze = 0;
        supervisor->frozen = done;
        supervisor_tell(supervisor, done ? OUTSIDE_FROZEN : OUTSIDE_NOT_FROZEN,
                        supervisor->freeze_tag, report->text);
    } else if (report->command == supervisor->thaw && supervisor->thaw != 0) {
        supervisor->thaw = 0;
        supervisor->frozen = supervisor->frozen && !done;
        supervisor_tell(supervisor, done ? OUTSIDE_THAWED : OUTSIDE_NOT_THAWED,
                        supervisor->thaw_tag, report->text);
    } else if (report->command == supervisor->kill && supervisor->kill != 0) {
        supervisor->kill = 0; /* the end comes as a state; else it is asked for again */
        supervisor->kill_at_ns = clock_now_ns() + SILENT_NS;
    }
    if (supervisor->freeze == 0 && supervisor->thaw == 0 && supervisor->kill == 0) {
        supervisor->answer_by_ns = 0;
        supervisor->woken = false;
    }
}

static void on_report(void *arg, const struct shim_report *report)
{
    struct supervisor *supervisor = arg;
    switch (report->kind) {
    case SHIM_STATE:
        report_state(supervisor, report);
        break;
    case SHIM_DONE:
    case SHIM_FAILED_COMMAND:
        report_outcome(supervisor, report);
        break;
    case SHIM_LOST: /* supervisor_ready sees it: no client may go during its own report */
        break;
    }
}

/* ---- starting ----------------------------------------------------------------------------------
 */

static int folders_prepare(struct supervisor *supervisor, const struct outside_lease *lease,
                           struct error *error)
{
    char token[96], oldest[PATH_MAX];
    if (supervisor->run > OUTSIDE_RUNS_KEPT &&
        outside_run_folder(supervisor->outside->state_directory, supervisor->id,
                           supervisor->run - OUTSIDE_RUNS_KEPT, oldest, sizeof oldest)) {
        run_remove(oldest);
    }
    int result = folder_make_all(supervisor->folder, 0700, error);
    if (result == 0 && mkdir(supervisor->run_folder, 0700) < 0) {
        result = error_set_errno(error, errno, "make folder '%s'", supervisor->run_folder);
    }
    if (result < 0) {
        return result;
    }
    (void)snprintf(token, sizeof token, "%llu.%llu.%016llx\n", (unsigned long long)lease->epoch,
                   (unsigned long long)lease->generation, (unsigned long long)lease->secret);
    file_remove(supervisor->folder, "notice");
    return file_write(supervisor->folder, "token", token, error);
}

static int shim_start(struct supervisor *supervisor, const struct outside_lease *lease,
                      const struct command *command, char **environment, struct error *error)
{
    uint32_t groups[GROUPS_MAX];
    int group_count = getgroups(GROUPS_MAX, groups);
    struct shim_job job = {
        .directory = supervisor->run_folder,
        .job = lease->id,
        .lease = lease->id,
        .devices = lease->devices,
        .epoch = lease->epoch,
        .generation = lease->generation,
        .token = (const unsigned char *)&lease->secret,
        .token_size = sizeof lease->secret,
        .arguments = (const char *const *)command->arguments,
        .environment = (const char *const *)environment,
        .working_directory = command->working_directory,
        .output = command->output,
        .stdin_fd = -1,
        .owner = geteuid(),
        .uid = geteuid(),
        .gid = getegid(),
        .groups = groups,
        .group_count = group_count > 0 ? (size_t)group_count : 0,
        .umask = (mode_t)command->umask,
        .limits = command->limits,
        .limit_count = command->limit_count,
        .nice = (int)command->nice,
        .cpus = lease->cpus[0] != '\0' ? lease->cpus : NULL,
        .oom_score = OOM_SCORE,
        .log_bytes = (uint64_t)command->log_bytes,
        .cgroup = CGROUP_AUTO,
        .grace_ms = GRACE_MS,
        .linger_ms = LINGER_MS,
    };
    return shim_client_start(supervisor->outside->options.spawner, &job, on_report, supervisor,
                             &supervisor->client, error);
}

static int run_start(struct supervisor *supervisor, const struct order *order, struct error *error)
{
    struct command command = {0};
    char **environment = NULL;
    json_t *specification = options_parse_text(order->text, strlen(order->text), "job", error);
    int result = specification == NULL ? -(int)ERROR_INVALID_ARGUMENT
                                       : command_read(specification, &command, error);
    if (result == 0) {
        environment = environment_make(&command, &order->lease, supervisor->folder);
        result = environment != NULL
                     ? folders_prepare(supervisor, &order->lease, error)
                     : error_set(error, ERROR_RESOURCE_EXHAUSTED, "start job: no memory");
    }
    if (result == 0) {
        result = outside_keep_specification(supervisor->outside->state_directory, supervisor->id,
                                            order->text, error);
    }
    if (result == 0) {
        ranks_open(supervisor);
        result = shim_start(supervisor, &order->lease, &command, environment, error);
    }
    environment_free(environment);
    command_fini(&command);
    json_decref(specification);
    return result;
}

void supervisor_start(struct supervisor *supervisor, const struct order *order)
{
    struct error error = {0};
    if (run_start(supervisor, order, &error) < 0) {
        supervisor->record.step = START_SHIM;
        tell_end(supervisor, OUTSIDE_NOT_STARTED, error.text);
    }
}

/* ---- finding again -----------------------------------------------------------------------------
 */

static void remains_begin(struct supervisor *supervisor)
{
    uint64_t now_ns = clock_now_ns();
    shim_client_destroy(supervisor->client);
    supervisor->client = NULL;
    refuse_awaited(supervisor, "its shim is gone");
    supervisor->remains_ns = now_ns;
    supervisor->remains_until_ns = now_ns + REMAINS_NS;
}

/* The shim is no more; its record tells the rest. */
static void record_follow(struct supervisor *supervisor)
{
    if (supervisor->record.state == SHIM_ENDED) {
        tell_end(supervisor, OUTSIDE_ENDED, "");
    } else if (supervisor->record.state == SHIM_FAILED) {
        tell_end(supervisor, OUTSIDE_NOT_STARTED, supervisor->record.text);
    } else {
        remains_begin(supervisor);
    }
}

void supervisor_find(struct supervisor *supervisor)
{
    struct error error = {0};
    struct stat status;
    uint64_t now_ns = clock_now_ns();
    int result =
        shim_client_find(supervisor->outside->options.spawner, supervisor->run_folder, on_report,
                         supervisor, &supervisor->record, &supervisor->client, &error);
    supervisor->find_until_ns =
        supervisor->find_until_ns == 0 ? now_ns + FIND_NS : supervisor->find_until_ns;
    supervisor->find_ns = 0;
    if (result == 0 && supervisor->client != NULL) {
        supervisor->answer_by_ns = now_ns + SILENT_NS; /* its state */
        supervisor->state_awaited = true;
    } else if (result == 0) {
        record_follow(supervisor);
    } else if (stat(supervisor->run_folder, &status) < 0) {
        tell_end(supervisor, OUTSIDE_NOT_FOUND, "it was never started");
    } else if (now_ns < supervisor->find_until_ns) {
        supervisor->find_ns = now_ns + LOOK_AGAIN_NS;
    } else if (result == -(int)ERROR_UNAVAILABLE || supervisor->record.shim_pid != 0) {
        remains_begin(supervisor);
    } else if (result == -(int)ERROR_NOT_FOUND) {
        tell_end(supervisor, OUTSIDE_NOT_FOUND, error.text);
    } else {
        tell_lost(supervisor, false, error.text);
    }
}

static void remains_step(struct supervisor *supervisor, uint64_t now_ns)
{
    enum remains remains = REMAINS_UNSURE;
    struct error error;
    if (spawner_end(supervisor->outside->options.spawner, supervisor->run_folder, &remains,
                    &error) < 0) {
        tell_lost(supervisor, false, error.text);
        return;
    }
    switch (remains) {
    case REMAINS_EMPTY:
        tell_lost(supervisor, true, "its shim ended; what was left of the job was ended too");
        break;
    case REMAINS_LIVE:
        supervisor->remains_ns = now_ns + LOOK_AGAIN_NS;
        if (now_ns >= supervisor->remains_until_ns) {
            tell_lost(supervisor, false, "its shim ended, and some of its processes do not end");
        }
        break;
    case REMAINS_UNSURE:
        tell_lost(supervisor, false,
                  "its shim ended, and without a control group nobody can say that all of its "
                  "processes have");
        break;
    }
}

/* ---- orders ------------------------------------------------------------------------------------
 */

static bool at_work(const struct supervisor *supervisor)
{
    return supervisor->client != NULL && !supervisor->over &&
           shim_client_fd(supervisor->client) >= 0;
}

static void await(struct supervisor *supervisor, uint64_t bound_ns)
{
    uint64_t by_ns = clock_now_ns() + bound_ns + SILENT_NS;
    supervisor->answer_by_ns = by_ns > supervisor->answer_by_ns ? by_ns : supervisor->answer_by_ns;
}

static void freeze(struct supervisor *supervisor, uint64_t tag)
{
    supervisor->freeze_tag = tag;
    supervisor->freeze =
        at_work(supervisor) ? shim_client_freeze(supervisor->client, FREEZE_BOUND_MS) : 0;
    if (supervisor->freeze == 0) {
        supervisor_tell(supervisor, OUTSIDE_NOT_FROZEN, tag, "its shim does not listen");
    } else {
        await(supervisor, FREEZE_BOUND_MS * NS_PER_MS);
    }
}

static void thaw(struct supervisor *supervisor, uint64_t tag)
{
    supervisor->thaw_tag = tag;
    if (ranks_resume(supervisor)) {
        supervisor_tell(supervisor, OUTSIDE_THAWED, tag, "");
        return;
    }
    supervisor->thaw = at_work(supervisor) ? shim_client_thaw(supervisor->client) : 0;
    if (supervisor->thaw == 0) {
        supervisor_tell(supervisor, OUTSIDE_NOT_THAWED, tag, "its shim does not listen");
    } else {
        await(supervisor, 0);
    }
}

/* "SigCgt:\t0000000000014a07" */
static bool has_handler(uint64_t pid, int signal)
{
    char path[64], line[128];
    unsigned long long caught = 0;
    (void)snprintf(path, sizeof path, "/proc/%llu/status", (unsigned long long)pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "SigCgt: %llx", &caught) == 1) {
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return (caught >> (signal - 1)) & 1;
}

static void send_signal(struct supervisor *supervisor, const struct order *order)
{
    const char *refused = "";
    if (!at_work(supervisor)) {
        refused = "its shim does not listen";
    } else if (order->reach == OUTSIDE_FIRST_IF_HANDLED &&
               !has_handler(supervisor->record.leader_pid, order->signal)) {
        refused = "its first process has no handler for it";
    } else if (shim_client_signal(supervisor->client, order->signal, order->reach != OUTSIDE_ALL) ==
               0) {
        refused = "its shim does not listen";
    }
    supervisor_tell(supervisor, OUTSIDE_SIGNALLED, order->tag, refused);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a == 0 || b < a ? b : a;
}

static void kill_order(struct supervisor *supervisor, const struct order *order)
{
    uint64_t now_ns = clock_now_ns();
    bool first = supervisor->kill_at_ns == 0;
    if (supervisor->over) {
        return;
    }
    supervisor->kill_at_ns = sooner(supervisor->kill_at_ns, now_ns + order->grace_ns);
    supervisor->kill_until_ns = sooner(supervisor->kill_until_ns, now_ns + order->bound_ns);
    if (!first || order->grace_ns == 0 || !at_work(supervisor)) {
        return;
    }
    if (supervisor->frozen || supervisor->freeze != 0) { /* else it cannot even see the signal */
        (void)shim_client_thaw(supervisor->client);
    }
    (void)shim_client_signal(supervisor->client, SIGTERM, false);
}

static void notice_order(struct supervisor *supervisor, const struct order *order)
{
    struct shim_record record = supervisor->record;
    ranks_notice(supervisor, &order->notice);
    record.notice_deadline_ns = record.kill_deadline_ns = order->notice.deadline_boot_ns;
    if (at_work(supervisor)) {
        (void)shim_client_update(supervisor->client, &record);
    }
}

void supervisor_order(struct supervisor *supervisor, const struct order *order)
{
    switch (order->kind) {
    case ORDER_FREEZE:
        freeze(supervisor, order->tag);
        break;
    case ORDER_PAUSE:
        ranks_pause(supervisor, order->tag);
        break;
    case ORDER_THAW:
        thaw(supervisor, order->tag);
        break;
    case ORDER_SIGNAL:
        send_signal(supervisor, order);
        break;
    case ORDER_KILL:
        kill_order(supervisor, order);
        break;
    case ORDER_NOTICE:
        notice_order(supervisor, order);
        break;
    case ORDER_START:
    case ORDER_FIND:
    case ORDER_FORGET:
    case ORDER_STOP: /* the thread's (outside.c) */
        break;
    }
}

/* ---- time --------------------------------------------------------------------------------------
 */

static void kill_step(struct supervisor *supervisor, uint64_t now_ns)
{
    if (now_ns >= supervisor->kill_at_ns && supervisor->kill == 0 && at_work(supervisor)) {
        uint64_t left_ns =
            supervisor->kill_until_ns > now_ns ? supervisor->kill_until_ns - now_ns : 0;
        uint64_t bound_ns = left_ns > NS_PER_S ? left_ns : NS_PER_S;
        supervisor->kill = shim_client_kill(supervisor->client, (uint32_t)(bound_ns / NS_PER_MS));
        await(supervisor, bound_ns);
    }
    if (now_ns >= supervisor->kill_until_ns && !supervisor->stuck_told) {
        supervisor->stuck_told = true;
        supervisor_tell(supervisor, OUTSIDE_STUCK, 0, "some of its processes do not end");
    }
}

static void silent_step(struct supervisor *supervisor, uint64_t now_ns)
{
    if (!supervisor->woken) {
        supervisor->woken = true;
        supervisor->answer_by_ns = now_ns + SILENT_NS;
        if (supervisor->client != NULL) {
            shim_client_wake(supervisor->client);
        }
    } else if (supervisor->kill_at_ns != 0 || supervisor->state_awaited) {
        remains_begin(supervisor);
    } else {
        refuse_awaited(supervisor, "its shim does not answer");
    }
}

uint64_t supervisor_turn(struct supervisor *supervisor, uint64_t now_ns)
{
    uint64_t next_ns = ranks_turn(supervisor, now_ns);
    if (!supervisor->over && supervisor->find_ns != 0 && now_ns >= supervisor->find_ns) {
        supervisor_find(supervisor);
    }
    if (!supervisor->over && supervisor->remains_ns != 0 && now_ns >= supervisor->remains_ns) {
        remains_step(supervisor, now_ns);
    }
    if (!supervisor->over && supervisor->kill_at_ns != 0) {
        kill_step(supervisor, now_ns);
    }
    if (!supervisor->over && supervisor->answer_by_ns != 0 && now_ns >= supervisor->answer_by_ns) {
        silent_step(supervisor, now_ns);
    }
    const uint64_t due[] = {supervisor->find_ns, supervisor->remains_ns, supervisor->answer_by_ns,
                            supervisor->kill == 0 ? supervisor->kill_at_ns : 0,
                            supervisor->stuck_told ? 0 : supervisor->kill_until_ns};
    for (size_t i = 0; i < sizeof due / sizeof due[0] && !supervisor->over; i++) {
        next_ns = due[i] != 0 && due[i] < next_ns ? due[i] : next_ns;
    }
    return next_ns;
}

int supervisor_fd(const struct supervisor *supervisor)
{
    return supervisor->client != NULL ? shim_client_fd(supervisor->client) : -1;
}

void supervisor_ready(struct supervisor *supervisor)
{
    if (supervisor->client == NULL) {
        return;
    }
    shim_client_turn(supervisor->client);
    if (shim_client_fd(supervisor->client) >= 0) {
        return;
    }
    shim_client_destroy(supervisor->client);
    supervisor->client = NULL;
    if (!supervisor->over) { /* its record on disk may tell more than it could */
        refuse_awaited(supervisor, "its shim is gone");
        supervisor->find_ns = clock_now_ns();
        supervisor->find_until_ns = 0;
    }
}

/* ---- life --------------------------------------------------------------------------------------
 */

struct supervisor *supervisor_create(struct outside *outside, uint64_t job, uint32_t run,
                                     const char *id)
{
    struct supervisor *supervisor = calloc(1, sizeof *supervisor);
    if (supervisor == NULL || (supervisor->id = strdup(id)) == NULL ||
        !outside_job_folder(outside->state_directory, id, supervisor->folder, PATH_MAX) ||
        !outside_run_folder(outside->state_directory, id, run, supervisor->run_folder, PATH_MAX)) {
        supervisor_destroy(supervisor);
        return NULL;
    }
    supervisor->outside = outside;
    supervisor->job = job;
    supervisor->run = run;
    return supervisor;
}

void supervisor_destroy(struct supervisor *supervisor)
{
    if (supervisor != NULL) {
        shim_client_destroy(supervisor->client);
        ranks_close(supervisor);
        free(supervisor->id);
        free(supervisor);
    }
}
