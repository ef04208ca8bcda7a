/* heartbeat.c: signs of life of holders. A heartbeat that stays away is a flag and a preference
 * among victims, never a reason to take anything: the link may be broken and the job well. */
#include "server/core/state.h"

/* A timer that comes so much later than asked, in parts of the window, says that the server was
 * stopped, and that heartbeats may wait to be read. */
#define STALL_PARTS 8

void core_heartbeat(struct core *core, struct lease *lease)
{
    lease->heard_ns = core->now_ns;
    if (lease->heartbeat_lost) {
        lease->heartbeat_lost = false;
        core_lease_touch(core, lease);
    }
    core_lease_note(core, lease);
}

uint64_t core_heartbeat_due_ns(const struct core *core, const struct lease *lease)
{
    bool awaited =
        lease->spec.heartbeats && lease->state == CORE_LEASE_RUNNING && !lease->heartbeat_lost;
    return awaited ? core_add_u64(lease->heard_ns, core->config.heartbeat_lost_ns) : NEVER_NS;
}

void core_heartbeat_overdue(struct core *core, struct lease *lease)
{
    lease->heartbeat_lost = true;
    core_lease_touch(core, lease);
    struct core_explanation explanation =
        core_explain_begin(core, CORE_WHAT_HEARTBEAT_LOST, CORE_REASON_NONE, NULL, lease, NULL);
    core_explain(core, &explanation);
}

void core_heartbeats_forgive(struct core *core, uint64_t late_ns)
{
    if (late_ns < core->config.heartbeat_lost_ns / STALL_PARTS) {
        return;
    }
    for (size_t i = 0; i < core->lease_count; i++) {
        struct lease *lease = core->leases[i];
        if (lease->state == CORE_LEASE_RUNNING && !lease->heartbeat_lost) {
            lease->heard_ns = core->now_ns;
            core_lease_note(core, lease);
        }
    }
}
