/* table.c: the tables, sorted by id, and the slots: numbers of objects that stay the same while the
 * object is there. Pointers stay valid until the object goes. */
#include <stdlib.h>
#include <string.h>

#include "server/core/state.h"

/* Every object begins with what find needs, at different offsets: hence a macro of one search. */
#define TABLE_FIND(table, count, id_of, wanted, ret_index)                                         \
    do {                                                                                           \
        size_t low = 0, high = (count);                                                            \
        while (low < high) {                                                                       \
            size_t middle = low + (high - low) / 2;                                                \
            if ((table)[middle]->id_of < (wanted)) {                                               \
                low = middle + 1;                                                                  \
            } else {                                                                               \
                high = middle;                                                                     \
            }                                                                                      \
        }                                                                                          \
        (ret_index) = low;                                                                         \
    } while (0)

static void table_insert(void **table, size_t *count, size_t index, void *object)
{
    memmove(&table[index + 1], &table[index], (*count - index) * sizeof *table);
    table[index] = object;
    (*count)++;
}

static void table_erase(void **table, size_t *count, size_t index)
{
    (*count)--;
    memmove(&table[index], &table[index + 1], (*count - index) * sizeof *table);
}

int core_table_reserve(void ***table, size_t *capacity, size_t count)
{
    if (count <= *capacity) {
        return 0;
    }
    size_t wanted = *capacity < 8 ? 8 : *capacity * 2;
    void **grown = realloc(*table, wanted * sizeof *grown);
    if (grown == NULL) {
        return -1;
    }
    *table = grown;
    *capacity = wanted;
    return 0;
}

struct device *core_device_get(const struct core *core, uint64_t id)
{
    size_t index;
    TABLE_FIND(core->devices, core->device_count, id, id, index);
    bool found = index < core->device_count && core->devices[index]->id == id;
    return found ? core->devices[index] : NULL;
}

struct endpoint *core_endpoint_get(const struct core *core, uint64_t id)
{
    size_t index;
    TABLE_FIND(core->endpoints, core->endpoint_count, spec.endpoint, id, index);
    bool found = index < core->endpoint_count && core->endpoints[index]->spec.endpoint == id;
    return found ? core->endpoints[index] : NULL;
}

struct lease *core_lease_get(const struct core *core, uint64_t id)
{
    size_t index;
    TABLE_FIND(core->leases, core->lease_count, spec.lease, id, index);
    bool found = index < core->lease_count && core->leases[index]->spec.lease == id;
    return found ? core->leases[index] : NULL;
}

/* A table from slots to objects, as long as the sets of those slots. */
static int slots_grow(void ***slots, struct set *sets, size_t set_count, uint32_t wanted)
{
    void **grown = realloc(*slots, wanted * sizeof *grown);
    if (grown == NULL) {
        return -1;
    }
    *slots = grown;
    for (size_t i = 0; i < set_count; i++) {
        if (core_set_reserve(&sets[i], wanted) < 0) {
            return -1; /* what is already grown is merely larger than it must be */
        }
    }
    return 0;
}

/* Slots in use, and of them the lowest free one; room for twice as many when they run out. */
static uint32_t slots_wanted(const struct set *there)
{
    uint32_t capacity = there->word_count * 64;
    return core_set_unused(there) < capacity ? capacity : capacity == 0 ? 64 : capacity * 2;
}

static int device_slots_reserve(struct core *core)
{
    uint32_t wanted = slots_wanted(&core->device_sets[DEVICES_THERE]);
    if (wanted == core->device_sets[DEVICES_THERE].word_count * 64) {
        return 0;
    }
    for (size_t i = 0; i < core->endpoint_count; i++) {
        if (core_set_reserve(&core->endpoints[i]->hosts, wanted) < 0) {
            return -1;
        }
    }
    struct candidate *candidates = realloc(core->candidates, wanted * sizeof *candidates);
    if (candidates == NULL) {
        return -1;
    }
    core->candidates = candidates;
    return slots_grow((void ***)&core->device_slots, core->device_sets, DEVICE_SETS, wanted);
}

