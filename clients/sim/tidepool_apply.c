/* tidepool_apply.c: the core's actions become moves of modelled devices, whose ends become answers:
 * at once where nothing takes time, else when the engine says that the device has moved. */
#include "clients/sim/tidepool.h"

#define SECOND UINT64_C(1000000000)
#define CLEANED_AFTER (60 * SECOND) /* an operator looks after a quarantined device */

static void answer(struct tidepool *policy, enum core_event_kind kind, uint64_t action,
                   uint64_t device)
{
    struct core_event event = {.kind = kind, .answer = {.action = action, .device = device}};
    if (kind == CORE_EVENT_RELEASE_VERIFIED) {
        event.verified.gone = true;
    }
    tidepool_answer(policy, event);
}

static void answer_instance(struct tidepool *policy, enum core_event_kind kind, uint64_t action,
                            uint64_t endpoint, uint64_t device)
{
    tidepool_answer(
        policy,
        (struct core_event){
            .kind = kind, .instance = {.action = action, .endpoint = endpoint, .device = device}});
}

/* ---- instances ---- */

static void apply_place(struct tidepool *policy, const struct core_action *action)
{
    uint64_t device = action->instance.device, endpoint = action->instance.endpoint;
    policy->endpoints[endpoint - 1].removes[device - 1] = 0;
    engine_instance_set(policy->engine, (uint32_t)device - 1, (uint32_t)endpoint - 1, true);
    answer_instance(policy, CORE_EVENT_INSTANCE_READY, action->id, endpoint, device);
}

static void apply_remove(struct tidepool *policy, const struct core_action *action)
{
    uint64_t device = action->instance.device, endpoint = action->instance.endpoint;
    engine_instance_set(policy->engine, (uint32_t)device - 1, (uint32_t)endpoint - 1, false);
    if (engine_serves(policy->engine, (uint32_t)device - 1) == endpoint - 1) {
        policy->endpoints[endpoint - 1].removes[device - 1] = action->id;
    } else {
        answer_instance(policy, CORE_EVENT_INSTANCE_STOPPED, action->id, endpoint, device);
    }
}

void tidepool_served(struct tidepool *policy, uint32_t number, uint32_t endpoint)
{
    uint64_t *remove = &policy->endpoints[endpoint].removes[number];
    if (*remove != 0) {
        answer_instance(policy, CORE_EVENT_INSTANCE_STOPPED, *remove, endpoint + 1, number + 1);
        *remove = 0;
    }
}

/* ---- to a lease ---- */

static void apply_grant(struct tidepool *policy, const struct core_action *action)
{
    uint32_t number = (uint32_t)action->grant.device - 1, job = (uint32_t)action->grant.lease - 1;
    struct tide_device *device = &policy->devices[number];
    if (!engine_give(policy->engine, number, job, action->grant.yield)) {
        answer(policy, CORE_EVENT_ACTION_FAILED, action->id, number + 1);
        return;
    }
    device->generation = action->grant.token.generation;
    device->giving_since_ns = engine_now_ns(policy->engine);
    if (device->generation > policy->generation) {
        policy->generation = device->generation;
    }
    if (engine_phase_of(policy->engine, number) == ENGINE_DRAINING) {
        device->grant = action->id; /* begins when the request that runs there has ended */
    } else {
        answer(policy, CORE_EVENT_ACTION_DONE, action->id, number + 1);
    }
}

static void resume(struct tidepool *policy, uint32_t number)
{
    uint32_t job = engine_job_of(policy->engine, number);
    if (job != ENGINE_POOL) {
        engine_give(policy->engine, number, job, false);
    }
}

static void apply_resume(struct tidepool *policy, const struct core_action *action)
{
    uint32_t number = (uint32_t)action->revoke.device - 1;
    policy->devices[number].resume = action->id;
    policy->devices[number].revoke = 0;
    if (engine_phase_of(policy->engine, number) == ENGINE_TRAINING) {
        answer(policy, CORE_EVENT_RESUMED, action->id, number + 1); /* the stop reached nobody */
    } else {
        resume(policy, number); /* not while it is still being stopped: then once that is done */
    }
}

/* ---- from a lease ---- */

bool tidepool_rung_stops(enum core_rung rung)
{
    return rung == CORE_RUNG_FREEZE || rung == CORE_RUNG_PAUSE || rung == CORE_RUNG_SWAP;
}

