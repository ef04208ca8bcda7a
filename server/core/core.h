/* core.h: everything that decides who holds which device. Events in, actions out, nothing else.
 *
 * Units:   *_ns are nanoseconds of the caller's monotonic clock; *_bytes bytes; *_permille and
 *          *_milli thousandths. Integers only: the same events give the same actions everywhere.
 * Ids:     devices, endpoints, leases, teams and kinds are numbers the caller gives (0: "none";
 * team 0: of those leases that name none). Names, nodes and strings stay with the caller. Owner:
 * the core owns all its state; callers see copies and hold ids. Thread:  the control thread only.
 * No clock, thread, file, environment or global state in here. Memory:  reserved only by events
 * that add a device, an endpoint or a lease.
 *
 * One turn of the loop:
 *     reserve a buffer of core_actions_max(core) actions (it grows only when objects are added);
 *     count = core_step(core, &event, actions); carry out the actions in order.
 * Every action has an id. What an action waits for is answered by an event with that id: see the
 * comment at each kind of action. A late, doubled or unknown answer changes nothing.
 *
 * A device and its two parties. A device may hold instances of endpoints (each placed by the core)
 * and be granted to at most one lease. A ready instance serves from its endpoint's queue whenever
 * there are requests. While the device is also granted with `yield`, serving takes the device
 * from training at once and training goes on by itself when the queue is empty: the permission is
 * part of the grant, nothing is asked per request, and the time is moved from one account to the
 * other by EVENT_DEVICE_SAMPLE. Taking the device away from the lease is a revoke: revoke ->
 * acknowledged (or the lease ends) -> verify -> verified; only then can anyone else be granted it.
 * A holder that is not in process shares its device with nobody. If it can be stopped in place
 * (freeze, pause, swap) instances may stay loaded beside it: they rest, that is, they take no
 * request from the device's GRANT on, until its holder is SUSPENDED or verified gone, and again
 * from RESUME on. From the device of any other such holder all instances are removed first.
 *
 * A stop in place takes the whole gang: REVOKE by FREEZE, PAUSE or SWAP of each of its devices ->
 * suspended (what stays in memory is told) -> RESUME of each -> resumed. The holder keeps its
 * devices and tokens; meanwhile its devices serve. It is resumed before its cap on stopped time:
 * a stopped job cannot save itself, so whatever else it is asked comes after that. */
#ifndef TIDEPOOL_CORE_CORE_H
#define TIDEPOOL_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CORE_KINDS_MAX 8       /* kinds of device: 0 .. 7; masks have bit 1 << kind */
#define CORE_BATCH_SIZES 12    /* service times of batches of 1, 2, 4 ... 2048 */
#define CORE_VICTIMS_MAX 8     /* candidates listed in one explanation */
#define CORE_DEVICES_MAX 16384 /* more are rejected, as are more of the next two */
#define CORE_ENDPOINTS_MAX 4096
#define CORE_LEASES_MAX 65536
#define CORE_TEAMS_MAX 1024
#define CORE_REVOKES_MAX 1000 /* the largest bound of a lease's revokes per hour */

/* Device time of many devices together: 10,000 of them have more nanoseconds in three weeks than
 * 64 bits hold. */
__extension__ typedef unsigned __int128 core_sum_ns;
uint64_t core_sum_clip(core_sum_ns sum); /* saturates: 584 years of one device */

struct core; /* opaque */

/* ---- words ---------------------------------------------------------------------------------- */

enum core_mode {
    CORE_MODE_OBSERVE, /* records in explanations what it would do; moves nothing */
    CORE_MODE_ADVISE,  /* the same, and emits those explanations and the scale signal */
    CORE_MODE_ACT,
};

/* Ways to get a device back. The core chooses the cheapest that its holder supports and that is
 * fast enough, and may combine them: a stop in place for the burst, SHRINK or NOTICE for the load
 * that stays. A REVOKE by KILL is for a holder that takes no notice: it has the time of one, and is
 * killed then. */
enum core_rung {
    CORE_RUNG_NONE, /* the device is already gone from its holder */
    CORE_RUNG_FREE,
    CORE_RUNG_YIELD,
    CORE_RUNG_SHRINK,
    CORE_RUNG_FREEZE,
    CORE_RUNG_PAUSE,
    CORE_RUNG_SWAP,
    CORE_RUNG_NOTICE,
    CORE_RUNG_KILL,
    CORE_RUNG_COUNT,
};

