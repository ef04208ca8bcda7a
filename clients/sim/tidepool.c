/* tidepool.c: the policy `tidepool`: load and hand-overs become core events; the core decides. */
#include "clients/sim/tidepool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define REPORT_INTERVAL (60 * SECOND) /* of progress, unless checkpoints are rarer */
#define LATER_STREAM (UINT64_C(1) << 40)

static const struct policy_parameter parameters[PARAMETER_COUNT] = {
    [PARAMETER_SAMPLE_MS] = {"sample_ms", 10, 1000, 100, "time between samples of load"},
    [PARAMETER_REVOKES_PER_HOUR] = {"revokes_per_hour", 0, CORE_REVOKES_MAX, 6,
                                    "bound of a job's hand-overs by notice; 0: none"},
    [PARAMETER_STOPS_PER_HOUR] = {"stops_per_hour", 0, CORE_REVOKES_MAX, 120,
                                  "bound of a job's stops by freeze, pause, swap; 0: none"},
    [PARAMETER_STOPPED_CAP_S] = {"stopped_cap_s", 1, 1e6, 1e6,
                                 "longest that a job may be stopped in place"},
    [PARAMETER_KIND_SPEEDS] = {"kind_speeds", 0, 1, 1,
                               "whether it is told how fast kinds of device are; 0: not"},
};

uint64_t tidepool_cookie(const struct tidepool *policy, enum tidepool_cookie kind, uint64_t number)
{
    return (uint64_t)kind | (policy->epoch & 0xffff) << 8 | number << 24;
}

/* ---- the loop ---- */

static void core_turn(struct tidepool *policy, struct core_event *event)
{
    size_t most = core_actions_max(policy->core);
    event->time_ns = engine_now_ns(policy->engine);
    if (most > policy->action_capacity) {
        struct core_action *actions = realloc(policy->actions, most * sizeof *actions);
        if (actions == NULL) {
            policy->broken = true;
            return;
        }
        policy->actions = actions;
        policy->action_capacity = most;
    }
    size_t count = core_step(policy->core, event, policy->actions);
    for (size_t i = 0; i < count; i++) {
        tidepool_apply(policy, &policy->actions[i]);
    }
#if defined(__SANITIZE_ADDRESS__)
    char broken[256];
    if (!core_check(policy->core, broken, sizeof broken)) {
        fprintf(stderr, "policy tidepool: invariant broken at %.9f s: %s\n",
                (double)event->time_ns / 1e9, broken);
        abort();
    }
#endif
}

static int ring_grow(struct tidepool *policy)
{
    size_t capacity = policy->event_capacity == 0 ? 64 : policy->event_capacity * 2;
    struct core_event *events = calloc(capacity, sizeof *events);
    if (events == NULL) {
        return -1;
    }
    for (size_t i = 0; i < policy->event_count; i++) {
        events[i] = policy->events[(policy->event_first + i) % policy->event_capacity];
    }
    free(policy->events);
    policy->events = events;
    policy->event_first = 0;
    policy->event_capacity = capacity;
    return 0;
}

/* Up to here the time is booked as it was. */
static void sample_concerned(struct tidepool *policy, const struct core_event *event)
{
    uint64_t device = 0;
    switch (event->kind) {
    case CORE_EVENT_INSTANCE_READY:
    case CORE_EVENT_INSTANCE_STOPPED:
        device = event->instance.device;
        break;
    case CORE_EVENT_REVOKE_ACKNOWLEDGED:
    case CORE_EVENT_SUSPENDED:
    case CORE_EVENT_RESUMED:
    case CORE_EVENT_ACTION_DONE:
    case CORE_EVENT_RELEASE_VERIFIED:
        device = event->answer.device;
        break;
    case CORE_EVENT_DEVICE_FAILED:
        device = event->device.device;
        break;
    default:
        break;
    }
    if (device != 0) {
        tidepool_sample(policy, (uint32_t)device - 1);
    }
}

