/* signature.c: names, types and shapes of a model, and whether its first dimension is a batch. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/onnx/model.h"

static const unsigned char datatype_of_element[] = {
    [ORT_FLOAT] = DATATYPE_FP32,    [ORT_UINT8] = DATATYPE_UINT8,   [ORT_INT8] = DATATYPE_INT8,
    [ORT_UINT16] = DATATYPE_UINT16, [ORT_INT16] = DATATYPE_INT16,   [ORT_INT32] = DATATYPE_INT32,
    [ORT_INT64] = DATATYPE_INT64,   [ORT_STRING] = DATATYPE_BYTES,  [ORT_BOOL] = DATATYPE_BOOL,
    [ORT_FLOAT16] = DATATYPE_FP16,  [ORT_DOUBLE] = DATATYPE_FP64,   [ORT_UINT32] = DATATYPE_UINT32,
    [ORT_UINT64] = DATATYPE_UINT64, [ORT_BFLOAT16] = DATATYPE_BF16,
};

enum datatype onnx_datatype(int element)
{
    bool known = element > 0 && (size_t)element < sizeof(datatype_of_element);
    return known ? (enum datatype)datatype_of_element[element] : DATATYPE_INVALID;
}

int onnx_element(enum datatype datatype)
{
    for (int i = 1; i < (int)sizeof(datatype_of_element); i++) {
        if (datatype_of_element[i] == datatype) {
            return i;
        }
    }
    return 0;
}

/* The sides of a model read alike; only the calls differ. */
struct side {
    const char *word; /* "input" */
    struct ort_status *(*count)(const struct ort_session *, size_t *);
    struct ort_status *(*name)(const struct ort_session *, size_t, struct ort_allocator *, char **);
    struct ort_status *(*type)(const struct ort_session *, size_t, struct ort_type **);
};

static int shape_read(const struct ort_shape *shape, const char *word, struct tensor_spec *spec,
                      struct error *error)
{
    const struct onnx_api *api = onnx_api();
    int element = 0;
    size_t rank = 0;
    int result = onnx_check(api->shape_element(shape, &element), ERROR_INTERNAL, NULL, error);
    if (result == 0) {
        result = onnx_check(api->shape_rank(shape, &rank), ERROR_INTERNAL, NULL, error);
    }
    if (result < 0) {
        return result;
    }
    spec->datatype = onnx_datatype(element);
    if (spec->datatype == DATATYPE_INVALID) {
        return error_set(error, ERROR_UNIMPLEMENTED,
                         "%s '%s' has element type %d of ONNX, which no protocol type carries",
                         word, spec->name, element);
    }
    if (rank > TENSOR_RANK_MAX) {
        return error_set(error, ERROR_UNIMPLEMENTED,
                         "%s '%s' has %zu dimensions, at most %d are served", word, spec->name,
                         rank, TENSOR_RANK_MAX);
    }
    spec->rank = (uint32_t)rank;
    return onnx_check(api->shape_dims(shape, spec->dims, rank), ERROR_INTERNAL, NULL, error);
}

static int name_read(const struct side *side, const struct ort_session *session, size_t index,
                     struct tensor_spec *spec, struct error *error)
{
    const struct onnx_api *api = onnx_api();
    char *name = NULL;
    int result =
        onnx_check(side->name(session, index, api->allocator, &name), ERROR_INTERNAL, NULL, error);
    if (result < 0) {
        return result;
    }
    spec->name = strdup(name);
    result = onnx_check(api->allocator_free(api->allocator, name), ERROR_INTERNAL, NULL, error);
    if (result == 0 && spec->name == NULL) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a name");
    }
    return result;
}

