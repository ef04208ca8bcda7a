/* pool.c: the table of devices: health, cordons, moves, and what is kept for serving. */
#include <stdlib.h>

#include "server/core/state.h"

bool core_device_usable(const struct device *device)
{
    return (device->health == CORE_HEALTH_OK || device->health == CORE_HEALTH_SLOW) &&
           !device->cordoned && !device->occupied && !device->closing && !device->drained;
}

uint64_t core_device_memory_used(const struct device *device)
{
    return core_add_u64(device->holder_bytes, device->instances_bytes);
}

static uint32_t sum_of_kinds(const uint32_t counts[CORE_KINDS_MAX], uint32_t kinds_mask)
{
    uint32_t sum = 0;
    for (int kind = 0; kind < CORE_KINDS_MAX; kind++) {
        sum += (kinds_mask >> kind) & 1 ? counts[kind] : 0;
    }
    return sum;
}

uint32_t core_pool_matching(const struct core *core, uint32_t kinds_mask)
{
    return sum_of_kinds(core->matching, kinds_mask);
}

uint32_t core_pool_usable(const struct core *core, uint32_t kinds_mask)
{
    return sum_of_kinds(core->usable, kinds_mask);
}

static bool shares(const struct lease *lease)
{
    return lease == NULL || lease->spec.in_process;
}

bool core_device_is_open(const struct device *device)
{
    bool unverified = device->hold != CORE_HOLD_NONE && device->lease == NULL;
    return core_device_usable(device) && !unverified && shares(device->promised) &&
           (shares(device->lease) ||
            (device->hold == CORE_HOLD_SUSPENDED && !device->lease->going_on_wanted));
}

bool core_device_rested(const struct core *core, const struct device *device)
{
    return core->now_ns >= device->rested_ns;
}

uint32_t core_moves_capacity(const struct core *core)
{
    return core->config.moves_per_hour + core->config.moves_extra;
}

/* The ring's place of the move that has `later` moves after it. */
static uint64_t move_at(const struct core *core, const struct device *device, uint32_t later)
{
    uint32_t capacity = core_moves_capacity(core);
    return device->moves[(device->move_next + capacity - 1 - later) % capacity];
}

static bool move_is_late(const struct core *core, const struct device *device, uint32_t later)
{
    return core->now_ns - move_at(core, device, later) < HOUR_NS;
}

