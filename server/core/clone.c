/* clone.c: a second core in the same state. Objects keep their slots, so a pointer between two of
 * them is found again by slot, and one to a team or group by id. First everything is allocated,
 * which may fail; then pointers are set, which may not. */
#include <stdlib.h>
#include <string.h>

#include "server/core/state.h"

struct cloning {
    const struct core *from;
    struct core *to;
    bool failed; /* no memory */
};

/* ---- memory ---- */

/* Room for `capacity`, of which `count` are copied. NULL: nothing was there, or it failed. */
static void *array_copy(struct cloning *cloning, const void *from, size_t count, size_t capacity,
                        size_t size)
{
    void *copy = from != NULL && capacity > 0 ? calloc(capacity, size) : NULL;
    cloning->failed = cloning->failed || (copy == NULL && from != NULL && capacity > 0);
    if (copy != NULL && count > 0) {
        memcpy(copy, from, count * size);
    }
    return copy;
}

/* Room for as many; the pointers come later. */
static void *table_make(struct cloning *cloning, const void *from, size_t capacity)
{
    return array_copy(cloning, from, 0, capacity, sizeof(void *));
}

static struct set set_copy(struct cloning *cloning, const struct set *from)
{
    struct set copy = *from;
    copy.words =
        array_copy(cloning, from->words, from->word_count, from->word_count, sizeof *from->words);
    copy.filled = array_copy(cloning, from->filled, from->filled_count, from->filled_count,
                             sizeof *from->filled);
    return copy;
}

static void sets_copy(struct cloning *cloning, struct set *to, const struct set *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = set_copy(cloning, &from[i]);
    }
}

static void ring_copy(struct cloning *cloning, struct ring *to, const struct ring *from)
{
    to->slots =
        array_copy(cloning, from->slots, from->capacity, from->capacity, sizeof *from->slots);
}

static void moments_copy(struct cloning *cloning, struct moments *to, const struct moments *from)
{
    to->times_ns =
        array_copy(cloning, from->times_ns, from->capacity, from->capacity, sizeof *from->times_ns);
}

/* ---- objects: what they own ---- */

static struct device *device_copy(struct cloning *cloning, const struct device *from)
{
    uint32_t moves = core_moves_capacity(cloning->from);
    uint32_t endpoints = cloning->from->slot_capacity;
    struct device *device = array_copy(cloning, from, 1, 1, sizeof *from);
    if (device != NULL) {
        device->moves = array_copy(cloning, from->moves, moves, moves, sizeof *from->moves);
        device->instances =
            array_copy(cloning, from->instances, endpoints, endpoints, sizeof *from->instances);
        device->live = set_copy(cloning, &from->live);
        device->group[NODES] = device->group[LINKS] = NULL; /* in none yet */
    }
    return device;
}

static struct endpoint *endpoint_copy(struct cloning *cloning, const struct endpoint *from)
{
    struct endpoint *endpoint = array_copy(cloning, from, 1, 1, sizeof *from);
    if (endpoint != NULL) {
        endpoint->hosts = set_copy(cloning, &from->hosts);
    }
    return endpoint;
}

static struct lease *lease_copy(struct cloning *cloning, const struct lease *from)
{
    struct lease *lease = array_copy(cloning, from, 1, 1, sizeof *from);
    if (lease != NULL) {
        moments_copy(cloning, &lease->revoke_times, &from->revoke_times);
        moments_copy(cloning, &lease->stop_times, &from->stop_times);
    }
    return lease;
}

static struct team *team_copy(struct cloning *cloning, const struct team *from)
{
    struct team *team = array_copy(cloning, from, 1, 1, sizeof *from);
    if (team != NULL) {
        team->waiting = table_make(cloning, from->waiting, from->waiting_capacity);
        team->growing = table_make(cloning, from->growing, from->growing_capacity);
        team->grower = NULL;
    }
    return team;
}

/* ---- tables of them; a table counts only what is whole ---- */

static void devices_copy(struct cloning *cloning)
{
    const struct core *from = cloning->from;
    struct core *to = cloning->to;
    uint32_t slots = from->device_sets[DEVICES_THERE].word_count * 64;
    to->devices = table_make(cloning, from->devices, from->device_capacity);
    to->device_slots = table_make(cloning, from->device_slots, slots);
    to->candidates = array_copy(cloning, from->candidates, 0, slots, sizeof *from->candidates);
    sets_copy(cloning, to->device_sets, from->device_sets, DEVICE_SETS);
    for (size_t i = 0; i < from->device_count && !cloning->failed; i++) {
        struct device *device = device_copy(cloning, from->devices[i]);
        if (device != NULL) {
            to->devices[to->device_count++] = device;
            to->device_slots[device->slot] = device;
        }
    }
}

