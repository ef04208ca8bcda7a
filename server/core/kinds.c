/* kinds.c: how fast each kind of device is at each kind of work. What was measured of the very
 * lease goes before its class of work, and that before nothing known.
 *
 * Which work should have which kind is a question of comparison: a kind that is fast at everything
 * is no better for one job than for another. So the speed of a job on a kind is set against what
 * that kind does on average; then memory-heavy work goes where memory is, and compute-heavy work
 * where compute is, whoever is the faster in absolute terms. */
#include "server/core/state.h"

#define SPEED_MAX 1000000 /* a thousand times the reference */

static bool spec_is_valid(const struct core_kind_spec *spec)
{
    bool valid = spec->kind < CORE_KINDS_MAX && spec->bandwidth_bytes_s <= UINT64_MAX / 1000;
    for (int work = 0; work < CORE_WORK_COUNT; work++) {
        valid = valid && spec->speed_permille[work] <= SPEED_MAX;
    }
    return valid;
}

/* Of memory-bound work, from the bandwidth alone: against the first kind that tells its own. */
static uint64_t bandwidth_permille(const struct core *core, uint32_t kind)
{
    uint64_t reference = 0, own = core->kinds[kind].bandwidth_bytes_s;
    for (uint32_t i = 0; i < CORE_KINDS_MAX && reference == 0; i++) {
        reference = core->kinds[i].bandwidth_bytes_s;
    }
    return own != 0 ? core_scale_u64(own, 1000, reference) : 0;
}

static uint64_t class_permille(const struct core *core, enum core_work work, uint32_t kind)
{
    uint64_t speed = core->kinds[kind].speed_permille[work];
    if (speed == 0 && work == CORE_WORK_MEMORY) {
        speed = bandwidth_permille(core, kind);
    }
    return speed != 0 ? speed : 1000;
}

static uint64_t average_permille(const struct core *core, uint32_t kind)
{
    return (class_permille(core, CORE_WORK_COMPUTE, kind) +
            class_permille(core, CORE_WORK_MEMORY, kind)) /
           2;
}

static uint64_t work_permille(const struct core *core, enum core_work work, uint32_t kind)
{
    bool known = work != CORE_WORK_ANY || core->kinds[kind].speed_permille[work] != 0;
    return known ? class_permille(core, work, kind) : average_permille(core, kind);
}

/* In the lease's own unit; a kind without a measurement is reckoned from one that has it. */
static uint64_t lease_permille(const struct core *core, const struct lease *lease, uint32_t kind)
{
    uint64_t of_class = work_permille(core, lease->spec.work, kind);
    if (lease->speed_permille[kind] != 0) {
        return lease->speed_permille[kind];
    }
    for (uint32_t known = 0; known < CORE_KINDS_MAX; known++) {
        if (lease->speed_permille[known] != 0) {
            return core_scale_u64(lease->speed_permille[known], of_class,
                                  work_permille(core, lease->spec.work, known));
        }
    }
    return of_class;
}

/* How much rather the lease should have a device of one kind than of another: 1000 is the kind of
 * the pool that suits it best. */
void core_lease_compare_kinds(const struct core *core, struct lease *lease)
{
    uint64_t advantage[CORE_KINDS_MAX], best = 1;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        bool there = core->matching[kind] > 0 && ((lease->spec.kinds_mask >> kind) & 1);
        advantage[kind] = core_scale_u64(lease_permille(core, lease, kind), 1000000,
                                         average_permille(core, kind));
        best = there && advantage[kind] > best ? advantage[kind] : best;
    }
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        uint64_t affinity = core_scale_u64(advantage[kind], 1000, best);
        lease->affinity[kind] = affinity < 1000 ? (uint32_t)affinity : 1000;
    }
}

void core_kinds_compare(struct core *core)
{
    for (size_t i = 0; i < core->lease_count; i++) {
        core_lease_compare_kinds(core, core->leases[i]);
    }
}

static void lease_measured(struct core *core, const struct core_event *event)
{
    struct lease *lease = core_lease_get(core, event->lease_speed.lease);
    if (lease != NULL && event->lease_speed.kind < CORE_KINDS_MAX &&
        event->lease_speed.speed_permille <= SPEED_MAX) {
        lease->speed_permille[event->lease_speed.kind] = event->lease_speed.speed_permille;
        core_lease_compare_kinds(core, lease);
        core_lease_touch(core, lease);
    }
}

void core_kinds_event(struct core *core, const struct core_event *event)
{
    if (event->kind == CORE_EVENT_LEASE_SPEED) {
        lease_measured(core, event);
    } else if (spec_is_valid(&event->kind_measured)) {
        core->kinds[event->kind_measured.kind] = event->kind_measured;
        core_kinds_compare(core);
        core_touch_all(core);
    } else {
        core_emit_reject(core, 0, 0, 0, CORE_REASON_INVALID);
    }
}
