#include "models/native/mlp_onnx.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL_BYTES_MAX (UINT64_C(2) * 1024 * 1024 * 1024 - 1024 * 1024)
#define TENSORS_MAX (2 * MLP_LAYERS_MAX + 8)
#define ONNX_FLOAT 1
#define ATTRIBUTE_INT 2

/* ---- protocol buffers: bytes that grow ---- */

struct bytes {
    unsigned char *data;
    size_t length, capacity;
    bool broken; /* no memory; what follows is ignored, the end asks once */
};

static void bytes_add(struct bytes *bytes, const void *data, size_t length)
{
    if (bytes->length + length > bytes->capacity) {
        size_t capacity = 2 * (bytes->length + length) + 256;
        unsigned char *grown = bytes->broken ? NULL : realloc(bytes->data, capacity);
        if (grown == NULL) {
            bytes->broken = true;
            return;
        }
        bytes->data = grown;
        bytes->capacity = capacity;
    }
    memcpy(bytes->data + bytes->length, data, length);
    bytes->length += length;
}

static void varint_add(struct bytes *bytes, uint64_t value)
{
    do {
        unsigned char byte = (unsigned char)(value & 0x7f);
        value >>= 7;
        byte |= value > 0 ? 0x80 : 0;
        bytes_add(bytes, &byte, 1);
    } while (value > 0);
}

static void number_add(struct bytes *bytes, unsigned field, uint64_t value)
{
    varint_add(bytes, (uint64_t)field << 3);
    varint_add(bytes, value);
}

static void length_add(struct bytes *bytes, unsigned field, uint64_t length)
{
    varint_add(bytes, (uint64_t)field << 3 | 2);
    varint_add(bytes, length);
}

static void text_add(struct bytes *bytes, unsigned field, const char *text)
{
    length_add(bytes, field, strlen(text));
    bytes_add(bytes, text, strlen(text));
}

/* Moves `inner` into `bytes` as a message field and empties it. */
static void message_add(struct bytes *bytes, unsigned field, struct bytes *inner)
{
    length_add(bytes, field, inner->length);
    bytes_add(bytes, inner->data != NULL ? inner->data : (const void *)"", inner->length);
    bytes->broken |= inner->broken;
    free(inner->data);
    *inner = (struct bytes){0};
}

/* ---- the graph ---- */

/* A tensor's floats are written to the file from where they are. */
struct initializer {
    struct bytes head; /* all of the message but the floats themselves */
    const float *floats;
    size_t bytes;
};

struct graph {
    struct bytes nodes; /* complete fields of the graph message */
    struct initializer initializers[TENSORS_MAX];
    size_t initializer_count;
    float scale, half, one, sqrt_half; /* constants */
    unsigned node_count;
};

static void initializer_add(struct graph *graph, const char *name, uint32_t rank,
                            const uint32_t *dims, const float *floats)
{
    struct initializer *initializer = &graph->initializers[graph->initializer_count++];
    size_t count = 1;
    for (uint32_t i = 0; i < rank; i++) {
        number_add(&initializer->head, 1, dims[i]);
        count *= dims[i];
    }
    initializer->floats = floats;
    initializer->bytes = count * sizeof(float);
    number_add(&initializer->head, 2, ONNX_FLOAT);
    text_add(&initializer->head, 8, name);
    length_add(&initializer->head, 9, initializer->bytes); /* raw_data follows */
}

static void node_add(struct graph *graph, const char *type, const char *const *inputs,
                     size_t input_count, const char *output, bool transpose_b)
{
    struct bytes node = {0}, attribute = {0};
    char name[32];
    (void)snprintf(name, sizeof(name), "node%u", graph->node_count++);
    for (size_t i = 0; i < input_count; i++) {
        text_add(&node, 1, inputs[i]);
    }
    text_add(&node, 2, output);
    text_add(&node, 3, name);
    text_add(&node, 4, type);
    if (transpose_b) {
        text_add(&attribute, 1, "transB");
        number_add(&attribute, 3, 1);
        number_add(&attribute, 20, ATTRIBUTE_INT);
        message_add(&node, 5, &attribute);
    }
    message_add(&graph->nodes, 1, &node);
}

static void node_one(struct graph *graph, const char *type, const char *input, const char *output)
{
    node_add(graph, type, (const char *const[]){input}, 1, output, false);
}

