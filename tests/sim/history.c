/* history.c: see history.h. */
#include "tests/sim/history.h"

#include <assert.h>
#include <stdlib.h>

void history_fini(struct history *history)
{
    free(history->actions);
    *history = (struct history){0};
}

void history_crash(struct history *history)
{
    history->life = history->count;
}

static struct history_action *history_new(struct history *history)
{
    if (history->count == history->capacity) {
        history->capacity = history->capacity > 0 ? history->capacity * 2 : 256;
        history->actions = realloc(history->actions, history->capacity * sizeof *history->actions);
        assert(history->actions != NULL);
    }
    return &history->actions[history->count++];
}

void history_add(struct history *history, const struct core_action *action)
{
    struct history_action added = {.id = action->id, .kind = action->kind};
    switch (action->kind) {
    case CORE_ACTION_PLACE:
    case CORE_ACTION_REMOVE:
        added.device = action->instance.device;
        added.endpoint = action->instance.endpoint;
        break;
    case CORE_ACTION_GRANT:
        added.device = action->grant.device;
        added.lease = action->grant.lease;
        added.generation = action->grant.token.generation;
        break;
    case CORE_ACTION_REVOKE:
    case CORE_ACTION_RESUME:
    case CORE_ACTION_KILL:
        added.device = action->revoke.device;
        added.lease = action->revoke.lease;
        break;
    case CORE_ACTION_VERIFY:
        added.device = action->device.device;
        added.lease = action->device.lease;
        break;
    default:
        return;
    }
    *history_new(history) = added;
}

struct history_action *history_find(const struct history *history, uint64_t id)
{
    size_t low = 0, high = history->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (history->actions[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool found = low < history->count && history->actions[low].id == id;
    return found ? &history->actions[low] : NULL;
}

struct history_action *history_grant(const struct history *history, uint64_t generation)
{
    for (size_t i = history->count; i-- > 0 && generation != 0;) {
        if (history->actions[i].generation == generation) {
            return &history->actions[i];
        }
    }
    return NULL;
}

static bool is_like(const struct history_action *action, enum core_action_kind kind,
                    uint64_t device, uint64_t endpoint)
{
    return action->kind == kind && action->device == device &&
           (endpoint == 0 || action->endpoint == endpoint);
}

uint32_t history_age(const struct history *history, const struct history_action *action)
{
    uint32_t age = 0;
    for (const struct history_action *newer = action + 1; newer < history->actions + history->count;
         newer++) {
        age += is_like(newer, action->kind, action->device, action->endpoint);
    }
    return age;
}

struct history_action *history_at(const struct history *history, enum core_action_kind kind,
                                  uint64_t device, uint64_t endpoint, uint32_t age)
{
    for (size_t i = history->count; i-- > 0;) {
        if (is_like(&history->actions[i], kind, device, endpoint) && age-- == 0) {
            return &history->actions[i];
        }
    }
    return NULL;
}