/* They are in the order of time: the number of late ones is found by halving. */
uint32_t core_device_moves(const struct core *core, const struct device *device)
{
    uint32_t low = 0, high = device->move_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (move_is_late(core, device, middle)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool core_device_moves_used_up(const struct core *core, const struct device *device, uint32_t bound)
{
    return device->move_count >= bound && move_is_late(core, device, bound - 1);
}

void core_device_count_move(struct core *core, struct device *device)
{
    uint32_t capacity = core_moves_capacity(core);
    device->moves[device->move_next] = core->now_ns;
    device->move_next = (device->move_next + 1) % capacity;
    device->move_count += device->move_count < capacity;
    device->rested_ns = core_add_u64(core->now_ns, core_hold_ns(core));
    core_device_touch(core, device);
}

void core_device_keep(struct core *core, struct device *device, uint64_t endpoint)
{
    device->kept = true;
    device->kept_for = endpoint;
    core_device_touch(core, device);
}

void core_device_unkeep(struct core *core, struct device *device)
{
    if (device->kept) {
        device->kept = false;
        device->kept_for = 0;
        core_device_touch(core, device);
    }
}

uint64_t core_device_due_ns(const struct core *core, const struct device *device)
{
    uint64_t due_ns = core_sooner(core, device->instances_due_ns, device->deadline_ns, 0);
    due_ns = core_sooner(core, due_ns, device->rested_ns, 0);
    uint64_t leave_ns = core_device_leave_due_ns(core, device);
    due_ns = leave_ns < due_ns ? leave_ns : due_ns;
    uint64_t health_ns = core_device_health_due_ns(core, device);
    due_ns = health_ns < due_ns ? health_ns : due_ns;
    due_ns = core_sooner(core, due_ns, device->hot_since_ns, core->config.shrink_after_ns);
    if (device->kept) {
        due_ns = core_sooner(core, due_ns, device->cool_since_ns, core->config.cool_down_ns);
    }
    if (device->lending) {
        due_ns = core_sooner(core, due_ns, device->served_ns, core->config.quiet_ns);
    }
    if (device->utilisation_ppm > 0) {
        due_ns = core_sooner(core, due_ns, device->sampled_ns, core->config.sample_stale_ns);
    }
    if (core_device_moves_used_up(core, device, core->config.moves_per_hour)) {
        uint32_t first = core_device_moves(core, device) - 1;
        due_ns = core_sooner(core, due_ns, move_at(core, device, first), HOUR_NS);
    }
    return due_ns;
}

void core_device_destroy(struct device *device)
{
    if (device != NULL) {
        core_set_fini(&device->live);
        free(device->instances);
        free(device->moves);
        free(device);
    }
}

static struct device *device_create(const struct core *core, const struct core_device_spec *spec)
{
    struct device *device = calloc(1, sizeof *device);
    if (device == NULL) {
        return NULL;
    }
    device->instances = calloc(core->slot_capacity, sizeof *device->instances);
    device->moves = calloc(core_moves_capacity(core), sizeof *device->moves);
    if (device->instances == NULL || device->moves == NULL ||
        core_set_reserve(&device->live, core->slot_capacity) < 0) {
        core_device_destroy(device);
        return NULL;
    }
    device->id = spec->device;
    device->kind = spec->kind;
    device->memory_bytes = spec->memory_bytes != 0 ? spec->memory_bytes : UINT64_MAX;
    device->node = spec->node;
    device->link = spec->link;
    device->provider = spec->provider;
    device->reclaim_by_ns = spec->available_until_ns;
    device->speed_permille = 1000;
    device->ails_since_ns = NEVER_NS;
    device->well_since_ns = NEVER_NS;
    device->sampled_ns = core->now_ns;
    device->served_ns = NEVER_NS;
    device->hot_since_ns = NEVER_NS;
    device->cool_since_ns = core->now_ns;
    device->instances_due_ns = NEVER_NS;
    return device;
}

static enum core_reason device_add(struct core *core, const struct core_device_spec *spec)
{
    if (spec->device == 0 || spec->kind >= CORE_KINDS_MAX || spec->memory_bytes > MEMORY_MAX) {
        return CORE_REASON_INVALID;
    }
    if (core_device_get(core, spec->device) != NULL) {
        return CORE_REASON_DUPLICATE;
    }
    if (core->device_count >= CORE_DEVICES_MAX) {
        return CORE_REASON_TABLE_FULL;
    }
    struct device *device = device_create(core, spec);
    if (device == NULL || core_device_insert(core, device) < 0) {
        core_device_destroy(device);
        return CORE_REASON_NO_MEMORY;
    }
    core_ledger_open(core, device);
    core_device_touch(core, device);
    core_device_leave_follow(core, device);
    core_queue_pool_changed(core);
    return CORE_REASON_NONE;
}

static void device_remove(struct core *core, struct device *device)
{
    core_device_lose(core, device, CORE_REASON_DEVICE_REMOVED);
    core_ledger_retire(core, device);
    core_device_health_forget(core, device);
    core_device_erase(core, device);
    core_device_destroy(device);
    core_queue_pool_changed(core);
}

/* Back in the pool only after a look: nobody may still use it. */
static void device_recover(struct core *core, struct device *device)
{
    if (device->health == CORE_HEALTH_OK || device->health == CORE_HEALTH_SLOW) {
        return;
    }
    core_ledger_update(core, device);
    device->health = CORE_HEALTH_OK;
    core_device_health_follow(core, device);
    core_device_verify(core, device, CORE_REASON_DEVICE_FAILED);
}

static void device_reclaim(struct core *core, struct device *device, uint64_t by_ns)
{
    device->reclaim_by_ns = by_ns;
    core_device_touch(core, device);
    core_device_leave_follow(core, device);
}

static void device_occupied(struct core *core, struct device *device, bool on)
{
    device->occupied = on;
    core_device_touch(core, device);
    core_ledger_update(core, device);
}

static void device_event(struct core *core, struct device *device, const struct core_event *event)
{
    switch (event->kind) {
    case CORE_EVENT_DEVICE_REMOVED:
        device_remove(core, device);
        break;
    case CORE_EVENT_DEVICE_FAILED:
        if (device->health != CORE_HEALTH_FAILED) {
            core_device_lose(core, device, CORE_REASON_DEVICE_FAILED);
        }
        break;
    case CORE_EVENT_DEVICE_RECOVERED:
        device_recover(core, device);
        break;
    case CORE_EVENT_DEVICE_SLOW:
        device->said_slow = event->device_flag.on;
        core_device_health_follow(core, device);
        break;
    case CORE_EVENT_DEVICE_SPEED:
        device->speed_permille = event->device_speed.speed_permille;
        core_device_health_follow(core, device);
        break;
    case CORE_EVENT_DEVICE_CORDONED:
        device->cordoned = event->device_flag.on;
        core_device_touch(core, device);
        break;
    case CORE_EVENT_DEVICE_OCCUPIED:
        device_occupied(core, device, event->device_flag.on);
        break;
    case CORE_EVENT_DEVICE_RECLAIM_BY:
        device_reclaim(core, device, event->device_time.by_ns);
        break;
    default:
        assert(false);
    }
}

void core_pool_event(struct core *core, const struct core_event *event)
{
    if (event->kind == CORE_EVENT_DEVICE_ADDED) {
        enum core_reason reason = device_add(core, &event->device_added);
        if (reason != CORE_REASON_NONE) {
            core_emit_reject(core, event->device_added.device, 0, 0, reason);
        }
        return;
    }
    struct device *device = core_device_get(core, event->device.device);
    if (device == NULL) {
        core_emit_reject(core, event->device.device, 0, 0, CORE_REASON_UNKNOWN);
        return;
    }
    device_event(core, device, event);
}
