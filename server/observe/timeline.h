/* timeline.h: who used each device in each slot of time, for the strips of `top`.
 * Bound:   the newest TIMELINE_SLOTS slots are kept, older ones are overwritten.
 * Slots:   numbered from 1 since the timeline was made, all devices in step.
 * Thread:  one (the control thread). */
#ifndef TIDEPOOL_OBSERVE_TIMELINE_H
#define TIDEPOOL_OBSERVE_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

#define TIMELINE_SLOTS 6000 /* ten minutes of 100 ms */

enum timeline_use {
    TIMELINE_SERVING,
    TIMELINE_TRAINING,
    TIMELINE_HANDOVER,
    TIMELINE_FAILED,
    TIMELINE_USES,
};

struct timeline;

struct timeline *timeline_create(uint32_t device_count); /* NULL: no memory */
void timeline_destroy(struct timeline *timeline);        /* NULL is fine */

/* Adds to the slot that is being filled. Shares of one slot are capped at the whole of it. */
void timeline_add(struct timeline *timeline, uint32_t device, enum timeline_use use,
                  uint64_t time_ns);
/* Ends the slot that is being filled, which was `slot_ns` long (> 0), and begins the next. */
void timeline_advance(struct timeline *timeline, uint64_t slot_ns);

uint64_t timeline_oldest(const struct timeline *timeline); /* first slot that is kept */
uint64_t timeline_next(const struct timeline *timeline);   /* the one being filled */
/* Copies the shares (255: the whole slot) of slots [first, first + count), which must be kept. */
void timeline_read(const struct timeline *timeline, uint32_t device, enum timeline_use use,
                   uint64_t first, size_t count, uint8_t *ret_shares);

#endif
