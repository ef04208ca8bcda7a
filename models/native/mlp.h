/* mlp.h: a multi-layer perceptron that trains and serves: linear layers with an activation between
 * them and softmax cross-entropy at the end.
 * State:    parameters are one vector of float32: per layer the weights (outputs × inputs, row
 *           major) and then the bias, each part padded with zeros to 64 bytes. Little-endian, it is
 *           also the form in which a state is kept in files and moves between kinds of device.
 * Bits:     a micro-batch's gradient follows from parameters, rows and labels alone.
 * Memory:   the caller gives all buffers; a workspace belongs to one thread at a time. */
#ifndef TIDEPOOL_MODELS_NATIVE_MLP_H
#define TIDEPOOL_MODELS_NATIVE_MLP_H

#include "models/native/operations.h"
#include "server/base/error.h"

#define MLP_LAYERS_MAX 64
#define MLP_WIDTH_MAX 1048576

struct mlp {
    uint32_t layer_count;                /* linear layers */
    uint32_t widths[MLP_LAYERS_MAX + 1]; /* inputs, hidden …, classes */
    enum activation activation;          /* after every layer but the last */
};

struct mlp_layer {
    uint32_t inputs, outputs;
    size_t weights, bias; /* where they begin in the parameter vector */
};

struct mlp_layer mlp_layer(const struct mlp *mlp, uint32_t index);
size_t mlp_parameters(const struct mlp *mlp); /* length of the vector, padding included */

/* Uniform in ±sqrt(6 / inputs), biases 0; one stream per seed. */
void mlp_initialize(const struct mlp *mlp, uint64_t seed, float *parameters);

struct mlp_workspace;
struct mlp_workspace *mlp_workspace_create(const struct mlp *mlp, uint32_t rows_max);
void mlp_workspace_destroy(struct mlp_workspace *workspace); /* NULL is fine */
uint64_t mlp_workspace_bytes(const struct mlp *mlp, uint32_t rows_max);

/* Logits of `rows` rows; they lie in the workspace until its next use. NULL: the gate closed. */
const float *mlp_forward(const struct mlp *mlp, struct mlp_workspace *workspace,
                         const struct gate *gate, uint32_t rows, const float *inputs,
                         const float *parameters);
/* After mlp_forward of the same rows: the loss, and the gradient of loss · scale with respect to
 * all parameters (every float of `gradient` is written). */
bool mlp_backward(const struct mlp *mlp, struct mlp_workspace *workspace, const struct gate *gate,
                  uint32_t rows, const float *inputs, const uint32_t *labels,
                  const float *parameters, float scale, float *gradient,
                  struct loss_sums *ret_sums);

#endif
