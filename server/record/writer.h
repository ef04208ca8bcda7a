/* writer.h: writes the log of core events while the server runs.
 * Files:   <directory>/events-<epoch>-<part>.log; a start of the server begins with part 0, which
 *          alone can be replayed exactly (together with those after it). The next part begins when
 *          this one's events, not yet compressed, fill a quarter of the bound: with what rebuilds
 *          the core (restart.h). Before each part the oldest files go, of whatever run, until all
 *          together with it stay within the bound.
 * Delay:   a block is handed over when it is full, or at the next flush after a second. What was
 *          not handed over when the process dies is lost; a cut block is recognised.
 * Slow:    where more than WRITER_WAITING_MAX bytes wait for the disk, or it refuses them,
 * recording ends too, with one line in the server's log: the control thread never waits, and a log
 *          with a hole in it would be of no use.
 * Thread:  event and flush: the control thread. The writer has a thread of its own for the disk. */
#ifndef TIDEPOOL_RECORD_WRITER_H
#define TIDEPOOL_RECORD_WRITER_H

#include "server/base/error.h"
#include "server/core/core.h"

#define WRITER_WAITING_MAX (UINT64_C(16) << 20)

struct record_writer; /* opaque */

struct record_options {
    const char *directory; /* made where there is none (0700); the text is copied */
    uint64_t bytes_max;    /* of all files; some 100 KiB hold nothing useful */
    uint64_t wall_ns;      /* now ... */
    uint64_t now_ns;       /* ... by the clock of the events */
};

/* Begins the log of a core of this configuration that has not had an event. */
struct record_writer *record_writer_create(const struct record_options *options,
                                           const struct core_config *config, struct error *error);
/* Hands over what there is, waits for the disk, ends the thread. NULL is fine. */
void record_writer_destroy(struct record_writer *writer, const struct core *core);

/* The event that the core has just had. NULL writer: nothing. */
void record_writer_event(struct record_writer *writer, const struct core *core,
                         const struct core_event *event);
/* When there are no events for a while: what there is gets to the disk. */
void record_writer_flush(struct record_writer *writer, const struct core *core, uint64_t now_ns);

#endif
