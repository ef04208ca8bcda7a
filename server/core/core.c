/* core.c: one step: the event, what time has brought, one look of the planner, what to tell. */
#include "server/core/core.h"

#include <stdlib.h>
#include <string.h>

#include "server/core/state.h"

#define PLAN_ROUNDS                                                                                \
    3 /* a plan may open the way for another; what is left then comes at once after */

void core_config_init(struct core_config *config)
{
    *config = (struct core_config){
        .mode = CORE_MODE_ACT,
        .demand_fast_ns = SECOND_NS,
        .demand_slow_ns = 10 * SECOND_NS,
        .load_high_permille = 800,
        .load_low_permille = 600,
        .danger_hold_ns = 2 * SECOND_NS,
        .utilisation_ns = SECOND_NS / 2,
        .sample_stale_ns = SECOND_NS,
        .quiet_ns = SECOND_NS / 10,
        .shrink_high_permille = 850,
        .shrink_after_ns = 3 * SECOND_NS,
        .shrink_low_permille = 700,
        .cool_down_ns = 3 * SECOND_NS,
        .hold_min_ns = SECOND_NS,
        .shrink_deadline_ns = 5 * SECOND_NS,
        .notice_ns = 30 * SECOND_NS,
        .extension_ns = 30 * SECOND_NS,
        .suspend_deadline_ns = 10 * SECOND_NS,
        .stopped_cap_ns = 60 * SECOND_NS,
        .sustained_ns = 10 * SECOND_NS,
        .rung_prior =
            {
                [CORE_RUNG_SHRINK] = {.take_ns = SECOND_NS, .give_ns = SECOND_NS},
                [CORE_RUNG_FREEZE] = {.take_ns = SECOND_NS / 200, .give_ns = SECOND_NS / 200},
                [CORE_RUNG_PAUSE] = {.take_ns = 2 * SECOND_NS, .give_ns = 2 * SECOND_NS},
                [CORE_RUNG_SWAP] = {.take_ns = 4 * SECOND_NS, .give_ns = 4 * SECOND_NS},
                [CORE_RUNG_NOTICE] = {.take_ns = 30 * SECOND_NS, .give_ns = 10 * SECOND_NS},
                [CORE_RUNG_KILL] = {.take_ns = 30 * SECOND_NS, .give_ns = 10 * SECOND_NS},
            },
        .restore_prior_ns = 10 * SECOND_NS,
        .stopped_prior_ns = 5 * SECOND_NS,
        .kill_bound_ns = 10 * SECOND_NS,
        .action_timeout_ns = 10 * SECOND_NS,
        .place_timeout_ns = 600 * SECOND_NS,
        .retry_ns = SECOND_NS,
        .age_ns = 60 * SECOND_NS,
        .overtake_ns = 120 * SECOND_NS,
        .usage_half_life_ns = 24 * HOUR_NS,
        .heartbeat_lost_ns = 60 * SECOND_NS,
        .retries = 3,
        .credit_ns = 60 * SECOND_NS,
        .credit_fades_ns = 600 * SECOND_NS,
        .outlook_ns = 300 * SECOND_NS,
        .moves_per_hour = 120,
        .moves_extra = 4,
        .ended_kept = 256,
        .explanations_kept = 4096,
    };
}

static bool config_is_valid(const struct core_config *config)
{
    return config->mode <= CORE_MODE_ACT && config->demand_fast_ns > 0 &&
           config->demand_fast_ns <= config->demand_slow_ns && config->load_low_permille > 0 &&
           config->load_low_permille <= config->load_high_permille &&
           config->load_high_permille <= 1000 && config->utilisation_ns > 0 &&
           config->sample_stale_ns > 0 && config->shrink_low_permille > 0 &&
           config->shrink_low_permille <= config->shrink_high_permille &&
           config->shrink_high_permille <= 1000 && config->action_timeout_ns > 0 &&
           config->place_timeout_ns > 0 && config->kill_bound_ns > 0 &&
           config->shrink_deadline_ns > 0 && config->notice_ns > 0 &&
           config->suspend_deadline_ns > 0 && config->stopped_cap_ns > 0 && config->retry_ns > 0 &&
           config->retry_ns <= 3600 * SECOND_NS && config->age_ns > 0 &&
           config->usage_half_life_ns >= 60 * SECOND_NS &&
           config->usage_half_life_ns <= 8760 * HOUR_NS && config->heartbeat_lost_ns > 0 &&
           config->credit_fades_ns > 0 && config->outlook_ns > 0 && config->moves_per_hour > 0 &&
           config->moves_per_hour <= 100000 && config->moves_extra <= 100000 &&
           config->explanations_kept > 0 && config->explanations_kept <= 1000000;
}

