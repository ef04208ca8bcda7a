#include "server/control/overrides.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"

struct overrides {
    struct override *list[OVERRIDES_MAX]; /* sorted */
    size_t count;
    struct override_story stories[OVERRIDE_STORIES_MAX]; /* a ring by story_count */
    uint64_t story_count;
};

static const char *const object_names[OVERRIDE_OBJECTS] = {
    [OVERRIDE_DEVICE] = "device",
    [OVERRIDE_ENDPOINT] = "endpoint",
    [OVERRIDE_TEAM] = "team",
};

const char *override_object_name(enum override_object object)
{
    return object_names[object];
}

struct overrides *overrides_create(void)
{
    return calloc(1, sizeof(struct overrides));
}

void overrides_destroy(struct overrides *overrides)
{
    for (size_t i = 0; overrides != NULL && i < overrides->count; i++) {
        free(overrides->list[i]);
    }
    free(overrides);
}

/* ---- the table ---- */

static int compare(const struct override *entry, enum override_object object, const char *name,
                   const char *field)
{
    if (entry->object != object) {
        return entry->object < object ? -1 : 1;
    }
    int order = strcmp(entry->name, name);
    return order != 0 ? order : strcmp(entry->field, field);
}

/* Where it is, or would be. */
static size_t place_of(const struct overrides *overrides, enum override_object object,
                       const char *name, const char *field, bool *ret_there)
{
    size_t low = 0;
    size_t high = overrides->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(overrides->list[middle], object, name, field) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *ret_there = low < overrides->count && compare(overrides->list[low], object, name, field) == 0;
    return low;
}

static void tell(struct overrides *overrides, const struct override *override, bool removed,
                 uint64_t now_ns)
{
    overrides->stories[overrides->story_count++ % OVERRIDE_STORIES_MAX] =
        (struct override_story){now_ns, removed, *override};
}

int overrides_set(struct overrides *overrides, const struct override *override, uint64_t now_ns,
                  struct error *error)
{
    bool there = false;
    size_t place = place_of(overrides, override->object, override->name, override->field, &there);
    if (!there) {
        struct override *entry = overrides->count < OVERRIDES_MAX ? malloc(sizeof *entry) : NULL;
        if (entry == NULL) {
            return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                             "%s '%s': %zu settings of %d are overridden already; take some back",
                             override_object_name(override->object), override->name,
                             overrides->count, OVERRIDES_MAX);
        }
        memmove(&overrides->list[place + 1], &overrides->list[place],
                (overrides->count++ - place) * sizeof overrides->list[0]);
        overrides->list[place] = entry;
    }
    *overrides->list[place] = *override;
    tell(overrides, override, false, now_ns);
    return 0;
}

bool overrides_remove(struct overrides *overrides, enum override_object object, const char *name,
                      const char *field, const char *actor, const char *reason, uint64_t now_ns)
{
    bool there = false;
    size_t place = place_of(overrides, object, name, field, &there);
    if (!there) {
        return false;
    }
    struct override *entry = overrides->list[place];
    memmove(&overrides->list[place], &overrides->list[place + 1],
            (--overrides->count - place) * sizeof overrides->list[0]);
    snprintf(entry->actor, sizeof entry->actor, "%s", actor);
    snprintf(entry->reason, sizeof entry->reason, "%s", reason);
    tell(overrides, entry, true, now_ns);
    free(entry);
    return true;
}

const struct override *overrides_find(const struct overrides *overrides,
                                      enum override_object object, const char *name,
                                      const char *field)
{
    bool there = false;
    size_t place = place_of(overrides, object, name, field, &there);
    return there ? overrides->list[place] : NULL;
}

const struct override *overrides_at(const struct overrides *overrides, size_t index)
{
    return index < overrides->count ? overrides->list[index] : NULL;
}

const struct override *overrides_over(const struct overrides *overrides, uint64_t now_ns)
{
    for (size_t i = 0; i < overrides->count; i++) {
        if (overrides->list[i]->expires_ns <= now_ns) {
            return overrides->list[i];
        }
    }
    return NULL;
}

const struct override_story *overrides_story(const struct overrides *overrides,
                                             enum override_object object, const char *name,
                                             uint64_t before_ns)
{
    uint64_t oldest = overrides->story_count > OVERRIDE_STORIES_MAX
                          ? overrides->story_count - OVERRIDE_STORIES_MAX
                          : 0;
    for (uint64_t i = overrides->story_count; i-- > oldest;) {
        const struct override_story *story = &overrides->stories[i % OVERRIDE_STORIES_MAX];
        if (story->time_ns <= before_ns && story->override.object == object &&
            strcmp(story->override.name, name) == 0) {
            return story;
        }
    }
    return NULL;
}

/* ---- what was kept ---- */

struct loading {
    struct overrides *overrides;
    uint64_t now_ns, now_wall_ns;
};

/* What is left of its time: never more than all of it. */
static uint64_t left_ns(const struct store_override *row, uint64_t now_wall_ns)
{
    uint64_t whole_ns = row->expires_wall_ns - row->made_wall_ns;
    uint64_t left = row->expires_wall_ns > now_wall_ns ? row->expires_wall_ns - now_wall_ns : 0;
    return left < whole_ns ? left : whole_ns;
}

static int load_one(void *context, const struct store_override *row, struct error *error)
{
    const struct loading *loading = context;
    struct override override = {.object = OVERRIDE_OBJECTS,
                                .value = row->value,
                                .made_wall_ns = row->made_wall_ns,
                                .expires_wall_ns = row->expires_wall_ns,
                                .expires_ns = UINT64_MAX};
    for (int object = 0; object < OVERRIDE_OBJECTS; object++) {
        if (strcmp(object_names[object], row->object) == 0) {
            override.object = (enum override_object)object;
        }
    }
    if (override.object == OVERRIDE_OBJECTS) {
        log_write(LOG_WARN, "control", "override not restored", "object=%s name=%s", row->object,
                  row->name);
        return 0;
    }
    snprintf(override.name, sizeof override.name, "%s", row->name);
    snprintf(override.field, sizeof override.field, "%s", row->field);
    snprintf(override.actor, sizeof override.actor, "%s", row->actor);
    snprintf(override.reason, sizeof override.reason, "%s", row->reason);
    if (row->expires_wall_ns != 0) {
        override.expires_ns = loading->now_ns + left_ns(row, loading->now_wall_ns);
    }
    return overrides_set(loading->overrides, &override, loading->now_ns, error);
}

int overrides_load(struct overrides *overrides, struct store *store, uint64_t now_ns,
                   uint64_t now_wall_ns, struct error *error)
{
    struct loading loading = {overrides, now_ns, now_wall_ns};
    return store_load_overrides(store, load_one, &loading, error);
}
