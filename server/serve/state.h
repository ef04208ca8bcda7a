/* state.h: the inside of serve: endpoints, workers and the instances that join the two.
 * Locks:   serve.control → serve.names → endpoint.lock → worker.lock; a request's path takes
 *          names and endpoint.lock only, and never one inside another. `done`, notify, readiness
 *          and the runtimes are called with none of them held (instance_abort: under
 *          endpoint.lock, which keeps the instance alive).
 * Wakes:   who submits first publishes the request, then reads the workers' phases and calls one
 *          that would not look by itself; a worker that finds nothing first says so (RESTING), then
 *          looks once more: one of the two sees the other.
 * Claims:  a worker's `own`, its slots and its device's serving side are its thread's. While it is
 *          IDLE a network thread may claim them, to run one quick batch inline; the worker's thread
 *          then keeps off until it has got them back, whatever has woken it. */
#ifndef TIDEPOOL_SERVE_STATE_H
#define TIDEPOOL_SERVE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/serve/queue.h"
#include "server/serve/serve.h"
#include "server/serve/statistics.h"

#define KINDS_MAX 8
#define NAME_BUCKETS 256
#define DANGER_INTERVAL_NS UINT64_C(10000000)
#define COLD_WAIT_NS UINT64_C(30000000000)

/* ---- a model's instance on a device -----------------------------------------------------------
 */

/* What is still known of a request when it has been answered. */
struct batch_note {
    uint64_t arrival_ns;
    uint32_t rows;
    bool cancelled;
    enum error_code reason; /* why it was cancelled */
};

/* The batch that runs; count, alive and the requests' states under the endpoint's lock. */
struct serve_batch {
    struct slot *slot;
    uint32_t count, rows;
    uint32_t alive;                /* requests neither cancelled nor answered */
    bool running;                  /* instance_abort means something */
    uint64_t expected_ns, fast_ns; /* of its run */
    struct serve_request **requests;
    struct batch_note *notes;
    struct run_request *runs;
    struct tensor *outputs;
    uint32_t capacity;
};

struct slot {
    struct slot *next; /* of the worker; its thread only */
    struct endpoint *endpoint;
    struct worker *worker;
    struct instance *instance;
    struct service_table table; /* as measured at load */
    uint64_t memory_bytes;
    struct shard *shard;
    struct serve_batch batch;
    bool removing; /* its worker's */
    struct {
        uint64_t shapes; /* of the requests that the runs were of */
        uint32_t runs;   /* in a row that took no longer than they should */
    } quick;             /* its worker's */
    bool tell;           /* STOPPED is awaited */
};

enum placement_state {
    PLACEMENT_ABSENT,
    PLACEMENT_LOADING,
    PLACEMENT_PRESENT,
    PLACEMENT_LEAVING, /* its worker has been told; until the instance is unloaded */
};
enum placement_end { PLACEMENT_GO_ON, PLACEMENT_STOP, PLACEMENT_FAIL };

/* An endpoint's view of one device; under serve.control. */
struct placement {
    enum placement_state state;
    enum placement_end end;   /* LOADING: what is to become of it */
    struct instance *loading; /* LOADING: being measured, may be aborted */
    struct slot *slot;        /* PRESENT, LEAVING */
};

/* ---- an endpoint ------------------------------------------------------------------------------
 */

struct shard; /* statistics.c */

struct endpoint {
    struct serve *serve;
    uint64_t number;
    struct repository_model *model;
    const struct model_signature *signature;
    const struct model_config *config;
    char version[12];
    uint32_t batch_limit; /* rows of one batch, at least 1 */
    uint32_t batch_full;  /* rows that are worth no more waiting */
    bool shapes_fixed;
    bool runs_inline;           /* its model may */
    struct endpoint *name_next; /* of its bucket, under serve.names */
    struct endpoint *next; /* of serve.endpoints: read under control or names, changed under both */