struct core *core_create(const struct core_config *config)
{
    if (!config_is_valid(config)) {
        return NULL;
    }
    struct core *core = calloc(1, sizeof *core);
    if (core == NULL) {
        return NULL;
    }
    core->config = *config;
    core->mode = config->mode;
    core->generation = config->generation;
    /* Answers to a former life must not fit an action of this one. */
    core->action_id = config->store_epoch << 40;
    core->slot_capacity = 4;
    core->stop_length_ns = config->stopped_prior_ns;
    core->due_ns = NEVER_NS;
    core->timer_ns = NEVER_NS;
    core->hash = UINT64_C(0xcbf29ce484222325);
    if (core_explain_init(core) < 0 || core_teams_init(core) < 0) {
        core_destroy(core);
        return NULL;
    }
    return core;
}

void core_destroy(struct core *core)
{
    if (core == NULL) {
        return;
    }
    for (size_t i = 0; i < core->device_count; i++) {
        core_device_destroy(core->devices[i]);
    }
    for (size_t i = 0; i < core->endpoint_count; i++) {
        free(core->endpoints[i]);
    }
    for (size_t i = 0; i < core->lease_count; i++) {
        core_lease_destroy(core->leases[i]);
    }
    for (size_t i = 0; i < core->team_count; i++) {
        free(core->teams[i]);
    }
    free(core->teams);
    free(core->devices);
    free(core->endpoints);
    free(core->ranked);
    free(core->leases);
    free(core->queue);
    free(core->moves.slots);
    free(core->bursts.slots);
    free(core);
}

/* Each object says only a few things a step; one more of each, for what this event may add. */
size_t core_actions_max(const struct core *core)
{
    size_t devices = core->device_count + 1;
    size_t endpoints = core->endpoint_count + 1;
    size_t leases = core->lease_count + 1;
    return 64 + devices * (32 + 6 * endpoints) + endpoints * 8 + leases * 8;
}

static void reconcile(struct core *core)
{
    if (core->reconciled) {
        return;
    }
    core->reconciled = true;
    core->dirty = true;
    core_lease_restored(core);
    for (size_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        if (device->lease != NULL && core_device_must_empty(device, device->lease)) {
            core_device_empty(core, device); /* such a lease has the device to itself */
        }
    }
}

static void dispatch(struct core *core, const struct core_event *event)
{
    switch (event->kind) {
    case CORE_EVENT_DEVICE_ADDED:
    case CORE_EVENT_DEVICE_REMOVED:
    case CORE_EVENT_DEVICE_FAILED:
    case CORE_EVENT_DEVICE_RECOVERED:
    case CORE_EVENT_DEVICE_SLOW:
    case CORE_EVENT_DEVICE_SPEED:
    case CORE_EVENT_DEVICE_CORDONED:
    case CORE_EVENT_DEVICE_OCCUPIED:
    case CORE_EVENT_DEVICE_RECLAIM_BY:
        core_pool_event(core, event);
        break;
    case CORE_EVENT_DEVICE_SAMPLE:
    case CORE_EVENT_ENDPOINT_ADDED:
    case CORE_EVENT_ENDPOINT_CHANGED:
    case CORE_EVENT_ENDPOINT_REMOVED:
    case CORE_EVENT_ENDPOINT_SERVICE:
    case CORE_EVENT_ENDPOINT_SAMPLE:
    case CORE_EVENT_ENDPOINT_DANGER:
        core_demand_event(core, event);
        break;
    case CORE_EVENT_KIND_MEASURED:
    case CORE_EVENT_LEASE_SPEED:
        core_kinds_event(core, event);
        break;
    case CORE_EVENT_RESTORED_INSTANCE:
        if (core->reconciled) {
            break;
        } /* fall through */
    case CORE_EVENT_INSTANCE_READY:
    case CORE_EVENT_INSTANCE_FAILED:
    case CORE_EVENT_INSTANCE_STOPPED:
        core_instance_event(core, event);
        break;
    case CORE_EVENT_LEASE_REQUESTED:
    case CORE_EVENT_LEASE_RESIZED:
    case CORE_EVENT_LEASE_PAUSED:
    case CORE_EVENT_LEASE_RESUMED:
    case CORE_EVENT_LEASE_CANCELLED:
    case CORE_EVENT_LEASE_RELEASED:
    case CORE_EVENT_LEASE_PROGRESS:
    case CORE_EVENT_LEASE_HEARTBEAT:
    case CORE_EVENT_JOB_EXITED:
    case CORE_EVENT_EXTENSION_ASKED:
    case CORE_EVENT_RUNG_MEASURED:
    case CORE_EVENT_RESTORED_LEASE:
    case CORE_EVENT_RESTORED_GRANT:
        core_lease_event(core, event);
        break;
    case CORE_EVENT_REVOKE_ACKNOWLEDGED:
    case CORE_EVENT_RELEASE_VERIFIED:
    case CORE_EVENT_ACTION_DONE:
    case CORE_EVENT_ACTION_FAILED:
    case CORE_EVENT_SUSPENDED:
    case CORE_EVENT_RESUMED:
        core_hold_event(core, event);
        break;
    case CORE_EVENT_TEAM_CHANGED:
    case CORE_EVENT_TEAM_REMOVED:
        core_team_event(core, event);
        break;
    case CORE_EVENT_MODE_CHANGED:
        core->mode = event->mode.mode <= CORE_MODE_ACT ? event->mode.mode : core->mode;
        core->dirty = true;
        break;
    case CORE_EVENT_HOLD:
        core->hold = event->hold.on;
        core->dirty = true;
        break;
    case CORE_EVENT_RECONCILE_DONE:
        reconcile(core);
        break;
    case CORE_EVENT_TIMER:
        core->timer_ns = NEVER_NS; /* it is used up: one that came too early is set again */
        break;
    case CORE_EVENT_COUNT:
        break;
    }
}

