/* model.h: one loaded ONNX file and its instances, as the files of this folder share them.
 * Model:    the file's bytes (read once), its weights in one aligned block that every session uses
 *           in place, and the container in which sessions find each other's packed weights.
 * Instance: a session with its own threads, and the buffers of its runs, reused and grown.
 * Thread:   as models/runtime.h says. */
#ifndef TIDEPOOL_MODELS_ONNX_MODEL_H
#define TIDEPOOL_MODELS_ONNX_MODEL_H

#include <pthread.h>
#include <stdatomic.h>

#include "models/onnx/api.h"
#include "models/onnx/scan.h"
#include "models/runtime.h"

struct model {
    char *name; /* for messages */
    char *path;
    unsigned char *bytes;
    size_t byte_count;
    bool external; /* weights lie beside the file: sessions read it themselves */
    uint64_t external_bytes;
    struct onnx_scan scan;
    unsigned char *weight_block;
    struct ort_value **weights; /* scan.weight_count values over weight_block */
    struct ort_prepacked *prepacked;
    struct model_signature signature;
    const char **input_names, **output_names; /* borrowed from the signature */
    pthread_mutex_t lock;
    struct ort_session *spare; /* under lock: load's own session, for the first instance that
                                * needs no threads besides the caller's */
};

/* A block of memory that grows when a run needs more and is otherwise used again. */
struct run_buffer {
    unsigned char *data;
    size_t capacity;
};

struct instance {
    struct model *model;
    struct ort_session *session;
    struct ort_run_options *run_options;
    struct ort_run_options *trim_options; /* of a run after which the arena gives memory back */
    bool grown;                  /* by a large run, since memory was given back for the last time */
    uint32_t small_runs;         /* since that large run */
    struct ort_value **inputs;   /* input_count, made for each run */
    struct ort_value **outputs;  /* output_count, kept until the next run */
    struct run_buffer *gathered; /* input_count: inputs of more than one request, joined */
    struct run_buffer *encoded;  /* output_count: BYTES outputs in wire form */
    struct run_buffer offsets;   /* of a BYTES output's elements */
    pthread_mutex_t abort_lock;  /* the options' terminate marks, and the flag with them */
    _Atomic bool aborted;
};

struct batch {
    const struct run_request *requests;
    size_t count;
    int64_t rows;
};

/* session.c */
int onnx_weights_share(struct model *model, struct error *error);
int onnx_session_create(struct model *model, const struct instance_place *place,
                        struct ort_session **ret_session, struct error *error);
void onnx_memory_trim(const struct model *model); /* after a large model was made or unmade */
/* "2-5;2-5": the entry for one worker once per worker; worker threads are thread_count - 1. */
int onnx_affinities_print(const cpu_set_t *cores, unsigned workers, char *ret_text, size_t size);

/* signature.c: what the session says about its inputs and outputs, in the model's own shapes;
 * of the outputs only those configured, where some are. */
int onnx_signature_read(const struct ort_session *session, const struct model_signature *configured,
                        struct model_signature *ret_signature, struct error *error);
/* 0, or an error that names the tensor whose shape keeps the model from batching. */
int onnx_signature_batches(const struct model_signature *own, struct error *error);
/* Takes the batch dimension off and lays the configured tensors over the model's own. */
int onnx_signature_apply(struct model_signature *own, const struct model_signature *configured,
                         uint32_t batch_max, struct error *error);
enum datatype onnx_datatype(int element); /* DATATYPE_INVALID: one that is not served */
int onnx_element(enum datatype datatype);

/* instance.c: over a session that becomes the instance's own, but stays the caller's on an error */
int onnx_instance_over(struct model *model, struct ort_session *session,
                       struct instance **ret_instance, struct error *error);
void onnx_instance_destroy(struct instance *instance); /* with its session; NULL is fine */
uint64_t onnx_instance_bytes(const struct instance *instance);
int onnx_instance_run(struct instance *instance, const struct run_request *requests, size_t count,
                      struct tensor *ret_outputs, struct error *error);
void onnx_instance_abort(struct instance *instance);

/* batch.c: fills instance->inputs; reads output `index` into its place of each request's outputs,
 * rows and type checked. */
int onnx_inputs_fill(struct instance *instance, const struct batch *batch, struct error *error);
int onnx_output_read(struct instance *instance, size_t index, const struct batch *batch,
                     struct tensor *ret_outputs, struct error *error);
int run_buffer_reserve(struct run_buffer *buffer, size_t bytes, struct error *error);

/* trial.c */
enum trial { TRIAL_PROVEN, TRIAL_UNPROVEN, TRIAL_WRONG };
/* Runs one row, then two. UNPROVEN: it does not run on made-up values; it may need real ones, and
 * every run checks its rows again. With `compare` a row's outputs may not depend on another row. */
enum trial onnx_batch_try(struct instance *instance, bool compare, struct error *error);

/* strings.c: BYTES in wire form to the library's strings and back. */
int onnx_strings_decode(struct ort_value *value, size_t first, const struct tensor *tensor,
                        struct error *error);
/* Writes `count` elements into `wire`; offsets[i] is where element i starts in the wire form,
 * offsets[count] where it ends. */
int onnx_strings_encode(const struct ort_value *value, size_t count, struct run_buffer *wire,
                        struct run_buffer *offsets, struct error *error);

#endif
