/* progress.h: a job's progress socket: its ranks tell how far they are and what they have done, and
 * hear what is asked of them (docs/jobs.md has the lines).
 * Use:     poll progress_fd for reading; when it is ready call progress_turn, which never blocks,
 *          takes a few ms at most, and calls the handler for each thing that was told.
 * Clients: come and go; what stands (a notice, a pause) is told again to who comes later. Nothing
 *          that they send is an error of the job: a line that is not understood is answered by
 *          name, 100 of them in a row end the connection, and so does not reading.
 * Who:     the job's user, the server's own, and root; known by SO_PEERCRED.
 * Bounds:  line.h, connection.h; connections_max: at the bound one that never said hello makes room
 *          for a new one, else the new one is turned away with a text.
 * Errors:  negative with a text, nothing changed.
 * Thread:  one at a time. */
#ifndef TIDEPOOL_PROGRESS_PROGRESS_H
#define TIDEPOOL_PROGRESS_PROGRESS_H

#include <sys/types.h>

#include "server/progress/ranks.h"

#define PROGRESS_CONNECTIONS_MAX 512 /* where the owner gives no other bound */

struct progress_options {
    const char *directory;    /* of the server's user: nobody else can make files in it */
    const char *name;         /* of the socket in it; one that is left there is replaced */
    uid_t uid;                /* the job's user, who gets the socket with mode 0600 */
    uint32_t connections_max; /* 0: PROGRESS_CONNECTIONS_MAX */
};

enum progress_event_kind {
    PROGRESS_TOLD,  /* `message`, of a connection that has said hello (or says it now) */
    PROGRESS_STOOD, /* all that were asked stand still: `request`, `step` */
    PROGRESS_SAVED, /* all that heard the notice have acknowledged it: `request` is its number */
    PROGRESS_LEFT,  /* a connection that had said hello is over */
};

struct progress_event {
    enum progress_event_kind kind;
    uint32_t rank;
    pid_t pid; /* as the kernel says */
    const struct progress_message *message;
    uint64_t request;
    int64_t step;
};

/* May send; must not destroy. The event is valid during the call. */
typedef void (*progress_handler)(void *arg, const struct progress_event *event);

struct progress;

int progress_create(const struct progress_options *options, progress_handler handler, void *arg,
                    struct progress **ret_progress, struct error *error);
/* Ends the connections and takes the socket away. NULL is fine. */
void progress_destroy(struct progress *progress);
int progress_fd(const struct progress *progress);
void progress_turn(struct progress *progress, uint64_t now_ns); /* any monotonic clock */

/* Copied; stands until it is over, and replaces an earlier one of the same number. At most one
 * stands at a time. Returns to how many connections it went; negative: no memory. */
int progress_notice(struct progress *progress, const struct progress_notice *notice,
                    uint64_t now_boottime_ns);
/* `result`: extended (with the new deadline: the notice stands on), withdrawn or granted. */
void progress_notice_over(struct progress *progress, uint64_t notice, const char *result,
                          uint64_t deadline_ns, uint64_t now_boottime_ns);

/* All ranks are to stop before the same step, two after the highest that was told (a single one:
 * one after it). Refused, with the ranks named, where one is not here or cannot; and while another
 * pause stands. When all stand PROGRESS_STOOD comes, once. A rank that has begun that step already
 * moves it for all; the event has the last one. `request` is above 0 and unlike all others of this
 * job. */
int progress_pause(struct progress *progress, uint64_t request, int64_t *ret_step,
                   struct error *error);
/* Ends a pause, complete or not; without one it is told all the same (ranks that stand since before
 * a restart of the server). */
void progress_resume(struct progress *progress, uint64_t request);

void progress_figures(const struct progress *progress, struct ranks_figures *ret_figures);

#endif