static void expire_instances(struct core *core, struct device *device)
{
    for (size_t i = 0; i < core->endpoint_count; i++) {
        struct instance *instance = core_instance_of(device, core->endpoints[i]);
        if (instance->action != 0 && instance->until_ns <= core->now_ns) {
            core_instance_overdue(core, device, core->endpoints[i]);
        }
    }
}

static void expire(struct core *core)
{
    for (size_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        if (device->deadline_ns != 0 && device->deadline_ns <= core->now_ns) {
            core_device_overdue(core, device);
        }
        expire_instances(core, device);
    }
    for (size_t i = 0; i < core->lease_count; i++) {
        struct lease *lease = core->leases[i];
        if (core_lease_end_ns(core, lease) <= core->now_ns) {
            core_lease_overdue(core, lease);
        }
        if (core_heartbeat_due_ns(core, lease) <= core->now_ns) {
            core_heartbeat_overdue(core, lease);
        }
    }
}

static void consider(struct core *core, uint64_t base_ns, uint64_t span_ns)
{
    uint64_t at_ns = core_add_u64(base_ns, span_ns);
    if (base_ns != NEVER_NS && at_ns > core->now_ns && at_ns < core->due_ns) {
        core->due_ns = at_ns;
    }
}

static void consider_device(struct core *core, const struct device *device)
{
    consider(core, device->deadline_ns, 0);
    consider(core, device->hot_since_ns, core->config.shrink_after_ns);
    if (device->kept) {
        consider(core, device->cool_since_ns, core->config.cool_down_ns);
    }
    if (device->moved) {
        consider(core, device->moved_ns, core_hold_ns(core));
    }
    if (device->lending) {
        consider(core, device->served_ns, core->config.quiet_ns);
    }
    if (device->utilisation_ppm > 0) {
        consider(core, device->sampled_ns, core->config.sample_stale_ns);
    }
    if (core_device_moves(core, device) >= core->config.moves_per_hour) {
        for (uint32_t i = 0; i < device->move_count; i++) {
            consider(core, device->moves[i], HOUR_NS);
        }
    }
    for (size_t i = 0; i < core->endpoint_count; i++) {
        consider(core, core_instance_of(device, core->endpoints[i])->until_ns, 0);
    }
}

static void consider_lease(struct core *core, const struct lease *lease)
{
    if (lease->state == CORE_LEASE_ENDED || lease->state == CORE_LEASE_ENDING) {
        return;
    }
    consider(core, core_lease_end_ns(core, lease), 0);
    consider(core, core_heartbeat_due_ns(core, lease), 0);
    consider(core, lease->retry_ns, 0);
    if (lease->state == CORE_LEASE_RUNNING) {
        consider(core, core_guard_due_ns(core, lease), 0);
    }
    consider(core, core_stop_due_ns(core, lease), 0);
    if (lease->state == CORE_LEASE_WAITING) {
        uint64_t steps = (core->now_ns - lease->queued_ns) / core->config.age_ns;
        consider(core, lease->queued_ns, core->config.overtake_ns);
        consider(core, lease->queued_ns, (steps + 1) * core->config.age_ns);
    }
}