static void endpoints_copy(struct cloning *cloning)
{
    const struct core *from = cloning->from;
    struct core *to = cloning->to;
    to->endpoints = table_make(cloning, from->endpoints, from->endpoint_capacity);
    to->ranked = table_make(cloning, from->ranked, from->endpoint_capacity);
    to->endpoint_slots = table_make(cloning, from->endpoint_slots, from->slot_capacity);
    sets_copy(cloning, to->endpoint_sets, from->endpoint_sets, MARKS);
    for (size_t i = 0; i < from->endpoint_count && !cloning->failed; i++) {
        struct endpoint *endpoint = endpoint_copy(cloning, from->endpoints[i]);
        if (endpoint != NULL) {
            to->endpoints[to->endpoint_count++] = endpoint;
            to->endpoint_slots[endpoint->slot] = endpoint;
        }
    }
}

static void leases_copy(struct cloning *cloning)
{
    const struct core *from = cloning->from;
    struct core *to = cloning->to;
    uint32_t slots = from->lease_sets[LEASES_THERE].word_count * 64;
    to->leases = table_make(cloning, from->leases, from->lease_capacity);
    to->lease_slots = table_make(cloning, from->lease_slots, slots);
    sets_copy(cloning, to->lease_sets, from->lease_sets, LEASE_SETS);
    for (size_t i = 0; i < from->lease_count && !cloning->failed; i++) {
        struct lease *lease = lease_copy(cloning, from->leases[i]);
        if (lease != NULL) {
            to->leases[to->lease_count++] = lease;
            to->lease_slots[lease->slot] = lease;
        }
    }
}

static void teams_copy(struct cloning *cloning)
{
    const struct core *from = cloning->from;
    struct core *to = cloning->to;
    to->teams = table_make(cloning, from->teams, from->team_capacity);
    to->turns = table_make(cloning, from->turns, from->team_capacity);
    for (size_t i = 0; i < from->team_count && !cloning->failed; i++) {
        struct team *team = team_copy(cloning, from->teams[i]);
        if (team != NULL) {
            to->teams[to->team_count++] = team;
        }
    }
}

static void groups_copy(struct cloning *cloning, struct groups *to, const struct groups *from)
{
    to->capacity = from->capacity;
    to->table = table_make(cloning, from->table, from->capacity);
    for (size_t i = 0; i < from->count && !cloning->failed; i++) {
        struct group *group = array_copy(cloning, from->table[i], 1, 1, sizeof *group);
        if (group != NULL) {
            to->table[to->count++] = group;
        }
    }
}

/* ---- pointers between them ---- */

static struct device *device_in(const struct core *core, const struct device *device)
{
    return device != NULL ? core->device_slots[device->slot] : NULL;
}

static struct endpoint *endpoint_in(const struct core *core, const struct endpoint *endpoint)
{
    return endpoint != NULL ? core->endpoint_slots[endpoint->slot] : NULL;
}

static struct lease *lease_in(const struct core *core, const struct lease *lease)
{
    return lease != NULL ? core->lease_slots[lease->slot] : NULL;
}

static void device_link_groups(struct core *core, struct device *device, const struct device *from)
{
    const struct groups *groups[] = {[NODES] = &core->nodes, [LINKS] = &core->links};
    for (int level = 0; level < GROUP_LEVELS; level++) {
        const struct group *group = from->group[level];
        device->group[level] = group != NULL ? core_group_get(groups[level], group->id) : NULL;
        device->group_next[level] = device_in(core, from->group_next[level]);
        device->group_before[level] = device_in(core, from->group_before[level]);
    }
}

static void device_link(struct core *core, struct device *device, const struct device *from)
{
    device->lease = lease_in(core, from->lease);
    device->next = device_in(core, from->next);
    device->previous = device_in(core, from->previous);
    device->promised = lease_in(core, from->promised);
    device->promised_next = device_in(core, from->promised_next);
    device->promised_before = device_in(core, from->promised_before);
    device->trains_for = lease_in(core, from->trains_for);
    device->counted_for = lease_in(core, from->counted_for);
    device->account_for = endpoint_in(core, from->account_for);
    device_link_groups(core, device, from);
}