enum core_reason {
    CORE_REASON_NONE,
    CORE_REASON_DEMAND,         /* an endpoint's demand, over its window or at once */
    CORE_REASON_SUSTAINED_LOAD, /* serving takes nearly all of the device for a while */
    CORE_REASON_LOAD_FELL,      /* demand stayed under the lower threshold */
    CORE_REASON_GANG_MINIMUM,   /* a waiting lease gets its minimum */
    CORE_REASON_ELASTIC_GROWTH, /* a free device for a lease that can use more */
    CORE_REASON_RESIZED,        /* the lease's maximum was lowered */
    CORE_REASON_BELOW_MINIMUM,  /* the lease lost a device and cannot go on with the rest */
    CORE_REASON_OWNER_PAUSED,
    CORE_REASON_CANCELLED,
    CORE_REASON_EXPIRED,
    CORE_REASON_RELEASED,
    CORE_REASON_JOB_EXITED,
    CORE_REASON_DEVICE_FAILED,
    CORE_REASON_DEVICE_REMOVED,
    CORE_REASON_RECLAIM,          /* the provider wants the device back */
    CORE_REASON_ACTION_FAILED,    /* the shell could not carry out a grant or a placement */
    CORE_REASON_ACTION_LOST,      /* no answer within action_timeout_ns */
    CORE_REASON_DEADLINE_PASSED,  /* a revoke was not acknowledged in time */
    CORE_REASON_NOT_VERIFIED,     /* the former holder is not verified gone */
    CORE_REASON_RESTORED,         /* found again after a restart */
    CORE_REASON_IMPOSSIBLE,       /* more devices than the pool has of these kinds */
    CORE_REASON_DUPLICATE,        /* the id is in use */
    CORE_REASON_UNKNOWN,          /* no such object */
    CORE_REASON_INVALID,          /* a field is out of its range */
    CORE_REASON_NO_MEMORY,        /* of this process: nothing was added */
    CORE_REASON_TABLE_FULL,       /* one of the CORE_*_MAX above */
    CORE_REASON_NO_DEVICE_MEMORY, /* the instance fits on no device beside what is there */
    CORE_REASON_NEIGHBOUR_SLO,    /* a batch would outlast half of a neighbour's SLO */
    CORE_REASON_RATE_BOUND,       /* moves per device and hour are used up */
    CORE_REASON_HOLD,             /* moves are frozen by the operator */
    CORE_REASON_UNSUPPORTED,      /* the holder has no such rung */
    CORE_REASON_TOO_SLOW,         /* the rung takes longer than the need allows */
    CORE_REASON_DEARER,           /* a cheaper one does */
    CORE_REASON_RUNG_FAILED,      /* the holder did not stop or go on when it was last asked */
    CORE_REASON_BUSY,             /* the lease is not whole, or in a hand-over already */
    CORE_REASON_STOPPED_TOO_LONG, /* the cap on stopped time */
    CORE_REASON_DELIVERED,        /* a slower rung has delivered what the fast one bridged */
    CORE_REASON_EXTENDED,         /* the one extension of a notice is used up, or not allowed */
    CORE_REASON_QUOTA,            /* reservations would exceed the team's quota */
    CORE_REASON_QUOTA_RETURNED,   /* the team that lent the device wants it back */
    CORE_REASON_PRIORITY,         /* a more urgent lease of the same team */
    CORE_REASON_FAIR_SHARE,       /* a team that has less for its weight */
    CORE_REASON_RESERVED,         /* the lease is not preemptible */
    CORE_REASON_FLOOR,            /* the lease would fall below its floor without full notice */
    CORE_REASON_RUN_TIME,         /* the lease has not run for its minimum time */
    CORE_REASON_REVOKES_BOUND,    /* the lease's revokes of the hour are used up */
    CORE_REASON_RETRIES_USED,     /* the job failed too often */
    CORE_REASON_STALE_TOKEN,      /* of an earlier grant: the lease is not this caller's any more */
    CORE_REASON_SLOW,             /* the device is much slower than its kind, for long */
    CORE_REASON_HEALTH_BUDGET,    /* as much of the pool as may be is drained for slowness */
    CORE_REASON_COUNT,
};

/* What limits the speed of a piece of work; kinds of device differ in both. */
enum core_work {
    CORE_WORK_ANY,     /* not known, or both */
    CORE_WORK_COMPUTE, /* arithmetic */
    CORE_WORK_MEMORY,  /* memory bandwidth */
    CORE_WORK_COUNT,
};

/* Where a device-second is booked; exactly one account at a time. */
enum core_account {
    CORE_ACCOUNT_FREE,        /* nobody needs it (models may be parked on it) */
    CORE_ACCOUNT_RESERVE,     /* kept for serving, no batch running */
    CORE_ACCOUNT_SERVING,     /* batches running (from samples) */
    CORE_ACCOUNT_TRAINING,    /* held by a lease; provisional until kept */
    CORE_ACCOUNT_WAITING,     /* held by a lease that waits for data (from samples) */
    CORE_ACCOUNT_RESTORE,     /* held by a lease that restores its state (from samples) */
    CORE_ACCOUNT_LOST,        /* training that was not kept (a booked transfer) */
    CORE_ACCOUNT_HANDOVER,    /* granting, letting go, verifying, promised to a gang */
    CORE_ACCOUNT_SUSPENDED,   /* the holder is resident but stopped; what serves there is SERVING */
    CORE_ACCOUNT_QUARANTINED, /* failed, occupied by a stranger, or not verified */
    CORE_ACCOUNT_COUNT,
};

enum core_health {
    CORE_HEALTH_OK,
    CORE_HEALTH_SLOW,        /* usable; chosen last */
    CORE_HEALTH_FAILED,      /* until EVENT_DEVICE_RECOVERED, then verified */
    CORE_HEALTH_QUARANTINED, /* former holder not verified gone; until EVENT_DEVICE_RECOVERED */
};

/* The device as seen from leases. */
enum core_hold {
    CORE_HOLD_NONE,
    CORE_HOLD_GRANTING, /* grant emitted, not yet done */
    CORE_HOLD_HELD,
    CORE_HOLD_REVOKING,   /* told to let go, until its deadline */
    CORE_HOLD_KILLING,    /* past the deadline, until the kill bound */
    CORE_HOLD_VERIFYING,  /* let go; being verified */
    CORE_HOLD_SUSPENDING, /* told to stop in place, until its deadline */
    CORE_HOLD_SUSPENDED,  /* stopped and verified quiet; instances on the device serve */
    CORE_HOLD_RESUMING,   /* told to go on */
};

enum core_instance_state {
    CORE_INSTANCE_ABSENT,
    CORE_INSTANCE_PLACING,
    CORE_INSTANCE_READY,
    CORE_INSTANCE_REMOVING,
};

