/* state.h: what the files of the core share. Not for others: they include core.h.
 * Pointers link objects but never order anything: tables are sorted by id.
 * One writer: hold and lease of a device change only in hold.c, a lease's state only in lease.c,
 * an instance's only in instance.c, accounts only in ledger.c and totals.c. */
#ifndef TIDEPOOL_CORE_STATE_H
#define TIDEPOOL_CORE_STATE_H

#include <assert.h>

#include "server/core/core.h"

#define SECOND_NS UINT64_C(1000000000)
#define HOUR_NS (3600 * SECOND_NS)
#define NEVER_NS UINT64_MAX
/* Of an instance, a lease or a device: sums of all of them fit. */
#define MEMORY_MAX (UINT64_C(1) << 50)

struct instance {
    enum core_instance_state state;
    uint64_t action;   /* PLACE or REMOVE that is not answered yet */
    uint64_t until_ns; /* its time-out; when absent: do not place before */
    uint32_t failures; /* in a row */
};

struct lease;
struct endpoint;

struct device {
    uint64_t id;
    uint32_t kind;
    uint64_t memory_bytes;
    enum core_health health;
    bool cordoned, occupied;
    uint32_t speed_permille; /* against its kind's own */
    uint64_t node, link, provider;
    uint64_t reclaim_by_ns;

    /* Towards leases. */
    enum core_hold hold;
    struct lease *lease; /* set unless hold is NONE; NULL too while a recovered one is verified */
    struct device *next, *previous; /* of the same lease, by id; kept by hold.c */
    struct lease *promised;         /* is granted to this one next */
    uint64_t generation;
    uint64_t action;      /* the GRANT, REVOKE, KILL or VERIFY that is awaited */
    uint64_t deadline_ns; /* of that */
    enum core_rung rung;  /* of the revoke or stop that runs */
    enum core_reason revoke_reason;
    uint64_t revoked_ns, granted_ns;
    uint64_t stopped_ns;   /* SUSPENDED: since when */
    uint64_t holder_bytes; /* what its holder has in memory; 0: no holder */
    bool extended;         /* the notice was extended */
    bool resting;          /* its holder lets instances not serve; kept by hold.c */
    bool kept;             /* for serving */
    uint64_t kept_for;     /* endpoint */

    /* Moves that the core chose: a ring of the last hour's times, moves_capacity long. */
    uint64_t *moves;
    uint32_t move_next, move_count;
    bool moved;
    uint64_t moved_ns;

    /* Towards endpoints. */
    struct instance *instances;                  /* [core->slot_capacity], by the endpoint's slot */
    uint32_t instances_present, instances_ready; /* kept by instance.c, as is their memory */
    uint64_t instances_bytes;
    uint64_t utilisation_ppm;
    uint64_t sampled_ns, served_ns;
    uint64_t hot_since_ns, cool_since_ns; /* NEVER_NS: not now */
    bool lending;                         /* a burst is served from a granted device */

    /* Ledger. */
    uint64_t added_ns;
    enum core_account account;
    uint64_t account_since_ns, account_open_ns; /* open: of this stay, not yet covered by samples */
    uint64_t account_ns[CORE_ACCOUNT_COUNT];
    struct endpoint *account_for; /* whose time this stay is when no lease has the device */
    uint64_t slices;
    uint32_t handovers;

    uint64_t advice; /* what was last explained without being done */
    bool picked;     /* scratch of the planner */
};

struct endpoint {
    struct core_endpoint_spec spec;
    uint32_t slot;
    bool removing;
    uint64_t service_ns[CORE_KINDS_MAX][CORE_BATCH_SIZES];
    uint64_t rate_fast_milli, rate_slow_milli; /* requests per second x 1000 */
    uint64_t observed_ns;                      /* device time a request took, from samples */
    uint64_t sampled_ns;
    uint64_t demand_milli;
    uint32_t needed;
    uint64_t lower_since_ns; /* NEVER_NS: demand is not under the lower threshold */
    uint64_t danger_until_ns;
    uint32_t danger_needed;
    uint64_t projected_wait_ns;
    /* Kept by instance.c: instances PLACING or READY anywhere; of them, those on a device whose
     * holder lets them not serve; and READY ones that serve. */
    uint32_t placed, resting, ready;
    uint64_t lacking_since_ns; /* NEVER_NS: it has what it needs */
    uint32_t taken;            /* scratch of the planner: instances that its plan would remove */
    enum core_reason lacks;
    uint64_t advice;
    uint64_t account_ns[CORE_ACCOUNT_COUNT];
};