static void node_two(struct graph *graph, const char *type, const char *a, const char *b,
                     const char *output)
{
    node_add(graph, type, (const char *const[]){a, b}, 2, output, false);
}

/* x · (1 + erf(x · √½)) · ½ */
static void gelu_add(struct graph *graph, uint32_t layer, const char *input, const char *output)
{
    char scaled[32], erf[32], shifted[32], product[32];
    (void)snprintf(scaled, sizeof(scaled), "gelu%u_scaled", layer);
    (void)snprintf(erf, sizeof(erf), "gelu%u_erf", layer);
    (void)snprintf(shifted, sizeof(shifted), "gelu%u_shifted", layer);
    (void)snprintf(product, sizeof(product), "gelu%u_product", layer);
    node_two(graph, "Mul", input, "sqrt_half", scaled);
    node_one(graph, "Erf", scaled, erf);
    node_two(graph, "Add", erf, "one", shifted);
    node_two(graph, "Mul", input, "half", product);
    node_two(graph, "Mul", product, shifted, output);
}

static void value_info_add(struct bytes *graph, unsigned field, const char *name, uint32_t columns)
{
    struct bytes batch = {0}, width = {0}, shape = {0}, tensor = {0}, type = {0}, info = {0};
    text_add(&batch, 2, "batch");
    number_add(&width, 1, columns);
    message_add(&shape, 1, &batch);
    message_add(&shape, 1, &width);
    number_add(&tensor, 1, ONNX_FLOAT);
    message_add(&tensor, 2, &shape);
    message_add(&type, 1, &tensor);
    text_add(&info, 1, name);
    message_add(&info, 2, &type);
    message_add(graph, field, &info);
}

static void layer_add(struct graph *graph, const struct mlp *mlp, uint32_t index,
                      const float *parameters, const char *input, const char *output)
{
    struct mlp_layer layer = mlp_layer(mlp, index);
    char weights[32], bias[32], before[32];
    bool last = index + 1 == mlp->layer_count;
    (void)snprintf(weights, sizeof(weights), "weights%u", index);
    (void)snprintf(bias, sizeof(bias), "bias%u", index);
    (void)snprintf(before, sizeof(before), "linear%u", index);
    initializer_add(graph, weights, 2, (uint32_t[]){layer.outputs, layer.inputs},
                    parameters + layer.weights);
    initializer_add(graph, bias, 1, (uint32_t[]){layer.outputs}, parameters + layer.bias);
    node_add(graph, "Gemm", (const char *const[]){input, weights, bias}, 3, last ? output : before,
             true);
    if (last) {
        return;
    }
    if (mlp->activation == ACTIVATION_GELU) {
        gelu_add(graph, index, before, output);
    } else {
        node_one(graph, mlp->activation == ACTIVATION_RELU ? "Relu" : "Identity", before, output);
    }
}

static void constants_add(struct graph *graph, const struct mlp *mlp, float scale)
{
    graph->scale = scale;
    graph->half = 0.5f;
    graph->one = 1.0f;
    graph->sqrt_half = 0.707106781186547524f;
    if (scale != 1.0f) {
        initializer_add(graph, "scale", 0, NULL, &graph->scale);
    }
    if (mlp->activation == ACTIVATION_GELU && mlp->layer_count > 1) {
        initializer_add(graph, "half", 0, NULL, &graph->half);
        initializer_add(graph, "one", 0, NULL, &graph->one);
        initializer_add(graph, "sqrt_half", 0, NULL, &graph->sqrt_half);
    }
}

static void graph_build(struct graph *graph, const struct mlp *mlp, const float *parameters,
                        const struct mlp_onnx_options *options)
{
    const char *result = options->softmax ? "probabilities" : "logits";
    char input[32] = "input", output[32];
    constants_add(graph, mlp, options->input_scale);
    if (options->input_scale != 1.0f) {
        node_two(graph, "Mul", "input", "scale", "scaled");
        (void)snprintf(input, sizeof(input), "scaled");
    }
    for (uint32_t i = 0; i < mlp->layer_count; i++) {
        (void)snprintf(output, sizeof(output), "hidden%u", i);
        if (i + 1 == mlp->layer_count) {
            (void)snprintf(output, sizeof(output), "logits");
        }
        layer_add(graph, mlp, i, parameters, input, output);
        (void)snprintf(input, sizeof(input), "%s", output);
    }
    if (options->softmax) {
        node_one(graph, "Softmax", "logits", "probabilities"); /* over the last axis */
    }
    text_add(&graph->nodes, 2, "mlp");
    value_info_add(&graph->nodes, 11, "input", mlp->widths[0]);
    value_info_add(&graph->nodes, 12, result, mlp->widths[mlp->layer_count]);
}

