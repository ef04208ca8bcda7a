/* state.h: what the files of the core share. Not for others: they include core.h.
 * Pointers link objects but never order anything: tables are sorted by id, sets and lists by slot.
 * One writer: hold and lease of a device change only in hold.c, a lease's state only in lease.c,
 * an instance's only in instance.c, accounts only in ledger.c and totals.c.
 *
 * A step costs what changed, not what there is. Three rules keep it so:
 * 1. Whoever changes something that a plan looks at (a state, a count, a wish, a flag) calls
 *    core_device_touch, core_endpoint_touch or core_lease_touch after the change; where only the
 *    account or the next time changed, core_*_note. The sets below follow by themselves.
 * 2. What time alone changes has its next time told by core_*_due_ns of the object: it is touched
 *    when that time comes. A condition on the clock without a due time is never seen to turn.
 * 3. A pass of the planner visits what is in the sets of NEWS (touched since the last look, or in
 *    this one) and finds the rest in sets of slots; it must leave alone what is not touched. A
 *    second look right after a step thus does nothing: tests compare with one at everything. */
#ifndef TIDEPOOL_CORE_STATE_H
#define TIDEPOOL_CORE_STATE_H

#include <assert.h>

#include "server/core/core.h"
#include "server/core/set.h"

#define SECOND_NS UINT64_C(1000000000)
#define HOUR_NS (3600 * SECOND_NS)
#define NEVER_NS UINT64_MAX
/* Of an instance, a lease or a device: sums of all of them fit. */
#define MEMORY_MAX (UINT64_C(1) << 50)

/* In the heap while at_ns is not NEVER_NS. */
struct timer {
    uint64_t at_ns;
    size_t place; /* in the heap, from 1; 0: not in it */
    enum { TIMER_DEVICE, TIMER_ENDPOINT, TIMER_LEASE, TIMER_FAIR } of;
    uint32_t slot;
};

/* Sets of an object's slots. TOUCHED waits for the next look or round, NEWS is what this one goes
 * through, CHANGED what the step has to account for and tell at its end. */
enum { TOUCHED, NEWS, CHANGED, MARKS };

enum device_set {
    DEVICES_THERE = MARKS, /* slots in use */
    DEVICES_KEPT,          /* for serving */
    DEVICES_MOVING,        /* neither free nor held: a grant, revoke or verification runs */
    DEVICES_PROMISED,
    DEVICES_CLEARING, /* an instance is being removed */
    DEVICES_GOING,    /* leave the pool, with instances */
    DEVICES_AILING,   /* much too slow, or drained because they were */
    DEVICES_HOT,      /* held, and serving takes nearly all of it */
    DEVICES_PICKED,   /* scratch of a plan for a gang */
    DEVICES_OLD,      /* scratch of growth: without news, but looked at */
    DEVICES_IDLE,     /* [kind]: usable, free, not kept, promised to nobody */
    DEVICES_OPEN = DEVICES_IDLE + CORE_KINDS_MAX,     /* [kind]: see core_device_is_open */
    DEVICES_ROOMY = DEVICES_OPEN + CORE_KINDS_MAX,    /* [kind]: of those, with memory for some
                                                       * endpoint, and nothing being removed */
    DEVICES_MOVABLE = DEVICES_ROOMY + CORE_KINDS_MAX, /* [kind]: usable, held by a lease that may
                                                       * give it now, rested, promised to nobody */
    DEVICES_CLEAR = DEVICES_MOVABLE + CORE_KINDS_MAX, /* [kind]: of those, not needed by what
                                                       * serves there */
    DEVICE_SETS = DEVICES_CLEAR + CORE_KINDS_MAX,
};

enum lease_set {
    LEASES_THERE = MARKS,
    LEASES_WAITING,
    LEASES_GROWING, /* running, with fewer devices than they can use */
    LEASES_GIVING,  /* running, with devices that may be taken */
    LEASES_RUNNING,
    LEASES_ASKED,                                   /* scratch of take.c and supply.c */
    LEASES_VICTIMS,                                 /* scratch of gang.c */
    LEASES_MOVABLE,                                 /* [kind]: those that have such devices */
    LEASES_CLEAR = LEASES_MOVABLE + CORE_KINDS_MAX, /* [kind]: the same */
    LEASE_SETS = LEASES_CLEAR + CORE_KINDS_MAX,
};

struct instance {
    enum core_instance_state state;
    uint64_t action;   /* PLACE or REMOVE that is not answered yet */
    uint64_t until_ns; /* its time-out; when absent: do not place before */
    uint32_t failures; /* in a row */
};

struct lease;
struct endpoint;
struct team;

/* How freely an idle device can be had, cumulative: healthy and not busy serving; nor needed by
 * what serves there; with nothing on it at all. */
enum { FREE_SHARED, FREE_CLEAR, FREE_EMPTY, FREES };

enum { NODES, LINKS, GROUP_LEVELS };

/* Who gives before whom, without a look at the leases. */
struct giver {
    uint64_t rank;
    const struct team *team;
};

/* Scratch of a plan for a gang. */
struct candidate {
    struct device *device;
    uint64_t cost;
    struct giver giver;
    uint32_t affinity, above;
};

struct group {
    uint64_t id;
    uint32_t devices;
    uint32_t free[FREES][CORE_KINDS_MAX];
    struct device *first; /* by no order */
    bool tried;           /* scratch of a search */
    uint32_t found;       /* the same */
};

struct groups {
    struct group **table; /* by id */
    size_t count, capacity;
};

/* What waiting leases were told of a held device: see supply.c. */
struct device_offer {
    uint32_t ways;
    uint64_t bytes; /* in use by instances */
};

