/* crowd.c: see crowd.h. */
#include "tests/bench/crowd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/base/random.h"

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define GIB (UINT64_C(1) << 30)
#define PER_NODE 8
#define KINDS 2

struct answer {
    uint64_t order; /* first come first served at equal times */
    struct core_event event;
};

struct crowd {
    struct core *core;
    struct crowd_size size;
    uint64_t random, now_ns, tick_ns, timer_ns, order;
    struct core_action *actions;
    size_t action_capacity;
    struct answer *answers; /* a heap by time */
    size_t answer_count, answer_capacity;
    uint64_t next_lease, clock_cost_ns;
    uint64_t *leases; /* ids of those that are not over, by no order */
    uint32_t lease_count;
    uint64_t *sampled_ns; /* [devices + 1] */
};

static uint64_t draw(struct crowd *crowd, uint64_t below)
{
    return random_next(&crowd->random) % below;
}

static bool chance(struct crowd *crowd, uint64_t permille)
{
    return draw(crowd, 1000) < permille;
}

/* ---- answers on their way ---- */

static bool comes_before(const struct answer *a, const struct answer *b)
{
    return a->event.time_ns != b->event.time_ns ? a->event.time_ns < b->event.time_ns
                                                : a->order < b->order;
}

static void answers_swap(struct answer *a, struct answer *b)
{
    struct answer kept = *a;
    *a = *b;
    *b = kept;
}

