/* outside_record.c: what an outside job holds, as the store keeps it; and the start: jobs that hold
 * something are looked for before anything is granted. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/base/options.h"
#include "server/control/state.h"
#include "server/shim/process.h"

#define OVERDUE_NS (5 * NS_PER_S)

/* ---- writing ----------------------------------------------------------------------------------
 */

/* Secrets use all 64 bits, which JSON's whole numbers do not. */
static json_t *hex(uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, number);
    return json_string(text);
}

static json_t *grants_print(const struct outside_job *outside, const struct control *control)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < outside->grant_count; i++) {
        const struct run_grant *grant = &outside->grants[i];
        json_array_append_new(list, json_pack("{s:s, s:I, s:o}", "device",
                                              control->devices[grant->device - 1].device->id,
                                              "generation", (json_int_t)grant->generation, "secret",
                                              hex(grant->secret)));
    }
    return list;
}

static bool holds(const struct outside_job *outside)
{
    return outside->state != RUN_NONE && outside->state != RUN_GATHERING &&
           outside->state != RUN_ENDED;
}

static void put_run(json_t *object, const struct outside_job *outside,
                    const struct control *control)
{
    char boot[BOOT_ID_SIZE] = "";
    (void)boot_id_read(boot, NULL);
    json_object_set_new(object, "devices", grants_print(outside, control));
    json_object_set_new(object, "epoch", json_integer((json_int_t)outside->epoch));
    json_object_set_new(object, "boot", json_string(boot));
    json_object_set_new(object, "began_boot_ns", json_integer((json_int_t)outside->began_boot_ns));
    if (!outside->notice.asked && !outside->notice.killing) {
        return;
    }
    json_object_set_new(object, "notice",
                        json_pack("{s:I, s:i, s:b, s:b, s:b, s:b}", "deadline_boot_ns",
                                  (json_int_t)outside->notice.deadline_boot_ns, "reason",
                                  (int)outside->notice.reason, "killing", outside->notice.killing,
                                  "by_owner", outside->notice.stopped_by_owner, "expired",
                                  outside->notice.expired, "signalled", outside->notice.signalled));
}

char *outside_print(const struct outside_job *outside, const struct control *control)
{
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:I, s:I}", "run", (json_int_t)outside->run,
        "failures", (json_int_t)outside->failures, "preemptions", (json_int_t)outside->preemptions,
        "exit_class", (int)outside->exit_class, "exit_code", outside->exit_code, "exit_signal",
        outside->exit_signal, "ran_ns", (json_int_t)outside->ran_ns, "suspended_ns",
        (json_int_t)outside->suspended_ns, "notices", (json_int_t)outside->notice.number);
    char *text = NULL;
    if (object != NULL && holds(outside)) {
        put_run(object, outside, control);
    }
    if (object != NULL) {
        text = json_dumps(object, JSON_COMPACT);
        json_decref(object);
    }
    return text;
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static uint64_t get(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) ? (uint64_t)json_integer_value(value) : 0;
}

static uint64_t device_of_id(const struct control *control, const char *id)
{
    for (uint32_t i = 0; id != NULL && i < control->device_count; i++) {
        if (strcmp(control->devices[i].device->id, id) == 0) {
            return device_number(i);
        }
    }
    return 0;
}

static void add_grant(struct outside_job *outside, const struct control *control, const char *id,
                      uint64_t generation, uint64_t secret)
{
    uint64_t device = device_of_id(control, id);
    if (device != 0 && outside->grant_count < outside->command.devices_max) {
        outside->grants[outside->grant_count++] = (struct run_grant){device, generation, secret, 0};
    }
}

static void parse_run(struct outside_job *outside, const struct control *control,
                      const json_t *object)
{
    const json_t *list = json_object_get(object, "devices");
    const json_t *notice = json_object_get(object, "notice");
    char boot[BOOT_ID_SIZE] = "";
    const char *known = json_string_value(json_object_get(object, "boot"));
    bool same_boot = boot_id_read(boot, NULL) == 0 && known != NULL && strcmp(boot, known) == 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *secret = json_string_value(json_object_get(item, "secret"));
        add_grant(outside, control, json_string_value(json_object_get(item, "device")),
                  get(item, "generation"), secret != NULL ? strtoull(secret, NULL, 16) : 0);
    }
    outside->state = RUN_FINDING;
    outside->epoch = get(object, "epoch");
    outside->began_boot_ns = same_boot ? get(object, "began_boot_ns") : 0;
    if (notice != NULL) {
        outside->notice.asked = true;
        outside->notice.deadline_boot_ns = same_boot ? get(notice, "deadline_boot_ns") : 0;
        outside->notice.reason = (enum core_reason)(get(notice, "reason") % CORE_REASON_COUNT);
        outside->notice.killing = json_is_true(json_object_get(notice, "killing"));
        outside->notice.stopped_by_owner = json_is_true(json_object_get(notice, "by_owner"));
        outside->notice.expired = json_is_true(json_object_get(notice, "expired"));
        outside->notice.signalled = json_is_true(json_object_get(notice, "signalled"));
    }
}

