/* state.h: the control thread's own state. Inside the control room only.
 * Numbers: a device is index + 1 for the core, an endpoint and a job have numbers from 1 on; 0 is
 *          none, everywhere.
 * Thread:  the control thread, except where a field says otherwise. */
#ifndef TIDEPOOL_CONTROL_STATE_H
#define TIDEPOOL_CONTROL_STATE_H

#include <event2/event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/base/mailbox.h"
#include "server/control/change.h"
#include "server/control/control.h"
#include "server/control/loader.h"
#include "server/control/overrides.h"
#include "server/control/requests.h"
#include "server/control/twin.h"
#include "server/control/view.h"
#include "server/observe/timeline.h"
#include "server/outside/command.h"
#include "server/outside/outside.h"
#include "server/record/writer.h"
#include "server/serve/statistics.h"

#define TICK_MS 100
#define WINDOW_SECONDS 10
#define REMOVED_MAX 1024
#define KINDS_MAX CORE_KINDS_MAX
#define PROVIDER_NAME_SIZE 64

/* Why something is as it is: cut when too long. */
struct reason {
    char text[256];
};

struct revisions {
    uint64_t any, state;
    uint64_t settings; /* of the last change of what calls may set */
};

/* ---- objects ----------------------------------------------------------------------------------
 */

struct device_entry {
    struct device *device;
    struct revisions revisions;
    uint64_t holder;        /* job whose threads or processes are on the device; 0 none */
    uint64_t revoke_action; /* waits for its release */
    uint64_t verify_action; /* the same */
    uint64_t stop_action, resume_action; /* wait for an outside job to be frozen, thawed */
    bool unsure;  /* nobody can say that the last holder's processes are gone */
    bool resting; /* as told to serve */
    bool failed;  /* as told to the core, like the next two */
    bool cordoned;
    uint64_t leaves_wall_ns; /* 0: it stays */
    struct reason reason;
    uint64_t sampled_ns, serving_seen_ns, wait_seen_ns;
    uint64_t slices_seen;
    uint64_t account_seen_ns[CORE_ACCOUNT_COUNT]; /* for the timeline */
    struct {
        enum control_device_state state;
        uint64_t job;
        uint32_t instances;
    } shown; /* what the state revision stands for */
};

/* Answers of the last seconds, one step a second. */
struct window_step {
    uint64_t success, late;
    uint64_t latency[LATENCY_BUCKETS];
};
struct window {
    struct window_step steps[WINDOW_SECONDS + 1]; /* totals as they were; a ring */
    uint32_t count, next;
};

/* What calls may change, as the configuration has it. */
struct endpoint_settings {
    uint32_t devices_min, devices_max;
    int32_t priority;
    uint64_t slo_ns;
};

struct endpoint_entry {
    uint64_t number;
    struct revisions revisions;
    char name[MODEL_NAME_MAX + 1];
    char *path; /* of a file served by a call; of the folder in the repository */
    const char *runtime;
    uint32_t version, batch_max, devices_min, devices_max;
    int32_t priority;
    uint64_t slo_ns, memory_bytes;
    struct endpoint_settings configured; /* the same without overrides */
    double slo_target;
    uint32_t kinds_mask;
    bool from_repository;
    bool in_serve; /* serve and the core know it */
    bool stopping;
    struct reason reason; /* why it never came into serve */
    uint64_t place_action[DEVICES_MAX], remove_action[DEVICES_MAX];

    struct serve_sample sample; /* the last one */
    uint64_t sampled_ns;
    bool had_load; /* the last sample told the core of load */
    uint64_t told_arrivals, told_busy_ns;
    struct service_table service;
    struct endpoint_statistics *statistics; /* at the last tick */
    uint64_t success_ring[1000 / TICK_MS + 1];
    struct window *window; /* NULL until the first request */
    double requests_per_s, p50_ms, p99_ms, late_fraction;
    struct twin *twin;

    struct {
        enum control_endpoint_state state;
        uint32_t instances;
    } shown;
};