enum core_lease_state {
    CORE_LEASE_WAITING,   /* holds nothing */
    CORE_LEASE_RUNNING,   /* holds at least its minimum (grants may still be on their way) */
    CORE_LEASE_DRAINING,  /* gives back everything, then waits or is paused */
    CORE_LEASE_PAUSED,    /* by its owner; holds nothing */
    CORE_LEASE_ENDING,    /* gives back everything for good */
    CORE_LEASE_ENDED,     /* kept a while for its story; its id can be used again */
    CORE_LEASE_SUSPENDED, /* the whole gang is stopped in place, on its way there or back */
};

/* ---- configuration -------------------------------------------------------------------------- */

/* What a rung takes before it was ever measured: on any lease, on any kind of device. */
struct core_rung_prior {
    uint64_t take_ns; /* from REVOKE to the device being usable */
    uint64_t give_ns; /* from RESUME (or GRANT) to the holder being at work again */
};

struct core_config {
    uint64_t seed[2];              /* secrets of fencing tokens are drawn from it: keep it secret */
    uint64_t store_epoch;          /* part of every token: grows with every start of the server */
    uint64_t generation;           /* the last generation ever used */
    enum core_mode mode;           /* ACT */
    uint32_t late_budget_ppm;      /* 10000: the one knob: work that may be late for want of devices
                                    * lent to leases, in millionths; reserve and patience follow */
    uint64_t demand_fast_ns;       /* 1 s: window of the fast arrival rate */
    uint64_t demand_slow_ns;       /* 10 s: window of the slow one */
    uint32_t load_high_permille;   /* 800: more devices are needed above this load each, where no
                                    * lease must be asked for them */
    uint32_t load_low_permille;    /* 600: fewer when the rest would stay under this, the same */
    uint64_t danger_hold_ns;       /* 2 s: how long one endangered SLO counts as demand */
    uint64_t utilisation_ns;       /* 500 ms: window of a device's serving share */
    uint64_t sample_stale_ns;      /* 1 s: a device without a sample for so long is idle */
    uint64_t quiet_ns;             /* 100 ms without serving end a burst (explanations) */
    uint32_t shrink_high_permille; /* 850: serving share from which yielding leaves training
                                    * next to nothing ... */
    uint64_t shrink_after_ns;      /* 3 s: ... for so long: the lease gives up the device */
    uint32_t shrink_low_permille;  /* 700: a share under this ... */
    uint64_t cool_down_ns;         /* 3 s: ... for so long lets training have it again */
    uint64_t hold_min_ns;          /* 1 s: least time between a device's moves; more when the
                                    * measured hand-over takes longer */
    uint64_t shrink_deadline_ns;   /* 5 s: from a revoke by SHRINK to its deadline */
    uint64_t notice_ns;            /* 30 s: the same by NOTICE */
    uint64_t extension_ns;         /* 30 s: the one extension of a notice is no longer */
    uint64_t suspend_deadline_ns; /* 10 s: the same by FREEZE, PAUSE and SWAP; then it is resumed */
    uint64_t stopped_cap_ns;      /* 60 s: cap on the time that a holder is stopped in place */
    uint64_t sustained_ns;        /* 10 s in use by serving: then a stopped device is replaced as
                                   * soon as that costs less than the stop has cost already */
    struct core_rung_prior rung_prior[CORE_RUNG_COUNT];
    uint64_t restore_prior_ns;   /* 10 s: a job's restore, before it was measured */
    uint64_t stopped_prior_ns;   /* 5 s: how long a stop in place lasts, the same */
    uint64_t kill_bound_ns;      /* 10 s: from the deadline to quarantine */
    uint64_t action_timeout_ns;  /* 10 s: grant and verify unanswered */
    uint64_t place_timeout_ns;   /* 600 s: place and remove unanswered */
    uint64_t retry_ns;           /* 1 s: after a failed grant or placement, doubling to 64 s */
    uint64_t age_ns;             /* 60 s of waiting are worth one step of priority */
    uint64_t overtake_ns;        /* 120 s: then nothing behind it overtakes a lease */
    uint64_t usage_half_life_ns; /* 24 h: a team's use of so long ago counts half */
    uint64_t heartbeat_lost_ns;  /* 60 s without one: a flag and a first choice as a victim */
    uint32_t retries;            /* 3 failures of a job without a checkpoint between them */
    uint64_t credit_ns;       /* 60 s of waiting that a preemption just after a checkpoint earns */
    uint64_t credit_fades_ns; /* 600 s: age of a checkpoint that earns nothing any more */
    uint64_t outlook_ns;      /* 300 s: how far forecasts of revokes look */
    uint32_t slow_permille;   /* 900: devices below this speed come last ... */
    uint32_t drain_permille;  /* 600: ... and those below this ... */
    uint64_t drain_after_ns;  /* 60 s: ... for so long are drained, until they are as fast as
                               * slow_permille for so long */
    uint32_t health_budget_permille; /* 125: of all devices, at most so many are drained for that */
    uint64_t leave_lead_ns; /* 30 s before a device goes serving moves away; its holder has so long
                             * beyond its notice and the kill bound */
    uint64_t
        leave_useful_ns;     /* 60 s: nothing new comes onto a device that it could have for less */
    uint32_t moves_per_hour; /* 120 hand-overs per device and hour */
    uint32_t moves_extra;    /* 4 more when an SLO is in danger */
    uint32_t ended_kept;     /* 256 ended leases stay readable */
    uint32_t explanations_kept; /* 4096 moves, a ring; of bursts (YIELD_*, DANGER) a quarter more */
};

void core_config_init(struct core_config *config); /* the defaults above; seed and epoch are 0 */

/* ---- events --------------------------------------------------------------------------------- */

/* Logs and scenario files write events by name: a new kind, field or setting also needs its row in
 * server/record/fields.c (its test tells). */

