/* figures.c: ten times a second: samples for the core, figures for people. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/adjust.h"
#include "server/control/state.h"

#define TICKS_PER_SECOND (1000 / TICK_MS)
#define LEDGER_STORE_NS (60 * NS_PER_S)
#define STORE_AGAIN_NS (5 * NS_PER_S)
#define TWIN_SETTLE_NS (2 * NS_PER_S)
#define ANSWERED_TAKE_MAX 4096

/* ---- endpoints
 * ------------------------------------------------------------------------------------- */

static void tell_load(struct control *control, struct endpoint_entry *endpoint,
                      const struct serve_sample *before)
{
    const struct serve_sample *now = &endpoint->sample;
    uint64_t arrivals = now->arrivals - before->arrivals;
    uint64_t busy_ns = now->busy_ns - before->busy_ns;
    bool load = arrivals > 0 || busy_ns > 0 || now->queue_length > 0;
    uint64_t interval_ns = control->now_ns - endpoint->sampled_ns;
    endpoint->sampled_ns = control->now_ns;
    if ((!load && !endpoint->had_load) || interval_ns == 0) {
        return;
    }
    endpoint->had_load = load;
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_SAMPLE};
    event.endpoint_sample.endpoint = endpoint->number;
    event.endpoint_sample.interval_ns = interval_ns;
    event.endpoint_sample.arrivals = arrivals > UINT32_MAX ? UINT32_MAX : (uint32_t)arrivals;
    event.endpoint_sample.queue_length = now->queue_length;
    event.endpoint_sample.oldest_wait_ns = now->oldest_wait_ns;
    event.endpoint_sample.busy_ns = busy_ns;
    control_feed(control, event);
}

void endpoint_refresh_statistics(struct control *control, struct endpoint_entry *endpoint)
{
    struct endpoint *held =
        endpoint->in_serve ? serve_endpoint_hold(control->serve, endpoint->number) : NULL;
    if (held == NULL) {
        return;
    }
    if (endpoint->statistics == NULL) {
        endpoint->statistics = calloc(1, sizeof *endpoint->statistics);
    }
    if (endpoint->statistics != NULL) {
        endpoint_statistics(held, endpoint->statistics);
    }
    endpoint_release(held);
}

void control_refresh(struct control *control)
{
    for (size_t i = 0; i < control->endpoint_count; i++) {
        endpoint_refresh_statistics(control, control->endpoints[i]);
    }
}

static const struct window_step *window_oldest(const struct window *window)
{
    size_t size = sizeof window->steps / sizeof window->steps[0];
    return &window->steps[window->count < size ? 0 : window->next];
}

static void window_push(struct window *window, const struct endpoint_statistics *statistics)
{
    size_t size = sizeof window->steps / sizeof window->steps[0];
    struct window_step *step = &window->steps[window->next];
    step->success = statistics->success;
    step->late = statistics->late;
    memcpy(step->latency, statistics->latency, sizeof step->latency);
    window->next = (window->next + 1) % (uint32_t)size;
    window->count += window->count < size ? 1 : 0;
}

static void measure_window(struct endpoint_entry *endpoint)
{
    const struct endpoint_statistics *statistics = endpoint->statistics;
    const struct window_step *oldest = window_oldest(endpoint->window);
    uint64_t counts[LATENCY_BUCKETS];
    uint64_t answered = statistics->success - oldest->success;
    endpoint->p50_ms = endpoint->p99_ms = endpoint->late_fraction = NAN;
    if (answered == 0) {
        return;
    }
    for (int i = 0; i < LATENCY_BUCKETS; i++) {
        counts[i] = statistics->latency[i] - oldest->latency[i];
    }
    endpoint->p50_ms = (double)latency_quantile_ns(counts, 0.5) / 1e6;
    endpoint->p99_ms = (double)latency_quantile_ns(counts, 0.99) / 1e6;
    endpoint->late_fraction = (double)(statistics->late - oldest->late) / (double)answered;
}

static void measure_rate(struct control *control, struct endpoint_entry *endpoint)
{
    uint64_t *ring = endpoint->success_ring;
    size_t size = sizeof endpoint->success_ring / sizeof ring[0];
    size_t place = control->ticks % size;
    ring[place] = endpoint->statistics->success;
    uint64_t a_second_ago = ring[(place + 1) % size];
    endpoint->requests_per_s = (double)(ring[place] - a_second_ago);
}

static void measure(struct control *control, struct endpoint_entry *endpoint)
{
    if (endpoint->statistics == NULL || endpoint->statistics->arrivals == 0) {
        return;
    }
    if (endpoint->window == NULL) {
        endpoint->window = calloc(1, sizeof *endpoint->window); /* totals of 0: the start */
        if (endpoint->window == NULL) {
            return;
        }
        endpoint->window->count = endpoint->window->next = 1;
    }
    double before[] = {endpoint->requests_per_s, endpoint->p50_ms, endpoint->p99_ms};
    measure_rate(control, endpoint);
    measure_window(endpoint);
    if (control->ticks % TICKS_PER_SECOND == 0) {
        window_push(endpoint->window, endpoint->statistics);
    }
    double after[] = {endpoint->requests_per_s, endpoint->p50_ms, endpoint->p99_ms};
    if (memcmp(before, after, sizeof before) != 0) {
        revision_touch(control, &endpoint->revisions, false);
    }
}