struct device {
    uint64_t id;
    uint32_t slot; /* constant while it is in the pool */
    struct timer timer;
    uint32_t kind;
    uint64_t memory_bytes;
    enum core_health health;
    bool cordoned, occupied;
    bool counted_usable, counted_takeable;
    uint32_t speed_permille; /* against its kind's own */
    uint64_t node, link, provider;
    struct group *group[GROUP_LEVELS]; /* NULL: not known */
    struct device *group_next[GROUP_LEVELS], *group_before[GROUP_LEVELS];
    uint32_t free; /* how many of the FREE_ counts have it */
    uint32_t sets; /* those that have it, see touch.c */
    uint64_t reclaim_by_ns;
    bool closing, leaving;                 /* see leave.c */
    bool said_slow, drained;               /* see health.c */
    uint64_t ails_since_ns, well_since_ns; /* NEVER_NS: not now */
    uint64_t alert;                        /* what was last told of that */
    bool going; /* leaving or drained: serving moves away; kept by instance.c */

    /* Towards leases. */
    enum core_hold hold;
    struct lease *lease; /* set unless hold is NONE; NULL too while a recovered one is verified */
    struct device *next, *previous;                 /* of the same lease, by id; kept by hold.c */
    struct lease *promised;                         /* is granted to this one next */
    struct device *promised_next, *promised_before; /* promised to the same lease */
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
    bool borrowed;         /* they serve while its holder is stopped; kept by hold.c */
    bool kept;             /* for serving */
    uint64_t kept_for;     /* endpoint */

    /* Moves that the core chose: a ring of the last hour's times, moves_capacity long. */
    uint64_t *moves;
    uint32_t move_next, move_count;
    uint64_t rested_ns;                    /* may be moved again from then on */
    struct device_offer offered, offering; /* as of the last plan of the queue; of one under way */
    struct lease *counted_for; /* counts it among those that may come; kept by touch.c */
    bool counted_coming, counted_movable, counted_clear;

    /* Towards endpoints. */
    struct instance *instances; /* [core->slot_capacity], by the endpoint's slot */
    struct set live;            /* slots whose instance is not just absent */
    uint32_t instances_present, instances_ready, instances_removing; /* kept by instance.c, */
    uint64_t instances_bytes;                                        /* as is their memory */
    uint64_t instances_due_ns; /* first time-out or retry of them; NEVER_NS: none */
    uint64_t utilisation_ppm;
    uint64_t sampled_ns, served_ns;
    uint64_t hot_since_ns, cool_since_ns; /* NEVER_NS: not now */
    bool lending;                         /* a burst is served from a granted device */

    /* Ledger. */
    uint64_t added_ns;
    enum core_account account;
    struct lease *trains_for;                   /* counts it in its `training` */
    uint64_t account_since_ns, account_open_ns; /* open: of this stay, not yet covered by samples */
    uint64_t account_ns[CORE_ACCOUNT_COUNT];
    struct endpoint *account_for; /* whose time this stay is when no lease has the device */
    uint64_t slices;
    uint32_t handovers;

    uint64_t advice; /* what was last explained without being done */
};

struct endpoint {
    struct core_endpoint_spec spec;
    uint32_t slot;
    struct timer timer;
    struct set hosts; /* devices with an instance that is not just absent */
    bool removing;
    uint64_t service_ns[CORE_KINDS_MAX][CORE_BATCH_SIZES];
    uint64_t rate_fast_milli, rate_slow_milli; /* requests per second x 1000 */
    uint64_t observed_ns;                      /* device time a request took, from samples */
    uint64_t sampled_ns;
    uint64_t demand_milli;
    uint32_t needed;
    uint64_t lower_until_ns; /* fewer are needed then; NEVER_NS: demand is not that low */
    uint32_t lower_peak;     /* the most that were needed since that wait began */
    uint64_t seen_arrivals, seen_busy_ns; /* what observed_ns is taken from */
    /* As of its last sample, and what of it its fleet has counted. */
    uint64_t queue_length, running_milli, arrived, late_ns;
    uint64_t told_fast_milli, told_queue_milli, told_running_milli;
    uint64_t danger_until_ns;
    uint32_t danger_needed;
    uint64_t projected_wait_ns;
    /* Kept by instance.c: instances PLACING or READY anywhere; of them, those on a device whose
     * holder lets them not serve; and READY ones that serve. */
    uint32_t placed, resting, ready;
    uint32_t present;          /* in any state but absent */
    uint32_t failing;          /* instances whose last placement failed */
    uint32_t borrowed;         /* of the placed, on devices whose holder is stopped in place */
    uint32_t going;            /* of the other ones that serve, on devices that leave the pool */
    uint64_t lacking_since_ns; /* NEVER_NS: it has what it needs */
    uint64_t bridged_until_ns; /* when the device comes until which stops were sought last */
    uint32_t taken;            /* scratch of the planner: instances that its plan would remove */
    bool wide, wide_parking, wide_bridging, wide_lasting; /* the next plan for it looks at
                                                           * everything, not only at news */
    bool sustained;                                       /* it has lacked devices for a while */
    uint32_t parking_slot; /* where the wide look for parking goes on ... */
    uint64_t parking_ns;   /* ... and when; NEVER_NS: at once */
    uint64_t advice;
    core_sum_ns account_ns[CORE_ACCOUNT_COUNT];
    /* As of its last touch. */
    bool lacking;
    uint32_t spare, excess;
    uint32_t excess_seen; /* by queue.c, at its last plan */
    uint64_t counted_milli;
};

/* Rises of demand within the time that a device takes to come, by the load before: see reserve.c.
 */
#define RESERVE_BINS 40
#define RESERVE_CONTEXTS 6
#define RESERVE_RING 64 /* more than the lead has ticks */

