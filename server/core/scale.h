/* scale.h: how many devices of each kind would be needed, and what for: what an autoscaling
 * controller reads. It looks at a core and decides nothing in it.
 *
 * A provider whose devices take time to come is asked for what will be needed when they are there:
 * the horizon of a kind is its lead time. Up to it demand goes on as it rises now, leases that end
 * earlier need nothing, and devices that leave earlier are not there.
 * A figure rises at once and falls to the highest of the last `hold_ns`, so that devices are not
 * given back between two waves.
 *
 * Units:  *_ns are nanoseconds of the core's clock.
 * Thread: the core's. Owner: the caller; nothing here points into a core between calls. */
#ifndef TIDEPOOL_CORE_SCALE_H
#define TIDEPOOL_CORE_SCALE_H

#include "server/core/core.h"

#define CORE_SCALE_COMING_MAX 64 /* announcements: pairs of provider and kind */

enum core_scale_reason {
    CORE_SCALE_SLO,     /* what endpoints need for their SLOs and minimums */
    CORE_SCALE_WAITING, /* minimums of leases that run or wait */
    CORE_SCALE_BACKLOG, /* what elastic leases could use beyond their minimums */
    CORE_SCALE_REASONS,
};

struct core_scale_config {
    uint64_t lead_ns; /* of providers that have not told theirs */
    uint64_t hold_ns; /* also: a device that comes so late is not counted on any more */
};

/* Devices of a kind that a provider has on their way. */
struct core_scale_coming {
    uint64_t provider; /* as in struct core_device_spec */
    uint32_t kind;
    uint32_t devices;    /* all that are on their way; 0: none */
    uint64_t arrives_ns; /* when the last of them will be there */
    uint64_t lead_ns;    /* what one takes that is asked for now; 0: not known */
};

struct core_scale_view {
    uint32_t desired[CORE_SCALE_REASONS]; /* devices, with the hold; their sum is what is wanted */
    uint32_t ready;                       /* usable, and still there at the horizon */
    uint32_t pending;                     /* announced, not arrived and not overdue */
    uint64_t arrives_ns;                  /* when the last of the pending ones is there; 0: none */
    uint64_t lead_ns;                     /* the horizon */
    uint32_t surplus;                     /* ready and pending ones that nobody could use */
};

struct core_scale; /* opaque */

struct core_scale *core_scale_create(const struct core_scale_config *config); /* NULL: no memory */
void core_scale_destroy(struct core_scale *scale);                            /* NULL is fine */

/* Replaces what was announced for this provider and kind. Each of its devices that is added to the
 * core from now on is one of them. -1: no such kind, or too many announcements. */
int core_scale_announce(struct core_scale *scale, const struct core *core,
                        const struct core_scale_coming *coming);
/* Looks again. Every second is often enough. */
void core_scale_update(struct core_scale *scale, const struct core *core, uint64_t now_ns);
/* As of the last update. False: no such kind. */
bool core_scale_read(const struct core_scale *scale, uint32_t kind,
                     struct core_scale_view *ret_view);

const char *core_scale_reason_name(enum core_scale_reason reason); /* never NULL */

#endif