/* ---- the twin run
 * ------------------------------------------------------------------------------------ */

static void judge_answered(struct control *control, struct endpoint_entry *endpoint)
{
    static struct recorded_request answered[ANSWERED_TAKE_MAX]; /* the control thread's */
    struct endpoint *held = serve_endpoint_hold(control->serve, endpoint->number);
    if (held == NULL) {
        return;
    }
    size_t count;
    while ((count = endpoint_recorded(held, answered, ANSWERED_TAKE_MAX)) > 0) {
        if (endpoint->twin == NULL) {
            endpoint->twin = twin_create();
        }
        if (endpoint->twin != NULL) {
            twin_add(endpoint->twin, answered, count);
        }
    }
    endpoint_release(held);
    if (endpoint->twin == NULL || control->ticks % TICKS_PER_SECOND != 0) {
        return;
    }
    uint32_t devices = endpoint->devices_max < control->device_count ? endpoint->devices_max
                                                                     : control->device_count;
    struct twin_subject subject = {.devices = devices > 0 ? devices : 1,
                                   .slo_ns = endpoint->slo_ns,
                                   .batch_max = endpoint->batch_max,
                                   .service = &endpoint->service};
    twin_advance(endpoint->twin, &subject, control->now_ns, TWIN_SETTLE_NS);
}

/* Serving corrects what was measured at load: the core is told of changes over 5 %. */
static void follow_service(struct control *control, struct endpoint_entry *endpoint)
{
    for (uint32_t kind = 0; kind < control->kind_count; kind++) {
        struct service_table table = {0};
        if (serve_endpoint_service(control->serve, endpoint->number, control->kinds[kind], &table) <
                0 ||
            table.count == 0) {
            continue;
        }
        double before = (double)service_table_ns(&endpoint->service, 1);
        double now = (double)service_table_ns(&table, 1);
        double largest_before = (double)service_table_ns(&endpoint->service, endpoint->batch_max);
        double largest_now = (double)service_table_ns(&table, endpoint->batch_max);
        if (fabs(now - before) > 0.05 * before ||
            fabs(largest_now - largest_before) > 0.05 * largest_before) {
            endpoint_tell_service(control, endpoint, kind, &table);
        }
    }
}

static void tick_endpoint(struct control *control, struct endpoint_entry *endpoint)
{
    struct serve_sample before = endpoint->sample;
    if (!endpoint->in_serve || serve_endpoint_sample(control->serve, endpoint->number,
                                                     control->now_ns, &endpoint->sample) < 0) {
        return;
    }
    /* Others look at the sample in between; differences are taken from what was told. */
    before.arrivals = endpoint->told_arrivals;
    before.busy_ns = endpoint->told_busy_ns;
    bool active = endpoint->sample.arrivals != before.arrivals ||
                  endpoint->sample.busy_ns != before.busy_ns || endpoint->had_load;
    endpoint->told_arrivals = endpoint->sample.arrivals;
    endpoint->told_busy_ns = endpoint->sample.busy_ns;
    tell_load(control, endpoint, &before);
    if (active) {
        endpoint_refresh_statistics(control, endpoint);
    }
    measure(control, endpoint);
    if (endpoint->sample.arrivals > 0) {
        judge_answered(control, endpoint);
        if (control->ticks % TICKS_PER_SECOND == 0 && active) {
            follow_service(control, endpoint);
        }
    }
}

/* ---- the timeline
 * -------------------------------------------------------------------------------------- */

static const enum core_account use_accounts[TIMELINE_USES][3] = {
    [TIMELINE_SERVING] = {CORE_ACCOUNT_SERVING, CORE_ACCOUNT_SERVING, CORE_ACCOUNT_SERVING},
    [TIMELINE_TRAINING] = {CORE_ACCOUNT_TRAINING, CORE_ACCOUNT_WAITING, CORE_ACCOUNT_RESTORE},
    [TIMELINE_HANDOVER] = {CORE_ACCOUNT_HANDOVER, CORE_ACCOUNT_HANDOVER, CORE_ACCOUNT_HANDOVER},
    [TIMELINE_FAILED] = {CORE_ACCOUNT_QUARANTINED, CORE_ACCOUNT_QUARANTINED,
                         CORE_ACCOUNT_QUARANTINED},
};

