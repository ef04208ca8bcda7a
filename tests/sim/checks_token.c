/* checks_token.c: invariant 4: an answer that was given before, or to nobody, and a holder's word
 * with the token of a grant that is over change nothing: not the state, and no action follows. */
#include <inttypes.h>

#include "server/record/fields.h"
#include "tests/sim/checks.h"

/* ---- the state, as a number ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint64_t mix_device(uint64_t hash, const struct core *core,
                           const struct core_device_view *view)
{
    hash = mix(hash, view->device);
    hash = mix(hash, (uint64_t)view->health << 8 | (uint64_t)view->hold << 4 |
                         (uint64_t)view->cordoned << 3 | (uint64_t)view->occupied << 2 |
                         (uint64_t)view->kept_for_serving << 1 | view->yield);
    hash = mix(mix(mix(hash, view->lease), view->promised), view->generation);
    hash = mix(mix(mix(hash, view->deadline_ns), view->memory_used_bytes), view->handovers);
    hash = mix(mix(hash, view->instances_ready), view->account);
    for (uint64_t endpoint = 1; endpoint <= SIM_ENDPOINTS_MAX; endpoint++) {
        hash = mix(hash, core_instance_find(core, endpoint, view->device));
    }
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        hash = mix(hash, view->account_ns[account]);
    }
    return hash;
}

static uint64_t mix_lease(uint64_t hash, const struct core_lease_view *view)
{
    hash = mix(mix(mix(hash, view->spec.lease), view->state), view->reason);
    hash = mix(mix(mix(hash, view->devices), view->devices_leaving), view->run);
    hash = mix(mix(mix(hash, view->since_ns), view->step), view->checkpointed_step);
    hash = mix(mix(mix(hash, view->provisional_ns), view->lost_ns), view->revokes);
    return mix(mix(hash, view->runs), view->position);
}

static uint64_t state_hash(const struct core *core)
{
    struct core_device_view device;
    struct core_lease_view lease;
    uint64_t hash = mix(core_mode_now(core), core_hold_now(core));
    for (size_t i = 0; core_device_at(core, i, &device); i++) {
        hash = mix_device(hash, core, &device);
    }
    for (size_t i = 0; core_lease_at(core, i, &lease); i++) {
        hash = mix_lease(hash, &lease);
    }
    return hash;
}

/* ---- what is late ---- */

static uint64_t value_of(const struct core_event *event, enum record_meaning meaning)
{
    const struct record_fields *fields = record_event_fields(event->kind);
    for (size_t i = 0; i < fields->count; i++) {
        if (fields->fields[i].meaning == meaning) {
            return record_field_read(event, &fields->fields[i], 0);
        }
    }
    return 0;
}

/* The first time counts, in this life only. */
static bool answer_is_late(struct checks *checks, uint64_t id)
{
    struct history_action *action = history_find(&checks->history, id);
    if (action == NULL || (size_t)(action - checks->history.actions) < checks->history.life) {
        return true;
    }
    bool late = action->answered;
    action->answered = true;
    return late;
}

static bool holds(const struct checks *checks, uint64_t lease)
{
    bool any = false;
    for (size_t id = 1; id <= SIM_DEVICES_MAX; id++) {
        any = any || checks->devices[id].owner == lease;
    }
    return any;
}

static bool token_is_late(struct checks *checks, uint64_t lease, uint64_t generation)
{
    struct core_lease_view view;
    return !core_lease_find(checks->rig->core, lease, &view) || !holds(checks, lease) ||
           generation < view.run || generation > checks->generation;
}

static bool is_late(struct checks *checks, const struct core_event *event)
{
    uint64_t action = value_of(event, RECORD_ACTION);
    uint64_t generation = value_of(event, RECORD_GENERATION);
    switch (event->kind) {
    case CORE_EVENT_INSTANCE_READY:
    case CORE_EVENT_INSTANCE_STOPPED:
    case CORE_EVENT_REVOKE_ACKNOWLEDGED:
    case CORE_EVENT_RELEASE_VERIFIED:
    case CORE_EVENT_ACTION_DONE:
    case CORE_EVENT_ACTION_FAILED:
    case CORE_EVENT_SUSPENDED:
    case CORE_EVENT_RESUMED:
        return answer_is_late(checks, action);
    case CORE_EVENT_INSTANCE_FAILED:
        return action != 0 && answer_is_late(checks, action);
    case CORE_EVENT_LEASE_RELEASED:
    case CORE_EVENT_LEASE_PROGRESS:
    case CORE_EVENT_LEASE_HEARTBEAT:
    case CORE_EVENT_JOB_EXITED:
    case CORE_EVENT_EXTENSION_ASKED:
        return token_is_late(checks, event->lease.lease, generation);
    default:
        return false;
    }
}

/* What time brings comes first, so that the late event is by itself: the mode that is there anyway
 * makes the core look at everything. */
void checks_token_event(struct checks *checks, const struct core_event *event)
{
    bool late = is_late(checks, event);
    checks->late.expected = false;
    if (late) {
        struct core_event look = {.kind = CORE_EVENT_MODE_CHANGED};
        look.mode.mode = core_mode_now(checks->rig->core);
        rig_send(checks->rig, look);
        /* More that is due at once would come with any event. */
        checks->late.expected = checks->rig->timer_ns != checks->rig->now_ns + 1;
        checks->late.state = state_hash(checks->rig->core);
    }
}

/* A refusal and its story may come, and the timer is used up by any event. */
static bool is_told_only(enum core_action_kind kind)
{
    return kind == CORE_ACTION_SET_TIMER || kind == CORE_ACTION_REJECT ||
           kind == CORE_ACTION_EXPLAIN;
}

void checks_token_step(struct checks *checks, const struct core_event *event)
{
    const char *name = record_event_fields(event->kind)->name;
    if (!checks->late.expected) {
        return;
    }
    checks->late.expected = false;
    for (size_t i = 0; i < checks->rig->count; i++) {
        if (!is_told_only(checks->rig->actions[i].kind)) {
            fail_msg("%s seed %" PRIu64 ", step %" PRIu64 ": 4: action %d follows from a late '%s'",
                     checks->rig->place, checks->rig->seed, checks->rig->steps,
                     (int)checks->rig->actions[i].kind, name);
        }
    }
    if (state_hash(checks->rig->core) != checks->late.state) {
        fail_msg("%s seed %" PRIu64 ", step %" PRIu64 ": 4: the state follows a late '%s'",
                 checks->rig->place, checks->rig->seed, checks->rig->steps, name);
    }
}
