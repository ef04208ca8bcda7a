/* views.c: copies of the state for those who show it. */
#include <string.h>

#include "server/core/state.h"

static void device_view(const struct core *core, const struct device *device,
                        struct core_device_view *ret_view)
{
    bool timed = device->hold != CORE_HOLD_NONE && device->hold != CORE_HOLD_HELD;
    *ret_view = (struct core_device_view){
        .device = device->id,
        .kind = device->kind,
        .memory_bytes = device->memory_bytes <= MEMORY_MAX ? device->memory_bytes : 0,
        .memory_used_bytes = core_device_memory_used(device),
        .health = device->health,
        .cordoned = device->cordoned,
        .occupied = device->occupied,
        .speed_permille = device->speed_permille,
        .drained = device->drained,
        .node = device->node,
        .link = device->link,
        .provider = device->provider,
        .reclaim_by_ns = device->reclaim_by_ns,
        .hold = device->hold,
        .lease = device->lease != NULL ? device->lease->spec.lease : 0,
        .promised = device->promised != NULL ? device->promised->spec.lease : 0,
        .generation = device->generation,
        .deadline_ns = timed ? device->deadline_ns : 0,
        .rung = timed ? device->rung : CORE_RUNG_NONE,
        .residue_bytes = device->hold == CORE_HOLD_SUSPENDED ? device->holder_bytes : 0,
        .yield = device->lease != NULL && device->lease->spec.in_process,
        .kept_for_serving = device->kept,
        .instances_ready = device->instances_ready,
        .resting = device->resting,
        .utilisation_permille = (uint32_t)(device->utilisation_ppm / 1000),
        .account = device->account,
        .slices = device->slices,
        .handovers = device->handovers,
    };
    memcpy(ret_view->account_ns, device->account_ns, sizeof ret_view->account_ns);
    ret_view->account_ns[device->account] += core->now_ns - device->account_since_ns;
}

bool core_device_at(const struct core *core, size_t index, struct core_device_view *ret_view)
{
    if (index >= core->device_count) {
        return false;
    }
    device_view(core, core->devices[index], ret_view);
    return true;
}

bool core_device_find(const struct core *core, uint64_t device, struct core_device_view *ret_view)
{
    const struct device *found = core_device_get(core, device);
    if (found != NULL) {
        device_view(core, found, ret_view);
    }
    return found != NULL;
}

/* Time since its device was last booked is in no account yet. */
static void add_open(const struct core *core, const struct device *device, core_sum_ns *account_ns)
{
    account_ns[device->account] += core->now_ns - device->account_since_ns;
}

static void endpoint_view(const struct core *core, const struct endpoint *endpoint,
                          struct core_endpoint_view *ret_view)
{
    *ret_view = (struct core_endpoint_view){
        .spec = endpoint->spec,
        .demand_milli = (uint32_t)endpoint->demand_milli,
        .devices_needed = endpoint->needed,
        .instances_ready = endpoint->ready,
        .instances_placing = core_endpoint_serving(endpoint) - endpoint->ready,
        .instances_resting = endpoint->resting,
        .projected_wait_ns = endpoint->projected_wait_ns,
        .rate_milli = endpoint->rate_fast_milli,
        .reason = core_endpoint_lacks(core, endpoint),
        .removing = endpoint->removing,
    };
    memcpy(ret_view->account_ns, endpoint->account_ns, sizeof ret_view->account_ns);
    for (size_t i = 0; i < core->device_count; i++) {
        const struct device *device = core->devices[i];
        if (device->lease == NULL && device->account_for == endpoint) {
            add_open(core, device, ret_view->account_ns);
        }
    }
}

bool core_endpoint_at(const struct core *core, size_t index, struct core_endpoint_view *ret_view)
{
    if (index >= core->endpoint_count) {
        return false;
    }
    endpoint_view(core, core->endpoints[index], ret_view);
    return true;
}

