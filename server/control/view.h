/* view.h: what the control thread knows, as plain values for the services that show it.
 * Texts:   valid until the control thread goes on: encode at once.
 * Thread:  the control thread (control_post). */
#ifndef TIDEPOOL_CONTROL_VIEW_H
#define TIDEPOOL_CONTROL_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/control/change.h"
#include "server/control/control.h"
#include "server/core/core.h"
#include "server/observe/timeline.h"
#include "server/outside/command.h"

/* The numbers of the control API. */
enum control_device_state {
    CONTROL_DEVICE_FREE = 1,
    CONTROL_DEVICE_SERVING,
    CONTROL_DEVICE_TRAINING,
    CONTROL_DEVICE_HANDOVER,
    CONTROL_DEVICE_SUSPENDED,
    CONTROL_DEVICE_CORDONED,
    CONTROL_DEVICE_FAILED,
    CONTROL_DEVICE_QUARANTINED,
    CONTROL_DEVICE_STATES,
};
enum control_endpoint_state {
    CONTROL_ENDPOINT_LOADING = 1,
    CONTROL_ENDPOINT_READY,
    CONTROL_ENDPOINT_COLD,
    CONTROL_ENDPOINT_FAILED,
    CONTROL_ENDPOINT_STOPPING,
};
enum control_job_state {
    CONTROL_JOB_LOADING = 1,
    CONTROL_JOB_WAITING,
    CONTROL_JOB_RUNNING,
    CONTROL_JOB_PAUSED,
    CONTROL_JOB_STOPPING,
    CONTROL_JOB_FINISHED,
    CONTROL_JOB_FAILED,
    CONTROL_JOB_CANCELLED,
    CONTROL_JOB_SUSPENDED,
    CONTROL_JOB_STATES,
};
enum control_exit_class {
    CONTROL_EXIT_NONE,
    CONTROL_EXIT_COMPLETED,
    CONTROL_EXIT_FAILED,
    CONTROL_EXIT_PREEMPTED,
    CONTROL_EXIT_KILLED,
    CONTROL_EXIT_LOST_DEVICE,
    CONTROL_EXIT_CANCELLED,
    CONTROL_EXIT_NOT_STARTED,
    CONTROL_EXIT_LOST,
    CONTROL_EXIT_TIME_LIMIT,
    CONTROL_EXIT_CLASSES,
};
const char *control_exit_class_name(enum control_exit_class exit_class); /* "killed at deadline" */
const char *control_device_state_name(enum control_device_state state);  /* "free" */
const char *control_job_state_name(enum control_job_state state);        /* "loading" */

struct control_status {
    uint64_t revision, state_revision;
    uint64_t start_wall_ns, now_wall_ns, uptime_ns, store_epoch;
    const char *store_warning;                      /* "": nothing was lost at the start */
    uint64_t store_errors;                          /* writes that failed since */
    const char *state_directory, *model_repository; /* repository: "" when there is none */
    const struct config_listener *listeners;
    uint32_t listener_count;
    enum core_mode mode;
    bool hold, ready, draining, testing;
    const char *hold_reason;
    uint64_t hold_since_wall_ns;
    uint32_t devices, devices_failed, endpoints, endpoints_ready, jobs_active, jobs_running;
    uint64_t requests_ok, requests_failed, requests_late;
    double requests_per_s;
    uint64_t twin_requests, late_total, late_by_handover;
    struct core_health_view health;
    struct core_ledger ledger;
    uint64_t ever_ns[CORE_ACCOUNT_COUNT];
};
void control_status(struct control *control, struct control_status *ret_status);

/* Figures are as of the last tick (100 ms); this brings the counters of requests up to now. */
void control_refresh(struct control *control);

/* Objects by index, in a stable order; false past the last one. Each comes with two revisions: of
 * its last change of any kind, and of its last change of state (figures not counted). */
struct control_device {
    uint64_t revision, state_revision;
    const struct device *device;
    enum control_device_state state;
    const char *reason;
    const char *job; /* id of the holder, or "" */
    const char *instances[64];
    size_t instance_count;
    double serving, training, handover; /* shares of the last second */
    bool cordoned;                      /* by a call, as the next one */
    uint64_t leaves_wall_ns;            /* it must be empty by then; 0: it stays */
    struct core_device_view core;
};
bool control_device_at(struct control *control, size_t index, struct control_device *ret_device);

