/* scan.h: a look into an ONNX file's bytes before the library gets them.
 * Why:     a model may name other files to read its weights from, and a stranger's model could
 *          name any; and weights found here are handed to every session instead of being copied
 *          by each.
 * Bounds:  every length is checked against the bytes that hold it; nesting is at most
 *          ONNX_DEPTH_MAX messages.
 * Thread:  any; no shared state. */
#ifndef TIDEPOOL_MODELS_ONNX_SCAN_H
#define TIDEPOOL_MODELS_ONNX_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/tensor.h"
#include "server/base/error.h"

#define ONNX_DEPTH_MAX 64

/* A weight of the main graph with its numbers in raw form inside the file's bytes. */
struct onnx_weight {
    char *name;
    int32_t element; /* enum ort_element */
    uint32_t rank;
    int64_t dims[TENSOR_RANK_MAX];
    const unsigned char *data;
    size_t bytes;
};

struct onnx_scan {
    struct onnx_weight *weights; /* of at least the size asked for */
    size_t weight_count;
    char **external; /* distinct paths as the file writes them */
    size_t external_count;
    bool steady; /* all its operators are (models/onnx/operators.h) */
};

/* INVALID_ARGUMENT: the bytes are not an ONNX model. */
int onnx_scan(const unsigned char *bytes, size_t length, size_t weight_bytes_min,
              struct onnx_scan *ret_scan, struct error *error);
void onnx_scan_fini(struct onnx_scan *scan);

/* Refuses paths that are absolute or hold "..", and files that lie, links followed, outside the
 * model's folder. PERMISSION_DENIED with the same text whether or not such a file exists.
 * ret_bytes: the size of all of them together. */
int onnx_external_check(const struct onnx_scan *scan, const char *model_path, uint64_t *ret_bytes,
                        struct error *error);

#endif
