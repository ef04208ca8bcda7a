/* statistics.h: what an endpoint has done since it was added.
 * Shards:  each device's serving thread (or who runs in its place) counts into a shard of its own
 *          without locked instructions; what is counted elsewhere (refusals, cancels) is atomic. A
 * reader adds the shards up: no lock of the data path, each figure exact, all of them of about one
 *          moment. success + failed = submitted − pending once the endpoint is quiet.
 * Counted: as Triton counts (durations of successful requests only; a batch's compute times once
 *          for each of its requests; batch_stats once per execution), and beside that what was
 *          refused, by reason.
 * Thread:  any. */
#ifndef TIDEPOOL_SERVE_STATISTICS_H
#define TIDEPOOL_SERVE_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

#include "server/observe/recorder.h"

struct endpoint;

/* Failed after it was queued. */
enum failure_reason {
    FAILURE_REJECTED, /* its deadline passed in the queue */
    FAILURE_CANCELED, /* by the client, waiting or running */
    FAILURE_BACKEND,  /* the model's run failed */
    FAILURE_OTHER,    /* devices lost under it, or no instance came */
    FAILURE_COUNT,
};
/* Never queued. */
enum refusal_reason {
    REFUSAL_QUEUE_FULL,
    REFUSAL_DEADLINE,    /* could not be met by the projected wait */
    REFUSAL_INVALID,     /* the request does not fit the model */
    REFUSAL_UNAVAILABLE, /* loading, failed or being removed */
    REFUSAL_COUNT,
};
const char *failure_reason_name(enum failure_reason reason); /* "REJECTED" */
const char *refusal_reason_name(enum refusal_reason reason); /* "queue_full" */

/* Latency histogram, from arrival to the end of the run (the answer is written right after): below
 * 2^LATENCY_SHIFT ns one bucket, then 8 per doubling.
 */
#define LATENCY_SHIFT 13 /* 8.192 µs */
#define LATENCY_SUBS 8
#define LATENCY_OCTAVES 24 /* up to 137 s */
#define LATENCY_BUCKETS (2 + LATENCY_SUBS * LATENCY_OCTAVES)
uint32_t latency_bucket(uint64_t ns);
/* Upper bound (exclusive) of a bucket; the last is UINT64_MAX. */
uint64_t latency_bound_ns(uint32_t bucket);
/* The latency that `share` (0..1) of the counted requests stay under; 0 when there are none. */
uint64_t latency_quantile_ns(const uint64_t counts[LATENCY_BUCKETS], double share);

struct batch_statistics {
    uint32_t batch_size;
    uint64_t count, input_ns, infer_ns, output_ns;
};

struct endpoint_statistics {
    uint64_t arrivals;                      /* rows of valid requests, refused ones included */
    uint64_t success, inference;            /* requests; rows */
    uint64_t executions, inline_executions; /* the latter of them on network threads */
    uint64_t last_inference_wall_ms;
    uint64_t success_ns, queue_ns, input_ns, infer_ns, output_ns;
    uint64_t fail_ns; /* arrival to answer of failed ones */
    uint64_t failed[FAILURE_COUNT];
    uint64_t refused[REFUSAL_COUNT];
    uint64_t late;     /* answered later than the SLO */
    uint64_t busy_ns;  /* device time */
    uint64_t requeued; /* put back because their device failed */
    uint64_t latency[LATENCY_BUCKETS];
    uint32_t pending; /* waiting now */
};
void endpoint_statistics(struct endpoint *endpoint, struct endpoint_statistics *ret_statistics);
/* The executed batch sizes in rising order; returns their number (at most `capacity` written). */
uint32_t endpoint_batches(struct endpoint *endpoint, struct batch_statistics *ret_batches,
                          uint32_t capacity);
/* Memory of its instances: an entry for each device that has one; returns their number (at most
 * `capacity` written). */
struct instance_memory {
    const char *device_kind;
    uint32_t device;
    uint64_t bytes;
};
uint32_t endpoint_memory(struct endpoint *endpoint, struct instance_memory *ret_memory,
                         uint32_t capacity);
/* Moves out the arrivals and latencies of answered requests, device by device, each device's in
 * the order of its answers (sort them by arrival). One thread at a time: control's. */
size_t endpoint_recorded(struct endpoint *endpoint, struct recorded_request *ret_requests,
                         size_t capacity);
/* A request that was refused before it could be submitted: validation counts here. */
void endpoint_count_invalid(struct endpoint *endpoint);

#endif
