/* burst.c: how busy serving keeps each device, and the bursts that it serves beside a lease. */
#include "server/core/state.h"

#define MILLION UINT64_C(1000000)

struct endpoint *core_device_busiest(const struct core *core, const struct device *device)
{
    struct endpoint *busiest = NULL;
    for (size_t i = 0; i < core->endpoint_count; i++) {
        struct endpoint *endpoint = core->endpoints[i];
        bool ready = core_instance_of(device, endpoint)->state == CORE_INSTANCE_READY;
        if (ready && (busiest == NULL || endpoint->demand_milli > busiest->demand_milli)) {
            busiest = endpoint;
        }
    }
    return busiest;
}

bool core_device_hot(const struct core *core, const struct device *device)
{
    return device->hot_since_ns != NEVER_NS &&
           core->now_ns - device->hot_since_ns >= core->config.shrink_after_ns;
}

bool core_device_cool(const struct core *core, const struct device *device)
{
    return device->cool_since_ns != NEVER_NS &&
           core->now_ns - device->cool_since_ns >= core->config.cool_down_ns;
}

static void device_share(struct core *core, struct device *device, uint64_t share_ppm,
                         uint64_t interval_ns)
{
    device->utilisation_ppm = core_average_u64(device->utilisation_ppm, share_ppm, interval_ns,
                                               core->config.utilisation_ns);
    bool hot = device->utilisation_ppm >= core->config.shrink_high_permille * UINT64_C(1000);
    bool cool = device->utilisation_ppm < core->config.shrink_low_permille * UINT64_C(1000);
    if (hot != (device->hot_since_ns != NEVER_NS)) {
        device->hot_since_ns = hot ? core->now_ns : NEVER_NS;
        core_device_touch(core, device);
    }
    if (cool != (device->cool_since_ns != NEVER_NS)) {
        device->cool_since_ns = cool ? core->now_ns : NEVER_NS;
        core_device_touch(core, device);
    }
    device->sampled_ns = core->now_ns;
    core_device_note(core, device);
}

static void burst_explain(struct core *core, struct device *device, enum core_what what)
{
    struct core_explanation explanation = core_explain_begin(
        core, what, what == CORE_WHAT_YIELD_BEGAN ? CORE_REASON_DEMAND : CORE_REASON_LOAD_FELL,
        device, device->lease, core_device_busiest(core, device));
    explanation.rung = CORE_RUNG_YIELD;
    if (device->lease != NULL) {
        core_explain_victim(&explanation, device, 0, what == CORE_WHAT_YIELD_BEGAN);
    }
    core_explain(core, &explanation);
}

void core_burst_follow(struct core *core, struct device *device)
{
    bool granted = device->hold == CORE_HOLD_HELD;
    bool quiet =
        device->served_ns == NEVER_NS || core->now_ns - device->served_ns >= core->config.quiet_ns;
    if (device->lending && (quiet || !granted)) {
        device->lending = false;
        if (granted) {
            burst_explain(core, device, CORE_WHAT_YIELD_ENDED);
        }
    } else if (!device->lending && granted && !quiet) {
        device->lending = true;
        burst_explain(core, device, CORE_WHAT_YIELD_BEGAN);
    }
}

void core_device_sampled(struct core *core, const struct core_event *event)
{
    struct device *device = core_device_get(core, event->device_sample.device);
    uint64_t interval = event->device_sample.interval_ns;
    if (device == NULL || interval == 0) {
        return;
    }
    uint64_t serving = event->device_sample.serving_ns;
    core_ledger_book(core, device, serving, CORE_ACCOUNT_SERVING);
    if (device->account == CORE_ACCOUNT_TRAINING) {
        core_ledger_book(core, device, event->device_sample.waiting_ns, CORE_ACCOUNT_WAITING);
        core_ledger_book(core, device, event->device_sample.restore_ns, CORE_ACCOUNT_RESTORE);
    }
    device->account_open_ns = 0; /* this stretch is told */
    device->slices += event->device_sample.slices;
    uint64_t share = serving >= interval ? MILLION : core_scale_u64(serving, MILLION, interval);
    device_share(core, device, share, interval);
    if (serving > 0) {
        device->served_ns = core->now_ns;
    }
}

/* A device that tells nothing is idle. */
void core_device_refresh(struct core *core, struct device *device)
{
    uint64_t age = core->now_ns - device->sampled_ns;
    if (age >= core->config.sample_stale_ns && device->utilisation_ppm > 0) {
        device_share(core, device, 0, age);
    }
}