/* Devices of one kind and team. */
struct share {
    uint32_t held, leaving;
    uint32_t reserved; /* of both, by leases that are not preemptible */
};

struct team {
    struct core_team_spec spec;
    bool added;
    uint32_t leases;                    /* in the table, ended ones too */
    struct share share[CORE_KINDS_MAX]; /* kept by hold.c */
    uint64_t usage, accrued_ns;         /* see team.c */
    uint64_t account_ns[CORE_ACCOUNT_COUNT];
};

/* Times of the last moves of one sort: a ring of `capacity`. */
struct moments {
    uint64_t *times_ns;
    uint32_t capacity, next, count;
};

/* Learned by one lease on one kind of device, or by all together; microseconds; 0: not measured. */
struct rung_time {
    uint32_t take_us, give_us;
};

/* The rungs that are a hand-over, hence have a cost: SHRINK .. KILL. */
#define RUNG_FIRST CORE_RUNG_SHRINK
#define RUNGS (CORE_RUNG_COUNT - RUNG_FIRST)

/* A stop in place that did not come off: not tried again before. */
struct stop_failure {
    uint64_t until_ns;
    uint32_t count; /* in a row */
};

struct lease {
    struct core_lease_spec spec;
    struct team *team;
    enum core_lease_state state;
    enum core_reason reason;
    uint64_t since_ns, queued_ns;
    uint64_t carried_ns; /* waiting of before that counts too, credit included */
    uint64_t credit_ns;
    uint64_t started_ns;         /* this run */
    uint64_t running_ns, ran_ns; /* since when in RUNNING; time in it before that, in all runs */
    uint64_t ran_before_ns;      /* ran_ns when this run started */
    uint64_t heard_ns;           /* of its holder */
    bool heartbeat_lost, reported;
    uint64_t checkpoint_ns;                  /* when the last one was reported */
    struct moments revoke_times, stop_times; /* by the core's choice; see guard.c */
    uint64_t sequence;
    struct device *first, *last;               /* its devices; kept by hold.c */
    uint32_t held, leaving, stopped, promised; /* devices by phase; kept by hold.c */
    uint32_t granting, quiet;                  /* of the held; of the stopped, SUSPENDED */
    bool pause_wanted;
    uint64_t retry_ns;
    uint32_t grants_failed; /* in a row */
    uint32_t failures, preemptions;

    /* While SUSPENDED, kept by suspend.c. */
    struct lease *stop_next, *stop_previous;
    enum core_rung stop_rung;
    uint64_t stop_ns;        /* since when */
    uint64_t stop_served_ns; /* what its devices had served by then */
    uint64_t stop_again_ns;  /* not before */
    bool replaced;           /* lasting devices have been found in its stead */
    bool going_on_wanted, going_on;
    enum core_reason going_on_reason;
    enum core_lease_state then; /* DRAINING or ENDING as soon as it is at work; RUNNING: neither */
    enum core_reason then_reason;
    struct stop_failure stop_failures[CORE_RUNG_SWAP - CORE_RUNG_FREEZE + 1];
    uint32_t stops;

    uint64_t run, generation; /* first and last grant of this run */
    uint64_t step, checkpointed_step;
    struct rung_time rung_times[RUNGS][CORE_KINDS_MAX];
    uint64_t provisional_ns; /* of its TRAINING account */
    uint64_t account_ns[CORE_ACCOUNT_COUNT];
    uint32_t revokes, runs;
    uint32_t speed_permille[CORE_KINDS_MAX]; /* measured; 0: not */
    int64_t rank;                            /* priority with age, while planning */
    uint32_t position;
    uint32_t picked; /* scratch of the planner: devices that its plan would take from it */
    uint32_t told_held;
    enum core_lease_state told_state;
    bool told, told_lost;
    uint64_t advice;
};

struct ring {
    struct core_explanation *slots;
    uint64_t capacity, count; /* count of all that ever went in */
};

struct core {
    struct core_config config;
    uint64_t now_ns;
    enum core_mode mode;
    bool hold, reconciled;
    bool dirty; /* something changed that the planner may care about */
    uint64_t due_ns, timer_ns;