struct reserve {
    uint64_t lead_ns, tick_ns, next_ns;
    uint32_t bin_milli; /* 0: nothing begun */
    uint32_t counts[RESERVE_CONTEXTS][RESERVE_BINS];
    uint64_t ticks, work_us; /* seen: time steps, and device time that was asked for in them */
    uint32_t keeps_milli[RESERVE_CONTEXTS], takes_milli[RESERVE_CONTEXTS]; /* the result */
    uint32_t assumed; /* of the counts of the largest rises */
    struct {
        uint32_t base_milli, context;
    } ring[RESERVE_RING];
    int64_t balance_us; /* work begun less the work that would pay for what was late */
    int32_t ease;       /* follows from it: 256 doubles what history allows */
};

/* Rules for how few devices stand by, each played against the load as it comes: see levels.c. */
#define LEVELS_PARTS 8 /* of all devices, so many a rule keeps in any case; and for how long: */
#define LEVELS_HOLDS 3
#define LEVELS_RULES ((LEVELS_PARTS + 1) * LEVELS_HOLDS) /* the last one keeps all */
#define LEVELS_RING 64                                   /* more than the lead has ticks */

struct level_rule {
    uint32_t serving, on_way, target;
    uint32_t low_ticks, peak; /* for so long fewer were enough, and how many at most */
    uint64_t queue_us, late_us, lent_us;
    uint16_t coming[LEVELS_RING]; /* devices, by the tick in which they are there */
};

struct levels {
    uint64_t lead_ns, tick_ns, next_ns; /* lead 0: nothing begun */
    uint64_t work_us, really_us;        /* seen, and really late while devices were lent */
    uint32_t devices, ticks;
    uint32_t keeps, takes; /* the rules that decide */
    struct level_rule rules[LEVELS_RULES];
};

struct core_need {
    uint32_t high, low; /* above the first more are asked for, under the second fewer do */
};

/* Endpoints that can share devices, directly or through others. */
struct fleet {
    bool used;
    uint32_t kinds_mask;
    uint64_t slo_ns;     /* the tightest */
    uint32_t budget_ppm; /* of the work that may be late: the least of theirs, and the knob */
    uint32_t bearer;     /* slot of the endpoint that asks for all */
    uint64_t fast_milli, queue_milli, running_milli; /* of all its endpoints */
    uint64_t
        busy_milli; /* what runs, over the time that a device takes to come when that is long */
    uint64_t base_milli, begun_ns, fed_ns; /* demand over the slow window, as of then */
    uint64_t backlog_us;                   /* of a queue that all usable devices would serve */
    uint64_t lead_ns, give_ns, led_ns;     /* of its leases' rungs, as of led_ns */
    uint64_t moves_hour;                   /* hand-overs that they agreed to, all together */
    uint64_t tokens_milli;                 /* of these, what may be used now */
    bool lends;                            /* there are leases that must be asked */
    struct core_need need;                 /* of all, as of fed_ns */
    struct reserve reserve;
    struct levels levels; /* in its stead where devices take long to come */
};

/* Devices of one kind and team. */
struct share {
    uint32_t held, leaving, promised;
    uint32_t reserved; /* of all three, by leases that are not preemptible */
};

#define URGENCIES 16

struct team {
    struct core_team_spec spec;
    bool added;
    uint32_t leases, live;              /* in the table; of these, not ended */
    struct share share[CORE_KINDS_MAX]; /* kept by hold.c */
    uint64_t usage, accrued_ns;         /* see team.c */
    uint64_t fair_usage;                /* as of the last tick: see fair.c */
    uint64_t claim;                     /* when the last plan began */
    struct lease **waiting;             /* in the order of the queue */
    size_t waiting_count, waiting_capacity;
    struct lease **growing; /* in the order in which they grow; kept by growth.c */
    size_t growing_count, growing_capacity;
    /* Scratch of the planner. */
    size_t next;                     /* of those waiting */
    uint32_t to_come;                /* devices promised to those from that one on; only while
                                      * claims matter */
    uint64_t turn;                   /* claim without these: nobody stands in its own way */
    uint32_t picked[CORE_KINDS_MAX]; /* devices that the plan would take from it */
    struct lease *grower;            /* would grow next */
    bool advised;                    /* one of its leases, of what it could take */
    uint32_t revocable[URGENCIES];   /* devices of its running leases that are preemptible, by
                                      * urgency; kept by evict.c */
    core_sum_ns account_ns[CORE_ACCOUNT_COUNT];
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
    uint32_t slot;
    struct timer timer;
    struct device *promises;
    enum core_lease_state state;
    enum core_reason reason;
    uint64_t since_ns, queued_ns;
    uint64_t carried_ns; /* waiting of before that counts too, credit included */
    int64_t urgency;     /* of a run: its priority, and its age when it started */
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
    uint64_t stop_ns;       /* since when */
    uint32_t idle_devices;  /* that stand still though serving could do without them ... */
    uint64_t idle_since_ns; /* ... since then ... */
    uint64_t idle_ns;       /* ... and the device time of that before */
    uint64_t stop_again_ns; /* not before ... */
    uint64_t stop_calm_ns;  /* ... and not before this where no SLO is in danger */
    uint32_t stops_capped;  /* in a row */
    bool replaced;          /* lasting devices have been found in its stead */
    bool going_on_wanted, going_on;
    enum core_reason going_on_reason;
    enum core_lease_state then; /* DRAINING or ENDING as soon as it is at work; RUNNING: neither */
    enum core_reason then_reason;
    struct stop_failure stop_failures[CORE_RUNG_SWAP - CORE_RUNG_FREEZE + 1];
    uint32_t stops;

