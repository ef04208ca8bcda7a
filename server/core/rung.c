/* rung.c: the ways to get a device back: which of them a holder has, and what they take, as learned
 * by each lease and kind of device, else by all leases together, else as configured. */
#include "server/core/state.h"

#define LEARNED_SHARE 4 /* a new measurement counts for a quarter */

/* Whoever is in this process yields or shrinks: it has no process of its own to stop or kill. */
bool core_rungs_are_valid(const struct core_lease_spec *spec)
{
    uint32_t yielding = 1u << CORE_RUNG_YIELD | 1u << CORE_RUNG_SHRINK;
    uint32_t outside = ((1u << CORE_RUNG_COUNT) - 1) & ~(1u << CORE_RUNG_YIELD);
    uint32_t may = spec->in_process ? yielding : outside;
    return (spec->rungs_mask & ~may) == 0 && spec->pause_residue_bytes <= spec->memory_bytes &&
           spec->swap_residue_bytes <= spec->memory_bytes;
}

uint32_t core_rungs_of(const struct lease *lease)
{
    uint32_t kill = 1u << CORE_RUNG_KILL, notice = 1u << CORE_RUNG_NOTICE;
    uint32_t mask = lease->spec.rungs_mask;
    if (lease->spec.in_process) {
        return mask != 0 ? mask : 1u << CORE_RUNG_SHRINK;
    }
    mask = mask != 0 ? mask & ~kill : notice;
    /* Killed is who does not listen, at the end of a time for it. */
    return (mask & notice) != 0 ? mask : mask | kill;
}

bool core_rung_supported(const struct lease *lease, enum core_rung rung)
{
    return (core_rungs_of(lease) >> rung) & 1;
}

bool core_lease_can_stop(const struct lease *lease)
{
    return core_rung_supported(lease, CORE_RUNG_FREEZE) ||
           core_rung_supported(lease, CORE_RUNG_PAUSE) ||
           core_rung_supported(lease, CORE_RUNG_SWAP);
}

enum core_rung core_rung_for_all(const struct lease *lease)
{
    return lease->spec.in_process                         ? CORE_RUNG_SHRINK
           : core_rung_supported(lease, CORE_RUNG_NOTICE) ? CORE_RUNG_NOTICE
                                                          : CORE_RUNG_KILL;
}

enum core_rung core_rung_for_one(const struct lease *lease)
{
    return core_rung_supported(lease, CORE_RUNG_SHRINK) ? CORE_RUNG_SHRINK
                                                        : core_rung_for_all(lease);
}

/* An outside job that shrinks saves, ends and starts again: it has the time of a notice for it. */
uint64_t core_rung_span_ns(const struct core *core, const struct lease *lease, enum core_rung rung)
{
    if (core_rung_stops(rung)) {
        return core->config.suspend_deadline_ns;
    }
    if (lease->spec.in_process) {
        return core->config.shrink_deadline_ns;
    }
    return lease->spec.notice_ns != 0 ? lease->spec.notice_ns : core->config.notice_ns;
}

