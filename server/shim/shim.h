/* shim.h: one job's keeper: starts it, takes its output, reaps all that is below it, stops and
 * ends the whole of it on command, and outlives its server.
 * States:  starting → running → exited → ended, or starting → failed (the command never ran).
 * Empty:   the kernel's own answer: no child is left to a subreaper (ECHILD), so nobody below it
 *          lives; where there is a control group, it too has no member.
 * Time:    a command carries its bound, and the shim answers by then. It ends a job on command or
 *          once the leader is over, never because of a deadline of its own.
 * Thread:  the process's only one. */
#ifndef TIDEPOOL_SHIM_SHIM_H
#define TIDEPOOL_SHIM_SHIM_H

#include <stdbool.h>
#include <stdint.h>

#include "server/shim/cgroup.h"
#include "server/shim/job.h"
#include "server/shim/output.h"
#include "server/shim/record.h"
#include "server/shim/tree.h"

enum shim_goal { GOAL_NONE, GOAL_FREEZE, GOAL_KILL };

/* What a command that took time came to. */
struct shim_outcome {
    uint64_t command;
    enum error_code code; /* ERROR_NONE: done */
    char text[SHIM_TEXT_MAX];
    uint64_t took_ns, processes;
    bool empty;
};

struct shim;
/* Who hears of it: the door (door.h). */
struct shim_listener {
    void (*changed)(void *arg, const struct shim *shim);
    void (*finished)(void *arg, const struct shim_outcome *outcome);
    void *arg;
};

struct shim {
    struct job_copy job;
    struct shim_record record;
    struct shim_listener listener;
    struct cgroup cgroup;
    struct tree tree;
    struct output output;
    struct {
        enum shim_goal goal;
        uint64_t command; /* 0: nobody's, or answered */
        uint64_t began_ns, bound_ns;
    } pursuit;
    cpu_set_t cpus;
    bool pinned, frozen, record_stale, closed;
    uint64_t stirred; /* found running while frozen */
    uint64_t frozen_look_ns, pin_look_ns, grace_ns, linger_ns, record_retry_ns; /* 0: not due */
};

/* Starts the job. Negative: it never ran; the record says why. Owns `job` from here on. */
int shim_init(struct shim *shim, struct job_copy *job, const struct shim_listener *listener,
              struct error *error);
void shim_fini(struct shim *shim);

/* Children have ended: reaps them all. */
void shim_reap(struct shim *shim);
/* What is due. The time of the next call (CLOCK_BOOTTIME); 0: none. */
uint64_t shim_turn(struct shim *shim);
/* Nothing is left to do: the process may end. */
bool shim_over(const struct shim *shim);

/* The outcome comes by shim_listener; negative: refused at once. */
int shim_freeze(struct shim *shim, uint64_t command, uint64_t bound_ns, struct error *error);
int shim_kill(struct shim *shim, uint64_t command, uint64_t bound_ns, struct error *error);
/* These are done when they return. */
int shim_thaw(struct shim *shim, struct error *error);
int shim_signal(struct shim *shim, int signal, bool leader_only, struct error *error);
int shim_pin(struct shim *shim, const char *cpus, struct error *error);
int shim_update(struct shim *shim, const struct message *message, struct error *error);
bool shim_empty(struct shim *shim, uint64_t *ret_processes);

#endif