    struct device **devices;
    size_t device_count, device_capacity;
    struct endpoint **endpoints;
    size_t endpoint_count, endpoint_capacity;
    struct endpoint **ranked; /* by priority; rebuilt when endpoints change */
    uint32_t slot_capacity;
    struct lease **leases;
    struct lease **queue; /* scratch of the planner, as long as leases */
    size_t lease_count, lease_capacity, ended_count;
    struct lease *stops_first, *stops_last; /* SUSPENDED ones, in the order of their stops */
    uint32_t stops_count;
    uint64_t stop_length_ns;   /* how long the last ones lasted, on average */
    uint64_t stepped_aside_ns; /* when the last one gave its device because nobody else could */
    struct team **teams;       /* team 0 is always there */
    size_t team_count, team_capacity;
    uint32_t teams_added;
    uint64_t usage_epoch_ns; /* see team.c */

    struct core_kind_spec kinds[CORE_KINDS_MAX];

    uint64_t sequence;   /* of leases */
    uint64_t generation; /* of grants */
    uint64_t action_id, hash;
    struct core_action *actions;
    size_t action_count, action_max;

    struct ring moves, bursts; /* explanations; a lively load must not push out who got what */
    uint64_t explanation_id;

    uint64_t retired_ns[CORE_ACCOUNT_COUNT], retired_elapsed_ns,
        retired_slices; /* removed devices */
    uint64_t lost_ns, unbooked_ns;
    uint64_t nobody_ns[CORE_ACCOUNT_COUNT]; /* of no lease and no endpoint, or of forgotten ones */
    uint64_t handovers[CORE_RUNG_COUNT];
    struct rung_time rung_times[RUNGS][CORE_KINDS_MAX];
    uint64_t handover_cost_ns; /* average of the last ones; UINT64_MAX never */
    uint32_t scale_wanted, scale_have;
    bool scale_told;
};

/* ---- number.c ---- */
uint64_t core_scale_u64(uint64_t value, uint64_t times, uint64_t by); /* floor; saturates; by > 0 */
uint64_t core_add_u64(uint64_t a, uint64_t b);                        /* saturates */
/* One step of an average over `window`; `weight` is the age of the sample. */
uint64_t core_average_u64(uint64_t average, uint64_t sample, uint64_t weight, uint64_t window);
uint64_t core_hash_u64(uint64_t hash, uint64_t value);
uint64_t core_secret(const uint64_t seed[2], uint64_t epoch, uint64_t generation);

/* ---- action.c: the only writer of the action buffer ---- */
struct core_action *core_emit(struct core *core, enum core_action_kind kind);
void core_emit_reject(struct core *core, uint64_t device, uint64_t endpoint, uint64_t lease,
                      enum core_reason reason);
void core_hash_actions(struct core *core);

/* ---- table.c: sorted by id ---- */
struct device *core_device_get(const struct core *core, uint64_t id);
struct endpoint *core_endpoint_get(const struct core *core, uint64_t id);
struct lease *core_lease_get(const struct core *core, uint64_t id);
int core_table_reserve(void ***table, size_t *capacity, size_t count);
void core_device_insert(struct core *core, struct device *device);
void core_device_erase(struct core *core, struct device *device);
int core_endpoint_insert(struct core *core, struct endpoint *endpoint); /* -1: no memory */
void core_endpoint_erase(struct core *core, struct endpoint *endpoint);
void core_endpoint_rank(struct core *core);
struct team *core_team_get(const struct core *core, uint64_t id);
int core_team_insert(struct core *core, struct team *team); /* -1: no memory */
void core_team_erase(struct core *core, struct team *team);
int core_lease_insert(struct core *core, struct lease *lease);
void core_lease_erase(struct core *core, struct lease *lease);

/* ---- hold.c ---- */
void core_hold_event(struct core *core, const struct core_event *event);
void core_device_lose(struct core *core, struct device *device, enum core_reason reason);
void core_device_promise(struct device *device, struct lease *lease); /* NULL: to nobody */
void core_device_grant(struct core *core, struct device *device, struct lease *lease,
                       enum core_reason reason);
void core_device_revoke(struct core *core, struct device *device, enum core_rung rung,
                        enum core_reason reason);
void core_device_killing(struct core *core, struct device *device, uint64_t action);
void core_device_verify(struct core *core, struct device *device, enum core_reason reason);
void core_device_quarantine(struct core *core, struct device *device, enum core_reason reason);
void core_device_restore(struct core *core, struct device *device, struct lease *lease,
                         uint64_t generation, bool alive);