/* The scale signal of one kind of device, as of the last second. */
bool control_scale_at(const struct control *control, size_t index, struct control_scale *ret_scale);

struct control_endpoint {
    uint64_t revision, state_revision;
    const char *name, *path, *runtime, *reason;
    uint32_t version;
    enum control_endpoint_state state;
    bool from_repository;
    uint32_t devices_min, devices_max, batch_max;
    int32_t priority;
    uint64_t slo_ns;
    double slo_target;
    uint32_t instances_ready, devices_wanted;
    uint64_t queue_requests, queue_bytes;
    double requests_per_s, p50_ms, p99_ms, late_fraction; /* NAN: no requests */
    uint64_t requests_ok, requests_failed, requests_refused, requests_late;
    uint64_t twin_requests, late_total, late_by_handover;
};
bool control_endpoint_at(struct control *control, size_t index,
                         struct control_endpoint *ret_endpoint);

struct control_job {
    uint64_t revision, state_revision;
    uint64_t number;
    const char *id, *name, *reason, *specification, *warning;
    enum control_job_state state;
    uint64_t submitted_wall_ns, started_wall_ns, finished_wall_ns;
    uint32_t devices_min, devices_max;
    int32_t priority;
    const char *devices[DEVICES_MAX];
    size_t device_count;
    double expected_wait_s; /* NaN: does not wait, or cannot be told */
    double revoke_fraction; /* NaN: does not run */
    struct train_status figures;
    struct control_outside {
        const struct command *command; /* NULL: a job of this process, and nothing else here */
        enum control_exit_class exit_class;
        int exit_code, exit_signal;
        uint32_t runs, failures;
        double lost_s, suspended_s;
        uint64_t pid;       /* 0: it does not run */
        const char *keeper; /* "cgroup v2" */
        char log_path[4096];
        uint64_t notice_deadline_wall_ns; /* 0: it is not asked for its devices */
        const char *notice_reason;
        uint64_t log_dropped; /* of the present run */
        bool run_over;        /* of the last run: nothing more will be written */
        struct ranks_figures ranks;
        char advice[128];    /* "": none */
        bool heartbeat_lost; /* of a lease held from outside */
    } outside;
};
bool control_job_at(struct control *control, size_t index, struct control_job *ret_job);

struct control_team {
    uint64_t revision;
    const char *name;
    uint32_t weight, leases, leases_waiting;
    uint64_t usage_ns; /* device time beyond its quotas, decayed */
    struct {
        const char *kind;
        uint32_t quota, held;
    } kinds[CORE_KINDS_MAX];
    size_t kind_count;
};
bool control_team_at(const struct control *control, size_t index, struct control_team *ret_team);
int control_team_find(const struct control *control, const char *name, size_t *ret_index,
                      struct error *error);

/* By object, name and field. */
struct control_override {
    const char *object, *name, *field, *actor, *reason;
    char value[32], configured[32]; /* in the unit of the field's name; configured "": not here */
    uint64_t made_wall_ns, expires_wall_ns; /* 0: it stays */
};
bool control_override_at(const struct control *control, size_t index,
                         struct control_override *ret_override);

/* By id or number ("cpu:0-1", "0"; "digits-3", "3"); by name. NOT_FOUND names what was asked for,
 * and the nearest or all that there are. Index as above. */
int control_device_find(struct control *control, const char *text, size_t *ret_index,
                        struct error *error);
int control_endpoint_find(struct control *control, const char *name, size_t *ret_index,
                          struct error *error);
#define CONTROL_LEASE_TOKEN_SIZE 64
/* Of the present run of a lease held from outside. FAILED_PRECONDITION: it holds nothing now. */
int control_lease_token(struct control *control, size_t index,
                        char ret_token[CONTROL_LEASE_TOKEN_SIZE], struct error *error);
int control_job_find(struct control *control, const char *text, size_t *ret_index,
                     struct error *error);

