/* outside.h: the supervisors of all outside jobs: a thread that starts their shims, speaks to them,
 * writes what the job reads (token, notice), and finds them again after a restart. It decides
 * nothing: who holds what until when is the caller's (the core's).
 * Job:     `job` is the caller's number, one run of it at a time: start or find, then commands,
 * then one end (ENDED, LOST, NOT_STARTED, NOT_FOUND), then forget. A job's folder is
 *          <state>/jobs/<id>: token, notice, and run-<n>, the folder of its n-th run's shim.
 * Events:  by `notify`, from this thread; it must only post a letter. `tag` is the command's.
 * Durable: nothing here is on disk but the shims' records: the caller commits first.
 * Times:   *_boot_ns are of CLOCK_BOOTTIME.
 * Stop:    outside_destroy lets go of shims; they and their jobs go on.
 * Thread:  calls from any one thread (control); none blocks. -RESOURCE_EXHAUSTED: no memory. */
#ifndef TIDEPOOL_OUTSIDE_OUTSIDE_H
#define TIDEPOOL_OUTSIDE_OUTSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/base/error.h"
#include "server/progress/ranks.h"
#include "server/shim/record.h"
#include "server/shim/spawner.h"

struct outside;

enum outside_event_kind {
    OUTSIDE_RUNNING,     /* started, or found at work or frozen */
    OUTSIDE_NOT_STARTED, /* the command never ran: step, text */
    OUTSIDE_NOT_FOUND,   /* answers find: there is neither a shim nor a record of a run */
    OUTSIDE_FROZEN,      /* answers freeze: verified quiet; and pause: all ranks stand */
    OUTSIDE_NOT_FROZEN,  /* the same: it goes on; text */
    OUTSIDE_THAWED,      /* answers thaw, also after a pause */
    OUTSIDE_NOT_THAWED,  /* text */
    OUTSIDE_SIGNALLED,   /* answers signal; `text` "" when it was sent */
    OUTSIDE_LOG_MOVED,   /* the log was rotated: record.log_dropped */
    OUTSIDE_PROGRESS,    /* figures, loss; at most every 100 ms */
    OUTSIDE_SAVED,       /* all ranks have acknowledged the notice `tag` */
    OUTSIDE_EXTEND,      /* one asks for `seconds` more of the notice `tag` */
    OUTSIDE_STUCK,       /* some of it live beyond the kill's bound; ENDED may still come */
    OUTSIDE_ENDED,       /* over, and verified empty: exit_code, exit_signal */
    OUTSIDE_LOST,        /* its shim is gone; `empty`: the rest was ended, verified */
};

struct outside_event {
    enum outside_event_kind kind;
    uint64_t job;
    uint32_t run;
    uint64_t tag;
    bool frozen, empty;
    uint64_t took_ns;
    struct shim_record record; /* as last told */
    struct ranks_figures figures;
    double loss; /* of rank 0; NaN: not told */
    double seconds;
    char text[256];
};

struct outside_options {
    const char *state_directory; /* absolute; the spawner's rules allow what is below its `jobs` */
    struct spawner *spawner;     /* the outside thread's from create to destroy */
    void (*notify)(void *context, const struct outside_event *event);
    void *context;
};

struct outside *outside_create(const struct outside_options *options, struct error *error);
void outside_destroy(struct outside *outside); /* NULL is fine */

/* Of a job's runs the newest are kept: folders, with their logs. */
#define OUTSIDE_RUNS_KEPT 16

/* What a run holds, for the job to read and for the shim to keep. Texts are copied. */
struct outside_lease {
    uint64_t job;
    uint32_t run;
    const char *id;      /* "train-7" */
    const char *devices; /* ids, comma-separated */
    const char *cpus;    /* "0-3,5" */
    uint32_t device_count, core_count, restarts;
    uint64_t epoch, generation, secret;    /* of the fencing token */
    uint64_t notice_boot_ns, kill_boot_ns; /* 0: none */
};

/* Starts run `lease->run` of the specification (command.h). Answer: RUNNING or NOT_STARTED. */
int outside_start(struct outside *outside, const struct outside_lease *lease,
                  const char *specification);
/* Looks for that run's shim, then for its record. Answer: RUNNING, ENDED, NOT_STARTED (each as if
 * it had just happened), LOST, or NOT_FOUND. */
int outside_find(struct outside *outside, uint64_t job, const char *id, uint32_t run);

int outside_freeze(struct outside *outside, uint64_t job, uint64_t tag);
/* By its own doing: all ranks stop before the same step, as long as it takes. */
int outside_pause(struct outside *outside, uint64_t job, uint64_t tag);
int outside_thaw(struct outside *outside, uint64_t job, uint64_t tag);
/* To the first process; to it only where it has a handler; or to all. */
enum outside_reach { OUTSIDE_FIRST, OUTSIDE_FIRST_IF_HANDLED, OUTSIDE_ALL };
int outside_signal(struct outside *outside, uint64_t job, uint64_t tag, int signal,
                   enum outside_reach reach);
/* TERM to all at once and KILL after the grace; STUCK after the bound, both from now. One that is
 * under way only becomes sooner. */
int outside_kill(struct outside *outside, uint64_t job, uint64_t grace_ns, uint64_t bound_ns);
/* For the notice's file, the progress socket and the shim's record. Again with the same number: its
 * deadline has moved. */
struct outside_notice {
    uint64_t number, deadline_boot_ns;
    const char *devices; /* ids, comma-separated */
    const char *reason;
};
int outside_notify(struct outside *outside, uint64_t job, const struct outside_notice *notice);
/* The run's end was kept: its shim may go. No event of this run follows. */
int outside_forget(struct outside *outside, uint64_t job);

/* ---- files, any thread ---- */

/* Folders of a job and of one of its runs; false: too long. */
bool outside_job_folder(const char *state_directory, const char *id, char *path, size_t size);
bool outside_run_folder(const char *state_directory, const char *id, uint32_t run, char *path,
                        size_t size);
/* The specification in the job's folder, for a server whose store was lost: the start of a run
 * keeps it. Blocks. */
int outside_keep_specification(const char *state_directory, const char *id, const char *text,
                               struct error *error);
/* Calls `each` for every job of which the state directory has a specification and a run that may
 * still live: the last one. Blocks; at the start. */
struct outside_found {
    const char *id, *specification;
    uint64_t job;
    uint32_t run;
    const struct shim_record *record;
};
void outside_scan(const char *state_directory,
                  void (*each)(void *context, const struct outside_found *found), void *context);

#endif
