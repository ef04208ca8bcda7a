/* overrides.h: settings that calls have put in the place of the configuration's: whose, why, until
 * when. A table of values; what they do is settled in adjust.c.
 * Time:    expires_wall_ns is what is kept over restarts; expires_ns, on the control's clock, is
 *          what ends it, so that a clock that is set does not.
 * Story:   the newest changes are remembered by themselves, for explanations of what followed.
 * Thread:  the control thread. Owner: the table; callers copy. */
#ifndef TIDEPOOL_CONTROL_OVERRIDES_H
#define TIDEPOOL_CONTROL_OVERRIDES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"
#include "server/store/store.h"

#define OVERRIDES_MAX 4096
#define OVERRIDE_NAME_SIZE 136
#define OVERRIDE_FIELD_SIZE 32
#define OVERRIDE_ACTOR_SIZE 64
#define OVERRIDE_REASON_SIZE 256
#define OVERRIDE_STORIES_MAX 512

enum override_object { OVERRIDE_DEVICE, OVERRIDE_ENDPOINT, OVERRIDE_TEAM, OVERRIDE_OBJECTS };
const char *override_object_name(enum override_object object); /* "device" */

struct override {
    enum override_object object;
    char name[OVERRIDE_NAME_SIZE];   /* of the object */
    char field[OVERRIDE_FIELD_SIZE]; /* "devices_max" */
    int64_t value;
    char actor[OVERRIDE_ACTOR_SIZE], reason[OVERRIDE_REASON_SIZE];
    uint64_t made_wall_ns, expires_wall_ns; /* 0: it stays */
    uint64_t expires_ns;                    /* UINT64_MAX: it stays */
};

struct overrides; /* opaque */

struct overrides *overrides_create(void);            /* NULL: no memory */
void overrides_destroy(struct overrides *overrides); /* NULL is fine */
/* Reads what the store has kept. What ended while nobody looked ends now; a clock that was set back
 * prolongs nothing beyond its whole time. */
int overrides_load(struct overrides *overrides, struct store *store, uint64_t now_ns,
                   uint64_t now_wall_ns, struct error *error);

/* Takes the place of one for the same field. RESOURCE_EXHAUSTED: the table is full. */
int overrides_set(struct overrides *overrides, const struct override *override, uint64_t now_ns,
                  struct error *error);
/* False: there is none. `actor` and `reason` of who takes it back, for the story. */
bool overrides_remove(struct overrides *overrides, enum override_object object, const char *name,
                      const char *field, const char *actor, const char *reason, uint64_t now_ns);
/* NULL: there is none. Valid until the next change, as in the next one. */
const struct override *overrides_find(const struct overrides *overrides,
                                      enum override_object object, const char *name,
                                      const char *field);
/* By object, name and field; NULL past the last one. */
const struct override *overrides_at(const struct overrides *overrides, size_t index);
/* One whose time is over; NULL: there is none. */
const struct override *overrides_over(const struct overrides *overrides, uint64_t now_ns);

/* The newest change of an object's setting at or before a time; NULL: none is remembered. */
struct override_story {
    uint64_t time_ns;
    bool removed; /* what the configuration says holds again */
    struct override override;
};
const struct override_story *overrides_story(const struct overrides *overrides,
                                             enum override_object object, const char *name,
                                             uint64_t before_ns);

#endif