#define TEAMS_MAX 256
#define TEAM_NAME_SIZE 64
#define TEAM_WEIGHT_MAX 1000000
#define TEAM_WEIGHT "weight" /* fields of overrides; of quotas: with the kind behind it */
#define TEAM_QUOTA "quota."

struct team_entry {
    char name[TEAM_NAME_SIZE];
    struct revisions revisions;
    bool configured; /* what follows is the configuration's */
    uint32_t weight, quota[KINDS_MAX];
    bool in_core; /* something of it is set */
};

struct job_waiter {
    struct job_waiter *next;
    control_done *done;
    void *context;
};

/* ---- an outside job -----------------------------------------------------------------------------
 */

enum run_state {
    RUN_NONE,       /* holds nothing */
    RUN_GATHERING,  /* granted devices, of which the store knows nothing yet */
    RUN_COMMITTING, /* the store is told */
    RUN_READY,      /* begins as soon as no batch runs on its devices */
    RUN_STARTING,
    RUN_ALIVE,
    RUN_FINDING, /* held devices before a restart: is it still there? */
    RUN_ENDED,   /* over; the store is told */
};

struct run_grant {
    uint64_t device, generation, secret;
    uint64_t action; /* waits for the commit; 0: answered */
};

struct outside_job {
    struct command command;
    /* The present or last run. */
    enum run_state state;
    uint32_t run;             /* its number; 0: none yet */
    uint64_t epoch;           /* of its tokens */
    struct run_grant *grants; /* room for devices_max */
    uint32_t grant_count;
    bool abandoned; /* revoked before it began */
    bool resized;   /* its lease has just the devices that it runs with */
    uint64_t began_boot_ns;
    uint64_t pid;
    uint64_t log_dropped;
    char keeper[16]; /* "cgroup v2" */
    struct {
        bool asked; /* for its devices */
        bool fresh; /* the store and the job are to be told */
        bool told, numbered, signalled;
        bool killing, stopped_by_owner, expired, device_lost, restored;
        bool given_back; /* by the holder of a lease that wants devices again */
        uint64_t number; /* of the last notice; grows over all runs */
        uint64_t deadline_ns, deadline_boot_ns; /* 0: none */
        enum core_reason reason;
        uint64_t kill_action; /* waits for its end */
        uint64_t kill_ns;     /* bound of the kill */
        bool acknowledged;    /* by all ranks: saved */
        uint64_t end_ns;      /* then it is ended, if it has not ended by itself; 0: not yet */
    } notice;
    struct ranks_figures ranks; /* as last told, of the present run */
    uint64_t frozen_since_ns;   /* 0: it is at work */
    bool thaw_wanted;           /* as soon as no batch runs on its devices */
    /* How the last run that ended did, and all of them together. */
    enum control_exit_class exit_class;
    int exit_code, exit_signal;
    uint32_t failures, preemptions;
    uint64_t ran_ns, suspended_ns;
};

static inline void outside_notice_clear(struct outside_job *outside)
{
    uint64_t number = outside->notice.number;
    memset(&outside->notice, 0, sizeof outside->notice);
    outside->notice.number = number;
}

struct job_entry {
    uint64_t number;
    struct revisions revisions;
    char *id, *name, *specification;
    enum control_job_state state;
    struct reason reason, warning;
    uint64_t submitted_wall_ns, started_wall_ns, finished_wall_ns;
    uint32_t devices_min, devices_max;
    int32_t priority;
    uint64_t team;                  /* its number; 0: none */
    struct train_job *train;        /* NULL: ended, or an outside job */
    struct outside_job *outside;    /* NULL: in this process */
    bool committed;                 /* the store has it */
    bool ready;                     /* loaded: may be granted devices */
    bool paused;                    /* by its owner */
    bool in_core;                   /* its lease was requested and has not ended */
    enum control_job_state outcome; /* what it becomes when its lease has ended; 0: waits again */
    uint64_t generation;            /* of its last grant */
    uint64_t preemptions_before;    /* of earlier runs of the server */
    struct train_status figures;
    struct job_waiter *waiters; /* for the commit */
    uint32_t shown_devices;
};