    /* The configuration's, until a call sets others. */
    _Atomic uint64_t slo_ns;
    _Atomic int32_t priority;
    _Atomic uint32_t holds;
    _Atomic uint64_t placed;                /* bit per worker with a ready instance */
    _Atomic uint32_t waiting, waiting_rows; /* the queue's */
    _Atomic bool opened;                    /* an instance has been ready */
    _Atomic bool failed;                    /* and none before the last placement failed */
    _Atomic bool stopping;
    _Atomic uint64_t danger_ns; /* last told */
    _Atomic uint64_t expiry_ns; /* of the next waiting request without a watcher */
    /* From the service table, for projections: rows and time of the batches that go one after the
     * other when many wait, and the time of a request alone. 0: unknown. */
    _Atomic uint32_t plan_rows;
    _Atomic uint64_t plan_ns, plan_one_ns;
    /* The same from the fastest runs ever seen: what a refusal may be based on. A model whose time
     * depends on its input must not have a quick request refused after a slow one. */
    _Atomic uint64_t fast_ns, fast_one_ns;
    _Atomic uint32_t running;
    _Atomic uint64_t arrivals;
    _Atomic uint64_t failed_waiting[FAILURE_COUNT], failed_waiting_ns;
    _Atomic uint64_t refused[REFUSAL_COUNT];
    _Atomic(struct shard *) shards[DEVICES_MAX];

    pthread_mutex_t lock;
    struct request_queue queue;             /* under lock */
    struct service_table tables[KINDS_MAX]; /* under lock, by kind of device */
    struct service_table fast[KINDS_MAX];   /* under lock: the fastest of each size */
    uint64_t cold_since_ns;                 /* under lock */

    struct placement placements[DEVICES_MAX]; /* under serve.control */
    char reason[512];                         /* under serve.control */
    bool stopped;                             /* under serve.control: STOPPED has been told */
};

/* ---- a device's serving thread ----------------------------------------------------------------
 */

enum change_kind { CHANGE_ADD, CHANGE_REMOVE, CHANGE_LOST, CHANGE_SLO };

struct change {
    struct change *next;
    enum change_kind kind;
    struct slot *slot; /* ADD, REMOVE */
};

/* idle -> looking -> running -> looking -> resting -> idle by the worker's thread; a call moves
 * idle and resting to looking. idle -> claimed -> idle by the thread that claims; a call moves
 * claimed to wanted, which that thread ends by moving it to looking. */
enum worker_phase {
    WORKER_IDLE,    /* sleeps, or is about to; nobody's */
    WORKER_CLAIMED, /* a network thread runs a batch in its place; the worker's thread sleeps */
    WORKER_WANTED,  /* the same; the worker's thread is woken when that is done */
    WORKER_LOOKING, /* on its way to look at its queues */
    WORKER_RUNNING, /* will look when its batch has ended */
    WORKER_RESTING, /* has found nothing, looks once more */
};

struct worker {
    struct serve *serve;
    struct device *device;
    uint32_t index, kind;
    uint64_t bit;
    pthread_t thread;
    bool started;
    _Atomic uint32_t phase; /* enum worker_phase; the futex word of the worker's sleep */
    _Atomic bool changed;   /* changes wait */
    _Atomic bool stopping;
    _Atomic bool failed;     /* by serve_device_failed, until it has recovered */
    _Atomic uint32_t losses; /* counts serve_device_failed */
    /* When the running batch should end, and may end at the earliest; 0: none runs. */
    _Atomic uint64_t run_end_ns, run_end_fast_ns;
    struct {
        pthread_mutex_t lock;
        struct change *first, *last;
    } shared;
    struct {
        struct slot *slots;
        uint64_t slo_tightest_ns;
        uint64_t now_ns;
        bool serving; /* between device_serving_begin and _end */
        bool lost;    /* a run said so: takes nothing until it is told what to do */
    } own;
};

