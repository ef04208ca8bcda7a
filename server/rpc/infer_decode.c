#include <inttypes.h>

#include "server/rpc/infer_message.h"

/* One step of decoding: false leaves the reason in the decoder. */
struct decoder {
    struct infer_message *message;
    struct error *error;
    int result;
};

static bool malformed(struct decoder *decoder, const char *where)
{
    decoder->result = error_set(decoder->error, ERROR_INTERNAL,
                                "request does not parse as inference.ModelInferRequest: %s", where);
    return false;
}

static bool over_bound(struct decoder *decoder, const char *what, unsigned bound)
{
    decoder->result =
        error_set(decoder->error, ERROR_INVALID_ARGUMENT,
                  "the request has more than %u %s, which no model here takes", bound, what);
    return false;
}

static bool text_take(struct decoder *decoder, struct wire_text bytes, const char *what,
                      struct wire_text *ret_text)
{
    if (!utf8_is_valid(bytes)) {
        decoder->result =
            error_set(decoder->error, ERROR_INVALID_ARGUMENT, "%s is not valid UTF-8", what);
        return false;
    }
    *ret_text = bytes;
    return true;
}

/* ---- parameters -------------------------------------------------------------------------------
 */

static bool parameter_value(struct decoder *decoder, struct wire_text bytes,
                            struct infer_parameter *parameter)
{
    static const enum wire_type types[] = {[1] = WIRE_VARINT,
                                           [2] = WIRE_VARINT,
                                           [3] = WIRE_BYTES,
                                           [4] = WIRE_FIXED64,
                                           [5] = WIRE_VARINT};
    struct wire_reader reader = wire_reader_of(bytes);
    struct wire_field field;
    while (reader.at < reader.end) {
        if (!wire_next(&reader, &field)) {
            return malformed(decoder, "a parameter's value is broken");
        }
        if (field.number > 5 || field.type != types[field.number]) {
            continue;
        }
        parameter->kind = (enum parameter_kind)field.number;
        if (field.type == WIRE_BYTES) {
            if (!text_take(decoder, field.bytes, "a parameter's string_param", &parameter->text)) {
                return false;
            }
        } else {
            parameter->bits = field.number == 1 ? field.value != 0 : field.value;
        }
    }
    return true;
}

static struct infer_parameter *parameter_place(struct infer_message *message,
                                               const struct infer_parameter *wanted)
{
    for (uint32_t i = 0; i < message->parameter_count; i++) {
        struct infer_parameter *each = &message->parameters[i];
        if (each->owner == wanted->owner && each->key.length == wanted->key.length &&
            (wanted->key.length == 0 ||
             memcmp(each->key.data, wanted->key.data, wanted->key.length) == 0)) {
            return each;
        }
    }
    return message->parameter_count < INFER_PARAMETERS_MAX
               ? &message->parameters[message->parameter_count++]
               : NULL;
}

static bool parameter_take(struct decoder *decoder, struct wire_text bytes, int owner)
{
    struct infer_parameter parameter = {.owner = owner}, *place;
    struct wire_reader reader = wire_reader_of(bytes);
    struct wire_field field;
    while (reader.at < reader.end) {
        if (!wire_next(&reader, &field)) {
            return malformed(decoder, "a parameter is broken");
        }
        if (field.type != WIRE_BYTES) {
            continue;
        }
        if (field.number == 1 &&
            !text_take(decoder, field.bytes, "a parameter's key", &parameter.key)) {
            return false;
        }
        if (field.number == 2 && !parameter_value(decoder, field.bytes, &parameter)) {
            return false;
        }
    }
    place = parameter_place(decoder->message, &parameter);
    if (place == NULL) {
        return over_bound(decoder, "parameters", INFER_PARAMETERS_MAX);
    }
    *place = parameter;
    return true;
}

/* ---- typed contents ---------------------------------------------------------------------------
 */

static const enum wire_type contents_types[CONTENTS_FIELDS] = {
    [CONTENTS_BOOL] = WIRE_VARINT,  [CONTENTS_INT] = WIRE_VARINT,    [CONTENTS_INT64] = WIRE_VARINT,
    [CONTENTS_UINT] = WIRE_VARINT,  [CONTENTS_UINT64] = WIRE_VARINT, [CONTENTS_FP32] = WIRE_FIXED32,
    [CONTENTS_FP64] = WIRE_FIXED64, [CONTENTS_BYTES] = WIRE_BYTES,
};

/* Numbers of a packed list; false: it does not end where a number does. */
static bool packed_count(struct wire_text bytes, enum wire_type type, uint32_t *ret_count)
{
    struct wire_reader reader = wire_reader_of(bytes);
    uint64_t value;
    uint32_t count = 0;
    if (type == WIRE_VARINT) {
        for (; reader.at < reader.end; count++) {
            if (!wire_varint(&reader, 10, &value)) {
                return false;
            }
        }
        *ret_count = count;
        return true;
    }
    size_t width = type == WIRE_FIXED32 ? 4 : 8;
    *ret_count = (uint32_t)(bytes.length / width);
    return bytes.length % width == 0;
}

static bool contents_take(struct decoder *decoder, struct wire_text bytes,
                          struct infer_input *input)
{
    struct wire_reader reader = wire_reader_of(bytes);
    struct wire_field field;
    input->has_contents = true;
    while (reader.at < reader.end) {
        uint32_t count = 1;
        if (!wire_next(&reader, &field)) {
            return malformed(decoder, "an input's contents are broken");
        }
        if (field.number >= CONTENTS_FIELDS) {
            continue;
        }
        enum wire_type type = contents_types[field.number];
        if (field.number == CONTENTS_BYTES && field.type == WIRE_BYTES) {
            input->element_bytes += field.bytes.length;
        } else if (field.type == WIRE_BYTES) {
            if (!packed_count(field.bytes, type, &count)) {
                return malformed(decoder, "a packed list in an input's contents is broken");
            }
        } else if (field.type != type) {
            continue;
        }
        input->elements[field.number] += count;
    }
    return true;
}