enum core_event_kind {
    CORE_EVENT_TIMER, /* the time of ACTION_SET_TIMER has come; early or extra ones do no harm */
    CORE_EVENT_DEVICE_ADDED,      /* .device_added */
    CORE_EVENT_DEVICE_REMOVED,    /* .device: gone at once */
    CORE_EVENT_DEVICE_FAILED,     /* .device: its instances and its holder's part are gone */
    CORE_EVENT_DEVICE_RECOVERED,  /* .device: from failed or quarantined; gets verified first */
    CORE_EVENT_DEVICE_SLOW,       /* .device_flag: on or off */
    CORE_EVENT_DEVICE_SPEED,      /* .device_speed: measured of late, against its kind's own */
    CORE_EVENT_DEVICE_CORDONED,   /* .device_flag: on: no new lease, no new instance */
    CORE_EVENT_DEVICE_OCCUPIED,   /* .device_flag: by a foreign process; not granted meanwhile */
    CORE_EVENT_DEVICE_RECLAIM_BY, /* .device_time: empty by then, whatever was told before; 0: it
                                   * stays */
    CORE_EVENT_DEVICE_SAMPLE,     /* .device_sample: every 10-100 ms while a batch or a lease is on
                                   * the device, and just before every event that changes it */
    CORE_EVENT_KIND_MEASURED,     /* .kind_measured */
    CORE_EVENT_ENDPOINT_ADDED,    /* .endpoint_spec */
    CORE_EVENT_ENDPOINT_CHANGED,  /* .endpoint_spec */
    CORE_EVENT_ENDPOINT_REMOVED,  /* .endpoint: its instances are removed, then it is forgotten */
    CORE_EVENT_ENDPOINT_SERVICE,  /* .endpoint_service: measured service times */
    CORE_EVENT_ENDPOINT_SAMPLE,   /* .endpoint_sample: every 10-1000 ms while there is load, one
                                   * more with zeros when it ends */
    CORE_EVENT_ENDPOINT_DANGER,   /* .endpoint_danger: at enqueue, at once; 1 per 10 ms is plenty */
    CORE_EVENT_INSTANCE_READY,    /* .instance: answers PLACE */
    CORE_EVENT_INSTANCE_FAILED,   /* .instance: answers PLACE; or, action 0, a ready one broke */
    CORE_EVENT_INSTANCE_STOPPED,  /* .instance: answers REMOVE */
    CORE_EVENT_LEASE_REQUESTED,   /* .lease_spec */
    CORE_EVENT_LEASE_RESIZED,     /* .lease_resized */
    CORE_EVENT_LEASE_PAUSED,      /* .lease: by its owner */
    CORE_EVENT_LEASE_RESUMED,     /* .lease: by its owner */
    CORE_EVENT_LEASE_CANCELLED,   /* .lease: by its owner; the holder is told to let go */
    CORE_EVENT_LEASE_RELEASED,    /* .lease_released: the holder has let go of one device or all */
    CORE_EVENT_LEASE_SPEED,       /* .lease_speed: measured, better than its class of work */
    CORE_EVENT_LEASE_PROGRESS,    /* .lease_progress; it is a heartbeat too */
    CORE_EVENT_LEASE_HEARTBEAT,   /* .lease_heartbeat */
    CORE_EVENT_JOB_EXITED,        /* .job_exited: the holder has ended by itself */
    CORE_EVENT_REVOKE_ACKNOWLEDGED, /* .answer: answers REVOKE: the holder no longer uses it */
    CORE_EVENT_RELEASE_VERIFIED,    /* .verified: answers VERIFY */
    CORE_EVENT_ACTION_DONE,         /* .answer: answers GRANT (committed and begun) and KILL */
    CORE_EVENT_ACTION_FAILED, /* .answer: the same two; also REVOKE that reached nobody (FREEZE,
                               * PAUSE, SWAP: that the holder refused; it goes on) */
    CORE_EVENT_SUSPENDED, /* .suspended: answers REVOKE by FREEZE, PAUSE or SWAP: the holder stands
                           * still and was verified quiet */
    CORE_EVENT_RESUMED,   /* .answer: answers RESUME: it is at work again */
    CORE_EVENT_EXTENSION_ASKED, /* .extension: by the holder, once, of a NOTICE */
    CORE_EVENT_RUNG_MEASURED,   /* .rung_measured: known from before; the core measures by itself */
    CORE_EVENT_TEAM_CHANGED,    /* .team_spec: added or changed */
    CORE_EVENT_TEAM_REMOVED,    /* .team: its leases go on without quota, with weight 1 */
    CORE_EVENT_MODE_CHANGED,    /* .mode */
    CORE_EVENT_HOLD,            /* .hold: on: no moves but what safety and owners ask */
    CORE_EVENT_RESTORED_LEASE,  /* .lease_spec: known from before a restart */
    CORE_EVENT_RESTORED_GRANT,  /* .restored_grant: a device it held then */
    CORE_EVENT_RESTORED_INSTANCE, /* .instance, action 0: still there and ready */
    CORE_EVENT_RECONCILE_DONE,    /* all that was known before is told; nothing moves earlier.
                                   * A fresh server sends it after its first devices. */
    CORE_EVENT_COUNT,
};

struct core_device_spec {
    uint64_t device;
    uint32_t kind;         /* < CORE_KINDS_MAX */
    uint64_t memory_bytes; /* for instances and leases together; 0: not limited; at most 2^50 */
    uint64_t node;         /* the machine it is in; 0 here and below: not known */
    uint64_t link;         /* devices of one number reach each other over the fastest links */
    uint64_t provider;     /* whoever it is rented from */
    uint64_t available_until_ns; /* its provider takes it back then; 0: never */
};