static void run(struct tidepool *policy)
{
    while (policy->event_count > 0) {
        struct core_event next = policy->events[policy->event_first];
        policy->event_first = (policy->event_first + 1) % policy->event_capacity;
        policy->event_count--;
        sample_concerned(policy, &next);
        core_turn(policy, &next);
    }
    policy->pumping = false;
}

void tidepool_feed_first(struct tidepool *policy, struct core_event event)
{
    bool within = policy->pumping;
    policy->pumping = true;
    core_turn(policy, &event);
    if (!within) {
        run(policy);
    }
}

void tidepool_feed(struct tidepool *policy, struct core_event event)
{
    if (policy->event_count == policy->event_capacity && ring_grow(policy) < 0) {
        policy->broken = true;
        return;
    }
    size_t place = (policy->event_first + policy->event_count++) % policy->event_capacity;
    policy->events[place] = event;
    if (!policy->pumping) {
        policy->pumping = true;
        run(policy);
    }
}

/* ---- answers that come late or never ---- */

static void feed_later(struct tidepool *policy, const struct core_event *event, uint64_t delay_ns)
{
    size_t slot = 0;
    while (slot < policy->later_count && policy->later[slot].kind != CORE_EVENT_COUNT) {
        slot++;
    }
    if (slot == policy->later_count) {
        struct core_event *later = realloc(policy->later, (slot + 1) * sizeof *later);
        if (later == NULL) {
            policy->broken = true;
            return;
        }
        policy->later = later;
        policy->later_count++;
    }
    policy->later[slot] = *event;
    engine_wake_at(policy->engine, engine_now_ns(policy->engine) + delay_ns,
                   tidepool_cookie(policy, COOKIE_LATER, slot));
}

void tidepool_answer(struct tidepool *policy, struct core_event event)
{
    uint64_t number = policy->answers++;
    uint64_t delay_ns = engine_fault_delay_ns(policy->engine, LATER_STREAM, number);
    if (engine_fault_lost(policy->engine, LATER_STREAM, number)) {
        return;
    }
    if (delay_ns > 0) {
        feed_later(policy, &event, delay_ns);
    } else {
        tidepool_feed(policy, event);
    }
}

static void later_comes(struct tidepool *policy, size_t slot)
{
    struct core_event event = policy->later[slot];
    policy->later[slot].kind = CORE_EVENT_COUNT;
    if (event.kind != CORE_EVENT_COUNT) {
        tidepool_feed(policy, event);
    }
}

/* ---- progress ---- */

static void progress_later(struct tidepool *policy, uint32_t number)
{
    uint64_t checkpoint_ns = policy->setup->jobs[number].checkpoint_ns;
    engine_wake_at(policy->engine,
                   engine_now_ns(policy->engine) +
                       (checkpoint_ns > REPORT_INTERVAL ? checkpoint_ns : REPORT_INTERVAL),
                   tidepool_cookie(policy, COOKIE_PROGRESS, number));
}

void tidepool_progress_begin(struct tidepool *policy, uint32_t number)
{
    if (number != ENGINE_POOL && !policy->jobs[number].reporting) {
        policy->jobs[number].reporting = true;
        progress_later(policy, number);
    }
}

static void progress(struct tidepool *policy, uint32_t number)
{
    struct tide_job *job = &policy->jobs[number];
    struct core_lease_view view;
    job->reporting = core_lease_find(policy->core, number + 1, &view) && view.devices > 0;
    if (job->reporting) {
        job->step++;
        tidepool_feed(policy,
                      (struct core_event){.kind = CORE_EVENT_LEASE_PROGRESS,
                                          .lease_progress = {.lease = number + 1,
                                                             .generation = view.run,
                                                             .step = job->step,
                                                             .checkpointed_step = job->step}});
        progress_later(policy, number);
    }
}

