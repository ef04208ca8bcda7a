/* infer_message.h: a ModelInferRequest read in place: everything points into the message's bytes.
 * Rules:   protobuf's: of a single field the last one counts, contents and parameter values that
 *          come twice are merged, a repeated map key counts once with its last value, numbers come
 *          packed or not, unknown fields and known ones of another wire type are passed over.
 *          Text fields must be UTF-8. Groups are refused.
 * Bounds:  INFER_*_MAX entries; more are refused before anything is stored.
 * Owner:   the message's bytes outlive what is read from them. */
#ifndef TIDEPOOL_RPC_INFER_MESSAGE_H
#define TIDEPOOL_RPC_INFER_MESSAGE_H

#include "models/tensor.h"
#include "server/base/error.h"
#include "server/base/utf8.h"
#include "server/base/wire.h"

#define INFER_TENSORS_MAX MODEL_TENSORS_MAX
#define INFER_PARAMETERS_MAX 64 /* of the request and all its tensors together */

enum parameter_kind {
    PARAMETER_UNSET,
    PARAMETER_BOOL,
    PARAMETER_INT64,
    PARAMETER_TEXT,
    PARAMETER_DOUBLE,
    PARAMETER_UINT64,
};

#define PARAMETER_OF_REQUEST (-1)
struct infer_parameter {
    struct wire_text key;
    enum parameter_kind kind;
    uint64_t bits; /* BOOL, INT64, UINT64; DOUBLE: its bit pattern */
    struct wire_text text;
    int owner; /* PARAMETER_OF_REQUEST, an input's index, or INFER_TENSORS_MAX + an output's */
};

/* The lists of InferTensorContents, by field number. */
enum contents_field {
    CONTENTS_BOOL = 1,
    CONTENTS_INT = 2,
    CONTENTS_INT64 = 3,
    CONTENTS_UINT = 4,
    CONTENTS_UINT64 = 5,
    CONTENTS_FP32 = 6,
    CONTENTS_FP64 = 7,
    CONTENTS_BYTES = 8,
    CONTENTS_FIELDS = 9,
};

struct infer_input {
    struct wire_text name, datatype;
    struct wire_text message; /* the whole input: typed contents are read from it again */
    uint32_t rank;            /* as sent; dims has the first TENSOR_RANK_MAX */
    int64_t dims[TENSOR_RANK_MAX];
    bool has_contents;                  /* also when it is empty */
    uint32_t elements[CONTENTS_FIELDS]; /* in each list */
    uint64_t element_bytes;             /* of bytes_contents */
};

struct infer_output {
    struct wire_text name;
};

struct infer_message {
    struct wire_text model_name, model_version, id;
    uint32_t input_count, output_count, raw_count, parameter_count;
    struct infer_input inputs[INFER_TENSORS_MAX];
    struct infer_output outputs[INFER_TENSORS_MAX];
    struct wire_text raw[INFER_TENSORS_MAX];
    struct infer_parameter parameters[INFER_PARAMETERS_MAX];
};

/* INTERNAL: it does not parse. INVALID_ARGUMENT: text that is not UTF-8, or over a bound. Only the
 * entries that the counts cover are written. */
int infer_message_decode(const unsigned char *data, size_t length,
                         struct infer_message *ret_message, struct error *error);

/* The list that a datatype's typed form is in; 0: it has none (FP16, BF16). */
enum contents_field contents_field_of(enum datatype datatype);
const char *contents_field_name(enum contents_field field);
/* Bytes of the raw form of an input's typed contents. */
uint64_t contents_raw_bytes(const struct infer_input *input, enum datatype datatype);
/* Writes the raw form, contents_raw_bytes long. */
void contents_raw_write(const struct infer_input *input, enum datatype datatype,
                        unsigned char *out);

#endif