/* Speeds compare kinds for one class of work: 1000 is the kind it is reckoned by, 0 not measured
 * (as 1000; of MEMORY from the bandwidth, where all kinds tell it). */
struct core_kind_spec {
    uint32_t kind;
    uint32_t speed_permille[CORE_WORK_COUNT]; /* at most 1000000 */
    uint64_t bandwidth_bytes_s;               /* of its memory; 0: not known */
};

struct core_endpoint_spec {
    uint64_t endpoint;
    uint64_t slo_ns;          /* > 0 */
    uint32_t target_permille; /* share of requests that must meet it: late_budget_ppm is no more
                               * than what is left for it and those it shares devices with */
    int32_t priority;         /* higher first */
    uint32_t devices_min, devices_max; /* instances; the maximum is at least 1 */
    uint32_t kinds_mask;
    uint64_t memory_bytes; /* of one instance */
    enum core_work work;   /* measured service times go before it */
};

/* Quotas bound nothing before the first team is added. */
struct core_team_spec {
    uint64_t team;
    uint32_t weight; /* 1 .. 1000000: share of what is beyond all quotas */
    /* Devices of each kind that the team gets back whenever it wants them; while it does not, other
     * teams use them. The most that its leases may reserve (preemptible = false). */
    uint32_t quota[CORE_KINDS_MAX];
};

struct core_lease_spec {
    uint64_t lease;
    uint32_t devices_min, devices_max; /* 1 <= min <= max; the minimum is a gang */
    int32_t priority;                  /* within the team, -1000000 .. 1000000; higher first */
    uint64_t team;
    uint32_t kinds_mask;
    uint64_t memory_bytes; /* on each device */
    uint64_t until_ns;     /* 0: no end */
    uint64_t duration_ns;  /* of running, over all its runs, until it expires; 0: no end */
    bool preemptible;      /* may be revoked for other needs; false: a reservation, within quota */
    bool in_process;       /* can yield: serving takes turns with it on a device */
    enum core_work work;
    bool heartbeats;     /* its holder sends them, so that missing ones say something */
    uint32_t floor;      /* <= max: below it only with the full notice; 0: none */
    uint64_t run_min_ns; /* not revoked for so long after it started, but for an SLO in danger */
    uint32_t revokes_per_hour; /* chosen by the core, by rungs that take the device away ... */
    uint32_t stops_per_hour;   /* ... and by freeze and pause; 0: no bound; <= CORE_REVOKES_MAX */
    uint32_t rungs_mask;   /* bits 1 << CORE_RUNG_*, what its holder supports; 0: SHRINK in process,
                            * else NOTICE. YIELD goes without saying in process and only there,
                            * as does KILL for the others */
    uint64_t notice_ns;    /* 0: the configured one */
    bool extension;        /* it may ask once for more time */
    uint64_t extension_ns; /* no more than this; 0: the configured one */
    uint64_t stopped_cap_ns;                          /* 0: the configured one */
    uint64_t pause_residue_bytes, swap_residue_bytes; /* of memory_bytes, what stays on the device
                                                       * when paused, swapped; frozen: all of it */
};

struct core_event {
    enum core_event_kind kind;
    uint64_t time_ns; /* never before the event before; if it is, that one's time counts */
    union {
        struct core_device_spec device_added;
        struct {
            uint64_t device;
        } device;
        struct {
            uint64_t device;
            bool on;
        } device_flag;
        struct {
            uint64_t device;
            uint64_t by_ns;
        } device_time;
        struct {
            uint64_t device;
            uint32_t speed_permille; /* 1000: as fast as its kind is */
        } device_speed;
        struct core_kind_spec kind_measured;
        struct {
            uint64_t device;
            uint64_t interval_ns; /* since the last sample of the device */
            uint64_t serving_ns;  /* of it, batches ran */
            uint64_t waiting_ns;  /* of it, training waited for data */
            uint64_t restore_ns;  /* of it, training restored its state */
            uint32_t slices;      /* times training stood still for a batch */
        } device_sample;
        struct core_endpoint_spec endpoint_spec;
        struct {
            uint64_t endpoint;
        } endpoint;
        struct {
            uint64_t endpoint;
            uint32_t kind;
            uint64_t service_ns[CORE_BATCH_SIZES]; /* of a batch of 2^i; 0: not measured */
        } endpoint_service;
        struct {
            uint64_t endpoint;
            uint64_t interval_ns; /* since its last sample */
            uint32_t arrivals;    /* in what service times count: rows of a batch */
            uint32_t queue_length;
            uint64_t oldest_wait_ns;
            uint64_t busy_ns; /* device time its batches took, over all devices */
        } endpoint_sample;
        struct {
            uint64_t endpoint;
            uint64_t projected_wait_ns;
            uint32_t queue_length;
        } endpoint_danger;
        struct {
            uint64_t action;
            uint64_t endpoint;
            uint64_t device;
        } instance;
        struct core_lease_spec lease_spec;
        struct {
            uint64_t lease;
            uint32_t devices_min, devices_max;
        } lease_resized;
        struct {
            uint64_t lease;
        } lease;
        struct {
            uint64_t lease;
            uint64_t device;     /* 0: all of them, and the lease ends */
            uint64_t generation; /* of the device's grant, or of any of the run when device is 0 */
        } lease_released;
        struct {
            uint64_t lease;
            uint64_t generation; /* of any grant of this run */
            uint64_t step;
            uint64_t checkpointed_step; /* training up to here is kept */
        } lease_progress;
        struct {
            uint64_t lease;
            uint32_t kind;
            uint32_t speed_permille; /* of one device of this kind, in any unit that all kinds of
                                      * this lease share; 0: forget it */
        } lease_speed;
        struct {
            uint64_t lease;
            uint64_t generation; /* of any grant of this run */
        } lease_heartbeat;
        struct core_team_spec team_spec;
        struct {
            uint64_t team;
        } team;
        struct {
            uint64_t lease;
            uint64_t generation; /* of any grant of this run */
            bool kept;           /* all its work is kept (else: up to the last checkpoint) */
            bool again;          /* it wants to run again: waits instead of ending */
            bool failed;         /* by a fault of its own: counts against its retries */
        } job_exited;
        struct {
            uint64_t action;
            uint64_t device;
        } answer;
        struct {
            uint64_t action;
            uint64_t device;
            bool gone; /* false: the former holder still lives; the device is quarantined */
        } verified;
        struct {
            uint64_t action;
            uint64_t device;
            uint64_t residue_bytes; /* what stays on the device, as measured */
        } suspended;
        struct {
            uint64_t lease;
            uint64_t device;     /* 0: all that are under notice */
            uint64_t generation; /* of the device's grant, or of any of the run when device is 0 */
            uint64_t extension_ns;
        } extension;
        struct {
            uint64_t lease;
            enum core_rung rung;
            uint32_t kind;
            uint64_t take_ns, give_ns; /* 0: not known */
        } rung_measured;
        struct {
            enum core_mode mode;
        } mode;
        struct {
            bool on;
        } hold;
        struct {
            uint64_t lease;
            uint64_t device;
            uint64_t generation;
            bool alive; /* the holder was found and goes on; else the device gets verified */
            enum core_rung stopped; /* it was found stopped by this rung; NONE: at work */
            uint64_t stopped_ns;    /* for so long */
            uint64_t residue_bytes;
        } restored_grant;
    };
};