struct removed_entry {
    uint64_t revision;
    bool is_job;
    char *name;
};

/* ---- the thread --------------------------------------------------------------------------------
 */

struct event_queue {
    struct core_event *events; /* a ring that grows */
    size_t first, count, capacity;
};

struct control {
    const struct config *config;
    struct clock_pace pace; /* constant */
    struct device_set *device_set;
    struct store *store;
    struct serve *serve;
    struct trainer *trainer;
    struct outside *outside; /* NULL: no outside jobs here */
    struct loader *loader;
    struct mailbox *mailbox; /* any thread sends */
    pthread_t thread;
    bool started;
    bool stopping;
    _Atomic bool testing;
    _Atomic uint64_t store_errors; /* the store's thread counts */
    uint64_t store_errors_seen, stored_again_ns;

    struct event_base *base;
    struct event *mail_event, *tick_event, *core_event;

    struct core *core;
    struct record_writer *record; /* NULL: events are not recorded */
    struct core_action *actions;
    size_t action_capacity;
    struct event_queue events;
    bool pumping;
    bool moved;      /* since the last refresh: states may have changed */
    uint64_t now_ns; /* of the letters or tick that is worked on */

    struct device_entry *devices;
    uint32_t device_count;
    char kinds[KINDS_MAX][16];
    uint32_t kind_count;
    struct endpoint_entry **endpoints;
    size_t endpoint_count, endpoint_capacity;
    uint64_t endpoint_number; /* last given */
    struct job_entry **jobs;
    size_t job_count, job_capacity;
    uint64_t job_number;
    struct requests *requests;
    struct overrides *overrides;
    struct team_entry teams[TEAMS_MAX]; /* number: index + 1 */
    uint32_t team_count;
    size_t loads_open; /* of the start: the server is ready when they are done */
    bool opened;
    uint32_t outside_count; /* jobs, not ended */
    uint32_t finding;       /* of them, those looked for after a restart */
    bool reconciled;
    struct event *quiet_event; /* looks whether batches have ended where outside jobs begin */
    struct signal_waiter *signal_waiters;
    uint64_t signal_tag;

    uint64_t revision, revision_floor;
    struct revisions status_revisions;
    struct removed_entry removed[REMOVED_MAX]; /* a ring by count */
    uint64_t removed_count;
    bool changed; /* a state has: the watcher is told when the letters are done */
    struct {
        void (*notice)(void *context); /* NULL: a free place */
        void *context;
    } watchers[CONTROL_WATCHERS_MAX];

    uint64_t start_ns, start_wall_ns;
    char *hold_reason;
    uint64_t hold_since_wall_ns;
    uint64_t ever_before_ns[CORE_ACCOUNT_COUNT]; /* of earlier runs */
    struct core_ledger ledger;                   /* at the last tick */
    uint64_t ledger_stored_ns;
    uint32_t devices_wanted, devices_have;
    struct {
        struct core_scale *signal;
        struct core_scale_view shown[KINDS_MAX]; /* what the status revision stands for */
        char providers[CORE_SCALE_COMING_MAX][PROVIDER_NAME_SIZE]; /* number: index + 1 */
        uint32_t provider_count;
    } scale;
    struct timeline *timeline;
    uint64_t slot_began_ns;
    uint64_t ticks;
    struct {
        uint64_t requests_ok, requests_failed, requests_late, twin_requests, late_total,
            late_by_handover;
    } gone; /* totals of endpoints that are no more */
    struct config_listener listeners[CONFIG_LISTENERS_MAX];
    uint32_t listener_count;

    struct {
        pthread_mutex_t lock;
        struct control_figures figures;
    } shared; /* under lock */
};

/* ---- letters (control.c) -----------------------------------------------------------------------
 */

