/* model_config.h: what an operator says about one model, from config.json, config.pbtxt or calls.
 * Names:   one rule for every name and version that enters, from files, the wire or a command:
 *          1 to 127 of A-Z a-z 0-9 . _ -, the first a letter, a digit or _. No other name is ever
 *          looked up, so none can leave the repository.
 * Owner:   the holder of a struct model_config frees it with model_config_fini.
 * Thread:  plain values. */
#ifndef TIDEPOOL_SERVE_MODEL_CONFIG_H
#define TIDEPOOL_SERVE_MODEL_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "models/runtime.h"

#define MODEL_NAME_MAX 127
#define MODEL_PREFERRED_MAX 16
#define MODEL_BATCH_LIMIT 4096      /* largest batch_max that may be configured */
#define MODEL_BATCH_AUTO UINT32_MAX /* as the model allows: 0, or up to MODEL_BATCH_AUTO_MAX */
#define MODEL_BATCH_AUTO_MAX 64

struct model_config {
    char name[MODEL_NAME_MAX + 1];
    const struct model_runtime *runtime;
    char filename[MODEL_NAME_MAX + 1];       /* within the version's folder: "model.onnx" */
    uint32_t batch_max;                      /* 0: one request per run */
    uint64_t queue_delay_ns;                 /* how long the oldest request may wait for company */
    uint32_t preferred[MODEL_PREFERRED_MAX]; /* batch sizes worth waiting for, rising */
    uint32_t preferred_count;
    uint64_t slo_latency_ns;
    double slo_target;                 /* share of requests that must meet it: 0.99 */
    int32_t priority;                  /* higher first; 0 */
    uint32_t devices_min, devices_max; /* instances; UINT32_MAX: all devices */
    char device_kind[16];              /* "cpu", "cuda"; "": any */
    uint32_t queue_requests_max;
    uint64_t queue_bytes_max;
    struct model_signature configured; /* inputs and outputs as configured; counts 0: the model's */
};

bool model_name_valid(const char *name, size_t length);
/* A version is decimal, 1 to 9 digits, without leading zeros; "" is not one. */
bool model_version_parse(const char *text, size_t length, uint32_t *ret_version);

/* The defaults. `name` must be valid. */
void model_config_init(struct model_config *config, const char *name);
void model_config_fini(struct model_config *config);

/* Both read over a config that model_config_init has filled; `where` names the file in messages.
 * config.pbtxt: fields that are present and not honoured are written to `ret_ignored`, separated
 * by ", ", for the one warning (cut with "…" when the list is longer). */
int model_config_read_json(struct model_config *config, const json_t *object, const char *where,
                           struct error *error);
int model_config_read_pbtxt(struct model_config *config, const char *text, size_t length,
                            const char *where, char *ret_ignored, size_t ignored_size,
                            struct error *error);
/* "2" (just two), "1:4", "1:" (as many as there are): DESIGN's way to write device counts. */
int model_devices_parse(const char *text, uint32_t *ret_minimum, uint32_t *ret_maximum,
                        struct error *error);

void model_config_print(FILE *out); /* the keys of config.json as Markdown table rows */

#endif