    uint64_t run, generation; /* first and last grant of this run */
    uint64_t step, checkpointed_step;
    bool restoring; /* has not got on since this run began */
    core_sum_ns restored_before_ns;
    struct rung_time rung_times[CORE_KINDS_MAX][RUNGS];
    core_sum_ns provisional_ns; /* of its TRAINING account, as of accrued_ns */
    uint64_t accrued_ns;
    uint32_t training; /* devices in that account; kept by ledger.c */
    core_sum_ns account_ns[CORE_ACCOUNT_COUNT];
    uint32_t revokes, runs;
    uint32_t speed_permille[CORE_KINDS_MAX]; /* measured; 0: not */
    uint32_t affinity[CORE_KINDS_MAX];       /* see kinds.c */
    int64_t order;                           /* in the queue of its team; higher first */
    uint64_t planned;                        /* the last plan of the queue that looked at it */
    uint32_t position;                       /* 1: next; as of a plan with several queues */
    bool reaching;                           /* the last plan set devices free for it */
    uint32_t lacks;                          /* at least so many devices, at the last plan */
    enum core_reason waits_for;              /* as told; NONE: not told */
    bool held_up;     /* the last plan let it wait for one that must not be overtaken */
    bool fair_held;   /* the same, for growth of a team that has less */
    bool within;      /* its turn came as one within the quota of its team ... */
    bool beyond;      /* ... but what it reaches for is not */
    uint32_t surplus; /* devices that it may have to give; as of its last touch */
    bool gives;       /* the same: now, one at a time */
    uint32_t coming; /* devices that can be taken from it, were it only for them; kept by touch.c */
    uint32_t movable[CORE_KINDS_MAX], clear[CORE_KINDS_MAX]; /* the same, in those sets */
    uint32_t picked; /* scratch of the planner: devices that its plan would take from it */
    struct lease *evicted_next; /* the same: leases that would have to go, a list */
    uint32_t useful;            /* the same: devices that this would free */
    uint32_t offered, offering; /* devices one by one, as of the last plan of the queue; of one
                                 * under way: see supply.c */
    uint64_t counted;           /* devices, in core->lease_minimums */
    bool grows;                 /* the same: is among its team's growing, as one ... */
    uint32_t grown;             /* ... that has so many devices */
    uint32_t revocable;         /* the same, in its team's revocable ... */
    uint32_t revocable_bucket;  /* ... of this urgency */
    struct lease *ended_next;
    uint32_t told_held;
    enum core_lease_state told_state;
    bool told, told_lost;
    uint64_t advice;
};

/* Walks a lease's devices; the present one may leave the lease meanwhile. */
#define LEASE_DEVICES(of, each)                                                                    \
    for (struct device *each = (of)->first, *next_of_lease;                                        \
         each != NULL && (next_of_lease = each->next, true); each = next_of_lease)

struct ring {
    struct core_explanation *slots;
    uint64_t capacity, count; /* count of all that ever went in */
};

struct core {
    struct core_config config;
    uint64_t now_ns;
    enum core_mode mode;
    bool hold, reconciled;
    uint64_t told_timer_ns;

    struct device **devices; /* by id */
    size_t device_count, device_capacity;
    struct device **device_slots;
    struct set device_sets[DEVICE_SETS];
    /* Devices of a kind: all; usable ones; those held by leases that may have to give some. */
    uint32_t matching[CORE_KINDS_MAX], usable[CORE_KINDS_MAX], takeable[CORE_KINDS_MAX];
    uint32_t free[FREES][CORE_KINDS_MAX];
    struct groups nodes, links;
    bool groups_tried;
    struct candidate *candidates; /* scratch of gang.c, as long as devices */
    struct endpoint **endpoints;  /* by id */
    size_t endpoint_count, endpoint_capacity;
    struct endpoint **ranked; /* by priority; rebuilt when endpoints change */
    uint32_t slot_capacity;   /* of endpoints */
    struct endpoint **endpoint_slots;
    struct set endpoint_sets[MARKS];
    uint32_t endpoints_removing;
    uint64_t smallest_bytes; /* of an instance of any endpoint */
    struct lease **leases;   /* by id */
    size_t lease_count, lease_capacity;
    struct lease **lease_slots;
    struct set lease_sets[LEASE_SETS];
    struct lease *ended_first, *ended_last; /* the longest ended first */
    size_t ended_count;
    uint64_t plan;         /* number of the last one of the queue */
    struct lease *evicted; /* scratch of the planner */
    struct timer **timers; /* a heap */
    size_t timer_count, timer_capacity;
    uint32_t blocked; /* kinds onto which nothing may grow, as of the last plan */
    struct lease *stops_first, *stops_last; /* SUSPENDED ones, in the order of their stops */
    uint32_t stops_count;
    uint32_t drained_count;
    uint64_t stop_length_ns;   /* how long the last ones lasted, on average */
    uint64_t stepped_aside_ns; /* when the last one gave its device because nobody else could */
    struct team **teams;       /* team 0 is always there */
    size_t team_count, team_capacity;
    struct team **turns; /* scratch of the planner, as long as teams */
    uint32_t teams_added, teams_live;
    uint64_t usage_epoch_ns; /* see team.c */
    struct timer fair_timer; /* see fair.c */
    uint64_t fair_device;
    bool fair_touched, fair_news;   /* claims changed since the last look; as of this one */
    bool usable_news;               /* so did what is usable, since the last plan of the queue */
    uint32_t lent;                  /* kinds of which some team has more than its quota */
    uint32_t fair_held_count;       /* leases that leave their turn to growth */
    uint32_t waiting_open;          /* see queue.c */
    uint32_t held_up;               /* kinds of which the last plan held up those behind */
    uint32_t fixed[CORE_KINDS_MAX]; /* devices held by reservations without an end */
    uint64_t run_average_ns;        /* see outlook.c */
    uint64_t revokes_milli, revokes_since_ns;

    struct core_kind_spec kinds[CORE_KINDS_MAX];

