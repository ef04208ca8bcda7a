/* store.h: what must survive a crash of the server: jobs and their leases, endpoints added by a
 *          call, settings (mode, hold), overrides of the configuration, ledger totals and the count
 *          of starts, in one SQLite file.
 * Write:   a write is queued and done on the store's own thread; all that waits goes into one
 *          transaction (group commit, WAL). `done` is called on the store's thread once the
 *          write is on disk, or with the error and nothing of it written; it must only post a
 *          letter. Writes are committed in the order they were queued.
 * Disk:    a group waits for the disk (synchronous FULL). One of accounts alone does not: kill -9
 *          does not lose it, a power cut may; the next group that waits takes it along.
 * Bound:   writes come from the control thread only, one per change of an object; the ledger and
 *          the figures of jobs are written at most every few seconds. Of ended jobs the newest
 *          STORE_ENDED_JOBS_MAX are kept.
 * Alone:   one server per state directory (a lock on `<directory>/lock`, freed by the kernel when
 *          the server dies); the error names the other server's process.
 * Damage:  found by open, which reads the whole file: it is moved to `tidepool.db.damaged-<time>`
 *          with an error in the log, and a new one begun. Epochs go on: the lock file has the last.
 * Errors:  0 or a negative enum error_code: a full disk is RESOURCE_EXHAUSTED, damage found by a
 *          write DATA_LOSS, another server or a newer schema FAILED_PRECONDITION.
 * Thread:  open, load and start: before start, one thread; writes: any thread. */
#ifndef TIDEPOOL_STORE_STORE_H
#define TIDEPOOL_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"

#define STORE_SCHEMA 4
#define STORE_ENDED_JOBS_MAX 1000
#define STORE_REQUEST_NS (UINT64_C(86400) * 1000000000) /* a request is remembered for a day */

struct store;

/* A job as it is kept. Texts are NUL-terminated; in a write they are copied, from a load they are
 * valid during the call. NULL texts are kept as empty ones. */
struct store_job {
    uint64_t number;
    const char *id;
    const char *specification;
    const char *state; /* the caller's word */
    bool ended;        /* finished, failed or cancelled: may be forgotten some day */
    const char *reason;
    uint64_t submitted_wall_ns, started_wall_ns, finished_wall_ns;
    uint64_t preemptions;
    const char *result; /* last known figures, a JSON text */
    const char *lease;  /* what an outside job holds and its runs so far, a JSON text; "": none */
};

/* A client's call that made a job, by the id that the client gave to it. The newest of an id. */
struct store_request {
    const char *id;
    uint64_t job;
    const char *job_id; /* the job itself may be forgotten meanwhile */
    uint64_t made_wall_ns;
};

struct store_endpoint {
    const char *name, *path;
    const char *options; /* a JSON text */
};

/* A setting of an object that a call has put in the place of the configuration's. One of a field.
 */
struct store_override {
    const char *object, *name, *field; /* the caller's words: "endpoint", "digits", "devices_max" */
    const char *actor, *reason;
    int64_t value;
    uint64_t made_wall_ns, expires_wall_ns; /* 0: it stays */
    bool gone;                              /* of a write: to be forgotten; names alone count */
};

/* Creates the directory (0700) and the file where there are none, takes the lock, brings an older
 * schema up to date, adds one to the epoch. */
struct store *store_open(const char *directory, struct error *error);
/* Writes what is queued, joins the thread, frees the lock. NULL is fine. */
void store_close(struct store *store);
/* What was lost at this start; "": nothing. */
const char *store_warning(const struct store *store);
/* Number of starts with this directory, this one included: part of every fencing token. */
uint64_t store_epoch(const struct store *store);

/* Reading, between open and start. `each` returns 0 or a negative code that ends the load. */
int store_load_jobs(struct store *store,
                    int (*each)(void *context, const struct store_job *job, struct error *error),
                    void *context, struct error *error);
/* Oldest first; those of the last day, and older ones that a new one has not yet replaced. */
int store_load_requests(struct store *store,
                        int (*each)(void *context, const struct store_request *request,
                                    struct error *error),
                        void *context, struct error *error);
int store_load_endpoints(struct store *store,
                         int (*each)(void *context, const struct store_endpoint *endpoint,
                                     struct error *error),
                         void *context, struct error *error);
int store_load_overrides(struct store *store,
                         int (*each)(void *context, const struct store_override *row,
                                     struct error *error),
                         void *context, struct error *error);
/* *ret_value is malloc'ed, or NULL when the setting was never written. */
int store_load_setting(struct store *store, const char *name, char **ret_value,
                       struct error *error);
/* Highest number ever given to a job, 0 none: numbers are never given twice. */
int store_load_job_number(struct store *store, uint64_t *ret_number, struct error *error);
/* Total of an account since the directory exists, 0 when never written. */
int store_load_account(struct store *store, const char *account, uint64_t *ret_ns,
                       struct error *error);

int store_start(struct store *store, struct error *error); /* starts the thread */

/* `error` is NULL when the write is on disk. */
typedef void store_done(void *context, const struct error *error);

/* Writes. `done` may be NULL: a failure is then only logged. -RESOURCE_EXHAUSTED: no memory to
 * queue it, `done` will not be called. */
int store_put_job(struct store *store, const struct store_job *job, store_done *done,
                  void *context);
/* A new job with the request that made it (NULL: none): both or neither. */
int store_add_job(struct store *store, const struct store_job *job,
                  const struct store_request *request, store_done *done, void *context);
int store_put_endpoint(struct store *store, const struct store_endpoint *endpoint, store_done *done,
                       void *context);
int store_remove_endpoint(struct store *store, const char *name, store_done *done, void *context);
int store_put_setting(struct store *store, const char *name, const char *value, store_done *done,
                      void *context);
/* All of them or none; at least one. */
int store_put_overrides(struct store *store, const struct store_override *rows, size_t count,
                        store_done *done, void *context);
int store_put_account(struct store *store, const char *account, uint64_t total_ns, store_done *done,
                      void *context);

#endif