/* ---- inputs and outputs -----------------------------------------------------------------------
 */

static void dim_add(struct infer_input *input, uint64_t value)
{
    if (input->rank < TENSOR_RANK_MAX) {
        input->dims[input->rank] = (int64_t)value;
    }
    input->rank++;
}

static bool shape_take(struct decoder *decoder, const struct wire_field *field,
                       struct infer_input *input)
{
    if (field->type == WIRE_VARINT) {
        dim_add(input, field->value);
    } else if (field->type == WIRE_BYTES) {
        struct wire_reader reader = wire_reader_of(field->bytes);
        while (reader.at < reader.end) {
            uint64_t value;
            if (!wire_varint(&reader, 10, &value)) {
                return malformed(decoder, "a shape is broken");
            }
            dim_add(input, value);
        }
    }
    return true;
}

static bool input_field(struct decoder *decoder, const struct wire_field *field,
                        struct infer_input *input, int owner)
{
    if (field->number == 3) {
        return shape_take(decoder, field, input);
    }
    if (field->type != WIRE_BYTES) {
        return true;
    }
    switch (field->number) {
    case 1:
        return text_take(decoder, field->bytes, "an input's name", &input->name);
    case 2:
        return text_take(decoder, field->bytes, "an input's datatype", &input->datatype);
    case 4:
        return parameter_take(decoder, field->bytes, owner);
    case 5:
        return contents_take(decoder, field->bytes, input);
    default:
        return true;
    }
}

static bool input_take(struct decoder *decoder, struct wire_text bytes)
{
    struct infer_message *message = decoder->message;
    struct wire_reader reader = wire_reader_of(bytes);
    struct wire_field field;
    if (message->input_count == INFER_TENSORS_MAX) {
        return over_bound(decoder, "inputs", INFER_TENSORS_MAX);
    }
    int owner = (int)message->input_count;
    struct infer_input *input = &message->inputs[message->input_count++];
    *input = (struct infer_input){.message = bytes};
    while (reader.at < reader.end) {
        if (!wire_next(&reader, &field)) {
            return malformed(decoder, "an input is broken");
        }
        if (!input_field(decoder, &field, input, owner)) {
            return false;
        }
    }
    return true;
}

static bool output_take(struct decoder *decoder, struct wire_text bytes)
{
    struct infer_message *message = decoder->message;
    struct wire_reader reader = wire_reader_of(bytes);
    struct wire_field field;
    if (message->output_count == INFER_TENSORS_MAX) {
        return over_bound(decoder, "requested outputs", INFER_TENSORS_MAX);
    }
    int owner = INFER_TENSORS_MAX + (int)message->output_count;
    struct infer_output *output = &message->outputs[message->output_count++];
    *output = (struct infer_output){0};
    while (reader.at < reader.end) {
        if (!wire_next(&reader, &field)) {
            return malformed(decoder, "a requested output is broken");
        }
        if (field.type != WIRE_BYTES) {
            continue;
        }
        if (field.number == 1 &&
            !text_take(decoder, field.bytes, "a requested output's name", &output->name)) {
            return false;
        }
        if (field.number == 2 && !parameter_take(decoder, field.bytes, owner)) {
            return false;
        }
    }
    return true;
}

static bool raw_take(struct decoder *decoder, struct wire_text bytes)
{
    struct infer_message *message = decoder->message;
    if (message->raw_count == INFER_TENSORS_MAX) {
        return over_bound(decoder, "raw_input_contents", INFER_TENSORS_MAX);
    }
    message->raw[message->raw_count++] = bytes;
    return true;
}

/* ---- the message ------------------------------------------------------------------------------
 */

static bool message_field(struct decoder *decoder, const struct wire_field *field)
{
    struct infer_message *message = decoder->message;
    if (field->type != WIRE_BYTES) {
        return true;
    }
    switch (field->number) {
    case 1:
        return text_take(decoder, field->bytes, "model_name", &message->model_name);
    case 2:
        return text_take(decoder, field->bytes, "model_version", &message->model_version);
    case 3:
        return text_take(decoder, field->bytes, "id", &message->id);
    case 4:
        return parameter_take(decoder, field->bytes, PARAMETER_OF_REQUEST);
    case 5:
        return input_take(decoder, field->bytes);
    case 6:
        return output_take(decoder, field->bytes);
    case 7:
        return raw_take(decoder, field->bytes);
    default:
        return true;
    }
}

int infer_message_decode(const unsigned char *data, size_t length,
                         struct infer_message *ret_message, struct error *error)
{
    struct decoder decoder = {.message = ret_message, .error = error};
    struct wire_reader reader = {data, data + length};
    struct wire_field field;
    ret_message->model_name = (struct wire_text){0};
    ret_message->model_version = (struct wire_text){0};
    ret_message->id = (struct wire_text){0};
    ret_message->input_count = 0;
    ret_message->output_count = 0;
    ret_message->raw_count = 0;
    ret_message->parameter_count = 0;
    while (reader.at < reader.end) {
        if (!wire_next(&reader, &field)) {
            (void)malformed(&decoder, "a field is broken");
            return decoder.result;
        }
        if (!message_field(&decoder, &field)) {
            return decoder.result;
        }
    }
    return 0;
}