enum letter_kind { LETTER_CALL, LETTER_SERVE, LETTER_TRAIN, LETTER_OUTSIDE };

struct serve_letter {
    struct letter letter;
    uint32_t kind;
    struct serve_event event;
};
struct train_letter {
    struct letter letter;
    uint32_t kind;
    struct train_event event;
};
struct outside_letter {
    struct letter letter;
    uint32_t kind;
    struct outside_event event;
};

/* ---- the core's loop (feed.c, apply.c)
 * ----------------------------------------------------------- */

/* Puts the event (its time is set) behind those that wait, and unless one is being worked on,
 * steps the core until none waits. */
void control_feed(struct control *control, struct core_event event);
void control_apply(struct control *control, const struct core_action *action);
/* Tells the core what the devices did since the last sample. */
void control_sample_devices(struct control *control);
uint64_t device_serving_now_ns(const struct device *device, uint64_t now_ns);
void on_core_timer(evutil_socket_t fd, short what, void *arg);

void feed_lease(struct control *control, enum core_event_kind kind, uint64_t lease);
void feed_answer(struct control *control, enum core_event_kind kind, uint64_t action,
                 uint64_t device);

static inline uint64_t device_number(uint32_t index)
{
    return (uint64_t)index + 1;
}

/* ---- events of serve and train (events.c)
 * -------------------------------------------------------- */

void control_on_serve(struct control *control, const struct serve_event *event);
void control_on_train(struct control *control, const struct train_event *event);
/* The trainer's threads are out of the device: answers what waits for it. */
void device_released(struct control *control, uint32_t index);

/* ---- outside jobs: outside_jobs.c (runs), outside_lease.c (what the core asks of them),
 * outside_record.c (in the store, after a restart)
 * ------------------------------------------------------------------------------------------------
 */

void control_on_outside(struct control *control, const struct outside_event *event);
/* Checks the specification and makes the job's outside part. */
int outside_job_create(struct control *control, struct job_entry *job, const json_t *specification,
                       struct error *error);
void outside_job_destroy(struct outside_job *outside); /* NULL is fine */
struct core_lease_spec outside_lease_spec(const struct control *control, uint64_t number,
                                          const struct command *command);
/* The job's, now: what it may still run, and as many devices as it runs with. */
struct core_lease_spec outside_job_spec(const struct control *control, const struct job_entry *job);
/* After each turn of the core's loop: whether it was told more. */
bool outside_settle(struct control *control);
void outside_tick(struct control *control);
void outside_lease_moved(struct control *control, struct job_entry *job,
                         enum core_lease_state state);
void outside_quiet_look(struct control *control);
void on_quiet_timer(evutil_socket_t fd, short what, void *arg);

void outside_granted(struct control *control, struct job_entry *job,
                     const struct core_action *action);
void outside_revoked(struct control *control, struct job_entry *job,
                     const struct core_action *action);
void outside_resumed(struct control *control, struct job_entry *job,
                     const struct core_action *action);
void outside_extended(struct control *control, struct job_entry *job,
                      const struct core_action *action);
void outside_killed(struct control *control, struct job_entry *job,
                    const struct core_action *action);
/* The notice is in the store: the job may be told. */
void outside_notice_tell(struct control *control, struct job_entry *job);
/* "cpu:0-3,cpu:4-7" and "0-3,4-7", malloc'ed; NULL: no memory. */
void outside_devices_print(const struct control *control, const struct outside_job *outside,
                           char **ret_devices, char **ret_cpus, uint32_t *ret_cores);
/* Runs `then` on this thread when the job, as it is now, is in the store, or with the error. */
typedef void outside_then(struct control *control, struct job_entry *job,
                          const struct error *error);
void outside_commit(struct control *control, struct job_entry *job, outside_then *then);
/* Nothing of the run lives any more; `again`: as told by the core's rules. */
void outside_run_over(struct control *control, struct job_entry *job,
                      const struct outside_event *event);
