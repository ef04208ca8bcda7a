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
        .late_budget_ppm = 10000,
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
        .slow_permille = 900,
        .drain_permille = 600,
        .drain_after_ns = 60 * SECOND_NS,
        .health_budget_permille = 125,
        .leave_lead_ns = 30 * SECOND_NS,
        .leave_useful_ns = 60 * SECOND_NS,
        .moves_per_hour = 120,
        .moves_extra = 4,
        .ended_kept = 256,
        .explanations_kept = 4096,
    };
}

static bool config_is_valid(const struct core_config *config)
{
    return config->mode <= CORE_MODE_ACT && config->late_budget_ppm <= 1000000 &&
           config->demand_fast_ns > 0 && config->demand_fast_ns <= config->demand_slow_ns &&
           config->load_low_permille > 0 &&
           config->load_low_permille <= config->load_high_permille &&
           config->load_high_permille <= 1000 && config->utilisation_ns > 0 &&
           config->sample_stale_ns > 0 && config->shrink_low_permille > 0 &&
           config->shrink_low_permille <= config->shrink_high_permille &&
           config->shrink_high_permille <= 1000 && config->action_timeout_ns > 0 &&
           config->place_timeout_ns > 0 && config->kill_bound_ns > 0 &&
           config->shrink_deadline_ns > 0 && config->notice_ns > 0 &&
           config->suspend_deadline_ns > 0 && config->stopped_cap_ns > 0 && config->retry_ns > 0 &&
           config->retry_ns <= 3600 * SECOND_NS && config->age_ns > 0 &&
           config->age_ns <= 3600 * SECOND_NS && config->usage_half_life_ns >= 60 * SECOND_NS &&
           config->usage_half_life_ns <= 8760 * HOUR_NS && config->heartbeat_lost_ns > 0 &&
           config->credit_fades_ns > 0 && config->outlook_ns > 0 &&
           config->drain_permille <= config->slow_permille &&
           config->health_budget_permille <= 1000 && config->moves_per_hour > 0 &&
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
    core->stop_length_ns = config->stopped_prior_ns;
    core->told_timer_ns = NEVER_NS;
    core->fair_timer = (struct timer){.at_ns = NEVER_NS, .of = TIMER_FAIR};
    core->hash = UINT64_C(0xcbf29ce484222325);
    if (core_explain_init(core) < 0 || core_tables_init(core) < 0 || core_teams_init(core) < 0) {
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
    core_tables_destroy(core);
    for (size_t i = 0; i < core->team_count; i++) {
        core_team_destroy(core->teams[i]);
    }
    free(core->teams);
    free(core->turns);
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
    core_touch_all(core);
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
        core_touch_all(core);
        break;
    case CORE_EVENT_HOLD:
        core->hold = event->hold.on;
        core_touch_all(core);
        break;
    case CORE_EVENT_RECONCILE_DONE:
        reconcile(core);
        break;
    case CORE_EVENT_TIMER:
        core->told_timer_ns = NEVER_NS; /* it is used up: one that came too early is set again */
        break;
    case CORE_EVENT_COUNT:
        break;
    }
}

/* What is due has been touched by its timer. */
static void expire(struct core *core)
{
    SET_EACH (&core->device_sets[TOUCHED], slot) {
        struct device *device = core->device_slots[slot];
        if (device->deadline_ns != 0 && device->deadline_ns <= core->now_ns) {
            core_device_overdue(core, device);
        }
        core_device_leave_follow(core, device);
        core_instances_overdue(core, device);
    }
    SET_EACH (&core->lease_sets[TOUCHED], slot) {
        struct lease *lease = core->lease_slots[slot];
        if (core_lease_end_ns(core, lease) <= core->now_ns) {
            core_lease_overdue(core, lease);
        }
        if (core_heartbeat_due_ns(core, lease) <= core->now_ns) {
            core_heartbeat_overdue(core, lease);
        }
    }
}

static void endpoints_forget(struct core *core)
{
    for (size_t i = core->endpoint_count; i-- > 0 && core->endpoints_removing > 0;) {
        struct endpoint *endpoint = core->endpoints[i];
        if (endpoint->removing && endpoint->present == 0) {
            core->endpoints_removing--;
            core_kept_touch(core, endpoint);
            core_endpoint_erase(core, endpoint);
            core_endpoint_destroy(endpoint);
        }
    }
}

static void tell_scale(struct core *core)
{
    uint32_t have = core_pool_usable(core, UINT32_MAX);
    uint64_t high = core->config.load_high_permille;
    uint64_t wanted = (core->demand_milli + high - 1) / high + core->lease_minimums;
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

/* Books, tells and sets the next time of all that changed in this step. */
static void conclude(struct core *core)
{
    SET_EACH (&core->device_sets[CHANGED], slot) {
        struct device *device = core->device_slots[slot];
        core_burst_follow(core, device);
        core_ledger_update(core, device);
        core_timer_set(core, &device->timer, core_device_due_ns(core, device));
    }
    SET_EACH (&core->endpoint_sets[CHANGED], slot) {
        struct endpoint *endpoint = core->endpoint_slots[slot];
        core_timer_set(core, &endpoint->timer, core_endpoint_due_ns(core, endpoint));
    }
    SET_EACH (&core->lease_sets[CHANGED], slot) {
        struct lease *lease = core->lease_slots[slot];
        core_lease_tell(core, lease);
        core_timer_set(core, &lease->timer, core_lease_due_ns(core, lease));
    }
    core_set_clear(&core->device_sets[CHANGED]);
    core_set_clear(&core->endpoint_sets[CHANGED]);
    core_set_clear(&core->lease_sets[CHANGED]);
    tell_scale(core);
}

static void tell_timer(struct core *core)
{
    uint64_t due_ns = core_is_touched(core) ? core->now_ns + 1 : core_timer_next(core);
    if (due_ns != core->told_timer_ns) {
        core->told_timer_ns = due_ns;
        core_emit(core, CORE_ACTION_SET_TIMER)->timer.at_ns = due_ns == NEVER_NS ? 0 : due_ns;
    }
}

static void look(struct core *core)
{
    expire(core);
    core_demand_refresh(core);
    int round = 0;
    do {
        core_news_begin(core);
        core_plan(core);
    } while (core_is_touched(core) && ++round < PLAN_ROUNDS);
    endpoints_forget(core);
}

size_t core_step(struct core *core, const struct core_event *event, struct core_action *actions)
{
    core->actions = actions;
    core->action_count = 0;
    core->action_max = core_actions_max(core);
    core->now_ns = event->time_ns > core->now_ns ? event->time_ns : core->now_ns;
    if (core->told_timer_ns < core->now_ns) {
        core_heartbeats_forgive(core, core->now_ns - core->told_timer_ns);
    }
    core_teams_follow(core);
    dispatch(core, event);
    core_timers_fire(core);
    if (core_is_touched(core)) {
        look(core);
    }
    conclude(core);
    core_leases_forget(core);
    tell_timer(core);
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
