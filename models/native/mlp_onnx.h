/* mlp_onnx.h: writes an mlp as an ONNX model (opset 13) that any runtime can serve.
 * Graph:   input "input" [batch, features] (multiplied by `input_scale` unless that is 1), Gemm and
 *          Relu or the exact GELU from Erf, output "logits" or, with softmax, "probabilities".
 * File:    written beside its place, synced, then renamed over it: a reader sees all or nothing.
 * Limit:   a protobuf file ends at 2 GiB; larger models are refused. */
#ifndef TIDEPOOL_MODELS_NATIVE_MLP_ONNX_H
#define TIDEPOOL_MODELS_NATIVE_MLP_ONNX_H

#include "models/native/mlp.h"

struct mlp_onnx_options {
    float input_scale;
    bool softmax;
};

int mlp_onnx_write(const struct mlp *mlp, const float *parameters,
                   const struct mlp_onnx_options *options, const char *path, struct error *error);

#endif
