#include <string.h>

#include "models/onnx/model.h"

static uint32_t length_read(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void length_write(unsigned char *at, size_t length)
{
    at[0] = (unsigned char)length;
    at[1] = (unsigned char)(length >> 8);
    at[2] = (unsigned char)(length >> 16);
    at[3] = (unsigned char)(length >> 24);
}

int onnx_strings_decode(struct ort_value *value, size_t first, const struct tensor *tensor,
                        struct error *error)
{
    const unsigned char *at = tensor->data;
    size_t left = tensor->bytes;
    for (size_t i = first; left >= 4; i++) {
        size_t length = length_read(at);
        char *text = NULL;
        if (length > left - 4) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "a BYTES element passes its data's end");
        }
        int result = onnx_check(onnx_api()->string_resize(value, i, length, &text), ERROR_INTERNAL,
                                "fill a string tensor", error);
        if (result < 0) {
            return result;
        }
        memcpy(text, at + 4, length);
        at += 4 + length;
        left -= 4 + length;
    }
    return 0;
}

/* The library gives all texts back to back. They are put at the end of the space for the wire
 * form and moved to their places from the front: a text never moves past its own start, so none
 * is overwritten before it has moved. */
static void texts_spread(unsigned char *wire, size_t *offsets, size_t count, size_t text_bytes)
{
    const unsigned char *texts = wire + count * 4;
    offsets[count] = text_bytes;
    for (size_t i = 0; i < count; i++) {
        size_t length = offsets[i + 1] - offsets[i];
        unsigned char *place = wire + offsets[i] + 4 * i;
        memmove(place + 4, texts + offsets[i], length);
        length_write(place, length);
    }
    for (size_t i = 0; i <= count; i++) {
        offsets[i] += 4 * i;
    }
}

int onnx_strings_encode(const struct ort_value *value, size_t count, struct run_buffer *wire,
                        struct run_buffer *offsets, struct error *error)
{
    const struct onnx_api *api = onnx_api();
    const char *what = "read a string tensor";
    size_t text_bytes = 0;
    int result = onnx_check(api->strings_length(value, &text_bytes), ERROR_INTERNAL, what, error);
    if (result < 0) {
        return result;
    }
    if (text_bytes > UINT32_MAX) {
        return error_set(error, ERROR_INTERNAL, "a BYTES output of %zu bytes is too large to send",
                         text_bytes);
    }
    result = run_buffer_reserve(wire, text_bytes + count * 4, error);
    if (result == 0) {
        result = run_buffer_reserve(offsets, (count + 1) * sizeof(size_t), error);
    }
    if (result == 0 && count > 0) {
        result = onnx_check(api->strings_content(value, wire->data + count * 4, text_bytes,
                                                 (size_t *)(void *)offsets->data, count),
                            ERROR_INTERNAL, what, error);
    }
    if (result == 0) {
        texts_spread(wire->data, (size_t *)(void *)offsets->data, count, text_bytes);
    }
    return result;
}