/* ---- actions -------------------------------------------------------------------------------- */

enum core_action_kind {
    /* Load the endpoint's model on the device. Answer: INSTANCE_READY or INSTANCE_FAILED. */
    CORE_ACTION_PLACE,
    /* Stop taking its requests there, finish the batch, unload. Answer: INSTANCE_STOPPED. */
    CORE_ACTION_REMOVE,
    /* Commit the token to the store, then let the lease use the device. Answer: ACTION_DONE or
     * ACTION_FAILED. The grants of a gang come in one step. */
    CORE_ACTION_GRANT,
    /* Tell the lease to let go of the device by the deadline. Answer: REVOKE_ACKNOWLEDGED. With
     * rung NONE the device is already gone and no answer is awaited. With FREEZE, PAUSE or SWAP:
     * stop in place; answer: SUSPENDED, or ACTION_FAILED and the holder goes on. */
    CORE_ACTION_REVOKE,
    /* Instances on the device rest; the stopped holder goes on. Answer: RESUMED. Also the way back
     * from a stop that was not answered. */
    CORE_ACTION_RESUME,
    /* Told only: the deadline of a REVOKE by NOTICE is now this one. */
    CORE_ACTION_EXTEND,
    /* End the lease's whole job by force. Answer: ACTION_DONE when it is gone, ACTION_FAILED. */
    CORE_ACTION_KILL,
    /* Make sure that nobody uses the device any more. Answer: RELEASE_VERIFIED. */
    CORE_ACTION_VERIFY,
    /* Told only: the device is out of the pool until EVENT_DEVICE_RECOVERED; REMOVEs of its
     * instances follow. */
    CORE_ACTION_QUARANTINE,
    /* Told only: the event about this device, endpoint or lease was refused. */
    CORE_ACTION_REJECT,
    /* Told only: the lease's time is over; its revokes follow. */
    CORE_ACTION_EXPIRE,
    /* Told only: the lease has a new state or number of devices, or its heartbeat was lost or is
     * back (at most one a step). */
    CORE_ACTION_LEASE_MOVED,
    /* Send EVENT_TIMER at this time; replaces the one before; 0: none needed. */
    CORE_ACTION_SET_TIMER,
    /* Told only: devices that all demand and all waiting leases would need, and those there are. */
    CORE_ACTION_SCALE,
    /* Told only: core_explanation_find(core, .explanation.explanation) has the story. */
    CORE_ACTION_EXPLAIN,
    CORE_ACTION_COUNT,
};

/* Fences off late messages: compare all three. */
struct core_token {
    uint64_t store_epoch;
    uint64_t generation; /* grows with every grant */
    uint64_t secret;
};

struct core_action {
    enum core_action_kind kind;
    uint64_t id; /* grows by one with every action; begins at store_epoch << 40 */
    union {
        struct {
            uint64_t endpoint;
            uint64_t device;
        } instance; /* PLACE, REMOVE */
        struct {
            uint64_t lease;
            uint64_t device;
            struct core_token token;
            uint64_t run; /* generation of the first grant of this run of the lease */
            bool yield; /* instances on the device serve at any time and training yields to them */
            enum core_reason reason;
        } grant;
        struct {
            uint64_t lease;
            uint64_t device;
            uint64_t generation; /* of the grant that ends */
            enum core_rung rung;
            enum core_reason reason;
            uint64_t deadline_ns;
        } revoke; /* REVOKE, RESUME (rung: of the stop), EXTEND, KILL (deadline: the end of the kill
                   * bound) */
        struct {
            uint64_t device;
            uint64_t lease; /* the former holder, or 0 */
            enum core_reason reason;
        } device; /* VERIFY, QUARANTINE */
        struct {
            uint64_t device;
            uint64_t endpoint;
            uint64_t lease;
            enum core_reason reason;
        } reject;
        struct {
            uint64_t lease;
            enum core_lease_state state;
            uint32_t devices; /* granted to it and not being revoked */
            enum core_reason reason;
            bool heartbeat_lost;
        } lease; /* EXPIRE, LEASE_MOVED */
        struct {
            uint64_t at_ns;
        } timer;
        struct {
            uint32_t devices_wanted;
            uint32_t devices_have;
        } scale;
        struct {
            uint64_t explanation;
        } explanation;
    };
};

