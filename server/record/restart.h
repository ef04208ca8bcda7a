/* restart.h: what each further part of a log begins with: the events that tell a fresh core what
 * the running one knows, as after a restart of the server. What the core has learned by itself
 * (rates, rises of load, times of rungs) is not among them.
 * Thread: the control thread. */
#ifndef TIDEPOOL_RECORD_RESTART_H
#define TIDEPOOL_RECORD_RESTART_H

#include "server/core/core.h"
#include "server/record/bytes.h"

/* What a core was told and does not show: measured times and speeds. All zero: nothing yet.
 * Bounded by the objects that the core has: twice as many at most. */
struct record_restart {
    struct core_event *told;
    size_t count, capacity;
    bool failed; /* no memory: a restart would miss something */
};

void record_restart_fini(struct record_restart *restart);
/* An event that the core has just had: remembered if only events can tell it again. */
void record_restart_note(struct record_restart *restart, const struct core *core,
                         const struct core_event *event);
/* Writes the events; their time is `now_ns`. The mode is not among them: it is a setting, and one
 * of the part's head. */
void record_restart_write(const struct record_restart *restart, const struct core *core,
                          uint64_t now_ns, struct record_bytes *bytes);

#endif