static void answer_later(struct crowd *crowd, struct core_event event, uint64_t delay_ns)
{
    if (crowd->answer_count == crowd->answer_capacity) {
        crowd->answer_capacity = crowd->answer_capacity * 2 + 1024;
        crowd->answers = realloc(crowd->answers, crowd->answer_capacity * sizeof *crowd->answers);
        if (crowd->answers == NULL) {
            abort();
        }
    }
    event.time_ns = crowd->now_ns + delay_ns;
    size_t at = crowd->answer_count++;
    crowd->answers[at] = (struct answer){.order = ++crowd->order, .event = event};
    while (at > 0 && comes_before(&crowd->answers[at], &crowd->answers[(at - 1) / 2])) {
        answers_swap(&crowd->answers[at], &crowd->answers[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
}

static struct core_event answer_take(struct crowd *crowd)
{
    struct core_event event = crowd->answers[0].event;
    crowd->answers[0] = crowd->answers[--crowd->answer_count];
    for (size_t at = 0;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < crowd->answer_count &&
            comes_before(&crowd->answers[child + 1], &crowd->answers[child])) {
            child++;
        }
        if (child >= crowd->answer_count ||
            !comes_before(&crowd->answers[child], &crowd->answers[at])) {
            return event;
        }
        answers_swap(&crowd->answers[at], &crowd->answers[child]);
        at = child;
    }
}

static void answer_instance(struct crowd *crowd, const struct core_action *action)
{
    bool place = action->kind == CORE_ACTION_PLACE;
    struct core_event event = {.kind = CORE_EVENT_INSTANCE_STOPPED};
    if (place) {
        event.kind = chance(crowd, 5) ? CORE_EVENT_INSTANCE_FAILED : CORE_EVENT_INSTANCE_READY;
    }
    event.instance.action = action->id;
    event.instance.endpoint = action->instance.endpoint;
    event.instance.device = action->instance.device;
    answer_later(crowd, event, (place ? 2000 : 100) * MS + draw(crowd, SECOND));
}

static void answer_revoke(struct crowd *crowd, const struct core_action *action)
{
    bool stop = action->revoke.rung == CORE_RUNG_FREEZE || action->revoke.rung == CORE_RUNG_PAUSE ||
                action->revoke.rung == CORE_RUNG_SWAP;
    struct core_event event = {.kind = stop ? CORE_EVENT_SUSPENDED : CORE_EVENT_REVOKE_ACKNOWLEDGED,
                               .suspended = {.action = action->id,
                                             .device = action->revoke.device,
                                             .residue_bytes = stop ? GIB : 0}};
    if (action->revoke.rung != CORE_RUNG_NONE) {
        answer_later(crowd, event, stop ? 10 * MS : 200 * MS + draw(crowd, 5 * SECOND));
    }
}

static void answer_device(struct crowd *crowd, const struct core_action *action)
{
    struct core_event event = {.kind = CORE_EVENT_ACTION_DONE};
    event.answer.action = action->id;
    event.answer.device = action->revoke.device;
    if (action->kind == CORE_ACTION_GRANT) {
        event.answer.device = action->grant.device;
        event.kind = chance(crowd, 3) ? CORE_EVENT_ACTION_FAILED : CORE_EVENT_ACTION_DONE;
    } else if (action->kind == CORE_ACTION_VERIFY) {
        event.kind = CORE_EVENT_RELEASE_VERIFIED;
        event.verified.device = action->device.device;
        event.verified.gone = true;
    } else if (action->kind == CORE_ACTION_RESUME) {
        event.kind = CORE_EVENT_RESUMED;
    }
    answer_later(crowd, event, 2 * MS + draw(crowd, 50 * MS));
}

static void forget_lease(struct crowd *crowd, uint64_t lease)
{
    for (uint32_t i = 0; i < crowd->lease_count; i++) {
        if (crowd->leases[i] == lease) {
            crowd->leases[i] = crowd->leases[--crowd->lease_count];
            return;
        }
    }
}

static void carry_out(struct crowd *crowd, const struct core_action *action)
{
    switch (action->kind) {
    case CORE_ACTION_PLACE:
    case CORE_ACTION_REMOVE:
        answer_instance(crowd, action);
        break;
    case CORE_ACTION_REVOKE:
        answer_revoke(crowd, action);
        break;
    case CORE_ACTION_GRANT:
    case CORE_ACTION_VERIFY:
    case CORE_ACTION_RESUME:
    case CORE_ACTION_KILL:
        answer_device(crowd, action);
        break;
    case CORE_ACTION_LEASE_MOVED:
        if (action->lease.state == CORE_LEASE_ENDED) {
            forget_lease(crowd, action->lease.lease);
        }
        break;
    case CORE_ACTION_SET_TIMER:
        crowd->timer_ns = action->timer.at_ns;
        break;
    default:
        break;
    }
}

/* Of this thread alone: whatever else the machine does is no cost of the core. */
static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

/* What it takes to ask the clock itself. */
static uint64_t clock_cost_ns(void)
{
    uint64_t least_ns = SECOND;
    for (int i = 0; i < 1000; i++) {
        uint64_t began_ns = clock_ns(), ns = clock_ns() - began_ns;
        least_ns = ns < least_ns ? ns : least_ns;
    }
    return least_ns;
}

uint64_t crowd_step(struct crowd *crowd, const struct core_event *event)
{
    size_t most = core_actions_max(crowd->core);
    if (most > crowd->action_capacity) {
        free(crowd->actions);
        crowd->action_capacity = most * 2;
        crowd->actions = malloc(crowd->action_capacity * sizeof *crowd->actions);
        if (crowd->actions == NULL) {
            abort();
        }
    }
    uint64_t began_ns = clock_ns();
    size_t count = core_step(crowd->core, event, crowd->actions);
    uint64_t took_ns = clock_ns() - began_ns;
    took_ns -= took_ns < crowd->clock_cost_ns ? took_ns : crowd->clock_cost_ns;
    for (size_t i = 0; i < count; i++) {
        carry_out(crowd, &crowd->actions[i]);
    }
    return took_ns;
}

/* ---- what comes from outside ---- */

static struct core_event device_added(struct crowd *crowd, uint64_t id)
{
    struct core_event event = {.kind = CORE_EVENT_DEVICE_ADDED};
    event.device_added.device = id;
    event.device_added.node = 1 + (id - 1) / PER_NODE;
    event.device_added.link = 1 + (id - 1) / (4 * PER_NODE);
    event.device_added.kind = (uint32_t)(event.device_added.node % KINDS);
    event.device_added.memory_bytes = 80 * GIB;
    crowd->sampled_ns[id] = crowd->now_ns;
    return event;
}

static struct core_endpoint_spec endpoint_spec(const struct crowd *crowd, uint64_t id)
{
    uint32_t share = crowd->size.devices / crowd->size.endpoints;
    struct core_endpoint_spec spec = {.endpoint = id, .target_permille = 990};
    spec.slo_ns = (100 + 50 * (id % 4)) * MS;
    spec.priority = (int32_t)(id % 3);
    spec.devices_min = 1;
    spec.devices_max = share / 2 + 2;
    spec.kinds_mask = id % 4 == 0 ? 1 : 3;
    spec.memory_bytes = (4 + id % 13) * GIB;
    return spec;
}

static struct core_event lease_requested(struct crowd *crowd)
{
    struct core_event event = {.kind = CORE_EVENT_LEASE_REQUESTED};
    struct core_lease_spec *spec = &event.lease_spec;
    uint64_t sort = draw(crowd, 10);
    spec->lease = ++crowd->next_lease;
    spec->devices_min = UINT32_C(1) << draw(crowd, sort < 5 ? 2 : 5);
    spec->devices_max = sort < 7 ? spec->devices_min * 4 : spec->devices_min;
    spec->priority = (int32_t)draw(crowd, 3);
    spec->kinds_mask = chance(crowd, 300) ? 1 + (uint32_t)draw(crowd, 2) : 3;
    spec->memory_bytes = (20 + draw(crowd, 50)) * GIB;
    spec->preemptible = true;
    spec->in_process = sort < 3;
    if (sort >= 3 && sort < 7) {
        spec->rungs_mask = 1u << CORE_RUNG_SHRINK | 1u << CORE_RUNG_FREEZE | 1u << CORE_RUNG_NOTICE;
    }
    crowd->leases[crowd->lease_count++] = spec->lease;
    return event;
}

static uint64_t any_device(struct crowd *crowd)
{
    return 1 + draw(crowd, crowd->size.devices);
}

static struct core_event device_sample(struct crowd *crowd)
{
    uint64_t id = any_device(crowd);
    struct core_event event = {.kind = CORE_EVENT_DEVICE_SAMPLE};
    event.device_sample.device = id;
    event.device_sample.interval_ns = crowd->now_ns - crowd->sampled_ns[id];
    bool serves = (id + crowd->now_ns / (60 * SECOND)) % 3 == 0;
    event.device_sample.serving_ns =
        serves ? event.device_sample.interval_ns * draw(crowd, 1000) / 1000 : 0;
    event.device_sample.slices = serves;
    crowd->sampled_ns[id] = crowd->now_ns;
    return event;
}

/* Each endpoint's load swings between nothing and more than its share, in some minutes. */
static struct core_event endpoint_sample(struct crowd *crowd)
{
    uint64_t id = 1 + draw(crowd, crowd->size.endpoints);
    uint64_t phase = (crowd->now_ns / SECOND + 37 * id) % 240;
    uint64_t devices = crowd->size.devices / crowd->size.endpoints / 2;
    uint64_t load_permille = phase < 120 ? phase * 10 : (240 - phase) * 10;
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_SAMPLE};
    event.endpoint_sample.endpoint = id;
    event.endpoint_sample.interval_ns = 100 * MS;
    event.endpoint_sample.arrivals =
        (uint32_t)(devices * load_permille * (900 + draw(crowd, 200)) / 100000);
    event.endpoint_sample.oldest_wait_ns = draw(crowd, 10 * MS);
    event.endpoint_sample.busy_ns = event.endpoint_sample.arrivals * 10 * MS;
    return event;
}

static struct core_event endpoint_told(struct crowd *crowd, enum core_event_kind kind)
{
    uint64_t id = 1 + draw(crowd, crowd->size.endpoints);
    struct core_event event = {.kind = kind};
    if (kind == CORE_EVENT_ENDPOINT_DANGER) {
        event.endpoint_danger.endpoint = id;
        event.endpoint_danger.projected_wait_ns = 80 * MS;
    } else if (kind == CORE_EVENT_ENDPOINT_SERVICE) {
        event.endpoint_service.endpoint = id;
        event.endpoint_service.kind = (uint32_t)draw(crowd, KINDS);
        for (int i = 0; i < 4; i++) {
            event.endpoint_service.service_ns[i] = (9 + 3 * (uint64_t)i) * MS + draw(crowd, MS);
        }
    } else {
        event.endpoint_spec = endpoint_spec(crowd, id);
        event.endpoint_spec.priority = (int32_t)draw(crowd, 3);
    }
    return event;
}

static struct core_event lease_told(struct crowd *crowd, enum core_event_kind kind)
{
    struct core_event event = {.kind = kind};
    struct core_lease_view view = {0};
    if (crowd->lease_count > 0) {
        event.lease.lease = crowd->leases[draw(crowd, crowd->lease_count)];
        core_lease_find(crowd->core, event.lease.lease, &view);
    }
    if (kind == CORE_EVENT_LEASE_PROGRESS) {
        event.lease_progress.generation = view.run;
        event.lease_progress.step = view.step + 10;
        event.lease_progress.checkpointed_step = chance(crowd, 100) ? view.step : 0;
        if (event.lease_progress.checkpointed_step < view.checkpointed_step) {
            event.lease_progress.checkpointed_step = view.checkpointed_step;
        }
    } else if (kind == CORE_EVENT_LEASE_HEARTBEAT) {
        event.lease_heartbeat.generation = view.run;
    } else if (kind == CORE_EVENT_JOB_EXITED) {
        event.job_exited.generation = view.run;
        event.job_exited.kept = true;
        event.job_exited.again = chance(crowd, 100);
    } else if (kind == CORE_EVENT_LEASE_RESIZED) {
        event.lease_resized.devices_min = view.spec.devices_min;
        event.lease_resized.devices_max = view.spec.devices_min * (1 + (uint32_t)draw(crowd, 4));
    }
    return event;
}

static struct core_event device_told(struct crowd *crowd, enum core_event_kind kind)
{
    struct core_event event = {.kind = kind};
    event.device_flag.device = any_device(crowd);
    event.device_flag.on = chance(crowd, 300);
    if (kind == CORE_EVENT_DEVICE_SPEED) {
        event.device_speed.speed_permille = 950 + (uint32_t)draw(crowd, 60);
    } else if (kind == CORE_EVENT_DEVICE_RECLAIM_BY) {
        event.device_time.by_ns = crowd->now_ns + 120 * SECOND;
        struct core_event back = event;
        back.device_time.by_ns = 0;
        answer_later(crowd, back, 150 * SECOND);
    } else if (kind == CORE_EVENT_DEVICE_FAILED) {
        struct core_event back = {.kind = CORE_EVENT_DEVICE_RECOVERED,
                                  .device = {.device = event.device.device}};
        answer_later(crowd, back, 60 * SECOND);
    } else if (kind == CORE_EVENT_DEVICE_REMOVED) {
        answer_later(crowd, device_added(crowd, event.device.device), 60 * SECOND);
    }
    return event;
}

/* How often such events come, in an hour: of each device, endpoint or lease. */
static const struct rate {
    enum core_event_kind kind;
    enum { OF_DEVICES, OF_ENDPOINTS, OF_LEASES } of;
    uint32_t per_hour;
} rates[] = {
    {CORE_EVENT_DEVICE_SAMPLE, OF_DEVICES, 3600},
    {CORE_EVENT_DEVICE_SPEED, OF_DEVICES, 60},
    {CORE_EVENT_DEVICE_SLOW, OF_DEVICES, 2},
    {CORE_EVENT_DEVICE_FAILED, OF_DEVICES, 1},
    {CORE_EVENT_DEVICE_REMOVED, OF_DEVICES, 1},
    {CORE_EVENT_DEVICE_CORDONED, OF_DEVICES, 1},
    {CORE_EVENT_DEVICE_RECLAIM_BY, OF_DEVICES, 1},
    {CORE_EVENT_ENDPOINT_SAMPLE, OF_ENDPOINTS, 36000},
    {CORE_EVENT_ENDPOINT_DANGER, OF_ENDPOINTS, 600},
    {CORE_EVENT_ENDPOINT_SERVICE, OF_ENDPOINTS, 360},
    {CORE_EVENT_ENDPOINT_CHANGED, OF_ENDPOINTS, 100},
    {CORE_EVENT_LEASE_PROGRESS, OF_LEASES, 360},
    {CORE_EVENT_LEASE_HEARTBEAT, OF_LEASES, 360},
    {CORE_EVENT_LEASE_REQUESTED, OF_LEASES, 20},
    {CORE_EVENT_JOB_EXITED, OF_LEASES, 12},
    {CORE_EVENT_LEASE_CANCELLED, OF_LEASES, 2},
    {CORE_EVENT_LEASE_PAUSED, OF_LEASES, 3},
    {CORE_EVENT_LEASE_RESUMED, OF_LEASES, 6},
    {CORE_EVENT_LEASE_RESIZED, OF_LEASES, 3},
};

#define RATES (sizeof rates / sizeof *rates)

static uint64_t per_hour(const struct crowd *crowd, const struct rate *rate)
{
    const uint32_t objects[] = {crowd->size.devices, crowd->size.endpoints, crowd->size.leases};
    return (uint64_t)rate->per_hour * objects[rate->of];
}

static uint64_t all_per_hour(const struct crowd *crowd)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < RATES; i++) {
        sum += per_hour(crowd, &rates[i]);
    }
    return sum;
}