static int type_read(const struct side *side, const struct ort_session *session, size_t index,
                     struct tensor_spec *spec, struct error *error)
{
    const struct onnx_api *api = onnx_api();
    struct ort_type *type = NULL;
    const struct ort_shape *shape = NULL;
    int kind = 0;
    int result = onnx_check(side->type(session, index, &type), ERROR_INTERNAL, NULL, error);
    if (result == 0) {
        result = onnx_check(api->type_kind(type, &kind), ERROR_INTERNAL, NULL, error);
    }
    if (result == 0 && kind != ORT_TYPE_TENSOR) {
        result = error_set(error, ERROR_UNIMPLEMENTED,
                           "%s '%s' is a sequence, a map or optional, not a tensor; export the "
                           "model with tensors only (scikit-learn: zipmap off)%s",
                           side->word, spec->name,
                           side->word[0] == 'o' ? ", or configure only the other outputs" : "");
    }
    if (result == 0) {
        result = onnx_check(api->type_shape(type, &shape), ERROR_INTERNAL, NULL, error);
    }
    if (result == 0) {
        result = shape_read(shape, side->word, spec, error);
    }
    api->type_release(type);
    return result;
}

static const struct tensor_spec *spec_find(const struct tensor_spec *specs, size_t count,
                                           const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(specs[i].name, name) == 0) {
            return &specs[i];
        }
    }
    return NULL;
}

/* `only`: the names to read where there are any; the others may be of kinds that are not served. */
static int side_read(const struct side *side, const struct ort_session *session,
                     const struct tensor_spec *only, size_t only_count,
                     struct tensor_spec **ret_specs, size_t *ret_count, struct error *error)
{
    size_t count = 0, used = 0;
    int result = onnx_check(side->count(session, &count), ERROR_INTERNAL, NULL, error);
    if (result < 0) {
        return result;
    }
    if (count > MODEL_TENSORS_MAX) {
        return error_set(error, ERROR_UNIMPLEMENTED, "the model has %zu %ss, at most %d are served",
                         count, side->word, MODEL_TENSORS_MAX);
    }
    *ret_specs = calloc(count + 1, sizeof(**ret_specs));
    if (*ret_specs == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a signature");
    }
    for (size_t i = 0; i < count && result == 0; i++) {
        struct tensor_spec *spec = &(*ret_specs)[used];
        result = name_read(side, session, i, spec, error);
        if (result == 0 && only_count > 0 && spec_find(only, only_count, spec->name) == NULL) {
            free(spec->name);
            spec->name = NULL;
            continue;
        }
        *ret_count = ++used;
        if (result == 0) {
            result = type_read(side, session, i, spec, error);
        }
    }
    return result;
}

int onnx_signature_read(const struct ort_session *session, const struct model_signature *configured,
                        struct model_signature *ret_signature, struct error *error)
{
    const struct onnx_api *api = onnx_api();
    const struct side inputs = {"input", api->input_count, api->input_name, api->input_type};
    const struct side outputs = {"output", api->output_count, api->output_name, api->output_type};
    *ret_signature = (struct model_signature){0};
    bool some = configured != NULL && configured->output_count > 0;
    int result = side_read(&inputs, session, NULL, 0, &ret_signature->inputs,
                           &ret_signature->input_count, error);
    if (result == 0) {
        result = side_read(&outputs, session, some ? configured->outputs : NULL,
                           some ? configured->output_count : 0, &ret_signature->outputs,
                           &ret_signature->output_count, error);
    }
    if (result == 0 && ret_signature->output_count == 0) {
        result = error_set(error, ERROR_INVALID_ARGUMENT,
                           "the model has no output, or none of those configured");
    }
    if (result < 0) {
        model_signature_fini(ret_signature);
    }
    return result;
}

/* An output of rank 0 may be one whose shape the file does not tell: the trial run decides. */
static int spec_batches(const struct tensor_spec *spec, const char *word, bool may_be_unknown,
                        struct error *error)
{
    struct shape_text shape;
    if ((spec->rank == 0 && may_be_unknown) || (spec->rank > 0 && spec->dims[0] == -1)) {
        return 0;
    }
    return error_set(error, ERROR_FAILED_PRECONDITION,
                     "%s '%s' has shape %s: its first dimension is not variable, so requests "
                     "cannot be batched; set max_batch (config.pbtxt: max_batch_size) to 0, or "
                     "export the model with a variable first dimension",
                     word, spec->name, shape_print(&shape, spec->dims, spec->rank));
}