/* By the rung, or by the nearest one that the setup has; a job's end by force it always has. */
static bool take(struct tidepool *policy, uint32_t number, enum core_rung rung)
{
    static const enum core_rung instead[CORE_RUNG_COUNT] = {
        [CORE_RUNG_SHRINK] = CORE_RUNG_YIELD,
        [CORE_RUNG_NOTICE] = CORE_RUNG_KILL,
    };
    return engine_take(policy->engine, number, rung) ||
           engine_take(policy->engine, number, instead[rung]);
}

static void answer_revoke(struct tidepool *policy, uint32_t number)
{
    struct tide_device *device = &policy->devices[number];
    uint64_t action = device->revoke;
    device->revoke = 0;
    if (tidepool_rung_stops(device->rung)) {
        tidepool_answer(policy,
                        (struct core_event){.kind = CORE_EVENT_SUSPENDED,
                                            .suspended = {.action = action, .device = number + 1}});
    } else {
        answer(policy, CORE_EVENT_REVOKE_ACKNOWLEDGED, action, number + 1);
    }
}

static void apply_revoke(struct tidepool *policy, const struct core_action *action)
{
    uint32_t number = (uint32_t)action->revoke.device - 1;
    struct tide_device *device = &policy->devices[number];
    if (action->revoke.rung == CORE_RUNG_NONE) {
        return; /* gone already, and the engine has seen to it */
    }
    device->revoke = action->id;
    device->rung = action->revoke.rung;
    device->grant = device->resume = 0;
    if (!take(policy, number, action->revoke.rung)) {
        answer_revoke(policy, number); /* its job has left it by itself */
    }
}

static void apply_kill(struct tidepool *policy, const struct core_action *action)
{
    uint32_t job = (uint32_t)action->revoke.lease - 1;
    for (uint32_t i = 0; i < policy->setup->device_count; i++) {
        if (engine_job_of(policy->engine, i) == job) {
            engine_take(policy->engine, i, CORE_RUNG_KILL);
        }
    }
    answer(policy, CORE_EVENT_ACTION_DONE, action->id, action->revoke.device);
}

static bool is_left(const struct tidepool *policy, uint32_t number)
{
    return engine_phase_of(policy->engine, number) == ENGINE_SERVING &&
           engine_job_of(policy->engine, number) == ENGINE_POOL;
}

static void apply_verify(struct tidepool *policy, const struct core_action *action)
{
    uint32_t number = (uint32_t)action->device.device - 1;
    if (is_left(policy, number)) {
        answer(policy, CORE_EVENT_RELEASE_VERIFIED, action->id, number + 1);
    } else {
        policy->devices[number].verify = action->id;
    }
}

static void apply_quarantine(struct tidepool *policy, const struct core_action *action)
{
    uint32_t number = (uint32_t)action->device.device - 1;
    engine_take(policy->engine, number, CORE_RUNG_KILL);
    engine_wake_at(policy->engine, engine_now_ns(policy->engine) + CLEANED_AFTER,
                   tidepool_cookie(policy, COOKIE_CLEANED, number));
}

void tidepool_cleaned(struct tidepool *policy, uint32_t number)
{
    struct core_device_view view;
    if (core_device_find(policy->core, number + 1, &view) &&
        view.health == CORE_HEALTH_QUARANTINED) {
        tidepool_feed(policy, (struct core_event){.kind = CORE_EVENT_DEVICE_RECOVERED,
                                                  .device = {.device = number + 1}});
    }
}

/* ---- the engine says that a device has moved ---- */

static void trains(struct tidepool *policy, uint32_t number)
{
    struct tide_device *device = &policy->devices[number];
    device->restored_ns += engine_now_ns(policy->engine) - device->giving_since_ns;
    if (device->resume != 0) {
        uint64_t action = device->resume;
        device->resume = 0;
        device->restored_ns = 0; /* a stopped job has nothing to restore */
        answer(policy, CORE_EVENT_RESUMED, action, number + 1);
    }
    if (device->restored_ns > 0) {
        tidepool_sample(policy, number);
    }
    tidepool_progress_begin(policy, engine_job_of(policy->engine, number));
}

/* Its job has left it without being asked: it broke elsewhere, or a crash hid the asking. Of a job
 * that is over the core hears next, of all its devices at once. */