void core_device_restore_stopped(struct core *core, struct device *device, struct lease *lease,
                                 uint64_t generation, uint64_t residue_bytes);
void core_device_overdue(struct core *core, struct device *device);
void core_device_suspend(struct core *core, struct device *device, enum core_rung rung,
                         enum core_reason reason);
void core_device_suspended(struct core *core, struct device *device, uint64_t residue_bytes);
void core_device_resume(struct core *core, struct device *device, enum core_reason reason);
void core_device_resumed(struct core *core, struct device *device);

bool core_device_stopped(const struct device *device); /* SUSPENDING, SUSPENDED or RESUMING */

/* ---- pool.c ---- */
bool core_device_usable(const struct device *device); /* for something new */
uint64_t core_device_memory_used(const struct device *device);
bool core_device_rested(const struct core *core, const struct device *device); /* hold time over */
uint32_t core_device_moves(const struct core *core, const struct device *device); /* last hour */
void core_device_count_move(struct core *core, struct device *device);
void core_device_keep(struct core *core, struct device *device, uint64_t endpoint);
void core_device_unkeep(struct core *core, struct device *device);
uint32_t core_pool_matching(const struct core *core, uint32_t kinds_mask);
void core_pool_event(struct core *core, const struct core_event *event);
void core_device_destroy(struct device *device);

/* ---- kinds.c ---- */
void core_kinds_event(struct core *core, const struct core_event *event);

/* ---- instance.c ---- */
struct instance *core_instance_of(const struct device *device, const struct endpoint *endpoint);
bool core_instance_serves(const struct instance *instance); /* PLACING or READY */
void core_instances_resize(struct core *core, struct endpoint *endpoint, uint64_t memory_bytes);
/* Those that serve or will as soon as they are ready. */
uint32_t core_endpoint_serving(const struct endpoint *endpoint);
/* The holder of the device begins or ends to let them not serve. */
void core_instances_rest(struct core *core, struct device *device, bool resting);
void core_instance_place(struct core *core, struct device *device, struct endpoint *endpoint);
void core_instance_remove(struct core *core, struct device *device, struct endpoint *endpoint);
void core_instance_vanish(struct core *core, struct device *device, struct endpoint *endpoint);
void core_instances_vanish(struct core *core, struct device *device);
void core_instance_overdue(struct core *core, struct device *device, struct endpoint *endpoint);
void core_instance_event(struct core *core, const struct core_event *event);

/* ---- demand.c ---- */
void core_demand_event(struct core *core, const struct core_event *event);
void core_demand_refresh(struct core *core);                      /* what time alone changes */
uint64_t core_endpoint_batch_ns(const struct endpoint *endpoint); /* of one request alone */
bool core_device_hot(const struct core *core, const struct device *device);  /* long enough */
bool core_device_cool(const struct core *core, const struct device *device); /* long enough */
uint64_t core_hold_ns(const struct core *core);
struct endpoint *core_device_busiest(const struct core *core, const struct device *device);

/* ---- lease.c ---- */
void core_lease_event(struct core *core, const struct core_event *event);
void core_lease_lost_device(struct core *core, struct lease *lease, enum core_reason reason);
void core_lease_settle(struct core *core, struct lease *lease); /* after a device has left it */
void core_lease_kill(struct core *core, struct lease *lease, struct device *overdue);
void core_lease_move(struct core *core, struct lease *lease, enum core_lease_state next,
                     enum core_reason reason);
void core_lease_withdraw(struct core *core, struct lease *lease, enum core_lease_state next,
                         enum core_reason reason);
uint64_t core_lease_recall(struct core *core, struct lease *lease, enum core_lease_state next,
                           enum core_reason reason);
void core_lease_goes_on(struct core *core, struct lease *lease);
bool core_lease_token_is_current(const struct lease *lease, uint64_t generation);
void core_lease_started(struct core *core, struct lease *lease);
void core_lease_restored(struct core *core);
void core_lease_overdue(struct core *core, struct lease *lease);
void core_lease_grant_failed(struct core *core, struct lease *lease, enum core_reason reason);
void core_leases_tell(struct core *core);
void core_leases_forget(struct core *core);
bool core_lease_wants_more(const struct lease *lease);
uint64_t core_lease_ran_ns(const struct core *core, const struct lease *lease);
uint64_t core_lease_end_ns(const struct core *core, const struct lease *lease); /* NEVER_NS: none */
uint64_t core_lease_waited_ns(const struct core *core, const struct lease *lease);
void core_lease_destroy(struct lease *lease);