    uint64_t sequence;   /* of leases */
    uint64_t generation; /* of grants */
    uint64_t action_id, hash;
    struct core_action *actions;
    size_t action_count, action_max;

    struct ring moves, bursts; /* explanations; a lively load must not push out who got what */
    uint64_t explanation_id;

    core_sum_ns retired_ns[CORE_ACCOUNT_COUNT], retired_elapsed_ns; /* removed devices */
    uint64_t retired_slices;
    core_sum_ns lost_ns;
    uint64_t unbooked_ns;
    core_sum_ns nobody_ns[CORE_ACCOUNT_COUNT]; /* of no lease and no endpoint, or forgotten ones */
    uint64_t handovers[CORE_RUNG_COUNT];
    struct rung_time rung_times[CORE_KINDS_MAX][RUNGS];
    uint64_t handover_cost_ns;             /* average of the last ones; UINT64_MAX never */
    struct fleet fleets[CORE_KINDS_MAX];   /* by the lowest of its kinds */
    bool leads_changed;                    /* of a fleet, since its endpoints last decided */
    uint64_t demand_milli, lease_minimums; /* of all endpoints, of all leases that count */
    uint32_t scale_wanted, scale_have;
    bool scale_told;
};

/* ---- number.c ---- */
uint64_t core_scale_u64(uint64_t value, uint64_t times, uint64_t by); /* floor; saturates; by > 0 */
core_sum_ns core_scale_sum(core_sum_ns sum, uint64_t part,
                           uint64_t whole);         /* floor; part <= whole */
uint64_t core_multiply_u64(uint64_t a, uint64_t b); /* saturates */
uint64_t core_add_u64(uint64_t a, uint64_t b);      /* saturates */
/* One step of an average over `window`; `weight` is the age of the sample. */
uint64_t core_average_u64(uint64_t average, uint64_t sample, uint64_t weight, uint64_t window);
uint64_t core_decay_u64(uint64_t value, uint64_t age, uint64_t half_life);
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
int core_device_insert(struct core *core, struct device *device); /* -1: no memory */
void core_device_erase(struct core *core, struct device *device);
int core_endpoint_insert(struct core *core, struct endpoint *endpoint);
void core_endpoint_erase(struct core *core, struct endpoint *endpoint);
void core_endpoint_rank(struct core *core);
struct group *core_group_get(const struct groups *groups, uint64_t id);
int core_group_insert(struct groups *groups, struct group *group); /* -1: no memory */
void core_group_erase(struct groups *groups, struct group *group);
struct team *core_team_get(const struct core *core, uint64_t id);
int core_team_insert(struct core *core, struct team *team); /* -1: no memory */
void core_team_erase(struct core *core, struct team *team);
void core_endpoint_destroy(struct endpoint *endpoint);
int core_lease_insert(struct core *core, struct lease *lease);
void core_lease_erase(struct core *core, struct lease *lease);
int core_tables_init(struct core *core); /* -1: no memory */
void core_tables_destroy(struct core *core);

/* ---- touch.c: see the three rules above ---- */
void core_device_touch(struct core *core, struct device *device);
void core_device_note(struct core *core, struct device *device);
void core_endpoint_touch(struct core *core, struct endpoint *endpoint);
void core_endpoint_note(struct core *core, struct endpoint *endpoint);
void core_kept_touch(struct core *core, const struct endpoint *endpoint); /* devices kept for it */
void core_lease_touch(struct core *core, struct lease *lease);
void core_lease_note(struct core *core, struct lease *lease);
void core_touch_all(struct core *core);
bool core_is_touched(const struct core *core);
void core_news_begin(struct core *core); /* what is touched becomes news */
static inline bool core_device_is_news(const struct core *core, const struct device *device)
{
    return core_set_has(&core->device_sets[NEWS], device->slot);
}
static inline bool core_endpoint_is_news(const struct core *core, const struct endpoint *endpoint)
{
    return core_set_has(&core->endpoint_sets[NEWS], endpoint->slot);
}
static inline bool core_lease_is_news(const struct core *core, const struct lease *lease)
{
    return core_set_has(&core->lease_sets[NEWS], lease->slot);
}
/* What is not in the sets that it belongs to, since somebody forgot a touch; NULL: nothing. */
const char *core_index_check(const struct core *core, uint64_t *ret_id);

/* ---- timer.c ---- */
int core_timers_reserve(struct core *core); /* for one more object; -1: no memory */
void core_timer_set(struct core *core, struct timer *timer, uint64_t at_ns); /* NEVER_NS: none */
uint64_t core_timer_next(const struct core *core);                           /* NEVER_NS: none */
void core_timers_fire(struct core *core);
/* The earlier of `due_ns` and base + span, if that lies ahead; base NEVER_NS is no time. */
uint64_t core_sooner(const struct core *core, uint64_t due_ns, uint64_t base_ns, uint64_t span_ns);

/* ---- hold.c ---- */
void core_hold_event(struct core *core, const struct core_event *event);
void core_device_lose(struct core *core, struct device *device, enum core_reason reason);
/* NULL: to nobody */
void core_device_promise(struct core *core, struct device *device, struct lease *lease);
void core_promises_drop(struct core *core, struct lease *lease);
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
/* The last hour's moves are `bound` or more; of 1 to the capacity. */
bool core_device_moves_used_up(const struct core *core, const struct device *device,
                               uint32_t bound);
uint32_t core_moves_capacity(const struct core *core); /* of the ring of each device */
void core_device_count_move(struct core *core, struct device *device);
void core_device_keep(struct core *core, struct device *device, uint64_t endpoint);
void core_device_unkeep(struct core *core, struct device *device);
uint32_t core_pool_matching(const struct core *core, uint32_t kinds_mask);
uint32_t core_pool_usable(const struct core *core, uint32_t kinds_mask);
bool core_device_is_open(const struct device *device); /* an instance may come beside its holder */
uint64_t core_device_due_ns(const struct core *core, const struct device *device);
void core_pool_event(struct core *core, const struct core_event *event);
void core_device_destroy(struct device *device);