bool core_endpoint_find(const struct core *core, uint64_t endpoint,
                        struct core_endpoint_view *ret_view)
{
    const struct endpoint *found = core_endpoint_get(core, endpoint);
    if (found != NULL) {
        endpoint_view(core, found, ret_view);
    }
    return found != NULL;
}

static void lease_view(const struct core *core, const struct lease *lease,
                       struct core_lease_view *ret_view)
{
    *ret_view = (struct core_lease_view){
        .spec = lease->spec,
        .state = lease->state,
        .reason = lease->reason,
        .devices = lease->held,
        .devices_leaving = lease->leaving,
        .devices_stopped = lease->stopped,
        .position = core_queue_position(core, lease),
        .run = lease->run,
        .since_ns = lease->since_ns,
        .step = lease->step,
        .checkpointed_step = lease->checkpointed_step,
        .provisional_ns = core_lease_provisional(core, lease),
        .lost_ns = lease->account_ns[CORE_ACCOUNT_LOST],
        .revokes = lease->revokes,
        .runs = lease->runs,
        .run_ns = core_lease_ran_ns(core, lease),
        .preemptions = lease->preemptions,
        .stops = lease->stops,
        .failures = lease->failures,
        .heartbeat_lost = lease->heartbeat_lost,
        .reported = lease->reported,
        .checkpoint_ns = lease->checkpoint_ns,
        .credit_ns = lease->credit_ns,
    };
    memcpy(ret_view->account_ns, lease->account_ns, sizeof ret_view->account_ns);
    LEASE_DEVICES (lease, device) {
        add_open(core, device, ret_view->account_ns);
    }
    ret_view->training_ns = ret_view->account_ns[CORE_ACCOUNT_TRAINING];
}

bool core_lease_at(const struct core *core, size_t index, struct core_lease_view *ret_view)
{
    if (index >= core->lease_count) {
        return false;
    }
    lease_view(core, core->leases[index], ret_view);
    return true;
}

bool core_lease_find(const struct core *core, uint64_t lease, struct core_lease_view *ret_view)
{
    const struct lease *found = core_lease_get(core, lease);
    if (found != NULL) {
        lease_view(core, found, ret_view);
    }
    return found != NULL;
}

static void team_view(const struct core *core, const struct team *team,
                      struct core_team_view *ret_view)
{
    *ret_view = (struct core_team_view){
        .spec = team->spec,
        .added = team->added,
        .leases = team->live,
        .leases_waiting = (uint32_t)team->waiting_count,
        .usage_ns = core_team_usage_ns(core, team),
    };
    for (int kind = 0; kind < CORE_KINDS_MAX; kind++) {
        const struct share *share = &team->share[kind];
        ret_view->devices[kind] = share->held + share->leaving;
        ret_view->reserved[kind] = share->reserved;
    }
    memcpy(ret_view->account_ns, team->account_ns, sizeof ret_view->account_ns);
    for (size_t i = 0; i < core->device_count; i++) {
        const struct device *device = core->devices[i];
        if (device->lease != NULL && device->lease->team == team) {
            add_open(core, device, ret_view->account_ns);
        }
    }
}

bool core_team_at(const struct core *core, size_t index, struct core_team_view *ret_view)
{
    if (index >= core->team_count) {
        return false;
    }
    team_view(core, core->teams[index], ret_view);
    return true;
}

bool core_team_find(const struct core *core, uint64_t team, struct core_team_view *ret_view)
{
    const struct team *found = core_team_get(core, team);
    if (found != NULL) {
        team_view(core, found, ret_view);
    }
    return found != NULL;
}

enum core_instance_state core_instance_find(const struct core *core, uint64_t endpoint,
                                            uint64_t device)
{
    const struct device *found = core_device_get(core, device);
    const struct endpoint *of = core_endpoint_get(core, endpoint);
    bool known = found != NULL && of != NULL;
    return known ? core_instance_of(found, of)->state : CORE_INSTANCE_ABSENT;
}