/* ---- heartbeat.c ---- */
void core_heartbeat(struct core *core, struct lease *lease);
/* When its heartbeat will be missed; NEVER_NS: not awaited. */
uint64_t core_heartbeat_due_ns(const struct core *core, const struct lease *lease);
void core_heartbeat_overdue(struct core *core, struct lease *lease);
/* The server itself was stopped until now: nobody is to blame for silence. */
void core_heartbeats_forgive(struct core *core, uint64_t late_ns);

/* ---- guard.c ---- */
int core_guard_init(struct lease *lease); /* -1: no memory */
void core_guard_fini(struct lease *lease);
/* What keeps the core from taking so many devices from a running lease by this rung, now; NONE:
 * nothing. `danger`: an SLO is in danger. */
enum core_reason core_guard(const struct core *core, const struct lease *lease, uint32_t devices,
                            enum core_rung rung, bool danger);
/* When that may change by time alone; NEVER_NS: not at all. */
uint64_t core_guard_due_ns(const struct core *core, const struct lease *lease);
void core_guard_count(struct core *core, struct lease *lease, enum core_rung rung);

/* ---- suspend.c ---- */
bool core_rung_stops(enum core_rung rung);                /* in place */
uint64_t core_lease_served_ns(const struct lease *lease); /* by its devices, ever */
void core_lease_stop(struct core *core, struct lease *lease, enum core_rung rung,
                     enum core_reason reason);
void core_lease_go_on(struct core *core, struct lease *lease, enum core_reason reason);
uint64_t core_lease_stop_end_ns(const struct core *core, const struct lease *lease);
void core_stop_then(struct core *core, struct lease *lease, enum core_lease_state then,
                    enum core_reason reason);
void core_stop_follow(struct core *core, struct lease *lease);
void core_stop_follow_state(struct core *core, struct lease *lease, enum core_lease_state next);
void core_stop_settle(struct core *core, struct lease *lease, enum core_reason reason);
void core_stop_answered(struct core *core, struct device *device, const struct core_event *event);
void core_stop_overdue(struct core *core, struct device *device);
void core_stop_restore(struct core *core, struct device *device, struct lease *lease,
                       const struct core_event *event);
void core_stops_restored(struct core *core);

/* ---- notice.c ---- */
enum core_reason core_notice_extend(struct core *core, struct lease *lease,
                                    const struct core_event *event);

/* ---- rung.c ---- */
bool core_rungs_are_valid(const struct core_lease_spec *spec);
/* When a device that is on its way from its holder is expected. */
uint64_t core_device_arrival_ns(const struct core *core, const struct device *device);
bool core_rung_supported(const struct lease *lease, enum core_rung rung);
bool core_lease_can_stop(const struct lease *lease);         /* in place, by some rung */
enum core_rung core_rung_for_all(const struct lease *lease); /* to get all its devices back */
enum core_rung core_rung_for_one(const struct lease *lease); /* one of several */
uint64_t core_rung_span_ns(const struct core *core, const struct lease *lease,
                           enum core_rung rung); /* from a revoke to its deadline */
uint64_t core_rung_take_ns(const struct core *core, const struct lease *lease, enum core_rung rung,
                           uint32_t kind);
uint64_t core_rung_give_ns(const struct core *core, const struct lease *lease, enum core_rung rung,
                           uint32_t kind);
uint64_t core_rung_hold_ns(const struct core *core, const struct lease *lease, enum core_rung rung,
                           uint32_t kind);
void core_rung_took(struct core *core, const struct device *device, enum core_rung rung,
                    uint64_t ns);
void core_rung_gave(struct core *core, const struct device *device, enum core_rung rung,
                    uint64_t ns);
void core_rung_measured(struct lease *lease, const struct core_event *event);

/* ---- team.c ---- */
int core_teams_init(struct core *core); /* -1: no memory */
void core_team_event(struct core *core, const struct core_event *event);
void core_teams_follow(struct core *core); /* what time alone changes */
/* The team of a new lease, made if need be. */
enum core_reason core_team_join(struct core *core, uint64_t id, struct team **ret_team);
void core_team_leave(struct core *core, struct team *team);
/* A device of this kind enters (+1) or leaves (-1) one of the counts of the lease's team. */
void core_team_count(struct core *core, const struct lease *lease, uint32_t kind, bool leaving,
                     int sign);