static void tell_timer(struct core *core)
{
    if (core->due_ns != core->timer_ns) {
        core->timer_ns = core->due_ns;
        core_emit(core, CORE_ACTION_SET_TIMER)->timer.at_ns =
            core->due_ns == NEVER_NS ? 0 : core->due_ns;
    }
}

static void set_timer(struct core *core)
{
    core->due_ns = NEVER_NS;
    for (size_t i = 0; i < core->device_count; i++) {
        consider_device(core, core->devices[i]);
    }
    for (size_t i = 0; i < core->endpoint_count; i++) {
        const struct endpoint *endpoint = core->endpoints[i];
        consider(core, endpoint->danger_until_ns, 0);
        consider(core, endpoint->lacking_since_ns, core->config.sustained_ns);
        consider(core, endpoint->lower_since_ns, core_hold_ns(core));
        if (endpoint->demand_milli > 0) {
            consider(core, endpoint->sampled_ns, core->config.sample_stale_ns);
        }
    }
    for (size_t i = 0; i < core->lease_count; i++) {
        consider_lease(core, core->leases[i]);
    }
    if (core->dirty) {
        core->due_ns = core->now_ns + 1;
    }
    tell_timer(core);
}

static void endpoints_forget(struct core *core)
{
    for (size_t i = core->endpoint_count; i-- > 0;) {
        struct endpoint *endpoint = core->endpoints[i];
        bool gone = endpoint->removing;
        for (size_t j = 0; j < core->device_count && gone; j++) {
            gone = core_instance_of(core->devices[j], endpoint)->state == CORE_INSTANCE_ABSENT;
        }
        if (gone) {
            core_endpoint_erase(core, endpoint);
            free(endpoint);
        }
    }
}

static void tell_scale(struct core *core)
{
    uint64_t demand_milli = 0, leases = 0;
    uint32_t have = 0;
    for (size_t i = 0; i < core->endpoint_count; i++) {
        demand_milli += core->endpoints[i]->demand_milli;
    }
    for (size_t i = 0; i < core->lease_count; i++) {
        const struct lease *lease = core->leases[i];
        bool counts = lease->state == CORE_LEASE_WAITING || lease->state == CORE_LEASE_RUNNING ||
                      lease->state == CORE_LEASE_DRAINING;
        leases += counts ? lease->spec.devices_min : 0;
    }
    for (size_t i = 0; i < core->device_count; i++) {
        have += core_device_usable(core->devices[i]);
    }
    uint64_t high = core->config.load_high_permille;
    uint64_t wanted = (demand_milli + high - 1) / high + leases;
    wanted = wanted > UINT32_MAX ? UINT32_MAX : wanted;
    bool news = !core->scale_told || core->scale_wanted != wanted || core->scale_have != have;
    if (news && core->mode != CORE_MODE_OBSERVE) {
        core->scale_told = true;
        core->scale_wanted = (uint32_t)wanted;
        core->scale_have = have;
        struct core_action *action = core_emit(core, CORE_ACTION_SCALE);
        action->scale.devices_wanted = (uint32_t)wanted;
        action->scale.devices_have = have;
    }
}

static void look(struct core *core)
{
    expire(core);
    core_demand_refresh(core);
    int round = 0;
    do {
        core->dirty = false;
        core_plan(core);
    } while (core->dirty && ++round < PLAN_ROUNDS);
    endpoints_forget(core);
    core_leases_forget(core);
    for (size_t i = 0; i < core->device_count; i++) {
        core_ledger_update(core, core->devices[i]);
    }
    core_leases_tell(core);
    tell_scale(core);
    set_timer(core);
}

size_t core_step(struct core *core, const struct core_event *event, struct core_action *actions)
{
    core->actions = actions;
    core->action_count = 0;
    core->action_max = core_actions_max(core);
    core->now_ns = event->time_ns > core->now_ns ? event->time_ns : core->now_ns;
    if (core->timer_ns < core->now_ns) {
        core_heartbeats_forgive(core, core->now_ns - core->timer_ns);
    }
    core_teams_follow(core);
    dispatch(core, event);
    if (core->dirty || core->now_ns >= core->due_ns) {
        look(core);
    } else {
        tell_timer(core);
    }
    core_hash_actions(core);
    core->actions = NULL;
    return core->action_count;
}

enum core_mode core_mode_now(const struct core *core)
{
    return core->mode;
}

bool core_hold_now(const struct core *core)
{
    return core->hold;
}

uint64_t core_hash(const struct core *core)
{
    return core->hash;
}
