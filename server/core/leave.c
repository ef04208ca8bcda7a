/* leave.c: devices that their provider takes back at a time that is known. Well before it nothing
 * new comes onto them; then their holder has its notice and serving moves away, without a gap where
 * there is another device; what is left just before the end is removed. */
#include "server/core/state.h"

#define LAST_SHARE 3 /* of the lead: the end of it, in which instances that are still there go */

/* What the lease takes to let go, to be ended by force where it does not, and a margin. */
static uint64_t lease_margin_ns(const struct core *core, const struct lease *lease)
{
    uint64_t span_ns = core_rung_span_ns(core, lease, core_rung_for_all(lease));
    return core_add_u64(core_add_u64(core->config.leave_lead_ns, core->config.kill_bound_ns),
                        span_ns);
}

/* How long before its end a device is asked of whoever has it; a stopped one must be at work for
 * that. */
static uint64_t margin_ns(const struct core *core, const struct device *device)
{
    const struct lease *lease = device->lease;
    uint64_t margin_ns = lease != NULL ? lease_margin_ns(core, lease) : core->config.leave_lead_ns;
    if (core_device_stopped(device)) {
        uint64_t give_ns = core_rung_give_ns(core, lease, lease->stop_rung, device->kind);
        margin_ns = core_add_u64(margin_ns, give_ns);
    }
    return margin_ns;
}

/* Before it would have to be left again, the lease can have it for as long as is of use. */
static uint64_t lasts_ns(const struct core *core, const struct lease *lease)
{
    return core_add_u64(lease_margin_ns(core, lease), core->config.leave_useful_ns);
}

/* Whoever came later would have it for less than is of use. */
static uint64_t closing_ns(const struct core *core)
{
    const struct core_config *config = &core->config;
    uint64_t notice_ns = core_add_u64(config->notice_ns, config->kill_bound_ns);
    return core_add_u64(core_add_u64(config->leave_lead_ns, config->leave_useful_ns), notice_ns);
}

static uint64_t before(uint64_t end_ns, uint64_t span_ns)
{
    return end_ns > span_ns ? end_ns - span_ns : 0;
}

static bool is_within(const struct core *core, const struct device *device, uint64_t span_ns)
{
    return device->reclaim_by_ns != 0 && core->now_ns >= before(device->reclaim_by_ns, span_ns);
}

bool core_device_lasts(const struct core *core, const struct device *device,
                       const struct lease *lease)
{
    return device->reclaim_by_ns == 0 || !is_within(core, device, lasts_ns(core, lease));
}

static bool is_leaving(const struct core *core, const struct device *device)
{
    return core->reconciled && (is_within(core, device, margin_ns(core, device)) ||
                                (device->leaving && is_within(core, device, closing_ns(core))));
}

static bool is_closing(const struct core *core, const struct device *device)
{
    return core->reconciled &&
           (is_leaving(core, device) || is_within(core, device, closing_ns(core)));
}

/* At once where a plan has just changed who has it. */
uint64_t core_device_leave_due_ns(const struct core *core, const struct device *device)
{
    if (device->reclaim_by_ns == 0) {
        return NEVER_NS;
    }
    const struct lease *next = device->promised;
    const uint64_t spans_ns[] = {closing_ns(core), margin_ns(core, device),
                                 core->config.leave_lead_ns / LAST_SHARE,
                                 next != NULL ? lasts_ns(core, next) : 0};
    uint64_t due_ns = NEVER_NS;
    if (is_leaving(core, device) != device->leaving ||
        is_closing(core, device) != device->closing) {
        return core->now_ns;
    }
    for (size_t i = 0; i < sizeof spans_ns / sizeof *spans_ns; i++) {
        uint64_t at_ns = before(device->reclaim_by_ns, spans_ns[i]);
        due_ns = core_sooner(core, due_ns, at_ns, 0);
    }
    return due_ns;
}

static void leave(struct core *core, struct device *device)
{
    struct lease *lease = device->lease;
    core_device_promise(core, device, NULL);
    core_device_unkeep(core, device);
    if (device->hold == CORE_HOLD_GRANTING || device->hold == CORE_HOLD_HELD) {
        enum core_rung rung = core_rung_for_one(lease);
        struct core_explanation explanation =
            core_explain_begin(core, CORE_WHAT_REVOKE, CORE_REASON_RECLAIM, device, lease, NULL);
        explanation.rung = rung;
        core_device_revoke(core, device, rung, CORE_REASON_RECLAIM);
        explanation.deadline_ns = device->deadline_ns;
        core_explain(core, &explanation);
        core_lease_lost_device(core, lease, CORE_REASON_RECLAIM);
    } else if (core_device_stopped(device)) { /* asked back when it is at work */
        core_lease_go_on(core, lease, CORE_REASON_RECLAIM);
    }
}

void core_device_leave_follow(struct core *core, struct device *device)
{
    bool closing = is_closing(core, device), leaving = is_leaving(core, device);
    if (closing == device->closing && leaving == device->leaving) {
        return;
    }
    bool begins = leaving && !device->leaving;
    device->closing = closing;
    device->leaving = leaving;
    core_device_touch(core, device);
    core_instances_go(core, device, leaving || device->drained);
    if (begins) {
        leave(core, device);
    }
}

/* An instance goes once its endpoint has what it needs on devices that stay, or at the last moment.
 */
static bool may_go(const struct core *core, const struct device *device,
                   const struct endpoint *endpoint)
{
    return endpoint->ready >= endpoint->needed + endpoint->going || device->resting ||
           is_within(core, device, core->config.leave_lead_ns / LAST_SHARE);
}

/* Also of those that health.c drains. */
void core_leaving_plan(struct core *core)
{
    SET_EACH (&core->device_sets[DEVICES_GOING], slot) {
        struct device *device = core->device_slots[slot];
        DEVICE_ENDPOINTS (core, device, endpoint) {
            if (core_instance_serves(core_instance_of(device, endpoint)) &&
                may_go(core, device, endpoint)) {
                enum core_reason reason = device->leaving ? CORE_REASON_RECLAIM : CORE_REASON_SLOW;
                struct core_explanation explanation =
                    core_explain_begin(core, CORE_WHAT_REMOVE, reason, device, NULL, endpoint);
                core_explain(core, &explanation);
                core_instance_remove(core, device, endpoint);
            }
        }
    }
}