uint32_t core_team_beyond(const struct team *team); /* devices held beyond quota, over all kinds */
uint64_t core_team_usage_ns(const struct core *core, const struct team *team);

/* ---- totals.c ---- */
void core_totals_add(struct core *core, const struct device *device, uint64_t amount_ns);
void core_totals_move(struct core *core, const struct device *device, uint64_t amount_ns,
                      enum core_account to);
void core_totals_lose(struct lease *lease, uint64_t amount_ns);
void core_totals_forget_endpoint(struct core *core, struct endpoint *endpoint);
void core_totals_forget_team(struct core *core, const struct team *team);
struct endpoint *core_totals_endpoint(const struct core *core, const struct device *device);

/* ---- placement.c ---- */
bool core_may_move(const struct core *core);
void core_placement_plan(struct core *core);
/* Every endpoint with an instance there could do with one fewer. */
bool core_device_spare(const struct core *core, const struct device *device);
/* What of `device` is left beside others than this endpoint allows its instance there? */
bool core_neighbours_agree(const struct core *core, const struct device *device,
                           const struct endpoint *endpoint);

/* Devices that will serve the endpoint by then without any more decisions. */
uint32_t core_capacity_coming(const struct core *core, const struct endpoint *endpoint,
                              uint64_t by_ns);

/* ---- take.c: devices back from leases ---- */
enum core_take {
    CORE_TAKE_ANY,
    CORE_TAKE_LASTING, /* no stop in place */
    CORE_TAKE_BRIDGE,  /* by a stop in place, until what is on its way arrives */
};
uint64_t core_victim_cost(const struct core *core, const struct device *device);
/* Takes one device from its elastic lease for something more urgent, and says why. */
void core_shrink(struct core *core, struct device *device, enum core_reason reason,
                 struct core_explanation *explanation);
/* One more device for the endpoint, by the best rung there is; false: there is none. */
bool core_take_for(struct core *core, struct endpoint *endpoint, enum core_take how);
/* How soon what the endpoint lacks is wanted. */
uint64_t core_endpoint_within_ns(const struct core *core, const struct endpoint *endpoint);

/* ---- bridge.c ---- */
void core_stops_release(struct core *core);
void core_stops_replace(struct core *core);
uint64_t core_stop_due_ns(const struct core *core, const struct lease *lease);

/* A model that just failed to load is no reason to take more devices for it. */
bool core_endpoint_failing(const struct core *core, const struct endpoint *endpoint);

/* ---- queue.c: the minimums of waiting leases; returns the kinds that nothing may overtake on */
uint32_t core_queue_plan(struct core *core);
bool core_lease_lets_serve(const struct device *device, const struct lease *lease);
bool core_device_must_empty(const struct device *device, const struct lease *lease);
bool core_device_empty(struct core *core, struct device *device); /* true: it is, already */

/* ---- planner.c ---- */
void core_plan(struct core *core);

/* ---- ledger.c ---- */
void core_ledger_open(struct core *core, struct device *device);
void core_ledger_update(struct core *core, struct device *device); /* accrues, chooses account */
void core_ledger_book(struct core *core, struct device *device, uint64_t amount_ns,
                      enum core_account to);
void core_ledger_retire(struct core *core, struct device *device);
void core_ledger_keep(struct core *core, struct lease *lease, uint64_t step,
                      uint64_t checkpointed_step);
void core_ledger_lose(struct core *core, struct lease *lease);
void core_ledger_kept_all(struct core *core, struct lease *lease);

/* ---- explain.c ---- */
int core_explain_init(struct core *core); /* -1: no memory */
/* Begins an explanation about these objects, with their figures filled in. */
struct core_explanation core_explain_begin(const struct core *core, enum core_what what,
                                           enum core_reason reason, const struct device *device,
                                           const struct lease *lease,
                                           const struct endpoint *endpoint);
void core_explain_victim(struct core_explanation *explanation, const struct device *device,
                         uint64_t cost_ns, bool chosen);
void core_explain(struct core *core, const struct core_explanation *explanation);
/* The same for something that mode or hold forbids; once as long as `memo` stays. */
void core_explain_advice(struct core *core, uint64_t *memo, struct core_explanation explanation);

#endif