int core_device_insert(struct core *core, struct device *device)
{
    size_t index;
    if (core_table_reserve((void ***)&core->devices, &core->device_capacity,
                           core->device_count + 1) < 0 ||
        device_slots_reserve(core) < 0 || core_timers_reserve(core) < 0 ||
        core_groups_join(core, device) < 0) {
        return -1;
    }
    device->slot = core_set_unused(&core->device_sets[DEVICES_THERE]);
    device->timer = (struct timer){.at_ns = NEVER_NS, .of = TIMER_DEVICE, .slot = device->slot};
    core_set_put(&core->device_sets[DEVICES_THERE], device->slot, true);
    core->device_slots[device->slot] = device;
    core->matching[device->kind]++;
    if (core->matching[device->kind] == 1) {
        core_kinds_compare(core);
    }
    TABLE_FIND(core->devices, core->device_count, id, device->id, index);
    table_insert((void **)core->devices, &core->device_count, index, device);
    return 0;
}

static void slot_leave(struct set *sets, size_t count, uint32_t slot)
{
    for (size_t i = 0; i < count; i++) {
        core_set_put(&sets[i], slot, false);
    }
}

void core_device_erase(struct core *core, struct device *device)
{
    size_t index;
    TABLE_FIND(core->devices, core->device_count, id, device->id, index);
    table_erase((void **)core->devices, &core->device_count, index);
    core_timer_set(core, &device->timer, NEVER_NS);
    core_groups_leave(core, device);
    slot_leave(core->device_sets, DEVICE_SETS, device->slot);
    for (size_t i = 0; i < core->endpoint_count; i++) {
        core_set_put(&core->endpoints[i]->hosts, device->slot, false);
    }
    core->device_slots[device->slot] = NULL;
    core->matching[device->kind]--;
    if (core->matching[device->kind] == 0) {
        core_kinds_compare(core);
    }
    core->usable[device->kind] -= device->counted_usable;
    core->usable_news = core->usable_news || device->counted_usable;
    core->takeable[device->kind] -= device->counted_takeable;
}

static uint32_t slot_unused(const struct core *core)
{
    uint32_t slot = 0;
    while (slot < core->slot_capacity && core->endpoint_slots[slot] != NULL) {
        slot++;
    }
    return slot;
}

static int instances_grow(const struct core *core, struct device *device, uint32_t wanted)
{
    struct instance *grown = realloc(device->instances, wanted * sizeof *grown);
    if (grown == NULL) {
        return -1;
    }
    memset(&grown[core->slot_capacity], 0, (wanted - core->slot_capacity) * sizeof *grown);
    device->instances = grown;
    return core_set_reserve(&device->live, wanted);
}

/* Room for one more endpoint's instances on every device. */
static int endpoint_slots_reserve(struct core *core, uint32_t slot)
{
    uint32_t wanted = core->slot_capacity == 0 ? 4 : core->slot_capacity * 2;
    if (slot < core->slot_capacity) {
        return 0;
    }
    for (size_t i = 0; i < core->device_count; i++) {
        if (instances_grow(core, core->devices[i], wanted) < 0) {
            return -1; /* those already grown are merely larger than they must be */
        }
    }
    if (slots_grow((void ***)&core->endpoint_slots, core->endpoint_sets, MARKS, wanted) < 0) {
        return -1;
    }
    memset(&core->endpoint_slots[core->slot_capacity], 0,
           (wanted - core->slot_capacity) * sizeof *core->endpoint_slots);
    core->slot_capacity = wanted;
    return 0;
}