static struct core_event of_kind(struct crowd *crowd, enum core_event_kind kind)
{
    switch (kind) {
    case CORE_EVENT_DEVICE_SAMPLE:
        return device_sample(crowd);
    case CORE_EVENT_ENDPOINT_SAMPLE:
        return endpoint_sample(crowd);
    case CORE_EVENT_ENDPOINT_DANGER:
    case CORE_EVENT_ENDPOINT_SERVICE:
    case CORE_EVENT_ENDPOINT_CHANGED:
        return endpoint_told(crowd, kind);
    case CORE_EVENT_LEASE_REQUESTED:
        return crowd->lease_count < crowd->size.leases ? lease_requested(crowd)
                                                       : lease_told(crowd, CORE_EVENT_JOB_EXITED);
    case CORE_EVENT_LEASE_PROGRESS:
    case CORE_EVENT_LEASE_HEARTBEAT:
    case CORE_EVENT_JOB_EXITED:
    case CORE_EVENT_LEASE_CANCELLED:
    case CORE_EVENT_LEASE_PAUSED:
    case CORE_EVENT_LEASE_RESUMED:
    case CORE_EVENT_LEASE_RESIZED:
        return lease_told(crowd, kind);
    default:
        return device_told(crowd, kind);
    }
}

static struct core_event from_outside(struct crowd *crowd)
{
    uint64_t left = draw(crowd, all_per_hour(crowd));
    const struct rate *rate = rates;
    while (left >= per_hour(crowd, rate)) {
        left -= per_hour(crowd, rate);
        rate++;
    }
    return of_kind(crowd, rate->kind);
}