static uint32_t micro(uint64_t ns)
{
    uint64_t us = ns / 1000 + (ns % 1000 != 0);
    return us == 0 ? 1 : us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static uint64_t learned_ns(uint32_t of_lease_us, uint32_t of_all_us, uint64_t prior_ns)
{
    return of_lease_us != 0 ? of_lease_us * UINT64_C(1000)
           : of_all_us != 0 ? of_all_us * UINT64_C(1000)
                            : prior_ns;
}

uint64_t core_rung_take_ns(const struct core *core, const struct lease *lease, enum core_rung rung,
                           uint32_t kind)
{
    uint32_t of_lease_us = lease->rung_times[kind][rung - RUNG_FIRST].take_us;
    uint32_t of_all_us = core->rung_times[kind][rung - RUNG_FIRST].take_us;
    uint64_t prior_ns = core->config.rung_prior[rung].take_ns;
    if (of_lease_us == 0 && of_all_us == 0) {
        uint64_t span_ns = core_rung_span_ns(core, lease, rung);
        prior_ns = prior_ns < span_ns ? prior_ns : span_ns;
    }
    return learned_ns(of_lease_us, of_all_us, prior_ns);
}

uint64_t core_rung_give_ns(const struct core *core, const struct lease *lease, enum core_rung rung,
                           uint32_t kind)
{
    return learned_ns(lease->rung_times[kind][rung - RUNG_FIRST].give_us,
                      core->rung_times[kind][rung - RUNG_FIRST].give_us,
                      core->config.rung_prior[rung].give_ns);
}

uint64_t core_rung_hold_ns(const struct core *core, const struct lease *lease, enum core_rung rung,
                           uint32_t kind)
{
    uint64_t once_ns = core_add_u64(core_rung_take_ns(core, lease, rung, kind),
                                    core_rung_give_ns(core, lease, rung, kind));
    return once_ns > core->config.hold_min_ns ? once_ns : core->config.hold_min_ns;
}

static void learn(uint32_t *time_us, uint64_t ns)
{
    uint64_t average = core_average_u64(*time_us, micro(ns), 1, *time_us == 0 ? 1 : LEARNED_SHARE);
    *time_us = average == 0 ? 1 : (uint32_t)average;
}

void core_rung_took(struct core *core, const struct device *device, enum core_rung rung,
                    uint64_t ns)
{
    if (rung >= RUNG_FIRST && device->lease != NULL) {
        learn(&device->lease->rung_times[device->kind][rung - RUNG_FIRST].take_us, ns);
        learn(&core->rung_times[device->kind][rung - RUNG_FIRST].take_us, ns);
        core_lease_touch(core, device->lease);
        core_stops_touch(core);
    }
}

void core_rung_gave(struct core *core, const struct device *device, enum core_rung rung,
                    uint64_t ns)
{
    learn(&device->lease->rung_times[device->kind][rung - RUNG_FIRST].give_us, ns);
    learn(&core->rung_times[device->kind][rung - RUNG_FIRST].give_us, ns);
    core_lease_touch(core, device->lease);
    core_stops_touch(core);
}

void core_rung_started(struct lease *lease)
{
    lease->restoring = true;
    lease->restored_before_ns = lease->account_ns[CORE_ACCOUNT_RESTORE];
}

/* It gets on: what samples called restoring in this run is what starting again takes. */
void core_rung_restored(struct core *core, struct lease *lease)
{
    uint64_t restored_ns =
        core_sum_clip(lease->account_ns[CORE_ACCOUNT_RESTORE] - lease->restored_before_ns);
    if (lease->restoring && restored_ns > 0 && lease->held > 0) {
        core_rung_gave(core, lease->first, core_rung_for_all(lease), restored_ns / lease->held);
    }
    lease->restoring = false;
}

uint64_t core_device_arrival_ns(const struct core *core, const struct device *device)
{
    const struct lease *lease = device->lease;
    uint64_t at_ns = core->now_ns;
    if (device->hold == CORE_HOLD_KILLING) {
        at_ns = device->deadline_ns;
    } else if (device->hold == CORE_HOLD_REVOKING || device->hold == CORE_HOLD_SUSPENDING) {
        at_ns = core_add_u64(device->revoked_ns,
                             core_rung_take_ns(core, lease, device->rung, device->kind));
    } else if (device->hold == CORE_HOLD_RESUMING) { /* on its way to let go */
        enum core_rung rung = core_rung_for_all(lease);
        at_ns = core_add_u64(device->revoked_ns,
                             core_rung_give_ns(core, lease, device->rung, device->kind));
        at_ns = core_add_u64(at_ns, core_rung_take_ns(core, lease, rung, device->kind));
    }
    return at_ns > core->now_ns ? at_ns : core->now_ns;
}

void core_rung_measured(struct core *core, struct lease *lease, const struct core_event *event)
{
    enum core_rung rung = event->rung_measured.rung;
    uint32_t kind = event->rung_measured.kind;
    if (rung < RUNG_FIRST || rung >= CORE_RUNG_COUNT || kind >= CORE_KINDS_MAX) {
        return;
    }
    struct rung_time *time = &lease->rung_times[kind][rung - RUNG_FIRST];
    if (event->rung_measured.take_ns != 0) {
        time->take_us = micro(event->rung_measured.take_ns);
    }
    if (event->rung_measured.give_ns != 0) {
        time->give_us = micro(event->rung_measured.give_ns);
    }
    core_lease_touch(core, lease);
    core_stops_touch(core);
}