/* ---- leave.c ---- */
void core_device_leave_follow(struct core *core,
                              struct device *device); /* what its end brings now */
uint64_t core_device_leave_due_ns(const struct core *core, const struct device *device);
/* The lease can have it for as long as is of use before it would have to leave it. */
bool core_device_lasts(const struct core *core, const struct device *device,
                       const struct lease *lease);
void core_leaving_plan(struct core *core);

/* ---- health.c ---- */
void core_device_health_follow(struct core *core, struct device *device); /* another speed */
void core_device_health_forget(struct core *core, struct device *device); /* it is removed */
uint64_t core_device_health_due_ns(const struct core *core, const struct device *device);
uint32_t core_health_budget(const struct core *core); /* devices */
void core_health_plan(struct core *core);

/* ---- kinds.c ---- */
void core_kinds_event(struct core *core, const struct core_event *event);
void core_lease_compare_kinds(const struct core *core, struct lease *lease);
void core_kinds_compare(struct core *core); /* for all leases: a kind has come, gone or changed */

/* ---- instance.c ---- */
/* Walks the endpoints with an instance on the device that is not just absent. */
#define DEVICE_ENDPOINTS(core, on, each)                                                           \
    for (struct endpoint *each = core_device_endpoint(core, on, 0); each != NULL;                  \
         each = core_device_endpoint(core, on, each->slot + 1))
static inline struct endpoint *core_device_endpoint(const struct core *core,
                                                    const struct device *device, uint32_t from)
{
    uint32_t slot = core_set_next(&device->live, from);
    return slot != SLOT_NONE ? core->endpoint_slots[slot] : NULL;
}
static inline struct instance *core_instance_of(const struct device *device,
                                                const struct endpoint *endpoint)
{
    return &device->instances[endpoint->slot];
}
static inline bool core_instance_serves(const struct instance *instance)
{
    return instance->state == CORE_INSTANCE_PLACING || instance->state == CORE_INSTANCE_READY;
}
void core_instances_resize(struct core *core, struct endpoint *endpoint, uint64_t memory_bytes);
/* Those that serve or will as soon as they are ready, on devices that stay. */
uint32_t core_endpoint_serving(const struct endpoint *endpoint);
uint32_t core_endpoint_most(const struct endpoint *endpoint); /* of the placed, at this time */
/* The holder of the device begins or ends to let them not serve, or to stand still for them. */
void core_instances_rest(struct core *core, struct device *device, bool resting, bool borrowed);
/* The device leaves the pool (or stays after all): others are to take over from its instances. */
void core_instances_go(struct core *core, struct device *device, bool going);
void core_instance_place(struct core *core, struct device *device, struct endpoint *endpoint);
void core_instance_remove(struct core *core, struct device *device, struct endpoint *endpoint);
void core_instances_vanish(struct core *core, struct device *device);
void core_instances_overdue(struct core *core, struct device *device);
void core_instance_forget(struct device *device, const struct endpoint *endpoint);
void core_instance_event(struct core *core, const struct core_event *event);

/* ---- demand.c ---- */
void core_demand_event(struct core *core, const struct core_event *event);
void core_demand_refresh(struct core *core); /* what time alone changes */
uint64_t core_endpoint_due_ns(const struct core *core, const struct endpoint *endpoint);
uint64_t core_endpoint_batch_ns(const struct endpoint *endpoint);   /* of one request alone */
uint64_t core_endpoint_request_ns(const struct endpoint *endpoint); /* of one in a good batch */

/* ---- burst.c ---- */
void core_device_sampled(struct core *core, const struct core_event *event);
void core_device_refresh(struct core *core, struct device *device);
void core_burst_follow(struct core *core, struct device *device); /* at the end of a step */
bool core_device_hot(const struct core *core, const struct device *device);  /* long enough */
bool core_device_cool(const struct core *core, const struct device *device); /* long enough */
struct endpoint *core_device_busiest(const struct core *core, const struct device *device);

/* ---- fleet.c ---- */
void core_fleets_form(struct core *core); /* endpoints came, went or changed */
void core_fleet_feed(struct core *core, struct endpoint *endpoint); /* its figures changed */
struct core_need core_fleet_need(const struct core *core, const struct endpoint *endpoint);
/* The one that asks for what all of the endpoint's fleet need; NULL: none is left. */
struct endpoint *core_fleet_bearer(const struct core *core, const struct endpoint *endpoint);
/* When what its bearer asks for is to be worked out again without news. */
uint64_t core_fleet_due_ns(const struct core *core, const struct endpoint *endpoint);
uint64_t core_fleet_hold_ns(const struct core *core, const struct endpoint *endpoint);
/* It needs so many devices fewer: each will be taken back once. */
void core_fleet_spend(struct core *core, const struct endpoint *endpoint, uint32_t devices);
uint64_t core_hold_ns(const struct core *core);

/* ---- reserve.c ---- */
struct core_load {
    uint64_t now_ns, lead_ns;
    uint64_t demand_milli, base_milli; /* over the fast window, over the slow one */
    uint32_t devices;                  /* in all */
    uint32_t budget_ppm;               /* of the work that may be late */
    uint64_t slo_ns;                   /* the tightest */
};
void core_reserve_follow(struct reserve *reserve, const struct core_load *load);
/* Work begun, and how much of it late for want of a device that was lent. */
void core_reserve_judge(struct reserve *reserve, const struct core_load *load, uint64_t work_us,
                        uint64_t late_us);