static void left_alone(struct tidepool *policy, uint32_t number)
{
    struct core_device_view view;
    if (core_device_find(policy->core, number + 1, &view) && view.lease != 0 &&
        view.hold == CORE_HOLD_HELD &&
        !engine_job_is_over(policy->engine, (uint32_t)view.lease - 1)) {
        tidepool_feed(policy,
                      (struct core_event){.kind = CORE_EVENT_LEASE_RELEASED,
                                          .lease_released = {.lease = view.lease,
                                                             .device = number + 1,
                                                             .generation = view.generation}});
    }
}

static void serves(struct tidepool *policy, uint32_t number)
{
    struct tide_device *device = &policy->devices[number];
    if (device->revoke != 0) {
        answer_revoke(policy, number);
    } else if (device->resume != 0) {
        resume(policy, number);
    } else if (device->verify == 0 && is_left(policy, number)) {
        left_alone(policy, number);
    }
    if (device->verify != 0 && is_left(policy, number)) {
        uint64_t action = device->verify;
        device->verify = 0;
        answer(policy, CORE_EVENT_RELEASE_VERIFIED, action, number + 1);
    }
}

static void lost(struct tidepool *policy, uint32_t number)
{
    struct tide_device *device = &policy->devices[number];
    device->serving = false;
    device->grant = device->revoke = device->resume = device->verify = 0;
    for (uint32_t i = 0; i < policy->setup->endpoint_count; i++) {
        engine_instance_set(policy->engine, number, i, false);
        policy->endpoints[i].removes[number] = 0;
    }
    tidepool_feed(policy, (struct core_event){.kind = CORE_EVENT_DEVICE_FAILED,
                                              .device = {.device = number + 1}});
}

/* Its provider wants the device back by then; 0: no more. */
void tidepool_tell_wanted(struct tidepool *policy, uint32_t number, uint64_t by_ns)
{
    tidepool_feed(policy, (struct core_event){
                              .kind = CORE_EVENT_DEVICE_RECLAIM_BY,
                              .device_time = {.device = number + 1, .by_ns = by_ns},
                          });
}

void tidepool_moved(struct tidepool *policy, uint32_t number, enum engine_phase phase)
{
    struct tide_device *device = &policy->devices[number];
    struct core_device_view view;
    if (engine_phase_of(policy->engine, number) != phase) {
        return; /* it has moved on since: that is told next */
    }
    if (phase == ENGINE_LOST) {
        lost(policy, number);
    } else if (phase == ENGINE_SERVING && core_device_find(policy->core, number + 1, &view) &&
               view.health == CORE_HEALTH_FAILED) {
        tidepool_tell_wanted(policy, number, 0); /* another one, or another lease of it */
        tidepool_feed(policy, (struct core_event){.kind = CORE_EVENT_DEVICE_RECOVERED,
                                                  .device = {.device = number + 1}});
    } else if (phase == ENGINE_SERVING) {
        serves(policy, number);
    } else if (phase == ENGINE_TRAINING) {
        trains(policy, number);
    } else if (phase == ENGINE_GIVING && device->grant != 0) {
        device->giving_since_ns = engine_now_ns(policy->engine);
        answer(policy, CORE_EVENT_ACTION_DONE, device->grant, number + 1);
        device->grant = 0;
    }
}

/* ---- all of them ---- */

void tidepool_apply(struct tidepool *policy, const struct core_action *action)
{
    switch (action->kind) {
    case CORE_ACTION_PLACE:
        apply_place(policy, action);
        break;
    case CORE_ACTION_REMOVE:
        apply_remove(policy, action);
        break;
    case CORE_ACTION_GRANT:
        apply_grant(policy, action);
        break;
    case CORE_ACTION_REVOKE:
        apply_revoke(policy, action);
        break;
    case CORE_ACTION_RESUME:
        apply_resume(policy, action);
        break;
    case CORE_ACTION_KILL:
        apply_kill(policy, action);
        break;
    case CORE_ACTION_VERIFY:
        apply_verify(policy, action);
        break;
    case CORE_ACTION_QUARANTINE:
        apply_quarantine(policy, action);
        break;
    case CORE_ACTION_SET_TIMER:
        policy->timer_ns = action->timer.at_ns;
        tidepool_timer_plan(policy);
        break;
    default: /* told only */
        break;
    }
}
