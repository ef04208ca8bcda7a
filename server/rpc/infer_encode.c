/* The answer to a ModelInfer: one block of the exact size, one copy of each output. */
#include "server/rpc/infer_call.h"
#include "server/serve/serve.h"

static size_t varint_size(uint64_t value)
{
    return (size_t)(63 - __builtin_clzll(value | 1)) / 7 + 1;
}

/* Tag of one byte, length, bytes. */
static size_t field_size(size_t length)
{
    return 1 + varint_size(length) + length;
}

/* Empty text is left out, as proto3 does. */
static size_t text_size(size_t length)
{
    return length > 0 ? field_size(length) : 0;
}

static unsigned char *varint_write(unsigned char *out, uint64_t value)
{
    while (value >= 0x80) {
        *out++ = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    *out++ = (unsigned char)value;
    return out;
}

static unsigned char *field_begin(unsigned char *out, uint32_t number, size_t length)
{
    *out++ = (unsigned char)(number << 3 | WIRE_BYTES);
    return varint_write(out, length);
}

static unsigned char *text_write(unsigned char *out, uint32_t number, const void *data,
                                 size_t length)
{
    if (length == 0) {
        return out;
    }
    out = field_begin(out, number, length);
    memcpy(out, data, length);
    return out + length;
}

struct output_size {
    size_t name, datatype, shape, whole;
};

static struct output_size output_size(const struct tensor_spec *spec, const struct tensor *tensor)
{
    struct output_size size = {.name = strlen(spec->name),
                               .datatype = strlen(datatype_name(tensor->datatype))};
    for (uint32_t d = 0; d < tensor->rank; d++) {
        size.shape += varint_size((uint64_t)tensor->dims[d]);
    }
    size.whole = text_size(size.name) + text_size(size.datatype) + text_size(size.shape);
    return size;
}

static unsigned char *output_write(unsigned char *out, const struct tensor_spec *spec,
                                   const struct tensor *tensor)
{
    struct output_size size = output_size(spec, tensor);
    out = field_begin(out, 5, size.whole);
    out = text_write(out, 1, spec->name, size.name);
    out = text_write(out, 2, datatype_name(tensor->datatype), size.datatype);
    if (size.shape > 0) {
        out = field_begin(out, 3, size.shape);
        for (uint32_t d = 0; d < tensor->rank; d++) {
            out = varint_write(out, (uint64_t)tensor->dims[d]);
        }
    }
    return out;
}

struct buffer *infer_encode(const struct infer_call *infer, const struct tensor *outputs)
{
    const struct model_signature *signature = endpoint_signature(infer->endpoint);
    const char *version = endpoint_version(infer->endpoint);
    size_t version_length = strlen(version);
    size_t length = text_size(infer->model_name.length) + text_size(version_length) +
                    text_size(infer->id.length);
    struct buffer *buffer;
    unsigned char *out;
    for (uint32_t i = 0; i < infer->output_count; i++) {
        const struct tensor *tensor = &outputs[infer->outputs[i]];
        length += field_size(output_size(&signature->outputs[infer->outputs[i]], tensor).whole) +
                  field_size(tensor->bytes);
    }
    buffer = buffer_create(GRPC_PREFIX_BYTES + length);
    if (buffer == NULL) {
        return NULL;
    }
    buffer->length = GRPC_PREFIX_BYTES + length;
    out = buffer->data + GRPC_PREFIX_BYTES;
    out = text_write(out, 1, infer->model_name.data, infer->model_name.length);
    out = text_write(out, 2, version, version_length);
    out = text_write(out, 3, infer->id.data, infer->id.length);
    for (uint32_t i = 0; i < infer->output_count; i++) {
        out =
            output_write(out, &signature->outputs[infer->outputs[i]], &outputs[infer->outputs[i]]);
    }
    for (uint32_t i = 0; i < infer->output_count; i++) {
        const struct tensor *tensor = &outputs[infer->outputs[i]];
        out = field_begin(out, 6, tensor->bytes);
        if (tensor->bytes > 0) {
            memcpy(out, tensor->data, tensor->bytes);
            out += tensor->bytes;
        }
    }
    return buffer;
}