void outside_parse(struct outside_job *outside, const struct control *control, const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    outside->run = (uint32_t)get(object, "run");
    outside->failures = (uint32_t)get(object, "failures");
    outside->preemptions = (uint32_t)get(object, "preemptions");
    outside->exit_class =
        (enum control_exit_class)(get(object, "exit_class") % CONTROL_EXIT_CLASSES);
    outside->exit_code = (int)get(object, "exit_code");
    outside->exit_signal = (int)get(object, "exit_signal");
    outside->ran_ns = get(object, "ran_ns");
    outside->suspended_ns = get(object, "suspended_ns");
    outside->notice.number = get(object, "notices");
    if (json_object_get(object, "devices") != NULL) {
        parse_run(outside, control, object);
    }
    json_decref(object);
}

/* ---- a store that was lost --------------------------------------------------------------------
 */

/* "cpu:0-3,cpu:4-7" */
static void add_recorded(struct outside_job *outside, const struct control *control,
                         const struct shim_record *record)
{
    char devices[SHIM_TEXT_MAX], *rest = devices;
    uint64_t secret = 0;
    memcpy(devices, record->devices, sizeof devices);
    memcpy(&secret, record->token,
           record->token_size < sizeof secret ? record->token_size : sizeof secret);
    for (char *id; (id = strsep(&rest, ",")) != NULL;) {
        add_grant(outside, control, id, record->generation, secret);
    }
}

static int rebuild(struct control *control, const struct outside_found *found, struct error *error)
{
    struct job_entry *job = job_add(control, found->job);
    json_t *specification =
        options_parse_text(found->specification, strlen(found->specification), "job", error);
    int result = -ERROR_INVALID_ARGUMENT;
    if (job == NULL || (job->specification = strdup(found->specification)) == NULL) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory");
    } else if (specification != NULL) {
        result = outside_job_create(control, job, specification, error);
    }
    json_decref(specification);
    if (result < 0) {
        return result;
    }
    struct outside_job *outside = job->outside;
    job->committed = true;
    job->state = CONTROL_JOB_LOADING;
    job->submitted_wall_ns = clock_pace_wall_ns(&control->pace);
    outside->run = found->run;
    outside->state = RUN_FINDING;
    outside->epoch = found->record->epoch;
    outside->notice.asked = found->record->notice_deadline_ns != 0;
    outside->notice.deadline_boot_ns = found->record->notice_deadline_ns;
    add_recorded(outside, control, found->record);
    return 0;
}

/* Only what lives is worth it: a job that the store has forgotten has ended. */
static bool shim_lives(const struct shim_record *record)
{
    char boot[BOOT_ID_SIZE];
    struct process shim;
    return boot_id_read(boot, NULL) == 0 && strcmp(boot, record->boot) == 0 &&
           process_read((pid_t)record->shim_pid, &shim) && shim.start == record->shim_start;
}

static void on_scanned(void *context, const struct outside_found *found)
{
    struct control *control = context;
    struct error error = {0};
    struct log_text text;
    if (job_by_number(control, found->job, NULL) != NULL || !shim_lives(found->record)) {
        return;
    }
    if (rebuild(control, found, &error) < 0) {
        log_write(LOG_ERROR, "outside", "job not rebuilt", "job=%s reason=%s", found->id,
                  log_quote(&text, error.text));
    } else {
        log_write(LOG_WARN, "outside", "job rebuilt from its shim", "job=%s run=%u", found->id,
                  found->run);
    }
}

/* ---- the start --------------------------------------------------------------------------------
 */

static void find_one(struct control *control, struct job_entry *job)
{
    struct outside_job *outside = job->outside;
    for (uint32_t i = 0; i < outside->grant_count; i++) {
        const struct run_grant *grant = &outside->grants[i];
        control->devices[grant->device - 1].holder = job->number;
        job->generation = grant->generation > job->generation ? grant->generation : job->generation;
    }
    if (outside->command.held) {
        held_restore(control, job);
        return;
    }
    control->finding++;
    outside_find(control->outside, job->number, job->id, outside->run);
}

void outside_boot(struct control *control)
{
    if (control->outside != NULL) {
        outside_scan(control->config->state, on_scanned, control);
    }
    for (size_t i = 0; i < control->job_count; i++) {
        struct job_entry *job = control->jobs[i];
        if (job->outside != NULL && !job_ended(job)) {
            if (job->outside->state == RUN_FINDING) {
                find_one(control, job);
            } else {
                job_became_ready(control, job);
            }
        }
    }
    if (control->finding == 0) {
        control_reconciled(control);
    }
}

