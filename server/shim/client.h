/* client.h: a server's side of a shim: starts one, finds one again after a restart, commands it
 * and hears from it.
 * Use:     poll shim_client_fd for reading; when it is ready call shim_client_turn, which never
 *          blocks and calls the handler for each report. The first one after start or find is the
 *          state.
 * Commands: return the id that the answer (DONE or FAILED) carries, or 0: not connected, or the
 *           shim does not read. An answer comes within the command's bound, unless the shim is
 *           stopped or dead: the caller keeps the time, then shim_client_wake, then remains.h.
 * Errors:  negative with a text, nothing changed.
 * Owner:   the spawner is the caller's and outlives the clients.
 * Thread:  one at a time. */
#ifndef TIDEPOOL_SHIM_CLIENT_H
#define TIDEPOOL_SHIM_CLIENT_H

#include <stdbool.h>

#include "server/shim/job.h"
#include "server/shim/record.h"
#include "server/shim/spawner.h"

enum shim_report_kind {
    SHIM_STATE,          /* record, frozen, stirred */
    SHIM_DONE,           /* command, empty, processes, took_ns */
    SHIM_FAILED_COMMAND, /* the same, and code, text */
    SHIM_LOST,           /* the connection is over: find it again, or end what remains */
};

struct shim_report {
    enum shim_report_kind kind;
    uint64_t command; /* 0: of itself */
    const struct shim_record *record;
    bool frozen;
    uint64_t
        stirred; /* how often somebody else set a frozen job going; only without control group */
    bool empty;  /* verified: nobody of the job lives */
    uint64_t processes, took_ns;
    enum error_code code;
    const char *text;
};

/* May send commands; must not destroy the client. The report is valid during the call. */
typedef void (*shim_handler)(void *arg, const struct shim_report *report);

struct shim_client;

/* The job's directory is there, empty, absolute, and ours
 * alone. What becomes of the job is told by the first state: RUNNING, or FAILED with step and
 * reason. */
int shim_client_start(struct spawner *spawner, const struct shim_job *job, shim_handler handler,
                      void *arg, struct shim_client **ret_client, struct error *error);

/* By the directory's record. 0 with *ret_client: connected to the very process that wrote the
 * record (boot, pid, start time, the socket's owner); with NULL: that shim is no more, and
 * `ret_record` tells how it was: ENDED or FAILED, or its job's remains are to be ended (remains.h).
 * Wakes a stopped shim. */
int shim_client_find(struct spawner *spawner, const char *directory, shim_handler handler,
                     void *arg, struct shim_record *ret_record, struct shim_client **ret_client,
                     struct error *error);

/* Lets go: the shim and its job go on. NULL is fine. */
void shim_client_destroy(struct shim_client *client);

int shim_client_fd(const struct shim_client *client); /* -1 after SHIM_LOST */
void shim_client_turn(struct shim_client *client);
/* As last told. */
const struct shim_record *shim_client_record(const struct shim_client *client);

/* The token that commands carry: at first the job's, or the record's. */
void shim_client_set_token(struct shim_client *client, uint64_t epoch, uint64_t generation);

uint64_t shim_client_freeze(struct shim_client *client, uint32_t bound_ms);
uint64_t shim_client_thaw(struct shim_client *client);
uint64_t shim_client_signal(struct shim_client *client, int signal, bool leader_only);
uint64_t shim_client_kill(struct shim_client *client, uint32_t bound_ms);
uint64_t shim_client_verify(struct shim_client *client);
uint64_t shim_client_pin(struct shim_client *client, const char *cpus);
/* Lease, devices, token, deadlines of `record` into the shim's. DONE: they are on its disk. */
uint64_t shim_client_update(struct shim_client *client, const struct shim_record *record);
/* The end was noted: the shim goes. Refused before the end. */
uint64_t shim_client_close(struct shim_client *client);

/* SIGCONT to a shim that somebody has stopped. */
void shim_client_wake(const struct shim_client *client);

#endif