/* For want of history a device is kept; what is assumed takes none from a lease. */
uint32_t core_reserve_keeps_milli(const struct reserve *reserve, const struct core_load *load);
uint32_t core_reserve_takes_milli(const struct reserve *reserve, const struct core_load *load);

/* ---- levels.c ---- */
void core_levels_follow(struct levels *levels, const struct core_load *load);
void core_levels_judge(struct levels *levels, uint64_t late_us); /* while devices are lent */
/* Devices, for an average demand and what waits. For want of history one is kept; what is assumed
 * takes none from a lease. */
uint32_t core_levels_keeps(const struct levels *levels, uint64_t base_milli, uint64_t queue_us);
uint32_t core_levels_takes(const struct levels *levels, uint64_t base_milli, uint64_t queue_us);
uint64_t core_levels_hold_ns(const struct levels *levels); /* before one is given back */

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
void core_lease_tell(struct core *core, struct lease *lease);
void core_leases_forget(struct core *core);
uint64_t core_lease_due_ns(const struct core *core, const struct lease *lease);
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
uint32_t core_guard_stops(const struct core *core, const struct lease *lease); /* last hour */
void core_guard_count(struct core *core, struct lease *lease, enum core_rung rung);

/* ---- suspend.c ---- */
bool core_rung_stops(enum core_rung rung); /* in place */
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
void core_stops_touch(struct core *core);

/* ---- notice.c ---- */
enum core_reason core_notice_extend(struct core *core, struct lease *lease,
                                    const struct core_event *event);

/* ---- rung.c ---- */
bool core_rungs_are_valid(const struct core_lease_spec *spec);
/* When a device that is on its way from its holder is expected. */
uint64_t core_device_arrival_ns(const struct core *core, const struct device *device);
uint32_t core_rungs_of(const struct lease *lease); /* bits of those that its holder has */
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
void core_rung_started(struct lease *lease);
void core_rung_restored(struct core *core, struct lease *lease); /* it has got on */
void core_rung_gave(struct core *core, const struct device *device, enum core_rung rung,
                    uint64_t ns);
void core_rung_measured(struct core *core, struct lease *lease, const struct core_event *event);

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
void core_team_promise(struct core *core, const struct lease *lease, uint32_t kind, int sign);
void core_team_destroy(struct team *team);
void core_team_live(struct core *core, struct team *team, int sign); /* a lease begins or ends */
/* Use beyond quota of late, in its own unit; and what one device is worth for a half-life. */
uint64_t core_team_usage(const struct core *core, const struct team *team);
uint64_t core_team_device_to_come(const struct core *core);
uint64_t core_team_usage_ns(const struct core *core, const struct team *team);

/* ---- fair.c ---- */
bool core_fair_matters(const struct core *core);
void core_fair_tick(struct core *core);  /* use of late counts from now on */
void core_fair_touch(struct core *core); /* a claim changed */
/* Devices of each kind within its team's quota for a lease, those promised to it included. */
void core_fair_limits(const struct lease *lease, uint32_t ret_limits[CORE_KINDS_MAX]);
bool core_fair_is_bound(const struct core *core, const struct lease *lease); /* by the quota */
bool core_fair_is_within(const struct core *core, const struct lease *lease, uint32_t devices);
bool core_fair_may_ever(const struct core *core, const struct core_lease_spec *spec);
void core_fair_begin(struct core *core); /* of a plan */
/* Claims, the lower goes first: with some more devices of these kinds, with some fewer. */
uint64_t core_fair_claim_with(const struct core *core, const struct team *team, uint32_t kinds_mask,
                              uint32_t more);
uint64_t core_fair_claim_without(const struct core *core, const struct team *team, uint32_t fewer);
bool core_fair_borrows(const struct team *team, uint32_t kind);
/* A lease that takes `more` devices may take one of this kind that another has above its minimum.
 * `within`: the taker stays within its quota. */
bool core_fair_may_take(const struct core *core, const struct lease *taker, uint32_t more,
                        bool within, const struct lease *giver, uint32_t kind);
/* Below 0: a gives before b; 0: their cost decides. */
struct giver core_fair_giver(const struct lease *lease);
int core_fair_compare(const struct giver *a, const struct giver *b);
int core_fair_compare_givers(const struct lease *a, const struct lease *b);

/* ---- totals.c ---- */
void core_totals_add(struct core *core, const struct device *device, uint64_t amount_ns);
void core_totals_move(struct core *core, const struct device *device, uint64_t amount_ns,
                      enum core_account to);
void core_totals_lose(struct lease *lease, core_sum_ns amount_ns);
void core_totals_forget_endpoint(struct core *core, struct endpoint *endpoint);
void core_totals_forget_team(struct core *core, const struct team *team);
struct endpoint *core_totals_endpoint(const struct core *core, const struct device *device);

/* ---- placement.c ---- */
bool core_may_move(const struct core *core);
void core_placement_plan(struct core *core);
/* Its wishes changed: where it fits, and who fits beside it, may have changed everywhere. */
void core_endpoint_reconsider(struct core *core, struct endpoint *endpoint);
/* Its longest batch of one took `former_ns` until now. */
void core_endpoint_measured(struct core *core, struct endpoint *endpoint, uint64_t former_ns);
enum core_reason core_endpoint_lacks(const struct core *core, const struct endpoint *endpoint);
/* Every endpoint with an instance there could do with one fewer, beside those it has only borrowed
 * from stopped gangs: these come first. */
bool core_device_spare(const struct core *core, const struct device *device);
/* The same, whatever a plan under way would take. */
bool core_device_clear(const struct core *core, const struct device *device);
/* The instances on the device let the endpoint's be there. */
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
/* So many more devices for the endpoint, each by the best rung there is. Returns how many. */
uint32_t core_take_for(struct core *core, struct endpoint *endpoint, uint32_t count,
                       enum core_take how, uint64_t within_ns);
