/* kinds.c: how fast each kind of device is at each kind of work. What was measured of the very
 * lease or endpoint goes before its class of work, and that before nothing known. */
#include "server/core/state.h"

#define SPEED_MAX 1000000 /* a thousand times the reference */

static bool spec_is_valid(const struct core_kind_spec *spec)
{
    bool valid = spec->kind < CORE_KINDS_MAX;
    for (int work = 0; work < CORE_WORK_COUNT; work++) {
        valid = valid && spec->speed_permille[work] <= SPEED_MAX;
    }
    return valid;
}

static void lease_measured(struct core *core, const struct core_event *event)
{
    struct lease *lease = core_lease_get(core, event->lease_speed.lease);
    if (lease != NULL && event->lease_speed.kind < CORE_KINDS_MAX) {
        lease->speed_permille[event->lease_speed.kind] = event->lease_speed.speed_permille;
        core_lease_touch(core, lease);
    }
}

void core_kinds_event(struct core *core, const struct core_event *event)
{
    if (event->kind == CORE_EVENT_LEASE_SPEED) {
        lease_measured(core, event);
    } else if (spec_is_valid(&event->kind_measured)) {
        core->kinds[event->kind_measured.kind] = event->kind_measured;
        core_touch_all(core);
    } else {
        core_emit_reject(core, 0, 0, 0, CORE_REASON_INVALID);
    }
}
