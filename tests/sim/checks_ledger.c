/* checks_ledger.c: invariant 7 from outside: the accounts hold what time has passed since devices
 * were added, and what samples told is booked once, or counted as more than there was. */
#include "tests/sim/checks.h"

void checks_ledger_event(struct checks *checks, const struct core_event *event)
{
    struct core_device_view view;
    if (event->kind == CORE_EVENT_DEVICE_SAMPLE && event->device_sample.interval_ns > 0 &&
        core_device_find(checks->rig->core, event->device_sample.device, &view)) {
        checks->ledger.told_ns += event->device_sample.serving_ns;
        if (view.account == CORE_ACCOUNT_TRAINING) {
            checks->ledger.told_ns +=
                event->device_sample.waiting_ns + event->device_sample.restore_ns;
        }
    }
}

void checks_ledger_step(struct checks *checks)
{
    struct core_ledger ledger = rig_ledger(checks->rig);
    uint64_t sum = 0, elapsed = checks->ledger.elapsed_ns;
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        sum += ledger.account_ns[account];
    }
    for (size_t id = 1; id <= SIM_DEVICES_MAX; id++) {
        const struct seen_device *device = &checks->devices[id];
        elapsed += device->present ? checks->rig->now_ns - device->added_ns : 0;
    }
    checks_require(checks, sum == elapsed, "7: the accounts do not hold the time passed", elapsed);
    uint64_t booked = ledger.account_ns[CORE_ACCOUNT_SERVING] +
                      ledger.account_ns[CORE_ACCOUNT_WAITING] +
                      ledger.account_ns[CORE_ACCOUNT_RESTORE] + ledger.unbooked_ns;
    checks_require(checks, booked == checks->ledger.told_ns,
                   "7: what samples told is not booked once", checks->ledger.told_ns);
}
