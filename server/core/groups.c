/* groups.c: devices that are close to each other: of one machine, or on the same fast links. Each
 * group counts those of its devices that could be had, so that a place for a gang is found among
 * the groups without a look at the devices. */
#include <stdlib.h>

#include "server/core/state.h"

/* Each kind of group is a table of its own and has its own fields in the device. */
static struct groups *groups_of(struct core *core, int level)
{
    return level == NODES ? &core->nodes : &core->links;
}

static struct group *group_make(struct groups *groups, uint64_t id)
{
    struct group *group = calloc(1, sizeof *group);
    if (group == NULL) {
        return NULL;
    }
    group->id = id;
    if (core_group_insert(groups, group) < 0) {
        free(group);
        return NULL;
    }
    return group;
}

static void group_drop_if_empty(struct groups *groups, struct group *group)
{
    if (group != NULL && group->devices == 0) {
        core_group_erase(groups, group);
        free(group);
    }
}

static int group_join(struct core *core, struct device *device, int level, uint64_t id)
{
    struct groups *groups = groups_of(core, level);
    struct group *group = id != 0 ? core_group_get(groups, id) : NULL;
    if (group == NULL && id != 0) {
        group = group_make(groups, id);
        if (group == NULL) {
            return -1;
        }
    }
    device->group[level] = group;
    if (group != NULL) {
        device->group_next[level] = group->first;
        if (group->first != NULL) {
            group->first->group_before[level] = device;
        }
        group->first = device;
        group->devices++;
    }
    return 0;
}

static void group_leave(struct core *core, struct device *device, int level)
{
    struct group *group = device->group[level];
    if (group == NULL) {
        return;
    }
    struct device *next = device->group_next[level], *before = device->group_before[level];
    *(before != NULL ? &before->group_next[level] : &group->first) = next;
    if (next != NULL) {
        next->group_before[level] = before;
    }
    group->devices--;
    group_drop_if_empty(groups_of(core, level), group);
    device->group[level] = NULL;
}

int core_groups_join(struct core *core, struct device *device)
{
    if (group_join(core, device, NODES, device->node) < 0) {
        return -1;
    }
    if (group_join(core, device, LINKS, device->link) < 0) {
        group_leave(core, device, NODES);
        return -1;
    }
    return 0;
}

void core_groups_leave(struct core *core, struct device *device)
{
    core_groups_count(core, device, 0);
    group_leave(core, device, NODES);
    group_leave(core, device, LINKS);
}

/* `free` is how freely the device can be had: so many of the FREE_ counts have it. */
void core_groups_count(struct core *core, struct device *device, uint32_t free)
{
    while (device->free != free) {
        bool more = device->free < free;
        uint32_t count = more ? device->free : device->free - 1;
        uint32_t step = more ? 1 : UINT32_MAX;
        core->free[count][device->kind] += step;
        for (int level = 0; level < GROUP_LEVELS; level++) {
            if (device->group[level] != NULL) {
                device->group[level]->free[count][device->kind] += step;
            }
        }
        device->free += step;
    }
}

static uint32_t free_in(const struct group *group, uint32_t count, uint32_t kinds_mask)
{
    uint32_t found = 0;
    for (uint32_t kind = 0; kinds_mask >> kind != 0; kind++) {
        found += (kinds_mask >> kind) & 1 ? group->free[count][kind] : 0;
    }
    return found;
}

/* The smallest that has so many, and of those the fullest: large holes stay for large gangs. */
static bool fits_better(const struct group *group, uint32_t found, const struct group *best,
                        uint32_t best_found)
{
    return best == NULL || group->devices < best->devices ||
           (group->devices == best->devices && found < best_found);
}

struct group *core_group_find(struct core *core, uint32_t count, uint32_t kinds_mask,
                              uint32_t devices)
{
    struct group *best = NULL;
    uint32_t best_found = 0;
    for (int level = 0; level < GROUP_LEVELS; level++) {
        const struct groups *groups = groups_of(core, level);
        for (size_t i = 0; i < groups->count; i++) {
            struct group *group = groups->table[i];
            uint32_t found =
                group->devices >= devices && !group->tried ? free_in(group, count, kinds_mask) : 0;
            if (found >= devices && fits_better(group, found, best, best_found)) {
                best = group;
                best_found = found;
            }
        }
    }
    return best;
}

void core_groups_forget_tried(struct core *core)
{
    for (int level = 0; level < GROUP_LEVELS && core->groups_tried; level++) {
        struct groups *groups = groups_of(core, level);
        for (size_t i = 0; i < groups->count; i++) {
            groups->table[i]->tried = false;
        }
    }
    core->groups_tried = false;
}
