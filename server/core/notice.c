/* notice.c: a holder under notice asks for more time. It may once, no longer than it was promised,
 * and never past the time at which the device itself goes. */
#include "server/core/state.h"

static bool under_notice(const struct device *device)
{
    return device->hold == CORE_HOLD_REVOKING && device->rung == CORE_RUNG_NOTICE;
}

static uint64_t extended_deadline(const struct core *core, const struct device *device,
                                  uint64_t asked_ns)
{
    const struct core_lease_spec *spec = &device->lease->spec;
    uint64_t bound_ns = spec->extension_ns != 0 ? spec->extension_ns : core->config.extension_ns;
    uint64_t deadline_ns =
        core_add_u64(device->deadline_ns, asked_ns < bound_ns ? asked_ns : bound_ns);
    bool goes = device->reclaim_by_ns != 0 && device->reclaim_by_ns < deadline_ns;
    return goes ? device->reclaim_by_ns : deadline_ns;
}

static void extend(struct core *core, struct device *device, uint64_t deadline_ns)
{
    struct core_action *action = core_emit(core, CORE_ACTION_EXTEND);
    action->revoke.lease = device->lease->spec.lease;
    action->revoke.device = device->id;
    action->revoke.generation = device->generation;
    action->revoke.rung = device->rung;
    action->revoke.reason = device->revoke_reason;
    action->revoke.deadline_ns = deadline_ns;
    device->extended = true;
    device->deadline_ns = deadline_ns;
    core_device_touch(core, device); /* what waits for it waits longer */
    struct core_explanation explanation = core_explain_begin(
        core, CORE_WHAT_EXTEND, device->revoke_reason, device, device->lease, NULL);
    explanation.rung = device->rung;
    explanation.deadline_ns = deadline_ns;
    core_explain(core, &explanation);
}

enum core_reason core_notice_extend(struct core *core, struct lease *lease,
                                    const struct core_event *event)
{
    uint64_t id = event->extension.device, generation = event->extension.generation;
    bool of_lease = id == 0 && core_lease_token_is_current(lease, generation);
    enum core_reason reason = CORE_REASON_NONE;
    for (struct device *device = lease->first; device != NULL; device = device->next) {
        bool meant = of_lease || (device->id == id && device->generation == generation);
        if (!meant || !under_notice(device)) {
            continue;
        }
        uint64_t deadline_ns = extended_deadline(core, device, event->extension.extension_ns);
        if (!lease->spec.extension || device->extended) {
            reason = CORE_REASON_EXTENDED;
        } else if (deadline_ns > device->deadline_ns) {
            extend(core, device, deadline_ns);
        }
    }
    return reason;
}
