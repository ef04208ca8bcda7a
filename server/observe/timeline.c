#include "server/observe/timeline.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct strip {
    uint64_t filling_ns[TIMELINE_USES];
    uint8_t shares[TIMELINE_USES][TIMELINE_SLOTS];
};

struct timeline {
    uint32_t device_count;
    uint64_t next; /* the slot that is being filled; slots count from 1 */
    struct strip strips[];
};

struct timeline *timeline_create(uint32_t device_count)
{
    struct timeline *timeline =
        calloc(1, sizeof *timeline + device_count * sizeof timeline->strips[0]);
    if (timeline != NULL) {
        timeline->device_count = device_count;
        timeline->next = 1;
    }
    return timeline;
}

void timeline_destroy(struct timeline *timeline)
{
    free(timeline);
}

void timeline_add(struct timeline *timeline, uint32_t device, enum timeline_use use,
                  uint64_t time_ns)
{
    assert(device < timeline->device_count && use < TIMELINE_USES);
    timeline->strips[device].filling_ns[use] += time_ns;
}

static void strip_advance(struct strip *strip, size_t place, uint64_t slot_ns)
{
    for (int use = 0; use < TIMELINE_USES; use++) {
        uint64_t time_ns = strip->filling_ns[use];
        time_ns = time_ns < slot_ns ? time_ns : slot_ns;
        uint64_t share = (time_ns * 255 + slot_ns / 2) / slot_ns;
        /* What was there at all shall be seen. */
        strip->shares[use][place] = (uint8_t)(share == 0 && time_ns > 0 ? 1 : share);
        strip->filling_ns[use] = 0;
    }
}

void timeline_advance(struct timeline *timeline, uint64_t slot_ns)
{
    assert(slot_ns > 0);
    for (uint32_t device = 0; device < timeline->device_count; device++) {
        strip_advance(&timeline->strips[device], timeline->next % TIMELINE_SLOTS, slot_ns);
    }
    timeline->next++;
}

uint64_t timeline_oldest(const struct timeline *timeline)
{
    return timeline->next > TIMELINE_SLOTS ? timeline->next - TIMELINE_SLOTS : 1;
}

uint64_t timeline_next(const struct timeline *timeline)
{
    return timeline->next;
}

void timeline_read(const struct timeline *timeline, uint32_t device, enum timeline_use use,
                   uint64_t first, size_t count, uint8_t *ret_shares)
{
    assert(device < timeline->device_count && use < TIMELINE_USES);
    assert(first >= timeline_oldest(timeline) && first + count <= timeline->next);
    const uint8_t *shares = timeline->strips[device].shares[use];
    for (size_t i = 0; i < count; i++) {
        ret_shares[i] = shares[(first + i) % TIMELINE_SLOTS];
    }
}