void outside_held_devices(struct control *control, const struct job_entry *job,
                          void (*each)(struct control *control, struct device_entry *entry));

char *outside_print(const struct outside_job *outside,
                    const struct control *control); /* JSON; NULL: no memory */
void outside_parse(struct outside_job *outside, const struct control *control, const char *text);
void outside_boot(struct control *control);
void outside_find_overdue(struct control *control);
/* Nothing is looked for any more: what waited for that. */
void outside_reconciled(struct control *control);
void outside_signalled(struct control *control, const struct outside_event *event);
/* Who keeps it, since when. */
void outside_running_note(struct control *control, struct job_entry *job,
                          const struct outside_event *event);
/* ---- leases held from outside: held.c ---- */

void held_begin(struct control *control, struct job_entry *job);
void held_restore(struct control *control, struct job_entry *job);
enum control_exit_class held_classify(const struct job_entry *job);
bool held_was_resized(const struct job_entry *job);

void outside_answer_grants(struct control *control, struct outside_job *outside);
void outside_stuck(struct control *control, struct job_entry *job, const char *why);
/* Tells the core how many devices it wants now. */
void outside_resize(struct control *control, const struct job_entry *job);
void outside_restore_lease(struct control *control, struct job_entry *job, bool alive);
/* At the start: the run was found, or not. */
void outside_found(struct control *control, struct job_entry *job,
                   const struct outside_event *event);

/* ---- devices.c
 * ----------------------------------------------------------------------------------- */

int devices_create(struct control *control, struct error *error);
void devices_boot(struct control *control);
void control_reconciled(struct control *control); /* nothing was granted before */
void devices_rest(struct control *control);       /* tells serve where instances may not serve */
void device_fail(struct control *control, uint32_t index, const char *reason);
enum control_device_state device_state(const struct control *control, uint32_t index,
                                       struct core_device_view *ret_view);
uint32_t device_kinds_mask(const struct control *control, const char *kind); /* "": all */

/* ---- scale.c
 * ------------------------------------------------------------------------------------- */

int scale_create(struct control *control, struct error *error);
void scale_refresh(struct control *control); /* every second */

/* ---- endpoints.c, serving.c
 * ------------------------------------------------------------------------ */

struct endpoint_entry *endpoint_by_number(const struct control *control, uint64_t number,
                                          size_t *ret_index);
struct endpoint_entry *endpoint_by_name(const struct control *control, const char *name,
                                        size_t *ret_index);
/* A new entry at the list's end, or NULL: no memory. */
struct endpoint_entry *endpoint_entry_create(struct control *control, const char *name);
void endpoint_entry_remove(struct control *control, struct endpoint_entry *endpoint);
void endpoint_entry_destroy(struct endpoint_entry *endpoint);
enum control_endpoint_state endpoint_entry_state(const struct endpoint_entry *endpoint);
void endpoint_fill_spec(const struct control *control, const struct endpoint_entry *endpoint,
                        struct core_endpoint_spec *ret_spec);
void endpoint_tell_service(struct control *control, struct endpoint_entry *endpoint, uint32_t kind,
                           const struct service_table *table);
void serving_boot(struct control *control);
void endpoint_stopped(struct control *control, struct endpoint_entry *endpoint);

/* ---- jobs.c, job_record.c
 * --------------------------------------------------------------------------- */

struct job_entry *job_by_number(const struct control *control, uint64_t number, size_t *ret_index);
struct job_entry *job_add(struct control *control, uint64_t number); /* NULL: no memory */
void job_destroy(struct job_entry *job);
bool job_ended(const struct job_entry *job);
void jobs_boot(struct control *control);
void job_became_ready(struct control *control, struct job_entry *job);
void job_move(struct control *control, struct job_entry *job, enum control_job_state state);
void job_request_lease(struct control *control, struct job_entry *job);
void job_finalize(struct control *control, struct job_entry *job);
void job_runs(struct control *control, struct job_entry *job); /* from now on */
/* `done` when the job, as it is now, is in the store. */
void job_keep_change(struct control *control, const struct job_entry *job, control_done *done,
                     void *context);