/* ---- the file ---- */

static int all_write(int fd, const void *data, size_t length)
{
    const char *at = data;
    while (length > 0) {
        ssize_t written = write(fd, at, length);
        if (written < 0 && errno != EINTR) {
            return -1;
        }
        at += written > 0 ? written : 0;
        length -= written > 0 ? (size_t)written : 0;
    }
    return 0;
}

/* Tag and length of each initializer's message, and the bytes of the whole graph message. */
static uint64_t initializers_frame(struct graph *graph, struct bytes *frames)
{
    uint64_t total = graph->nodes.length;
    for (size_t i = 0; i < graph->initializer_count; i++) {
        struct initializer *initializer = &graph->initializers[i];
        length_add(&frames[i], 5, initializer->head.length + initializer->bytes);
        total += frames[i].length + initializer->head.length + initializer->bytes;
    }
    return total;
}

static int graph_write(int fd, const struct graph *graph, const struct bytes *frames)
{
    int result = all_write(fd, graph->nodes.data, graph->nodes.length);
    for (size_t i = 0; result == 0 && i < graph->initializer_count; i++) {
        const struct initializer *initializer = &graph->initializers[i];
        if (all_write(fd, frames[i].data, frames[i].length) < 0 ||
            all_write(fd, initializer->head.data, initializer->head.length) < 0 ||
            all_write(fd, initializer->floats, initializer->bytes) < 0) {
            result = -1;
        }
    }
    return result;
}

static void model_head_build(struct bytes *head, uint64_t graph_bytes)
{
    struct bytes opset = {0};
    number_add(head, 1, 8); /* ir_version */
    text_add(head, 2, "tidepool");
    text_add(&opset, 1, "");
    number_add(&opset, 2, 13);
    message_add(head, 8, &opset);
    length_add(head, 7, graph_bytes);
}

static int model_write(int fd, struct graph *graph, struct error *error)
{
    struct bytes frames[TENSORS_MAX] = {0}, head = {0};
    uint64_t total = initializers_frame(graph, frames);
    bool broken = graph->nodes.broken;
    int result = 0;
    model_head_build(&head, total);
    for (size_t i = 0; i < graph->initializer_count; i++) {
        broken |= frames[i].broken || graph->initializers[i].head.broken;
    }
    if (broken || head.broken) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for an ONNX model's graph");
    } else if (total > MODEL_BYTES_MAX) {
        result = error_set(error, ERROR_OUT_OF_RANGE,
                           "the ONNX model would have %llu bytes; a model file ends at %llu",
                           (unsigned long long)total, (unsigned long long)MODEL_BYTES_MAX);
    } else if (all_write(fd, head.data, head.length) < 0 || graph_write(fd, graph, frames) < 0 ||
               fsync(fd) < 0) {
        result = error_set_errno(error, errno, "write the ONNX model");
    }
    for (size_t i = 0; i < graph->initializer_count; i++) {
        free(frames[i].data);
    }
    free(head.data);
    return result;
}

int mlp_onnx_write(const struct mlp *mlp, const float *parameters,
                   const struct mlp_onnx_options *options, const char *path, struct error *error)
{
    char temporary[PATH_MAX];
    int result, fd = -1;
    struct graph *graph = calloc(1, sizeof(*graph));
    if (graph == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for an ONNX model's graph");
    }
    if (snprintf(temporary, sizeof(temporary), "%s.tmp", path) >= (int)sizeof(temporary)) {
        result = error_set(error, ERROR_INVALID_ARGUMENT, "the path of the ONNX model is too long");
        goto out;
    }
    graph_build(graph, mlp, parameters, options);
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        result = error_set_errno(error, errno, "create '%s'", temporary);
        goto out;
    }
    result = model_write(fd, graph, error);
    if (result == 0 && rename(temporary, path) < 0) {
        result = error_set_errno(error, errno, "rename '%s' to '%s'", temporary, path);
    }
    if (result < 0) {
        (void)unlink(temporary);
    }
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    for (size_t i = 0; i < graph->initializer_count; i++) {
        free(graph->initializers[i].head.data);
    }
    free(graph->nodes.data);
    free(graph);
    return result;
}