/* ---- why --------------------------------------------------------------------------------------
 */

struct control_victim {
    const char *job, *device;
    uint64_t cost_ns;
    bool chosen;
};
struct control_move {
    struct core_explanation core;
    uint64_t time_wall_ns;
    const char *device, *job, *endpoint; /* "": not concerned */
    char from[160], to[160];             /* "": nothing changes hands */
    char text[1024];
    struct control_victim victims[CORE_VICTIMS_MAX];
};
/* What to explain: at most one of the three is set, none: all. */
struct control_subject {
    uint64_t device, job, endpoint; /* core numbers, 0: not it */
};
int control_subject_find(struct control *control, const char *device, const char *job,
                         const char *endpoint, struct control_subject *ret_subject,
                         struct error *error);
/* Calls `each` for the newest moves first, at most `moves_max`; a move's texts live during it. */
void control_explain(struct control *control, const struct control_subject *subject,
                     size_t moves_max, void (*each)(void *context, const struct control_move *move),
                     void *context);
void control_summary(struct control *control, const struct control_subject *subject, char *text,
                     size_t size);

/* ---- dry run: what a change would bring ---------------------------------------------------------
 */

enum control_dry_kind {
    CONTROL_DRY_SUBMIT,          /* specification */
    CONTROL_DRY_CANCEL,          /* name of the job, here and below */
    CONTROL_DRY_PAUSE,           /* the same */
    CONTROL_DRY_RESUME,          /* the same */
    CONTROL_DRY_STOP_SERVING,    /* name of the endpoint */
    CONTROL_DRY_CHANGE_ENDPOINT, /* name, slo_ms, devices_min, devices_max, priority */
    CONTROL_DRY_HOLD,            /* on */
    CONTROL_DRY_MODE,            /* mode */
    CONTROL_DRY_ADD_DEVICES,     /* name of the kind, devices */
    CONTROL_DRY_REMOVE_DEVICE,   /* name, within_s: 0: at once, without notice */
    CONTROL_DRY_CORDON,          /* name of the device, on */
    CONTROL_DRY_TEAM,            /* team */
};
struct control_dry_change {
    enum control_dry_kind kind;
    const char *specification, *name;
    double slo_ms, within_s;           /* slo_ms 0: as it is */
    uint32_t devices_min, devices_max; /* maximum 0: as it is */
    int32_t priority;
    uint32_t devices;
    bool on;
    enum core_mode mode;
    const struct control_team_wish *team;
};
struct control_dry_result {
    const char *refused; /* why the core would not take it; "": it would */
    double start_s;      /* of a job that is submitted or resumed; NaN: not by then */
    double horizon_s;    /* how far it looked */
};
/* A move after that time; `anyway`: without the change too. The move's texts live during it. */
typedef void control_dry_each(void *context, const struct control_move *move, double after_s,
                              bool anyway);
/* Tries it on a clone of the core, in virtual time; nothing is changed. */
int control_dry_run(struct control *control, const struct control_dry_change *change,
                    double horizon_s, control_dry_each *each, void *context,
                    struct control_dry_result *ret_result, struct error *error);

/* ---- the timeline and changes ------------------------------------------------------------------
 */

const struct timeline *control_timeline(struct control *control);
uint32_t control_slot_ms(void);

uint64_t control_revision(const struct control *control);
uint64_t control_revision_floor(const struct control *control); /* first of this run */
/* Objects removed after the revision, oldest first, by index; false past the last one.
 * control_removed_known: whether all those after `revision` are still remembered. */
struct control_removed {
    uint64_t revision;
    bool is_job; /* else an endpoint */
    const char *name;
};
bool control_removed_at(struct control *control, uint64_t after_revision, size_t index,
                        struct control_removed *ret_removed);
bool control_removed_known(const struct control *control, uint64_t after_revision);
/* `notice` runs on the control thread after changes of state, and every 100 ms. Once for each
 * context, at most CONTROL_WATCHERS_MAX of them; NULL: no more for this one. */
#define CONTROL_WATCHERS_MAX 4
void control_on_change(struct control *control, void (*notice)(void *context), void *context);

#endif