void job_ends(struct control *control, struct job_entry *job, enum control_job_state outcome,
              const char *reason);
void job_lease_moved(struct control *control, uint64_t number, enum core_lease_state state,
                     enum core_reason reason);
int jobs_load(struct control *control, struct error *error);
/* `done` as in the store; NULL: only counted and logged. */
int job_store(struct control *control, const struct job_entry *job, store_done *done,
              void *context);
/* The same for a new one, with the id of the request that makes it ("": none). */
int job_store_new(struct control *control, const struct job_entry *job, const char *request_id,
                  store_done *done, void *context);
void jobs_store(struct control *control); /* all that the store has or should have */
/* Checks the specification and makes the trainer's job. */
struct core_lease_spec job_lease_spec(const struct control *control, uint64_t number,
                                      uint32_t devices_min, uint32_t devices_max, int32_t priority);
int job_train(struct control *control, struct job_entry *job, const json_t *specification,
              struct error *error);
/* What the trainer cannot know: serving reads the export's config; and where it may lie. */
int job_check_export(const struct control *control, const json_t *specification, bool anywhere,
                     struct error *error);
void job_refresh_figures(struct job_entry *job);

/* ---- settings.c
 * -------------------------------------------------------------------------------------- */

int settings_load(struct control *control, struct core_config *core_config, struct error *error);
void settings_boot(struct control *control);
void ledger_store(struct control *control);
/* The answer to a change that is done and holds over a restart: it waits for the disk. A store_done
 * with this as its context posts it. */
struct kept_answer {
    struct control_call call; /* first */
    struct control *control;
    control_done *done;
    void *context;
    size_t index;      /* of the object, for `done` */
    uint64_t endpoint; /* its number, when it is one: then the index is found again; 0: none */
    struct error error;
};
struct kept_answer *kept_answer_create(struct control *control, control_done *done,
                                       void *context); /* NULL: no memory */
void kept_answer_done(void *context, const struct error *error);
/* For store_put_*: counts what could not be written (context: the control). */
void count_store_error(void *context, const struct error *error);

/* ---- teams.c
 * -------------------------------------------------------------------------------------- */

int teams_create(struct control *control, struct error *error); /* after devices and overrides */
void teams_boot(struct control *control);
/* For the core; "" is 0. A new name is a new team. */
int team_number(struct control *control, const char *name, uint64_t *ret_number,
                struct error *error);
uint64_t team_known(const struct control *control, const char *name); /* 0: none of that name */
void team_adjust(struct control *control, const char *name);
void team_quota_field(const struct control *control, uint32_t kind,
                      char field[OVERRIDE_FIELD_SIZE]);
int64_t team_configured(const struct control *control, const char *name, const char *field);
/* Checks a wish; the team is there from then on. */
int team_wish_make(struct control *control, const struct control_team_wish *wish,
                   const struct revisions **ret_revisions, struct error *error);
/* As it would be; nothing is made. */
int team_wish_spec(const struct control *control, const struct control_team_wish *wish,
                   struct core_team_spec *ret_spec, struct error *error);

/* ---- why.c
 * ---------------------------------------------------------------------------------------- */

void move_fill(struct control *control, const struct core_explanation *core,
               struct control_move *move);

/* ---- figures.c, revisions.c
 * ---------------------------------------------------------------------------- */

void on_tick(evutil_socket_t fd, short what, void *arg);
/* The endpoint's statistics as they are now. */
void endpoint_refresh_statistics(struct control *control, struct endpoint_entry *endpoint);
void revision_touch(struct control *control, struct revisions *revisions, bool state);
void revision_touch_status(struct control *control);
void revision_removed(struct control *control, bool is_job, const char *name);
/* Compares what is shown with what is, after letters; tells the watcher. */
void revisions_refresh(struct control *control);

#endif