/* ---- life ----------------------------------------------------------------------------------- */

/* The configuration is copied. NULL: no memory, or a field that makes no sense (a threshold pair
 * upside down, a window or a ring of 0). */
struct core *core_create(const struct core_config *config);
void core_destroy(struct core *core); /* NULL is fine */
/* A second core in the same state, between two steps: the same events make the same actions of both
 * from here on. The caller's. NULL: no memory. */
struct core *core_clone(const struct core *core);

/* An upper bound for the actions of the next step, whatever its event. */
size_t core_actions_max(const struct core *core);
size_t core_step(struct core *core, const struct core_event *event, struct core_action *actions);

/* ---- reading (changes nothing) -------------------------------------------------------------- */

struct core_device_view {
    uint64_t device;
    uint32_t kind;
    uint64_t memory_bytes;      /* 0: not limited */
    uint64_t memory_used_bytes; /* by instances and the lease */
    enum core_health health;
    bool cordoned, occupied;
    uint32_t speed_permille; /* against its kind's own; 1000 until measured */
    bool drained;            /* for slowness */
    uint64_t node, link, provider;
    uint64_t reclaim_by_ns; /* 0: not wanted back */
    enum core_hold hold;
    uint64_t lease;                /* holder, also while it lets go; 0: none */
    uint64_t promised;             /* lease that gets it next; 0: none */
    uint64_t generation;           /* of the present or last grant */
    uint64_t deadline_ns;          /* of what is awaited; SUSPENDED: when it must go on; else 0 */
    enum core_rung rung;           /* of the revoke or stop; NONE: none */
    uint64_t residue_bytes;        /* SUSPENDED: what its holder keeps in memory */
    bool yield;                    /* training on it yields to serving */
    bool kept_for_serving;         /* not granted because serving needs it */
    uint32_t instances_ready;      /* also those that rest */
    bool resting;                  /* the holder lets none of them serve */
    uint32_t utilisation_permille; /* share of serving of late */
    enum core_account account;     /* of this moment (serving within it comes by samples) */
    uint64_t account_ns[CORE_ACCOUNT_COUNT];
    uint64_t slices;
    uint32_t handovers; /* changes of active party, ever */
};

struct core_endpoint_view {
    struct core_endpoint_spec spec;
    uint32_t demand_milli;   /* devices' worth of arriving work, thousandths */
    uint32_t devices_needed; /* with thresholds, hold and danger; capped by devices_max */
    uint32_t instances_ready, instances_placing; /* that serve */
    uint32_t instances_resting; /* loaded or loading beside a holder that lets them not serve */
    uint64_t projected_wait_ns; /* last told by a danger event or a sample's oldest wait */
    uint64_t rate_milli;        /* requests per 1000 s of the faster window */
    enum core_reason reason;    /* why it has fewer instances than needed; NONE otherwise */
    bool removing;
    core_sum_ns account_ns[CORE_ACCOUNT_COUNT]; /* device time booked to it */
};

struct core_lease_view {
    struct core_lease_spec spec;
    enum core_lease_state state;
    enum core_reason reason; /* of the last change of state */
    uint32_t devices;        /* granted and neither stopped nor being revoked */
    uint32_t devices_leaving;
    uint32_t devices_stopped; /* stopped in place, on their way there or back */
    uint32_t position;        /* 1: next in the queue; 0: not waiting */
    uint64_t run;             /* generation of the first grant of this run; 0: none */
    uint64_t since_ns;        /* of the state */
    uint64_t step, checkpointed_step;
    core_sum_ns training_ns, provisional_ns, lost_ns; /* device time of this lease */
    core_sum_ns account_ns[CORE_ACCOUNT_COUNT];       /* the same and all other, by account */
    uint64_t run_ns;                                  /* time running, over all runs */
    uint32_t revokes, runs;
    uint32_t preemptions; /* runs ended by the core's choice */
    uint32_t stops;       /* times it was stopped in place */
    uint32_t failures;    /* of the job itself, without a checkpoint between them */
    bool heartbeat_lost;
    bool reported;          /* it has told a checkpoint */
    uint64_t checkpoint_ns; /* when it told the last one */
    uint64_t credit_ns;     /* of waiting, earned by preemptions just after a checkpoint */
};

struct core_health_view {
    uint32_t slow;    /* usable, chosen last */
    uint32_t drained; /* for slowness; at most ... */
    uint32_t budget;
    uint32_t beyond; /* as slow, but not drained: there is no budget left, or nothing may move */
};

struct core_team_view {
    struct core_team_spec spec; /* weight 1 and no quota for one that was never added */
    bool added;
    uint32_t devices[CORE_KINDS_MAX];  /* held, or still being let go of */
    uint32_t reserved[CORE_KINDS_MAX]; /* of these, by leases that are not preemptible */
    uint32_t leases, leases_waiting;   /* not ended; of these, waiting */
    uint64_t usage_ns;                 /* device time beyond quota, decayed */
    core_sum_ns account_ns[CORE_ACCOUNT_COUNT];
};

struct core_ledger {
    core_sum_ns account_ns[CORE_ACCOUNT_COUNT];
    core_sum_ns elapsed_ns;     /* devices x time: the sum of all accounts, exactly */
    core_sum_ns provisional_ns; /* of TRAINING, not yet kept */
    uint64_t unbooked_ns; /* told by samples beyond the time there was: a fault of the caller */
    uint64_t slices;
    uint64_t handovers[CORE_RUNG_COUNT]; /* by rung of the revoke; FREE: grants of free devices */
};

