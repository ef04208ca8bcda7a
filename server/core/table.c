/* table.c: the tables, sorted by id. Pointers in them stay valid until the object goes. */
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

void core_device_insert(struct core *core, struct device *device)
{
    size_t index;
    assert(core->device_count < core->device_capacity);
    TABLE_FIND(core->devices, core->device_count, id, device->id, index);
    table_insert((void **)core->devices, &core->device_count, index, device);
}

void core_device_erase(struct core *core, struct device *device)
{
    size_t index;
    TABLE_FIND(core->devices, core->device_count, id, device->id, index);
    table_erase((void **)core->devices, &core->device_count, index);
}

static uint32_t slot_unused(const struct core *core)
{
    for (uint32_t slot = 0;; slot++) {
        bool used = false;
        for (size_t i = 0; i < core->endpoint_count && !used; i++) {
            used = core->endpoints[i]->slot == slot;
        }
        if (!used) {
            return slot;
        }
    }
}

/* Room for one more endpoint's instances on every device. */
static int slots_reserve(struct core *core, uint32_t count)
{
    if (count <= core->slot_capacity) {
        return 0;
    }
    uint32_t wanted = core->slot_capacity * 2;
    for (size_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        struct instance *grown = realloc(device->instances, wanted * sizeof *grown);
        if (grown == NULL) {
            return -1; /* those already grown are merely larger than they must be */
        }
        memset(&grown[core->slot_capacity], 0, core->slot_capacity * sizeof *grown);
        device->instances = grown;
    }
    core->slot_capacity = wanted;
    return 0;
}

int core_endpoint_insert(struct core *core, struct endpoint *endpoint)
{
    size_t capacity = core->endpoint_capacity, index;
    if (core_table_reserve((void ***)&core->ranked, &capacity, core->endpoint_count + 1) < 0 ||
        core_table_reserve((void ***)&core->endpoints, &core->endpoint_capacity,
                           core->endpoint_count + 1) < 0) {
        return -1;
    }
    endpoint->slot = slot_unused(core);
    if (slots_reserve(core, endpoint->slot + 1) < 0) {
        return -1;
    }
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
    for (size_t i = 0; i < core->device_count; i++) {
        memset(&core->devices[i]->instances[endpoint->slot], 0, sizeof(struct instance));
    }
    core_totals_forget_endpoint(core, endpoint);
    core_endpoint_rank(core);
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

void core_endpoint_rank(struct core *core)
{
    for (size_t i = 0; i < core->endpoint_count; i++) {
        core->ranked[i] = core->endpoints[i];
    }
    if (core->endpoint_count > 1) {
        qsort(core->ranked, core->endpoint_count, sizeof *core->ranked, endpoint_compare);
    }
}

int core_lease_insert(struct core *core, struct lease *lease)
{
    size_t capacity = core->lease_capacity, index;
    if (core_table_reserve((void ***)&core->queue, &capacity, core->lease_count + 1) < 0 ||
        core_table_reserve((void ***)&core->leases, &core->lease_capacity, core->lease_count + 1) <
            0) {
        return -1;
    }
    TABLE_FIND(core->leases, core->lease_count, spec.lease, lease->spec.lease, index);
    table_insert((void **)core->leases, &core->lease_count, index, lease);
    return 0;
}

void core_lease_erase(struct core *core, struct lease *lease)
{
    size_t index;
    TABLE_FIND(core->leases, core->lease_count, spec.lease, lease->spec.lease, index);
    table_erase((void **)core->leases, &core->lease_count, index);
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
    size_t index;
    if (core_table_reserve((void ***)&core->teams, &core->team_capacity, core->team_count + 1) <
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
