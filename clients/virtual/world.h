/* world.h: `tidepool sim --serve`: virtual devices that serve the requests of a trace and train, in
 * a time that runs `speed` times as fast as the machine's. What the control thread knows as serve
 * (server/serve/serve.h) and trainer (server/train/trainer.h) are this world's serve.c and
 * trainer.c, linked in the place of the real ones; the control thread, the control API and the
 * scheduler are the server's own.
 * Model:   a request takes its trace's time on one device, alone; a device serves one at a time and
 *          its training stands still meanwhile; a step of a job is one second of one device.
 * Time:    all times are of the pace's clock. What happens between two looks of the world's thread
 *          happens at its exact time; how late a decision comes is the machine's, times the speed.
 * Thread:  the world's own, and the callers of serve.h and trainer.h; one lock. */
#ifndef TIDEPOOL_CLIENTS_VIRTUAL_WORLD_H
#define TIDEPOOL_CLIENTS_VIRTUAL_WORLD_H

#include <pthread.h>

#include "clients/sim/workload.h"
#include "server/base/clock.h"
#include "server/control/control.h"
#include "server/device/device.h"

#define WORLD_NEVER_NS UINT64_MAX
#define WORLD_LOAD_NS (NS_PER_S / 2)      /* of an instance; of a job's data */
#define WORLD_RELEASE_NS (20 * NS_PER_MS) /* until a job has left a device */
#define WORLD_STEP_NS NS_PER_S            /* of training: device time of a step */
#define WORLD_INSTANCE_BYTES (UINT64_C(1) << 30)
#define WORLD_DEVICE_BYTES (UINT64_C(80) << 30)

/* What is played; outlives the world. */
struct world_plan {
    const struct trace *trace; /* its endpoints' names are valid names of models */
    const struct workload *workload;
    const struct clock_pace *pace;
    uint64_t slo_ns;   /* waiting that an endpoint's SLO allows ... */
    double slo_target; /* ... this share of its requests */
};

struct virtual_device {
    /* Serving: the request that runs. */
    struct endpoint *runs; /* NULL: none */
    struct sim_request request;
    uint64_t began_ns, ends_ns;
    /* Training. */
    struct train_job *job; /* NULL: nobody has the device */
    uint64_t grant;        /* number of the last one */
    uint64_t booked_ns;    /* the job's time on it is counted up to here */
    uint64_t release_ns;   /* when the job has left it; WORLD_NEVER_NS: it stays */
};

/* The one of this process: those who call serve.h and trainer.h do not know it. */
extern struct world {
    const struct world_plan *plan;
    struct device_set *devices;   /* as the control thread knows them */
    struct virtual_device *state; /* [devices->count] */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* by a caller: the thread looks again */
    pthread_t thread;
    bool running, stopping; /* `stopping` under the lock, as is all that follows */
    uint64_t now_ns;        /* of what happens now */
    uint64_t start_ns;      /* of the trace; WORLD_NEVER_NS: not yet */
    struct serve *serve;
    struct trainer *trainer;
} world;

/* Devices "virtual:0" and so on, the world's. On an error too, world_end follows. */
int world_begin(const struct world_plan *plan, uint32_t devices, struct device_set *ret_devices,
                struct error *error);
/* The thread; jobs of the trace are submitted to the control thread. */
int world_start(struct control *control, struct error *error);
void world_stop(void); /* before the control thread ends */
void world_end(void);  /* the devices are gone */

/* Mean of the endpoint's requests in the trace; 0: it has none there. */
uint64_t world_service_ns(const char *endpoint);

/* Under the lock, for serve.c and trainer.c. */
void world_changed(void);         /* time is up to now again: wakes the thread */
void world_now(void);             /* brings the world up to the present */
void world_book(uint32_t device); /* the job's time on it, before what it does changes */

/* serve.c: the next moment of its own; what happens at world.now_ns. */
uint64_t serve_next_ns(const struct serve *serve);
void serve_happen(struct serve *serve);
/* trainer.c */
uint64_t trainer_next_ns(const struct trainer *trainer);
void trainer_happen(struct trainer *trainer);
void trainer_book(struct train_job *job, uint64_t span_ns);

#endif