int onnx_signature_batches(const struct model_signature *own, struct error *error)
{
    int result = 0;
    if (own->input_count == 0) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "the model has no inputs, so there is nothing to batch; set max_batch "
                         "(config.pbtxt: max_batch_size) to 0");
    }
    for (size_t i = 0; i < own->input_count && result == 0; i++) {
        result = spec_batches(&own->inputs[i], "input", false, error);
    }
    for (size_t i = 0; i < own->output_count && result == 0; i++) {
        result = spec_batches(&own->outputs[i], "output", true, error);
    }
    return result;
}

static void batch_strip(struct tensor_spec *spec)
{
    if (spec->rank > 0) {
        spec->rank--;
        memmove(spec->dims, spec->dims + 1, spec->rank * sizeof(spec->dims[0]));
    }
}

/* Lays what is configured over what the model says; a fixed dimension wins over a variable one. */
static int spec_merge(const struct tensor_spec *configured, struct tensor_spec *own,
                      const char *word, bool shape_unknown, struct error *error)
{
    struct shape_text wanted, has;
    bool same = configured->rank == own->rank || shape_unknown;
    if (configured->datatype != own->datatype) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "%s '%s' is configured as %s; the model's is %s", word, own->name,
                         datatype_name(configured->datatype), datatype_name(own->datatype));
    }
    for (uint32_t i = 0; i < own->rank && same; i++) {
        same =
            own->dims[i] == -1 || configured->dims[i] == -1 || own->dims[i] == configured->dims[i];
    }
    if (!same) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "%s '%s' is configured with dims %s; the model's are %s (without the "
                         "batch dimension where max_batch is above 0)",
                         word, own->name, shape_print(&wanted, configured->dims, configured->rank),
                         shape_print(&has, own->dims, own->rank));
    }
    for (uint32_t i = 0; i < configured->rank; i++) {
        own->dims[i] = shape_unknown || own->dims[i] == -1 ? configured->dims[i] : own->dims[i];
    }
    own->rank = configured->rank;
    return 0;
}

/* Brings `own` into the configured order and merges each; what is not configured is dropped. */
static int side_merge(const struct tensor_spec *configured, size_t configured_count,
                      struct tensor_spec *own, size_t *count, const char *word, bool batching,
                      struct error *error)
{
    for (size_t i = 0; i < configured_count; i++) {
        struct tensor_spec held;
        const struct tensor_spec *found =
            i < *count ? spec_find(own + i, *count - i, configured[i].name) : NULL;
        if (found == NULL) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "%s '%s' is configured, but the model has none of that name, or it is "
                             "configured twice",
                             word, configured[i].name);
        }
        held = *found;
        own[found - own] = own[i];
        own[i] = held;
        bool unknown = held.rank == 0 && batching && strcmp(word, "output") == 0;
        int result = spec_merge(&configured[i], &own[i], word, unknown, error);
        if (result < 0) {
            return result;
        }
    }
    while (*count > configured_count) {
        free(own[--*count].name);
    }
    return 0;
}

int onnx_signature_apply(struct model_signature *own, const struct model_signature *configured,
                         uint32_t batch_max, struct error *error)
{
    int result = 0;
    own->batch_max = batch_max;
    for (size_t i = 0; i < own->input_count && batch_max > 0; i++) {
        batch_strip(&own->inputs[i]);
    }
    for (size_t i = 0; i < own->output_count && batch_max > 0; i++) {
        batch_strip(&own->outputs[i]);
    }
    if (configured == NULL) {
        return 0;
    }
    if (configured->input_count > 0) {
        for (size_t i = 0; i < own->input_count; i++) {
            if (spec_find(configured->inputs, configured->input_count, own->inputs[i].name) ==
                NULL) {
                return error_set(error, ERROR_INVALID_ARGUMENT,
                                 "the model's input '%s' is missing in the configuration",
                                 own->inputs[i].name);
            }
        }
        result = side_merge(configured->inputs, configured->input_count, own->inputs,
                            &own->input_count, "input", batch_max > 0, error);
    }
    if (configured->output_count > 0 && result == 0) {
        result = side_merge(configured->outputs, configured->output_count, own->outputs,
                            &own->output_count, "output", batch_max > 0, error);
    }
    return result;
}