/* Its lease as it was: the core goes on from there. */
void outside_restore_lease(struct control *control, struct job_entry *job, bool alive)
{
    struct outside_job *outside = job->outside;
    struct core_event event = {.kind = CORE_EVENT_RESTORED_LEASE};
    outside->resized = alive;
    event.lease_spec = outside_job_spec(control, job);
    job->in_core = true;
    control_feed(control, event);
    for (uint32_t i = 0; i < outside->grant_count; i++) {
        struct core_event grant = {.kind = CORE_EVENT_RESTORED_GRANT};
        grant.restored_grant.lease = job->number;
        grant.restored_grant.device = outside->grants[i].device;
        grant.restored_grant.generation = outside->grants[i].generation;
        grant.restored_grant.alive = alive;
        control_feed(control, grant);
    }
}

/* The deadline that the job was told holds, with a little time where it passed meanwhile. */
static void restore_notice(struct control *control, struct job_entry *job)
{
    struct outside_job *outside = job->outside;
    uint64_t now_boot_ns = boottime_now_ns();
    uint64_t deadline_boot_ns = outside->notice.deadline_boot_ns;
    if (!outside->notice.asked) {
        return;
    }
    uint64_t left_ns = deadline_boot_ns > now_boot_ns ? deadline_boot_ns - now_boot_ns : 0;
    left_ns = left_ns > 0 ? left_ns : OVERDUE_NS;
    outside->notice.deadline_ns = control->now_ns + left_ns;
    outside->notice.deadline_boot_ns = now_boot_ns + left_ns;
    outside->notice.restored = outside->notice.numbered = true;
    outside->notice.killing = false;   /* begun again */
    outside_notice_tell(control, job); /* to ranks that come back */
}

static void restore_alive(struct control *control, struct job_entry *job,
                          const struct outside_event *event)
{
    struct outside_job *outside = job->outside;
    struct log_text text;
    outside->state = RUN_ALIVE;
    if (!job->in_core) {
        outside_restore_lease(control, job, true);
    }
    restore_notice(control, job);
    log_write(LOG_INFO, "outside", "run found again", "job=%s run=%u frozen=%d text=%s", job->id,
              outside->run, (int)event->frozen, log_quote(&text, event->text));
    if (event->frozen) { /* nothing serves beside it yet */
        outside_thaw(control->outside, job->number, 0);
    }
}

void outside_reconciled(struct control *control)
{
    for (size_t i = 0; i < control->job_count; i++) {
        struct job_entry *job = control->jobs[i];
        if (job->outside == NULL || !job->in_core || job_ended(job)) {
            continue;
        }
        if (job->outcome == CONTROL_JOB_CANCELLED) {
            feed_lease(control, CORE_EVENT_LEASE_CANCELLED, job->number);
        } else if (job->paused) {
            feed_lease(control, CORE_EVENT_LEASE_PAUSED, job->number);
        }
    }
}

/* It was never begun: the devices are as they were, and it waits for others. */
static void never_began(struct control *control, struct job_entry *job)
{
    struct outside_job *outside = job->outside;
    for (uint32_t i = 0; i < outside->grant_count; i++) {
        control->devices[outside->grants[i].device - 1].holder = 0;
    }
    outside_forget(control->outside, job->number);
    outside->state = RUN_NONE;
    outside->grant_count = 0;
    outside_notice_clear(outside);
    if (job->outcome != 0) {
        job_finalize(control, job);
    } else {
        job_became_ready(control, job);
    }
}

/* Whoever does not answer keeps its devices; nobody else has to wait for it any longer. */
void outside_find_overdue(struct control *control)
{
    for (size_t i = 0; i < control->job_count; i++) {
        struct job_entry *job = control->jobs[i];
        if (job->outside != NULL && job->outside->state == RUN_FINDING && !job->in_core) {
            log_write(LOG_WARN, "outside", "shim does not answer yet", "job=%s", job->id);
            outside_restore_lease(control, job, true);
        }
    }
    control_reconciled(control);
}

void outside_found(struct control *control, struct job_entry *job,
                   const struct outside_event *event)
{
    switch (event->kind) {
    case OUTSIDE_RUNNING:
        outside_running_note(control, job, event);
        restore_alive(control, job, event);
        break;
    case OUTSIDE_NOT_FOUND:
        if (job->in_core) {
            outside_run_over(control, job, event);
        } else {
            never_began(control, job);
        }
        break;
    case OUTSIDE_LOST:
        if (!event->empty && !job->in_core) { /* its devices are quarantined by way of the core */
            outside_restore_lease(control, job, false);
        }
        outside_run_over(control, job, event);
        break;
    case OUTSIDE_ENDED:
    case OUTSIDE_NOT_STARTED:
        outside_run_over(control, job, event);
        break;
    default:
        return; /* not yet */
    }
    if (--control->finding == 0) {
        control_reconciled(control);
    }
}
