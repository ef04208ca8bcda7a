/* runtime.h: what a model runtime provides so that `serve` can run its models.
 * Model:    one loaded file; instances share its weights where the runtime can.
 * Instance: one copy ready to run on one device; used by one thread at a time: that device's
 *           serving thread or, where the runtime allows it (runs_inline), one in its place.
 * Thread:   load, instance_create and their opposites on a helper thread (they may take seconds);
 *           run on the device's serving thread or one in its place; instance_abort from any.
 * Errors:   0 or a negative enum error_code with text; run errors are the request's or the
 *           model's: INVALID_ARGUMENT / INTERNAL; UNAVAILABLE says that the device is lost. */
#ifndef TIDEPOOL_MODELS_RUNTIME_H
#define TIDEPOOL_MODELS_RUNTIME_H

#include <sched.h>

#include "models/tensor.h"

struct model;    /* begins with struct model_base, then the runtime's own */
struct instance; /* begins with struct instance_base */

/* Where an instance is to live. */
struct instance_place {
    const char *device_kind; /* "cpu" */
    uint32_t device_index;
    cpu_set_t cores;       /* CPU devices: the device's cores */
    unsigned thread_count; /* intra-op threads; the calling (serving) thread is one of them */
};

struct model_source {
    const char *name;   /* of the endpoint, for messages; NULL: the path stands for it */
    const char *path;   /* of the model file */
    uint32_t batch_max; /* wanted by the configuration: 0 none, UINT32_MAX as the model allows */
    /* Configured inputs and outputs (config.pbtxt), or counts 0: the model's own are taken. */
    const struct model_signature *configured;
};

/* One request of a batch: inputs in the signature's order, `rows` of the batch dimension (1 when
 * the model has none). All requests of a batch agree in all dimensions but the first. */
struct run_request {
    const struct tensor *inputs;
    uint32_t rows;
};

struct model_runtime {
    const char *name;     /* "onnxruntime" */
    const char *platform; /* in ModelMetadata: "onnxruntime_onnx" */
    /* Version of the library in use: part of the key of cached measurements. */
    const char *(*version)(void);
    /* Checks the file, its shapes and the batch dimension against the source's wishes. */
    int (*load)(const struct model_source *source, struct model **ret_model, struct error *error);
    void (*unload)(struct model *model); /* after its instances; NULL is fine */
    const struct model_signature *(*signature)(const struct model *model);
    /* Whether the shapes of its inputs decide how long a run takes, and any thread may do one that
     * has the instance to itself; NULL: no model's do. */
    bool (*runs_inline)(const struct model *model);
    int (*instance_create)(struct model *model, const struct instance_place *place,
                           struct instance **ret_instance, struct error *error);
    void (*instance_destroy)(struct instance *instance); /* NULL is fine */
    uint64_t (*instance_bytes)(const struct instance *instance);
    /* Runs the batch. ret_outputs has count × output_count tensors, request by request, in the
     * signature's order; their data lies in the instance and is valid until its next run.
     * Output rows are checked: fewer or more than the batch's is INTERNAL, naming both. */
    int (*run)(struct instance *instance, const struct run_request *requests, size_t count,
               struct tensor *ret_outputs, struct error *error);
    /* Makes a run in progress end soon with CANCELLED, where the runtime can; else nothing. The
     * next run starts afresh. */
    void (*instance_abort)(struct instance *instance);
};

extern const struct model_runtime onnx_runtime;     /* models/onnx */
extern const struct model_runtime identity_runtime; /* models/identity.c: outputs are the inputs */

/* Finds and loads ONNX Runtime: `configured` path, $TIDEPOOL_ONNXRUNTIME, build/onnxruntime/ beside
 * the server's binary, the loader's path. Not calling it leaves the library unloaded; load() calls
 * it with what was set here. Errors say how to get one. */
void onnx_set_library(const char *configured); /* NULL: search; before the first load */
int onnx_open(struct error *error);            /* idempotent, thread-safe */

#endif