/* ---- the core's timer ---- */

/* It moves with nearly every step: only an earlier time needs a wake of its own. */
void tidepool_timer_plan(struct tidepool *policy)
{
    if (policy->timer_ns != 0 && (policy->woken_ns == 0 || policy->timer_ns < policy->woken_ns)) {
        policy->woken_ns = policy->timer_ns;
        engine_wake_at(policy->engine, policy->timer_ns, tidepool_cookie(policy, COOKIE_TIMER, 0));
    }
}

static void timer_comes(struct tidepool *policy)
{
    uint64_t now_ns = engine_now_ns(policy->engine);
    if (policy->woken_ns > now_ns) {
        return; /* an earlier one has come instead of this */
    }
    policy->woken_ns = 0;
    if (policy->timer_ns != 0 && policy->timer_ns <= now_ns) {
        policy->timer_ns = 0;
        tidepool_feed(policy, (struct core_event){.kind = CORE_EVENT_TIMER});
    }
    tidepool_timer_plan(policy);
}

/* ---- hooks ---- */

static void on_arrived(struct policy *base, uint32_t endpoint)
{
    tidepool_arrived((struct tidepool *)base, endpoint);
}

static void on_serve_began(struct policy *base, uint32_t device, uint32_t endpoint)
{
    (void)endpoint;
    tidepool_serve_began((struct tidepool *)base, device);
}

static void on_serve_ended(struct policy *base, uint32_t device, uint32_t endpoint,
                           uint64_t service_ns)
{
    struct tidepool *policy = (struct tidepool *)base;
    (void)service_ns;
    tidepool_serve_ended(policy, device);
    tidepool_served(policy, device, endpoint);
}

static void on_moved(struct policy *base, uint32_t device, enum engine_phase phase)
{
    tidepool_moved((struct tidepool *)base, device, phase);
}

static void on_wanted(struct policy *base, uint32_t device, uint64_t by_ns)
{
    tidepool_tell_wanted((struct tidepool *)base, device, by_ns);
}

static void on_job_submitted(struct policy *base, uint32_t job)
{
    tidepool_tell_job((struct tidepool *)base, job);
}

static void on_job_ended(struct policy *base, uint32_t job)
{
    struct tidepool *policy = (struct tidepool *)base;
    struct core_lease_view view;
    policy->jobs[job].ended = true;
    if (core_lease_find(policy->core, job + 1, &view)) {
        tidepool_feed(policy,
                      (struct core_event){
                          .kind = CORE_EVENT_JOB_EXITED,
                          .job_exited = {.lease = job + 1, .generation = view.run, .kept = true}});
    }
}

static void on_begin(struct policy *base)
{
    tidepool_tell_world((struct tidepool *)base, false);
}

static void on_wake(struct policy *base, uint64_t cookie)
{
    struct tidepool *policy = (struct tidepool *)base;
    if ((cookie >> 8 & 0xffff) != (policy->epoch & 0xffff)) {
        return; /* of a former life */
    }
    switch ((enum tidepool_cookie)(cookie & 0xff)) {
    case COOKIE_TIMER:
        timer_comes(policy);
        break;
    case COOKIE_TICK:
        tidepool_tick(policy);
        break;
    case COOKIE_PROGRESS:
        progress(policy, (uint32_t)(cookie >> 24));
        break;
    case COOKIE_CLEANED:
        tidepool_cleaned(policy, (uint32_t)(cookie >> 24));
        break;
    case COOKIE_LATER:
        later_comes(policy, cookie >> 24);
        break;
    }
}

/* ---- crash and restart: only what was committed is left ---- */

