/* supply.c: what a waiting lease could have that was not there at the last plan of the queue, so
 * that only those are looked at again whom it may help. More than there really is may be said, less
 * must not.
 * What was said is remembered as it was when the plan began: what changes in its course, after some
 * leases had their turn, is said at the next one. */
#include <string.h>

#include "server/core/state.h"

/* What makes a held device of more use. */
enum { WAY_COMES = 1, WAY_SINGLE = 2, WAY_MOVABLE = 4, WAY_CALM = 8, WAY_CLEAR = 16 };

/* What time alone changes about that is news then. */
static struct device_offer device_offer(const struct device *device)
{
    if (!device->counted_coming) {
        return (struct device_offer){0};
    }
    return (struct device_offer){
        .ways = WAY_COMES | (device->counted_takeable ? WAY_SINGLE : 0) |
                (device->counted_movable ? WAY_MOVABLE : 0) |
                (device->hot_since_ns == NEVER_NS ? WAY_CALM : 0) |
                (device->counted_clear ? WAY_CLEAR : 0),
        .bytes = device->instances_bytes,
    };
}

/* Who may take from whom follows from more than the device: then it is always said anew. */
static bool is_better(const struct core *core, const struct device_offer *now,
                      const struct device_offer *told)
{
    return now->ways != 0 &&
           ((now->ways & ~told->ways) != 0 || now->bytes < told->bytes || core_fair_matters(core));
}

/* So many devices may be taken for a waiting lease, all of them at once. */
static uint32_t whole_of(const struct core *core, const struct lease *lease)
{
    bool may =
        lease->state == CORE_LEASE_RUNNING && lease->held > 0 && lease->leaving == 0 &&
        lease->coming == lease->held &&
        core_guard(core, lease, lease->held, core_rung_for_all(lease), false) == CORE_REASON_NONE;
    return may ? lease->held : 0;
}

/* The same beyond its minimum, one by one. */
static uint32_t single_of(const struct core *core, const struct lease *lease)
{
    bool may = lease->surplus > 0 &&
               core_guard(core, lease, 1, core_rung_for_one(lease), false) == CORE_REASON_NONE;
    return may ? lease->surplus : 0;
}

static uint32_t more_of(const struct core *core, uint32_t now, uint32_t told)
{
    return core_fair_matters(core) ? now : now > told ? now - told : 0;
}

static void supply_add(struct supply supply[CORE_KINDS_MAX], uint32_t kinds_mask, uint32_t devices,
                       uint32_t whole, uint64_t memory_bytes)
{
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX && devices + whole > 0; kind++) {
        if ((kinds_mask >> kind) & 1) {
            supply[kind].devices += devices;
            supply[kind].whole += whole;
            supply[kind].memory_bytes =
                memory_bytes > supply[kind].memory_bytes ? memory_bytes : supply[kind].memory_bytes;
        }
    }
}

/* Idle ones in any case; held ones that are of more use than was told. */
static void devices_add(struct core *core, struct supply supply[CORE_KINDS_MAX], bool begins)
{
    SET_EACH (&core->device_sets[NEWS], slot) {
        struct device *device = core->device_slots[slot];
        struct device_offer offer = device_offer(device);
        bool idle = core_set_has(&core->device_sets[DEVICES_IDLE + device->kind], slot);
        bool single = (offer.ways & WAY_SINGLE) != 0 && is_better(core, &offer, &device->offered);
        supply_add(supply, 1u << device->kind, idle || single, 0, device->memory_bytes);
        if (offer.ways != 0) {
            core_set_put(&core->lease_sets[LEASES_ASKED], device->lease->slot, true);
        }
        device->offering = begins ? offer : device->offering;
    }
}

static void endpoints_add(const struct core *core, struct supply supply[CORE_KINDS_MAX])
{
    SET_EACH (&core->endpoint_sets[NEWS], slot) {
        const struct endpoint *endpoint = core->endpoint_slots[slot];
        uint32_t more =
            endpoint->excess > endpoint->excess_seen ? endpoint->excess - endpoint->excess_seen : 0;
        supply_add(supply, endpoint->spec.kinds_mask, more, 0, UINT64_MAX);
    }
}

/* Those with news, and the holders of such devices. Which of them would have to go as a whole
 * follows from all of them together, so each is said every time. */
static void leases_add(struct core *core, struct supply supply[CORE_KINDS_MAX], bool begins)
{
    SET_EACH (&core->lease_sets[LEASES_ASKED], slot) {
        struct lease *lease = core->lease_slots[slot];
        uint32_t single = single_of(core, lease), whole = whole_of(core, lease);
        supply_add(supply, lease->spec.kinds_mask, more_of(core, single, lease->offered), whole,
                   UINT64_MAX);
        lease->offering = begins ? single : lease->offering;
    }
}

void core_supply_begin(struct core *core, struct supply supply[CORE_KINDS_MAX])
{
    memset(supply, 0, CORE_KINDS_MAX * sizeof *supply);
    core_set_copy(&core->lease_sets[LEASES_ASKED], &core->lease_sets[NEWS]);
    devices_add(core, supply, true);
    endpoints_add(core, supply);
    leases_add(core, supply, true);
}

void core_supply_again(struct core *core, struct supply supply[CORE_KINDS_MAX])
{
    memset(supply, 0, CORE_KINDS_MAX * sizeof *supply);
    core_set_join(&core->lease_sets[LEASES_ASKED], &core->lease_sets[NEWS]);
    devices_add(core, supply, false);
    endpoints_add(core, supply);
    leases_add(core, supply, false);
}

/* Of an endpoint only what it has more of than at this plan is news to the next one. */
void core_supply_end(struct core *core)
{
    SET_EACH (&core->endpoint_sets[NEWS], slot) {
        core->endpoint_slots[slot]->excess_seen = core->endpoint_slots[slot]->excess;
    }
    SET_EACH (&core->device_sets[NEWS], slot) {
        core->device_slots[slot]->offered = core->device_slots[slot]->offering;
    }
    SET_EACH (&core->lease_sets[LEASES_ASKED], slot) {
        core->lease_slots[slot]->offered = core->lease_slots[slot]->offering;
    }
}

bool core_supply_is_empty(const struct supply supply[CORE_KINDS_MAX])
{
    bool empty = true;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX && empty; kind++) {
        empty = supply[kind].devices == 0 && supply[kind].whole == 0;
    }
    return empty;
}

/* One that lacked more than that cannot have its minimum now either. */
bool core_supply_reaches(const struct core *core, struct lease *lease,
                         const struct supply supply[CORE_KINDS_MAX])
{
    uint32_t devices = 0;
    bool evicts = core_evict_most(core, lease) > 0;
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        bool asked = (lease->spec.kinds_mask >> kind) & 1;
        bool large = lease->spec.memory_bytes <= supply[kind].memory_bytes;
        devices += asked && large ? supply[kind].devices + (evicts ? supply[kind].whole : 0) : 0;
    }
    bool may = devices > 0 && devices >= lease->lacks;
    lease->lacks -= may ? 0 : devices;
    return may;
}
