/* action.c: what a step says, and its hash. */
#include <string.h>

#include "server/core/state.h"

struct core_action *core_emit(struct core *core, enum core_action_kind kind)
{
    assert(core->action_count < core->action_max);
    struct core_action *action = &core->actions[core->action_count++];
    memset(action, 0, sizeof *action);
    action->kind = kind;
    action->id = ++core->action_id;
    return action;
}

void core_emit_reject(struct core *core, uint64_t device, uint64_t endpoint, uint64_t lease,
                      enum core_reason reason)
{
    struct core_action *action = core_emit(core, CORE_ACTION_REJECT);
    action->reject.device = device;
    action->reject.endpoint = endpoint;
    action->reject.lease = lease;
    action->reject.reason = reason;
    if (reason == CORE_REASON_STALE_TOKEN) {
        return; /* late messages in number must not push out the stories of moves */
    }
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_REJECT, reason, NULL, NULL, NULL);
    explanation.device = device;
    explanation.endpoint = endpoint;
    explanation.lease = lease;
    core_explain(core, &explanation);
}

static uint64_t hash_grant(uint64_t hash, const struct core_action *action)
{
    hash = core_hash_u64(hash, action->grant.lease);
    hash = core_hash_u64(hash, action->grant.device);
    hash = core_hash_u64(hash, action->grant.token.store_epoch);
    hash = core_hash_u64(hash, action->grant.token.generation);
    hash = core_hash_u64(hash, action->grant.token.secret);
    hash = core_hash_u64(hash, action->grant.run);
    hash = core_hash_u64(hash, action->grant.yield);
    return core_hash_u64(hash, action->grant.reason);
}

static uint64_t hash_revoke(uint64_t hash, const struct core_action *action)
{
    hash = core_hash_u64(hash, action->revoke.lease);
    hash = core_hash_u64(hash, action->revoke.device);
    hash = core_hash_u64(hash, action->revoke.generation);
    hash = core_hash_u64(hash, action->revoke.rung);
    hash = core_hash_u64(hash, action->revoke.reason);
    return core_hash_u64(hash, action->revoke.deadline_ns);
}

static uint64_t hash_four(uint64_t hash, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return core_hash_u64(core_hash_u64(core_hash_u64(core_hash_u64(hash, a), b), c), d);
}

/* Field by field: padding and the size of an enum are the compiler's business. */
static uint64_t hash_action(uint64_t hash, const struct core_action *action)
{
    hash = core_hash_u64(core_hash_u64(hash, action->kind), action->id);
    switch (action->kind) {
    case CORE_ACTION_PLACE:
    case CORE_ACTION_REMOVE:
        return hash_four(hash, action->instance.endpoint, action->instance.device, 0, 0);
    case CORE_ACTION_GRANT:
        return hash_grant(hash, action);
    case CORE_ACTION_REVOKE:
    case CORE_ACTION_RESUME:
    case CORE_ACTION_EXTEND:
    case CORE_ACTION_KILL:
        return hash_revoke(hash, action);
    case CORE_ACTION_VERIFY:
    case CORE_ACTION_QUARANTINE:
        return hash_four(hash, action->device.device, action->device.lease, action->device.reason,
                         0);
    case CORE_ACTION_REJECT:
        return hash_four(hash, action->reject.device, action->reject.endpoint, action->reject.lease,
                         action->reject.reason);
    case CORE_ACTION_EXPIRE:
    case CORE_ACTION_LEASE_MOVED:
        hash = core_hash_u64(hash, action->lease.heartbeat_lost);
        return hash_four(hash, action->lease.lease, action->lease.state, action->lease.devices,
                         action->lease.reason);
    case CORE_ACTION_SET_TIMER:
        return core_hash_u64(hash, action->timer.at_ns);
    case CORE_ACTION_SCALE:
        return hash_four(hash, action->scale.devices_wanted, action->scale.devices_have, 0, 0);
    case CORE_ACTION_EXPLAIN:
        return core_hash_u64(hash, action->explanation.explanation);
    case CORE_ACTION_COUNT:
        break;
    }
    return hash;
}

void core_hash_actions(struct core *core)
{
    for (size_t i = 0; i < core->action_count; i++) {
        core->hash = hash_action(core->hash, &core->actions[i]);
    }
}