static void on_crashed(struct policy *base)
{
    struct tidepool *policy = (struct tidepool *)base;
    struct core *core = tidepool_core_create(policy, policy->epoch + 1);
    if (core == NULL) {
        policy->broken = true; /* the old one goes on: the run has no result */
        return;
    }
    core_destroy(policy->core);
    policy->core = core;
    policy->epoch++;
    policy->event_count = 0;
    policy->timer_ns = policy->woken_ns = 0;
    policy->ticking = false;
    for (size_t i = 0; i < policy->later_count; i++) {
        policy->later[i].kind = CORE_EVENT_COUNT;
    }
}

static void on_restarted(struct policy *base)
{
    struct tidepool *policy = (struct tidepool *)base;
    tidepool_tell_world(policy, true);
    tidepool_tick_begin(policy);
}

/* ---- life ---- */

static void policy_destroy(struct policy *base)
{
    struct tidepool *policy = (struct tidepool *)base;
    core_destroy(policy->core);
    for (uint32_t i = 0; policy->endpoints != NULL && i < policy->setup->endpoint_count; i++) {
        free(policy->endpoints[i].removes);
    }
    free(policy->actions);
    free(policy->events);
    free(policy->devices);
    free(policy->endpoints);
    free(policy->jobs);
    free(policy->later);
    bits_fini(&policy->active);
    free(policy);
}

static int tables_create(struct tidepool *policy)
{
    const struct sim_setup *setup = policy->setup;
    policy->devices = calloc(setup->device_count, sizeof *policy->devices);
    policy->endpoints = calloc(setup->endpoint_count + 1, sizeof *policy->endpoints);
    policy->jobs = calloc(setup->job_count + 1, sizeof *policy->jobs);
    if (policy->devices == NULL || policy->endpoints == NULL || policy->jobs == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < setup->endpoint_count; i++) {
        policy->endpoints[i].removes = calloc(setup->device_count, sizeof(uint64_t));
        if (policy->endpoints[i].removes == NULL) {
            return -1;
        }
    }
    return bits_init(&policy->active, setup->device_count);
}

static struct policy *policy_create(struct engine *engine, const double *values,
                                    struct error *error)
{
    struct tidepool *policy = calloc(1, sizeof *policy);
    if (policy == NULL) {
        goto no_memory;
    }
    policy->engine = engine;
    policy->setup = engine_setup(engine);
    policy->epoch = 1;
    memcpy(policy->parameters, values, sizeof policy->parameters);
    policy->core = tidepool_core_create(policy, policy->epoch);
    if (policy->core == NULL || tables_create(policy) < 0) {
        goto no_memory;
    }
    return &policy->base;
no_memory:
    if (policy != NULL) {
        policy_destroy(&policy->base);
    }
    error_set(error, ERROR_RESOURCE_EXHAUSTED, "policy tidepool: no memory");
    return NULL;
}

/* A crash takes the core's books with it: then they begin anew. */
static bool policy_balanced(struct policy *base)
{
    struct tidepool *policy = (struct tidepool *)base;
    struct core_ledger ledger;
    uint64_t now_ns = engine_now_ns(policy->engine);
    core_sum_ns sum_ns = 0;
    core_ledger_read(policy->core, now_ns, &ledger);
    for (int i = 0; i < CORE_ACCOUNT_COUNT; i++) {
        sum_ns += ledger.account_ns[i];
    }
    return !policy->broken && sum_ns == ledger.elapsed_ns &&
           (policy->epoch > 1 ||
            ledger.elapsed_ns == (core_sum_ns)now_ns * policy->setup->device_count);
}

const struct policy_class policy_tidepool = {
    .name = "tidepool",
    .help = "Tidepool's own core",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .create = policy_create,
    .destroy = policy_destroy,
    .begin = on_begin,
    .wake = on_wake,
    .arrived = on_arrived,
    .serve_began = on_serve_began,
    .serve_ended = on_serve_ended,
    .moved = on_moved,
    .wanted = on_wanted,
    .job_submitted = on_job_submitted,
    .job_ended = on_job_ended,
    .crashed = on_crashed,
    .restarted = on_restarted,
    .balanced = policy_balanced,
};
