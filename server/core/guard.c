/* guard.c: what a lease was promised against being revoked for others: not at all (a reservation),
 * not below its floor without full notice, not before its minimum run time, not too often. */
#include <stdlib.h>

#include "server/core/state.h"

static int moments_init(struct moments *moments, uint32_t capacity)
{
    moments->capacity = capacity;
    moments->times_ns = capacity > 0 ? calloc(capacity, sizeof *moments->times_ns) : NULL;
    return capacity == 0 || moments->times_ns != NULL ? 0 : -1;
}

/* The ring is as long as the bound: it is reached while the oldest is younger than an hour. */
static bool moments_are_used_up(const struct core *core, const struct moments *moments)
{
    return moments->capacity > 0 && moments->count == moments->capacity &&
           core->now_ns - moments->times_ns[moments->next] < HOUR_NS;
}

/* Devices taken at the same time are one move. */
static void moments_add(const struct core *core, struct moments *moments)
{
    uint32_t capacity = moments->capacity;
    if (capacity == 0 ||
        (moments->count > 0 &&
         moments->times_ns[(moments->next + capacity - 1) % capacity] == core->now_ns)) {
        return;
    }
    moments->times_ns[moments->next] = core->now_ns;
    moments->next = (moments->next + 1) % capacity;
    moments->count += moments->count < capacity;
}

int core_guard_init(struct lease *lease)
{
    bool failed = moments_init(&lease->revoke_times, lease->spec.revokes_per_hour) < 0 ||
                  moments_init(&lease->stop_times, lease->spec.stops_per_hour) < 0;
    return failed ? -1 : 0;
}

void core_guard_fini(struct lease *lease)
{
    free(lease->revoke_times.times_ns);
    free(lease->stop_times.times_ns);
}

enum core_reason core_guard(const struct core *core, const struct lease *lease, uint32_t devices,
                            enum core_rung rung, bool danger)
{
    uint32_t left = lease->held > devices ? lease->held - devices : 0;
    const struct moments *moments =
        core_rung_stops(rung) ? &lease->stop_times : &lease->revoke_times;
    if (!lease->spec.preemptible) {
        return CORE_REASON_RESERVED;
    }
    if (left < lease->spec.floor && rung != CORE_RUNG_NOTICE) {
        return CORE_REASON_FLOOR;
    }
    if (!danger && core->now_ns - lease->started_ns < lease->spec.run_min_ns) {
        return CORE_REASON_RUN_TIME;
    }
    return moments_are_used_up(core, moments) ? CORE_REASON_REVOKES_BOUND : CORE_REASON_NONE;
}

uint32_t core_guard_stops(const struct core *core, const struct lease *lease)
{
    const struct moments *moments = &lease->stop_times;
    uint32_t low = 0, high = moments->count; /* how many of the newest are of the last hour */
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        uint32_t slot = (moments->next + moments->capacity - middle) % moments->capacity;
        if (core->now_ns - moments->times_ns[slot] < HOUR_NS) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

static uint64_t moments_due_ns(const struct core *core, const struct moments *moments)
{
    return moments_are_used_up(core, moments) ? moments->times_ns[moments->next] + HOUR_NS
                                              : NEVER_NS;
}

uint64_t core_guard_due_ns(const struct core *core, const struct lease *lease)
{
    uint64_t run_ns = core_add_u64(lease->started_ns, lease->spec.run_min_ns);
    uint64_t due_ns = run_ns > core->now_ns ? run_ns : NEVER_NS;
    uint64_t revoke_ns = moments_due_ns(core, &lease->revoke_times);
    uint64_t stop_ns = moments_due_ns(core, &lease->stop_times);
    due_ns = revoke_ns < due_ns ? revoke_ns : due_ns;
    return stop_ns < due_ns ? stop_ns : due_ns;
}

void core_guard_count(struct core *core, struct lease *lease, enum core_rung rung)
{
    core_outlook_revoked(core);
    moments_add(core, core_rung_stops(rung) ? &lease->stop_times : &lease->revoke_times);
}
