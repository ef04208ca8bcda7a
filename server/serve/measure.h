/* measure.h: how long a batch of each size takes on a device, found by running it, and kept.
 * Warm-up: zeros of the signature's shapes (variable dimensions 1, BYTES elements empty).
 * Times:   the median of a few runs per size; sizes 1, 2, 4 … and batch_max, stopped when the time
 *          allowed is used up: larger batches are then projected from the last two.
 * Cache:   <state>/measurements/<key>.json, written atomically; a damaged file is measured anew.
 * Thread:  any one that may use the instance; it should be pinned to the device's cores. */
#ifndef TIDEPOOL_SERVE_MEASURE_H
#define TIDEPOOL_SERVE_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "models/runtime.h"

#define SERVICE_SIZES_MAX 16 /* 1, 2, 4 … 4096, and a batch_max that is no power of two */
#define MEASURE_KEY_SIZE 65
#define MEASURE_TIME_MAX_NS UINT64_C(2000000000)

/* Rising batch sizes with their service times. count 0: unknown, to be learned by serving. */
struct service_table {
    uint32_t count;
    uint32_t batch[SERVICE_SIZES_MAX];
    uint64_t ns[SERVICE_SIZES_MAX];
};

/* Time of a batch of `rows`: between two measured sizes the straight line, beyond the last the
 * line of the last two; never falls as rows grow. 0: unknown. */
uint64_t service_table_ns(const struct service_table *table, uint32_t rows);
/* The most rows, at most `rows_max`, whose batch takes `budget_ns` or less; at least 1 (an unknown
 * time or a budget that even one row breaks still lets one go). */
uint32_t service_table_rows(const struct service_table *table, uint64_t budget_ns,
                            uint32_t rows_max);

struct measure_subject {
    const struct model_runtime *runtime;
    const struct model_signature *signature;
    const char *name;        /* of the endpoint, for messages */
    const char *digest;      /* repository_model's: file and configuration */
    const char *device_kind; /* "cpu" */
    unsigned core_count;
};

/* Warms the instance up and fills the table, from the cache (one run per size 1 and batch_max to
 * warm up) or by measuring (`state_dir` NULL: no cache). A model that does not run on zeros is no
 * error: a warning is logged and the table stays empty. Errors: UNAVAILABLE (device lost),
 * CANCELLED (instance aborted). */
int measure_instance(const struct measure_subject *subject, struct instance *instance,
                     const char *state_dir, struct service_table *ret_table, struct error *error);

#endif