static uint64_t account_sum(const uint64_t account_ns[CORE_ACCOUNT_COUNT],
                            const enum core_account accounts[3])
{
    uint64_t sum = account_ns[accounts[0]];
    for (int i = 1; i < 3; i++) {
        sum += accounts[i] != accounts[i - 1] ? account_ns[accounts[i]] : 0;
    }
    return sum;
}

static void tick_device(struct control *control, uint32_t index)
{
    struct device_entry *entry = &control->devices[index];
    struct core_device_view view;
    if (!core_device_find(control->core, device_number(index), &view)) {
        return;
    }
    bool used = false;
    for (int use = 0; use < TIMELINE_USES; use++) {
        uint64_t before = account_sum(entry->account_seen_ns, use_accounts[use]);
        uint64_t now = account_sum(view.account_ns, use_accounts[use]);
        if (now > before) {
            timeline_add(control->timeline, index, (enum timeline_use)use, now - before);
            used = true;
        }
    }
    memcpy(entry->account_seen_ns, view.account_ns, sizeof entry->account_seen_ns);
    if (used) {
        revision_touch(control, &entry->revisions, false);
    }
}

static void tick_timeline(struct control *control)
{
    uint64_t slot_ns = control->now_ns - control->slot_began_ns;
    for (uint32_t i = 0; i < control->device_count; i++) {
        tick_device(control, i);
    }
    if (slot_ns > 0) {
        timeline_advance(control->timeline, slot_ns);
        control->slot_began_ns = control->now_ns;
    }
}

const struct timeline *control_timeline(struct control *control)
{
    return control->timeline;
}

uint32_t control_slot_ms(void)
{
    return TICK_MS;
}

/* ---- for the metrics page
 * --------------------------------------------------------------------------------- */

static void publish(struct control *control)
{
    struct control_figures figures = {0};
    struct control_status status;
    control_status(control, &status);
    for (uint32_t i = 0; i < control->device_count; i++) {
        figures.devices_by_state[control->devices[i].shown.state]++;
    }
    for (size_t i = 0; i < control->job_count; i++) {
        figures.jobs_by_state[control->jobs[i]->state]++;
    }
    figures.ledger = status.ledger;
    figures.late_total = status.late_total;
    figures.late_by_handover = status.late_by_handover;
    figures.twin_requests = status.twin_requests;
    figures.store_errors = atomic_load(&control->store_errors);
    figures.health = status.health;
    figures.devices_wanted = control->devices_wanted;
    figures.devices_have = control->devices_have;
    while (control_scale_at(control, figures.scale_count, &figures.scale[figures.scale_count])) {
        figures.scale_count++;
    }
    figures.hold = status.hold;
    figures.mode = status.mode;
    pthread_mutex_lock(&control->shared.lock);
    control->shared.figures = figures;
    pthread_mutex_unlock(&control->shared.lock);
}

/* ---- the tick
 * --------------------------------------------------------------------------------------------------
 */

/* What a job came to is told to nobody who could ask again: it is written until it is there. Else a
 * job that was cancelled while the disk was full would go on after a restart. */
static void store_again(struct control *control)
{
    uint64_t errors = atomic_load(&control->store_errors);
    if (errors != control->store_errors_seen &&
        control->now_ns - control->stored_again_ns >= STORE_AGAIN_NS) {
        control->store_errors_seen = errors;
        control->stored_again_ns = control->now_ns;
        jobs_store(control);
    }
}

void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct control *control = arg;
    uint64_t revision = control->revision;
    (void)fd;
    (void)what;
    control->now_ns = clock_pace_now_ns(&control->pace);
    control->ticks++;
    for (uint32_t i = 0; i < control->device_count; i++) {
        if (device_failed(control->devices[i].device)) { /* its back-end has said so */
            device_fail(control, i, "the device reports a failure");
        }
    }
    /* Brings the core's accounts to this moment, too. */
    control_feed(control, (struct core_event){.kind = CORE_EVENT_TIMER});
    record_writer_flush(control->record, control->core, control->now_ns);
    for (size_t i = 0; i < control->endpoint_count; i++) {
        tick_endpoint(control, control->endpoints[i]);
    }
    for (size_t i = 0; i < control->job_count; i++) {
        struct job_entry *job = control->jobs[i];
        if (job->train != NULL) {
            job_refresh_figures(job);
            if (job->state == CONTROL_JOB_RUNNING) {
                revision_touch(control, &job->revisions, false);
            }
        }
    }
    outside_tick(control);
    tick_timeline(control);
    trainer_reap(control->trainer);
    if (control->now_ns - control->ledger_stored_ns >= LEDGER_STORE_NS) {
        ledger_store(control);
    }
    store_again(control);
    overrides_expire(control);
    if (control->ticks % TICKS_PER_SECOND == 0) {
        scale_refresh(control);
    }
    publish(control);
    if (control->revision != revision) {
        revision_touch(control, &control->status_revisions, false);
    }
    /* A watcher may have held figures back for its interval: it looks at every tick. */
    control->changed = true;
    revisions_refresh(control);
}