int core_endpoint_insert(struct core *core, struct endpoint *endpoint)
{
    size_t capacity = core->endpoint_capacity, index;
    uint32_t device_slots = core->device_sets[DEVICES_THERE].word_count * 64;
    if (core_table_reserve((void ***)&core->ranked, &capacity, core->endpoint_count + 1) < 0 ||
        core_table_reserve((void ***)&core->endpoints, &core->endpoint_capacity,
                           core->endpoint_count + 1) < 0 ||
        core_set_reserve(&endpoint->hosts, device_slots) < 0 || core_timers_reserve(core) < 0) {
        return -1;
    }
    endpoint->slot = slot_unused(core);
    if (endpoint_slots_reserve(core, endpoint->slot) < 0) {
        return -1;
    }
    endpoint->timer =
        (struct timer){.at_ns = NEVER_NS, .of = TIMER_ENDPOINT, .slot = endpoint->slot};
    core->endpoint_slots[endpoint->slot] = endpoint;
    TABLE_FIND(core->endpoints, core->endpoint_count, spec.endpoint, endpoint->spec.endpoint,
               index);
    table_insert((void **)core->endpoints, &core->endpoint_count, index, endpoint);
    core_endpoint_rank(core);
    return 0;
}

void core_endpoint_erase(struct core *core, struct endpoint *endpoint)
{
    size_t index;
    TABLE_FIND(core->endpoints, core->endpoint_count, spec.endpoint, endpoint->spec.endpoint,
               index);
    table_erase((void **)core->endpoints, &core->endpoint_count, index);
    SET_EACH (&endpoint->hosts, slot) {
        core_instance_forget(core->device_slots[slot], endpoint);
    }
    core_totals_forget_endpoint(core, endpoint);
    core_timer_set(core, &endpoint->timer, NEVER_NS);
    slot_leave(core->endpoint_sets, MARKS, endpoint->slot);
    core->endpoint_slots[endpoint->slot] = NULL;
    core->demand_milli -= endpoint->counted_milli;
    core_endpoint_rank(core);
}

void core_endpoint_destroy(struct endpoint *endpoint)
{
    if (endpoint != NULL) {
        core_set_fini(&endpoint->hosts);
        free(endpoint);
    }
}

static int endpoint_compare(const void *a, const void *b)
{
    const struct endpoint *left = *(struct endpoint *const *)a;
    const struct endpoint *right = *(struct endpoint *const *)b;
    if (left->spec.priority != right->spec.priority) {
        return left->spec.priority > right->spec.priority ? -1 : 1;
    }
    return left->spec.endpoint < right->spec.endpoint ? -1 : 1;
}

static void smallest_follow(struct core *core)
{
    uint64_t smallest_bytes = UINT64_MAX;
    for (size_t i = 0; i < core->endpoint_count; i++) {
        uint64_t bytes = core->endpoints[i]->spec.memory_bytes;
        smallest_bytes = bytes < smallest_bytes ? bytes : smallest_bytes;
    }
    if (smallest_bytes != core->smallest_bytes) {
        core->smallest_bytes = smallest_bytes;
        core_touch_all(core); /* room is measured by it */
    }
}

/* Of what their specifications say together; after each change of one. */
void core_endpoint_rank(struct core *core)
{
    smallest_follow(core);
    for (size_t i = 0; i < core->endpoint_count; i++) {
        core->ranked[i] = core->endpoints[i];
    }
    if (core->endpoint_count > 1) {
        qsort(core->ranked, core->endpoint_count, sizeof *core->ranked, endpoint_compare);
    }
}

static int lease_slots_reserve(struct core *core)
{
    uint32_t wanted = slots_wanted(&core->lease_sets[LEASES_THERE]);
    return wanted == core->lease_sets[LEASES_THERE].word_count * 64
               ? 0
               : slots_grow((void ***)&core->lease_slots, core->lease_sets, LEASE_SETS, wanted);
}

int core_lease_insert(struct core *core, struct lease *lease)
{
    size_t index;
    if (core_table_reserve((void ***)&core->leases, &core->lease_capacity, core->lease_count + 1) <
            0 ||
        lease_slots_reserve(core) < 0 || core_timers_reserve(core) < 0) {
        return -1;
    }
    lease->slot = core_set_unused(&core->lease_sets[LEASES_THERE]);
    lease->timer = (struct timer){.at_ns = NEVER_NS, .of = TIMER_LEASE, .slot = lease->slot};
    core_set_put(&core->lease_sets[LEASES_THERE], lease->slot, true);
    core->lease_slots[lease->slot] = lease;
    TABLE_FIND(core->leases, core->lease_count, spec.lease, lease->spec.lease, index);
    table_insert((void **)core->leases, &core->lease_count, index, lease);
    return 0;
}