struct serve {
    struct device_set *devices;
    struct serve_options options;
    char *state_directory;
    struct worker *workers;
    uint32_t worker_count;
    char kinds[KINDS_MAX][16];
    uint32_t kind_count;
    _Atomic bool open, draining;
    _Atomic uint64_t resting;    /* bits of workers whose devices rest */
    void (*answers_begin)(void); /* both or neither; constant once there are endpoints */
    void (*answers_end)(void);
    struct {
        pthread_mutex_t lock; /* held while it is called: never inside another */
        void (*callback)(void *context);
        void *context;
    } readiness;

    pthread_mutex_t control; /* placements and the list of endpoints */
    pthread_mutex_t names;   /* the buckets */
    struct endpoint *buckets[NAME_BUCKETS];
    struct endpoint *endpoints;

    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        uint32_t count; /* helpers at work */
    } helpers;
    struct {
        pthread_t thread;
        bool started;
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool stopping;
        _Atomic uint64_t next_ns; /* when the timer thread looks again */
    } timer;
};

/* ---- endpoint.c, lifecycle.c ------------------------------------------------------------------
 */

struct endpoint *endpoint_create(struct serve *serve, uint64_t number,
                                 struct repository_model *model, struct error *error);
enum endpoint_state endpoint_state(const struct endpoint *endpoint);
/* Bits of the workers with a ready instance that may serve now. */
uint64_t endpoint_serving(const struct endpoint *endpoint);
/* Under the endpoint's lock: how long a request that comes now will wait until it runs. With
 * `fast`, at least. UINT64_MAX: there is no instance. */
uint64_t endpoint_projected_ns(const struct endpoint *endpoint, uint64_t now_ns, bool fast);
/* Under the endpoint's lock, after changes of the queue: for those who look without the lock. */
void endpoint_publish(struct endpoint *endpoint);
/* Under the endpoint's lock: takes it out of the queue. */
void endpoint_unqueue(struct endpoint *endpoint, struct serve_request *request);
void endpoint_requeue(struct endpoint *endpoint, struct serve_request *request);
/* Answers all that waits. */
void endpoint_fail_waiting(struct endpoint *endpoint, enum error_code code, const char *text);
/* Answers what has run out of time; returns when to look again. */
uint64_t endpoint_expire(struct endpoint *endpoint, uint64_t now_ns);
/* Counts and answers a request that never ran. */
void endpoint_drop(struct endpoint *endpoint, struct serve_request *request, enum error_code code,
                   const char *text, uint64_t now_ns);
/* Under serve.control; true: the caller tells STOPPED after unlocking (endpoint_tell_stopped). */
bool endpoint_stopped_now(struct endpoint *endpoint);
void endpoint_tell_stopped(struct endpoint *endpoint);
void serve_notify(struct serve *serve, const struct serve_event *event);
void serve_readiness_changed(struct serve *serve);
/* Runs `main` on a thread of its own (inline when there is none to be had). */
void serve_helper(struct serve *serve, void (*main)(void *arg), void *arg);
struct endpoint *serve_endpoint_at(struct serve *serve, uint64_t number); /* under control */

/* ---- wake.c -----------------------------------------------------------------------------------
 */

/* Requests wait at this endpoint: wakes a worker unless one is on its way already. */
void endpoint_wake(struct endpoint *endpoint);
void endpoint_wake_later(struct endpoint *endpoint, uint64_t now_ns); /* unless held back */
/* An idle worker to give the endpoint's requests to, or one that can be called (NULL: all run and
 * look when they have done); *ret_looking: how many are on their way to look anyway. */
struct worker *worker_choose(const struct endpoint *endpoint, uint32_t *ret_looking);
/* Makes the worker look at its changes and queues, now or when it next would. */
void worker_call(struct worker *worker);
/* Its own thread, IDLE: sleeps until it is called or `until_ns` has come; then it is LOOKING. */
void worker_sleep(struct worker *worker, uint64_t until_ns);
/* Makes an idle worker the calling thread's; false: it is not idle. */
bool worker_claim(struct worker *worker);
void worker_give_back(struct worker *worker);