struct core_event crowd_next(struct crowd *crowd)
{
    struct core_event event;
    uint64_t next_ns = crowd->now_ns + crowd->tick_ns;
    bool answer = crowd->answer_count > 0 && crowd->answers[0].event.time_ns <= next_ns;
    uint64_t answer_ns = answer ? crowd->answers[0].event.time_ns : UINT64_MAX;
    if (crowd->timer_ns != 0 && crowd->timer_ns <= next_ns && crowd->timer_ns <= answer_ns) {
        crowd->now_ns = crowd->timer_ns > crowd->now_ns ? crowd->timer_ns : crowd->now_ns;
        crowd->timer_ns = 0;
        event = (struct core_event){.kind = CORE_EVENT_TIMER};
    } else if (answer) {
        crowd->now_ns = answer_ns > crowd->now_ns ? answer_ns : crowd->now_ns;
        event = answer_take(crowd);
    } else {
        crowd->now_ns = next_ns;
        event = from_outside(crowd);
    }
    event.time_ns = crowd->now_ns;
    return event;
}

/* ---- life ---- */

static void tell(struct crowd *crowd, struct core_event event)
{
    event.time_ns = crowd->now_ns;
    crowd_step(crowd, &event);
}

static void crowd_fill(struct crowd *crowd)
{
    for (uint64_t id = 1; id <= crowd->size.devices; id++) {
        tell(crowd, device_added(crowd, id));
    }
    tell(crowd, (struct core_event){.kind = CORE_EVENT_RECONCILE_DONE});
    for (uint64_t id = 1; id <= crowd->size.endpoints; id++) {
        tell(crowd, (struct core_event){.kind = CORE_EVENT_ENDPOINT_ADDED,
                                        .endpoint_spec = endpoint_spec(crowd, id)});
    }
    for (uint32_t i = 0; i < crowd->size.endpoints * 4; i++) {
        tell(crowd, endpoint_told(crowd, CORE_EVENT_ENDPOINT_SERVICE));
    }
    while (crowd->lease_count < crowd->size.leases) {
        tell(crowd, lease_requested(crowd));
    }
}