enum core_what {
    CORE_WHAT_GRANT,
    CORE_WHAT_REVOKE,
    CORE_WHAT_PLACE,
    CORE_WHAT_REMOVE,
    CORE_WHAT_YIELD_BEGAN, /* serving takes turns with training on the device */
    CORE_WHAT_YIELD_ENDED, /* training has the device to itself again */
    CORE_WHAT_KEEP,        /* a device stays with serving */
    CORE_WHAT_GIVE_BACK,   /* serving no longer needs it */
    CORE_WHAT_DANGER,      /* an SLO is in danger */
    CORE_WHAT_WAIT,        /* a lease waits */
    CORE_WHAT_KILL,
    CORE_WHAT_QUARANTINE,
    CORE_WHAT_DEVICE_LOST,
    CORE_WHAT_LEASE_ENDED,
    CORE_WHAT_HEARTBEAT_LOST, /* nothing follows from it but a preference among victims */
    CORE_WHAT_REJECT,
    CORE_WHAT_SUSPEND,   /* a gang is stopped in place */
    CORE_WHAT_RESUME,    /* it goes on */
    CORE_WHAT_EXTEND,    /* a notice is extended */
    CORE_WHAT_DRAIN,     /* a slow device; not applied, for HEALTH_BUDGET: an alert */
    CORE_WHAT_USE_AGAIN, /* a drained device */
    CORE_WHAT_COUNT,
};

struct core_victim {
    uint64_t lease;
    uint64_t device;
    enum core_rung rung;
    uint64_t take_ns; /* until the device is usable, as learned */
    uint64_t
        cost_ns; /* work lost, restore, the rung's time and the gang's idle time, device-time */
    bool chosen;
    enum core_reason refused; /* why not chosen; NONE when it was */
};

struct core_explanation {
    uint64_t explanation; /* id, growing */
    uint64_t time_ns;
    enum core_what what;
    enum core_reason reason;
    enum core_rung rung;
    bool applied;                     /* false: mode or hold kept it from being done */
    uint64_t device, lease, endpoint; /* 0: not concerned */
    uint64_t deadline_ns;
    uint32_t demand_milli;
    uint32_t utilisation_permille;
    uint32_t devices_have, devices_wanted; /* of the lease or endpoint concerned */
    uint64_t projected_wait_ns, slo_ns;
    uint32_t victim_count;
    struct core_victim victims[CORE_VICTIMS_MAX];
};

/* The objects come in the order of their ids; index from 0. False: there is none. */
bool core_device_at(const struct core *core, size_t index, struct core_device_view *ret_view);
bool core_device_find(const struct core *core, uint64_t device, struct core_device_view *ret_view);
bool core_endpoint_at(const struct core *core, size_t index, struct core_endpoint_view *ret_view);
bool core_endpoint_find(const struct core *core, uint64_t endpoint,
                        struct core_endpoint_view *ret_view);
bool core_lease_at(const struct core *core, size_t index, struct core_lease_view *ret_view);
bool core_lease_find(const struct core *core, uint64_t lease, struct core_lease_view *ret_view);
bool core_team_at(const struct core *core, size_t index, struct core_team_view *ret_view);
bool core_team_find(const struct core *core, uint64_t team, struct core_team_view *ret_view);
enum core_instance_state core_instance_find(const struct core *core, uint64_t endpoint,
                                            uint64_t device);
/* Forecasts as of the last event: expectations, not promises. False: no such lease. */
struct core_outlook {
    enum core_reason reason;  /* waiting: what for */
    uint64_t wait_ns;         /* waiting: until it starts; UINT64_MAX: cannot be told */
    uint32_t revoke_permille; /* running: likelihood that devices are taken from it, or all of it
                               * stopped, within the configured outlook_ns */
};
bool core_outlook(const struct core *core, uint64_t lease, struct core_outlook *ret_outlook);
void core_health_read(const struct core *core, struct core_health_view *ret_view);
/* The accounts as of the last event, or of now_ns when that is later. */
void core_ledger_read(const struct core *core, uint64_t now_ns, struct core_ledger *ret_ledger);

/* One explanation by its id; false: not there (any more). */
bool core_explanation_find(const struct core *core, uint64_t explanation,
                           struct core_explanation *ret_explanation);
/* The newest first; 0 in a filter means any. Returns how many were written. */
size_t core_explanations(const struct core *core, uint64_t device, uint64_t lease,
                         uint64_t endpoint, struct core_explanation *ret_explanations,
                         size_t capacity);

enum core_mode core_mode_now(const struct core *core);
bool core_hold_now(const struct core *core);

/* Words for people and metrics; never NULL. */
const char *core_account_name(enum core_account account);
const char *core_reason_name(enum core_reason reason);
const char *core_rung_name(enum core_rung rung);
const char *core_health_name(enum core_health health);
const char *core_hold_name(enum core_hold hold);
const char *core_instance_name(enum core_instance_state state);
const char *core_lease_state_name(enum core_lease_state state);
const char *core_what_name(enum core_what what);
const char *core_mode_name(enum core_mode mode);
/* One sentence, cut at size (always ended by 0). Names objects by number. */
void core_explanation_print(const struct core_explanation *explanation, char *text, size_t size);

/* ---- proof ---------------------------------------------------------------------------------- */

/* All invariants that can be seen in one state. False: the first one broken is in text. */
bool core_check(const struct core *core, char *text, size_t size);
/* FNV-1a over the canonical encoding of every action so far: equal on every machine. */
uint64_t core_hash(const struct core *core);

#endif