/* ---- inline.c ---------------------------------------------------------------------------------
 */

/* Runs the one request that waits here on the calling network thread, in place of an idle worker,
 * if that is known to be quick. False: nothing was run, a worker has to be woken. */
bool inline_run(struct endpoint *endpoint);
/* Under the endpoint's lock, the owner of the slot: what waits is one quick batch. */
bool inline_may_take(const struct slot *slot);
/* The owner of the slot: a run of requests of these shapes has ended. */
void inline_learn(struct slot *slot, uint64_t shapes, uint64_t ns);

/* ---- worker.c, run.c, batch.c, placement.c ----------------------------------------------------
 */

void *worker_main(void *arg);
void worker_change(struct worker *worker, enum change_kind kind, struct slot *slot);
/* Of a slot of a worker that is the caller's: takes the next batch if it is due and, where `quick`,
 * known to be quick; *ret_due_ns says when to look again. */
bool slot_take(struct slot *slot, bool quick, uint64_t now_ns, uint64_t *ret_due_ns);
/* False: the device takes nothing now. */
bool worker_may_take(const struct worker *worker);
void worker_run(struct worker *worker, struct slot *slot);
void worker_rest(struct worker *worker); /* nothing runs any more: training may go on */
/* Under the endpoint's lock. Marks the next batch as running and takes it out of the queue when it
 * is due; else writes when it will be (UINT64_MAX: nothing waits). Expired requests go to
 * *ret_expired, linked by next. */
bool batch_take(struct slot *slot, uint64_t now_ns, uint64_t *ret_due_ns,
                struct serve_request **ret_expired);
/* The same question without taking anything; *ret_key orders the endpoints of one priority. */
bool batch_due(struct slot *slot, uint64_t now_ns, uint64_t *ret_due_ns, uint64_t *ret_key);
/* Under the endpoint's lock: one of its requests is cancelled. Aborts the run when it was the last
 * that anybody wants. */
void batch_cancelled(struct endpoint *endpoint, struct serve_batch *batch);
bool batch_init(struct serve_batch *batch, uint32_t capacity, size_t output_count);
void batch_fini(struct serve_batch *batch);
/* A batch of `rows` has taken `ns`: corrects the table and the plan. Under the endpoint's lock. */
void service_learn(struct slot *slot, uint32_t rows, uint64_t ns);
void service_plan(struct endpoint *endpoint, uint32_t kind, uint64_t slo_tightest_ns);
/* A slot that its worker has let go of: unloads it on a helper, then tells INSTANCE_STOPPED if
 * `tell`. */
void slot_retire(struct slot *slot, bool tell);
void slot_destroy(struct slot *slot); /* NULL is fine */

void *timer_main(void *arg);
void timer_at(struct serve *serve, uint64_t at_ns);

/* ---- statistics.c -----------------------------------------------------------------------------
 */

struct shard *endpoint_shard(struct endpoint *endpoint, uint32_t device); /* NULL: no memory */
void endpoint_shards_free(struct endpoint *endpoint);
struct batch_times {
    uint64_t taken_ns, start_ns, end_ns, done_ns;
};
/* The worker's owner: one execution, and its requests that ended well, were cancelled or failed. */
void shard_execution(struct shard *shard, uint32_t rows, const struct batch_times *times);
void shard_success(struct shard *shard, const struct batch_times *times,
                   const struct batch_note *note, uint64_t slo_ns);
void shard_failure(struct shard *shard, enum failure_reason reason, const struct batch_note *note,
                   uint64_t now_ns);
/* The answers of `requests` successful requests of that execution have been given, at done_ns. */
void shard_answered(struct shard *shard, uint32_t rows, const struct batch_times *times,
                    uint32_t requests);
void shard_requeued(struct shard *shard, uint32_t count);
void shard_inline(struct shard *shard);
void shard_wall(struct shard *shard); /* notes the time of day of the last inference */

static inline void count_add(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

#endif
