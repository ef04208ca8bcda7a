/* replay.h: `tidepool sim --replay`: a server's log of events once more. The core repeats its
 * actions byte for byte, which is checked against the hashes in the log; and with other settings
 * the same load, owners and failures meet another policy.
 * Other settings: what the world does is taken from the log; what answers an action cannot be, for
 * other actions come. It is answered after the time that the log's own took on average. A holder's
 * words count for the run that its lease is in then.
 * Part:    a further part of a log (writer.h) holds no exact state to begin from: it is played with
 *          answers of our own too, each after a millisecond.
 * Owner:   the caller keeps the texts alive. Thread: one. */
#ifndef TIDEPOOL_CLIENTS_SIM_REPLAY_H
#define TIDEPOOL_CLIENTS_SIM_REPLAY_H

#include <jansson.h>
#include <stdio.h>

#include "server/base/error.h"
#include "server/core/core.h"
#include "server/record/log.h"

/* What a core did with the events. */
struct replay_course {
    uint64_t events;
    uint64_t first_ns, last_ns; /* of the events */
    uint64_t torn_bytes;        /* of the log, left out */
    uint64_t actions[CORE_ACTION_COUNT];
    uint64_t handovers; /* of all devices */
    uint64_t hash;
    struct core_ledger ledger;
};

/* Mean time from an action to its answer, as the log has it. */
struct replay_delays {
    uint64_t sum_ns[CORE_ACTION_COUNT], count[CORE_ACTION_COUNT];
};

struct replay {
    uint64_t wall_ns;  /* when the recorded run began */
    uint64_t hashes;   /* in the log */
    bool same;         /* all of them came again */
    uint64_t wrong_at; /* number of the event by which the first did not; 0: all did */
    /* Above 0: the log is a further part of its run, without those before it. Its core is rebuilt
     * from what was known when the part began, and nothing is compared: see what_if.c. */
    uint64_t part, events_before;
    struct replay_course recorded;
    bool has_other;
    struct replay_course other; /* under the other settings */
    double wall_s;
};

/* `settings`: "hold_min_ns=2000000000", names and units as in core.h. Errors: those of the log;
 * INVALID_ARGUMENT names a setting. A log that is not repeated is no error: see `same`. */
int replay_run(const char *path, const char *const *settings, size_t setting_count,
               struct replay *ret_replay, struct error *error);
json_t *replay_json(const struct replay *replay); /* a new reference; NULL: no memory */
void replay_print(const struct replay *replay, FILE *out);

/* ---- what_if.c ---- */

int what_if_run(const char *path, const struct core_config *config,
                const struct replay_delays *delays, struct replay_course *ret_course,
                struct error *error);

/* A core and its buffer. */
struct replay_core {
    struct core *core;
    struct core_action *actions;
    size_t count, capacity; /* of the last step */
    uint64_t now_ns;
};

int replay_core_init(struct replay_core *core, const struct core_config *config,
                     struct error *error);
void replay_core_fini(struct replay_core *core);
int replay_core_step(struct replay_core *core, const struct core_event *event,
                     struct replay_course *course, struct error *error);
void replay_core_sum(const struct replay_core *core, struct replay_course *course);

#endif