void core_lease_erase(struct core *core, struct lease *lease)
{
    size_t index;
    TABLE_FIND(core->leases, core->lease_count, spec.lease, lease->spec.lease, index);
    table_erase((void **)core->leases, &core->lease_count, index);
    core_timer_set(core, &lease->timer, NEVER_NS);
    slot_leave(core->lease_sets, LEASE_SETS, lease->slot);
    core->lease_slots[lease->slot] = NULL;
    core->lease_minimums -= lease->counted;
}

int core_tables_init(struct core *core)
{
    return endpoint_slots_reserve(core, 0);
}

void core_tables_destroy(struct core *core)
{
    for (size_t i = 0; i < core->device_count; i++) {
        core_groups_leave(core, core->devices[i]);
        core_device_destroy(core->devices[i]);
    }
    for (size_t i = 0; i < core->endpoint_count; i++) {
        core_endpoint_destroy(core->endpoints[i]);
    }
    for (size_t i = 0; i < core->lease_count; i++) {
        core_lease_destroy(core->leases[i]);
    }
    for (size_t i = 0; i < DEVICE_SETS; i++) {
        core_set_fini(&core->device_sets[i]);
    }
    for (size_t i = 0; i < MARKS; i++) {
        core_set_fini(&core->endpoint_sets[i]);
    }
    for (size_t i = 0; i < LEASE_SETS; i++) {
        core_set_fini(&core->lease_sets[i]);
    }
    free(core->nodes.table);
    free(core->links.table);
    free(core->candidates);
    free(core->devices);
    free(core->device_slots);
    free(core->endpoints);
    free(core->endpoint_slots);
    free(core->ranked);
    free(core->leases);
    free(core->lease_slots);
    free(core->timers);
}

struct group *core_group_get(const struct groups *groups, uint64_t id)
{
    size_t index;
    TABLE_FIND(groups->table, groups->count, id, id, index);
    bool found = index < groups->count && groups->table[index]->id == id;
    return found ? groups->table[index] : NULL;
}

int core_group_insert(struct groups *groups, struct group *group)
{
    size_t index;
    if (core_table_reserve((void ***)&groups->table, &groups->capacity, groups->count + 1) < 0) {
        return -1;
    }
    TABLE_FIND(groups->table, groups->count, id, group->id, index);
    table_insert((void **)groups->table, &groups->count, index, group);
    return 0;
}

void core_group_erase(struct groups *groups, struct group *group)
{
    size_t index;
    TABLE_FIND(groups->table, groups->count, id, group->id, index);
    table_erase((void **)groups->table, &groups->count, index);
}

struct team *core_team_get(const struct core *core, uint64_t id)
{
    size_t index;
    TABLE_FIND(core->teams, core->team_count, spec.team, id, index);
    bool found = index < core->team_count && core->teams[index]->spec.team == id;
    return found ? core->teams[index] : NULL;
}

int core_team_insert(struct core *core, struct team *team)
{
    size_t capacity = core->team_capacity, index;
    if (core_table_reserve((void ***)&core->turns, &capacity, core->team_count + 1) < 0 ||
        core_table_reserve((void ***)&core->teams, &core->team_capacity, core->team_count + 1) <
            0) {
        return -1;
    }
    TABLE_FIND(core->teams, core->team_count, spec.team, team->spec.team, index);
    table_insert((void **)core->teams, &core->team_count, index, team);
    return 0;
}

void core_team_erase(struct core *core, struct team *team)
{
    size_t index;
    TABLE_FIND(core->teams, core->team_count, spec.team, team->spec.team, index);
    table_erase((void **)core->teams, &core->team_count, index);
}