/* Nothing was taken, but not because nobody can give: whoever could is still news. */
bool core_take_undecided(const struct core *core, const struct endpoint *endpoint);
/* How soon what the endpoint lacks is wanted. */
uint64_t core_endpoint_within_ns(const struct core *core, const struct endpoint *endpoint);

/* ---- bridge.c ---- */
void core_stops_release(struct core *core);
void core_stops_replace(struct core *core);
uint64_t core_stop_due_ns(const struct core *core, const struct lease *lease);

/* A model that just failed to load is no reason to take more devices for it. */
bool core_endpoint_failing(const struct core *core, const struct endpoint *endpoint);

/* ---- queue.c: the minimums of waiting leases; sets core->blocked ---- */
void core_queue_plan(struct core *core);
void core_queue_pool_changed(struct core *core); /* what was possible may not be, or now be */
void core_queue_join(struct core *core, struct lease *lease);
void core_queue_leave(struct core *core, struct lease *lease);
enum core_reason core_queue_reason(const struct core *core,
                                   const struct lease *lease); /* to wait */
/* 1: next; 0: it does not wait. */
uint32_t core_queue_position(const struct core *core, const struct lease *lease);

/* ---- supply.c: what waiting leases could have that was not there at the last plan ---- */

/* At most so many devices, each with at most that memory; and so many that are held by whoever
 * would have to go as a whole. */
struct supply {
    uint32_t devices, whole;
    uint64_t memory_bytes;
};
void core_supply_begin(struct core *core, struct supply supply[CORE_KINDS_MAX]);
void core_supply_again(struct core *core, struct supply supply[CORE_KINDS_MAX]); /* more is news */
void core_supply_end(struct core *core); /* all of it has been considered */
bool core_supply_is_empty(const struct supply supply[CORE_KINDS_MAX]);
/* There may be enough for the lease; where there is not, what it lacks is counted down. */
bool core_supply_reaches(const struct core *core, struct lease *lease,
                         const struct supply supply[CORE_KINDS_MAX]);

/* ---- groups.c ---- */
int core_groups_join(struct core *core, struct device *device); /* -1: no memory */
void core_groups_leave(struct core *core, struct device *device);
void core_groups_count(struct core *core, struct device *device, uint32_t free);
/* The best group with so many devices of these kinds in this FREE_ count; NULL: there is none. */
struct group *core_group_find(struct core *core, uint32_t count, uint32_t kinds_mask,
                              uint32_t devices);
void core_groups_forget_tried(struct core *core);

/* ---- gang.c: which devices a lease would get ---- */
bool core_lease_lets_serve(const struct device *device, const struct lease *lease);
bool core_device_must_empty(const struct device *device, const struct lease *lease);
bool core_device_empty(struct core *core, struct device *device); /* true: it is, already */
bool core_device_suits(const struct core *core, const struct device *device,
                       const struct lease *lease);
/* Its times of rest and its moves of the hour let a held device be taken for another lease.
 * `within`: that one stays within the quota of its team. */
bool core_may_move_for(const struct core *core, const struct device *device,
                       const struct lease *lease, bool within);
bool core_surplus_before(const struct core *core, struct device *a, struct device *b);
/* One that would give it, or go from all of its devices. */
struct candidate core_candidate_of(const struct core *core, struct device *device);
/* Sinks the candidate at `at` of a heap: the one that goes before all others is at its top. */
void core_candidates_sink(struct candidate *heap, size_t at, size_t count,
                          bool (*goes_before)(const struct candidate *, const struct candidate *));
/* Picks a minimum into DEVICES_PICKED, and leases into core->evicted that would have to go for it.
 * `within`: the quota of its team. Returns how many devices are lacking at least; what is picked is
 * of no use then. */
uint32_t core_gang_pick(struct core *core, struct lease *lease, bool within);
void core_gang_unpick_endpoints(struct core *core); /* from here on removals are real */
void core_gang_unpick(struct core *core);

/* ---- evict.c: leases that must go as a whole ---- */
void core_evict_count(struct lease *lease); /* after a touch: its team may have fewer, or more */
bool core_evict_is_counted(const struct lease *lease); /* as after a touch */
/* No more than these: what nothing but urgency and quotas forbids. */
uint32_t core_evict_most(const struct core *core, const struct lease *taker);
/* Chooses leases, into core->evicted, that free so many devices for the taker, and of each kind no
 * more than it may have. Returns how many devices are lacking then; nothing is chosen unless 0. */
uint32_t core_evict_choose(struct core *core, const struct lease *taker, bool within,
                           uint32_t wanted, const uint32_t limits[CORE_KINDS_MAX]);
void core_evict_chosen(struct core *core, const struct lease *taker);
void core_evict_forget(struct core *core);

/* ---- growth.c ---- */
void core_growth_plan(struct core *core);
void core_growth_follow(struct lease *lease); /* after a touch: its place among those that grow */
bool core_growth_is_followed(const struct lease *lease); /* as after a touch */
/* A lease of a team with a lower claim would grow onto what is picked for this one. */
bool core_growth_goes_first(struct core *core, const struct lease *lease);

/* ---- outlook.c ---- */
void core_outlook_ran(struct core *core, uint64_t run_ns);
void core_outlook_revoked(struct core *core);

/* ---- planner.c ---- */
void core_plan(struct core *core);

/* ---- ledger.c ---- */
void core_ledger_open(struct core *core, struct device *device);
void core_ledger_update(struct core *core, struct device *device); /* accrues, chooses account */
void core_ledger_book(struct core *core, struct device *device, uint64_t amount_ns,
                      enum core_account to);
core_sum_ns core_lease_provisional(const struct core *core, const struct lease *lease); /* now */
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
