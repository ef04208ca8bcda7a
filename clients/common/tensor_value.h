/* tensor_value.h: elements of tensors between their raw form on the wire (little-endian, KServe v2)
 * and JSON values.
 * Thread:  plain values. */
#ifndef TIDEPOOL_CLIENTS_TENSOR_VALUE_H
#define TIDEPOOL_CLIENTS_TENSOR_VALUE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum tensor_kind {
    TENSOR_BOOL,
    TENSOR_SIGNED,
    TENSOR_UNSIGNED,
    TENSOR_FLOAT,
    TENSOR_BFLOAT, /* the upper half of an FP32 */
    TENSOR_BYTES,
};

struct tensor_datatype {
    const char *name; /* "FP32" */
    enum tensor_kind kind;
    unsigned size; /* of one element; 0 for BYTES, whose elements carry a length of 4 bytes */
};

const struct tensor_datatype *tensor_datatype_find(const char *name); /* NULL: unknown */

/* One element of fixed size from JSON. Negative: of another type, or out of range. */
int tensor_value_from_json(const struct tensor_datatype *datatype, const json_t *value,
                           unsigned char *raw);
/* One element of fixed size as JSON; NaN and infinities as text. NULL: no memory. */
json_t *tensor_value_to_json(const struct tensor_datatype *datatype, const unsigned char *raw);

/* One element of fixed size that stands for `unit` in [0, 1): itself for floats, 0 or 1 for the
 * others. */
void tensor_value_from_unit(const struct tensor_datatype *datatype, double unit,
                            unsigned char *raw);

#endif