struct crowd *crowd_create(const struct crowd_size *size, uint64_t seed)
{
    struct crowd *crowd = calloc(1, sizeof *crowd);
    if (crowd == NULL) {
        return NULL;
    }
    struct core_config config;
    core_config_init(&config);
    config.seed[0] = seed;
    crowd->core = core_create(&config);
    crowd->size = *size;
    crowd->random = seed;
    crowd->now_ns = SECOND;
    crowd->clock_cost_ns = clock_cost_ns();
    crowd->tick_ns = 3600 * SECOND / all_per_hour(crowd);
    crowd->leases = calloc(size->leases + 1, sizeof *crowd->leases);
    crowd->sampled_ns = calloc(size->devices + 1, sizeof *crowd->sampled_ns);
    if (crowd->core == NULL || crowd->leases == NULL || crowd->sampled_ns == NULL) {
        crowd_destroy(crowd);
        return NULL;
    }
    crowd_fill(crowd);
    return crowd;
}

void crowd_destroy(struct crowd *crowd)
{
    if (crowd != NULL) {
        core_destroy(crowd->core);
        free(crowd->actions);
        free(crowd->answers);
        free(crowd->leases);
        free(crowd->sampled_ns);
        free(crowd);
    }
}

struct core *crowd_core(struct crowd *crowd)
{
    return crowd->core;
}

uint64_t crowd_now_ns(const struct crowd *crowd)
{
    return crowd->now_ns;
}