static void lease_link(struct core *core, struct lease *lease, const struct lease *from)
{
    lease->team = core_team_get(core, from->team->spec.team);
    lease->promises = device_in(core, from->promises);
    lease->first = device_in(core, from->first);
    lease->last = device_in(core, from->last);
    lease->stop_next = lease_in(core, from->stop_next);
    lease->stop_previous = lease_in(core, from->stop_previous);
    lease->ended_next = lease_in(core, from->ended_next);
    lease->evicted_next = NULL;
}

static void team_link(struct core *core, struct team *team, const struct team *from)
{
    for (size_t i = 0; i < from->waiting_count; i++) {
        team->waiting[i] = lease_in(core, from->waiting[i]);
    }
    for (size_t i = 0; i < from->growing_count; i++) {
        team->growing[i] = lease_in(core, from->growing[i]);
    }
}

static void groups_link(struct core *core, struct groups *to, const struct groups *from)
{
    for (size_t i = 0; i < from->count; i++) {
        to->table[i]->first = device_in(core, from->table[i]->first);
    }
}

static struct timer *timer_in(struct core *core, const struct timer *timer)
{
    switch (timer->of) {
    case TIMER_DEVICE:
        return &core->device_slots[timer->slot]->timer;
    case TIMER_ENDPOINT:
        return &core->endpoint_slots[timer->slot]->timer;
    case TIMER_LEASE:
        return &core->lease_slots[timer->slot]->timer;
    case TIMER_FAIR:
        break;
    }
    return &core->fair_timer;
}

static void objects_link(const struct core *from, struct core *to)
{
    for (size_t i = 0; i < from->device_count; i++) {
        device_link(to, to->devices[i], from->devices[i]);
    }
    for (size_t i = 0; i < from->lease_count; i++) {
        lease_link(to, to->leases[i], from->leases[i]);
    }
    for (size_t i = 0; i < from->team_count; i++) {
        team_link(to, to->teams[i], from->teams[i]);
    }
    for (size_t i = 0; i < from->endpoint_count; i++) {
        to->ranked[i] = endpoint_in(to, from->ranked[i]);
    }
    groups_link(to, &to->nodes, &from->nodes);
    groups_link(to, &to->links, &from->links);
}

static void lists_link(const struct core *from, struct core *to)
{
    to->ended_first = lease_in(to, from->ended_first);
    to->ended_last = lease_in(to, from->ended_last);
    to->stops_first = lease_in(to, from->stops_first);
    to->stops_last = lease_in(to, from->stops_last);
    to->timer_count = from->timer_count;
    for (size_t i = 0; i < from->timer_count; i++) {
        to->timers[i] = timer_in(to, from->timers[i]);
    }
}

/* ---- all of it ---- */

/* Nothing of the other's: what it owns comes one after the other. */
static void disown(struct core *core)
{
    core->devices = core->device_slots = NULL;
    core->endpoints = core->ranked = core->endpoint_slots = NULL;
    core->leases = core->lease_slots = NULL;
    core->teams = core->turns = NULL;
    core->device_count = core->endpoint_count = core->lease_count = core->team_count = 0;
    core->candidates = NULL;
    core->timers = NULL;
    core->timer_count = 0;
    core->nodes = core->links = (struct groups){0};
    core->ended_first = core->ended_last = core->stops_first = core->stops_last = NULL;
    core->evicted = NULL;
    core->actions = NULL;
    core->moves.slots = core->bursts.slots = NULL;
    memset(core->device_sets, 0, sizeof core->device_sets);
    memset(core->endpoint_sets, 0, sizeof core->endpoint_sets);
    memset(core->lease_sets, 0, sizeof core->lease_sets);
}

static void drop_groups(struct groups *groups)
{
    while (groups->count > 0) {
        free(groups->table[--groups->count]);
    }
}

struct core *core_clone(const struct core *core)
{
    struct cloning cloning = {.from = core};
    struct core *copy = array_copy(&cloning, core, 1, 1, sizeof *core);
    if (copy == NULL) {
        return NULL;
    }
    disown(copy);
    cloning.to = copy;
    devices_copy(&cloning);
    endpoints_copy(&cloning);
    leases_copy(&cloning);
    teams_copy(&cloning);
    groups_copy(&cloning, &copy->nodes, &core->nodes);
    groups_copy(&cloning, &copy->links, &core->links);
    copy->timers = table_make(&cloning, core->timers, core->timer_capacity);
    ring_copy(&cloning, &copy->moves, &core->moves);
    ring_copy(&cloning, &copy->bursts, &core->bursts);
    if (cloning.failed) {
        drop_groups(&copy->nodes); /* no device is in them yet */
        drop_groups(&copy->links);
        core_destroy(copy);
        return NULL;
    }
    objects_link(core, copy);
    lists_link(core, copy);
    return copy;
}
