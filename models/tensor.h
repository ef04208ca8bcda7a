/* tensor.h: data types, tensors and signatures, as the wire, the queue and the runtimes share them.
 * Layout:  `data` is the wire's raw form: row major, little-endian, no padding; a BYTES tensor is,
 *          per element, a 4-byte little-endian length and then that many bytes.
 * Owner:   a `struct tensor` points into memory that somebody else keeps.
 * Thread:  plain values. */
#ifndef TIDEPOOL_MODELS_TENSOR_H
#define TIDEPOOL_MODELS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"

/* Numbers of the protocol's DataType enum (TYPE_STRING is BYTES on the wire). */
enum datatype {
    DATATYPE_INVALID = 0,
    DATATYPE_BOOL = 1,
    DATATYPE_UINT8 = 2,
    DATATYPE_UINT16 = 3,
    DATATYPE_UINT32 = 4,
    DATATYPE_UINT64 = 5,
    DATATYPE_INT8 = 6,
    DATATYPE_INT16 = 7,
    DATATYPE_INT32 = 8,
    DATATYPE_INT64 = 9,
    DATATYPE_FP16 = 10,
    DATATYPE_FP32 = 11,
    DATATYPE_FP64 = 12,
    DATATYPE_BYTES = 13,
    DATATYPE_BF16 = 14,
};

size_t datatype_bytes(enum datatype datatype);                      /* 0 for BYTES and INVALID */
const char *datatype_name(enum datatype datatype);                  /* "FP32"; "INVALID" */
enum datatype datatype_parse(const char *name, size_t name_length); /* DATATYPE_INVALID: none */

#define TENSOR_RANK_MAX 8
#define MODEL_TENSORS_MAX 64

struct tensor {
    enum datatype datatype;
    uint32_t rank;
    int64_t dims[TENSOR_RANK_MAX];
    const void *data;
    size_t bytes;
};

/* What a model takes or gives. `dims` leave the batch dimension out when the model batches; -1 is
 * a variable dimension. */
struct tensor_spec {
    char *name;
    enum datatype datatype;
    uint32_t rank;
    int64_t dims[TENSOR_RANK_MAX];
};

struct model_signature {
    uint32_t batch_max; /* 0: no batch dimension, one request per run */
    size_t input_count, output_count;
    struct tensor_spec *inputs, *outputs;
};

/* Deep copy; on an error ret_copy holds nothing. fini frees what is inside and empties it. */
int model_signature_copy(const struct model_signature *signature, struct model_signature *ret_copy,
                         struct error *error);
void model_signature_fini(struct model_signature *signature);

/* "[2,-1,4]" for messages; cut with "…" when it does not fit. Returns `text`. */
struct shape_text {
    char text[160];
};
const char *shape_print(struct shape_text *buffer, const int64_t *dims, uint32_t rank);

/* Product of dims; -1 when it overflows int64 or a dimension is negative. */
int64_t tensor_element_count(const int64_t *dims, uint32_t rank);
/* Checks data against shape and type: byte count, or the walk over a BYTES tensor's lengths.
 * The text names the tensor, the element and the counts. */
int tensor_check(const struct tensor *tensor, const char *name, struct error *error);

#endif
