/* objects.h: what a core keeps, by object: timers, instances, devices, endpoints, fleets, teams,
 * leases, and the core itself. Who writes what, and the rules for changes, stand in state.h; files
 * of the core include that. */
#ifndef TIDEPOOL_CORE_OBJECTS_H
#define TIDEPOOL_CORE_OBJECTS_H

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

#endif
