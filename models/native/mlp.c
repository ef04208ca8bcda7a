#include "models/native/mlp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/native/random.h"

#define PAD_FLOATS 16u /* 64 bytes */

/* Per layer its outputs before and after the activation, and two buffers for their gradients. */
struct mlp_workspace {
    uint32_t rows_max;
    float *before[MLP_LAYERS_MAX];
    float *after[MLP_LAYERS_MAX]; /* none for the last layer */
    float *slopes[2];
};

static size_t padded(size_t count)
{
    return (count + PAD_FLOATS - 1) / PAD_FLOATS * PAD_FLOATS;
}

struct mlp_layer mlp_layer(const struct mlp *mlp, uint32_t index)
{
    struct mlp_layer layer = {0};
    size_t at = 0;
    for (uint32_t i = 0; i <= index; i++) {
        layer.inputs = mlp->widths[i];
        layer.outputs = mlp->widths[i + 1];
        layer.weights = at;
        layer.bias = at + padded((size_t)layer.inputs * layer.outputs);
        at = layer.bias + padded(layer.outputs);
    }
    return layer;
}

size_t mlp_parameters(const struct mlp *mlp)
{
    struct mlp_layer last = mlp_layer(mlp, mlp->layer_count - 1);
    return last.bias + padded(last.outputs);
}

void mlp_initialize(const struct mlp *mlp, uint64_t seed, float *parameters)
{
    memset(parameters, 0, mlp_parameters(mlp) * sizeof(*parameters));
    for (uint32_t i = 0; i < mlp->layer_count; i++) {
        struct mlp_layer layer = mlp_layer(mlp, i);
        size_t count = (size_t)layer.inputs * layer.outputs;
        float bound = (float)sqrt(6.0 / layer.inputs);
        for (size_t j = 0; j < count; j++) {
            parameters[layer.weights + j] =
                bound * random_signed_unit(random_at(seed, layer.weights + j));
        }
    }
}

static uint32_t hidden_width_max(const struct mlp *mlp)
{
    uint32_t width = 0;
    for (uint32_t i = 1; i <= mlp->layer_count; i++) {
        width = mlp->widths[i] > width ? mlp->widths[i] : width;
    }
    return width;
}

static float *floats_create(size_t count)
{
    void *memory = NULL;
    return posix_memalign(&memory, 64, padded(count) * sizeof(float)) == 0 ? memory : NULL;
}

struct mlp_workspace *mlp_workspace_create(const struct mlp *mlp, uint32_t rows_max)
{
    struct mlp_workspace *workspace = calloc(1, sizeof(*workspace));
    bool complete = workspace != NULL;
    for (uint32_t i = 0; complete && i < mlp->layer_count; i++) {
        size_t count = (size_t)rows_max * mlp->widths[i + 1];
        workspace->before[i] = floats_create(count);
        workspace->after[i] = i + 1 < mlp->layer_count ? floats_create(count) : NULL;
        complete = workspace->before[i] != NULL &&
                   (workspace->after[i] != NULL || i + 1 == mlp->layer_count);
    }
    for (int i = 0; complete && i < 2; i++) {
        workspace->slopes[i] = floats_create((size_t)rows_max * hidden_width_max(mlp));
        complete = workspace->slopes[i] != NULL;
    }
    if (!complete) {
        mlp_workspace_destroy(workspace);
        return NULL;
    }
    workspace->rows_max = rows_max;
    return workspace;
}

void mlp_workspace_destroy(struct mlp_workspace *workspace)
{
    if (workspace == NULL) {
        return;
    }
    for (uint32_t i = 0; i < MLP_LAYERS_MAX; i++) {
        free(workspace->before[i]);
        free(workspace->after[i]);
    }
    free(workspace->slopes[0]);
    free(workspace->slopes[1]);
    free(workspace);
}

uint64_t mlp_workspace_bytes(const struct mlp *mlp, uint32_t rows_max)
{
    uint64_t floats = 2 * (uint64_t)hidden_width_max(mlp);
    for (uint32_t i = 0; i < mlp->layer_count; i++) {
        floats += (i + 1 < mlp->layer_count ? 2 : 1) * (uint64_t)mlp->widths[i + 1];
    }
    return floats * rows_max * sizeof(float);
}

const float *mlp_forward(const struct mlp *mlp, struct mlp_workspace *workspace,
                         const struct gate *gate, uint32_t rows, const float *inputs,
                         const float *parameters)
{
    const float *x = inputs;
    for (uint32_t i = 0; i < mlp->layer_count; i++) {
        struct mlp_layer layer = mlp_layer(mlp, i);
        if (!linear_forward(gate, rows, layer.inputs, layer.outputs, x, parameters + layer.weights,
                            parameters + layer.bias, workspace->before[i])) {
            return NULL;
        }
        if (i + 1 == mlp->layer_count) {
            break;
        }
        if (!activation_forward(gate, mlp->activation, (size_t)rows * layer.outputs,
                                workspace->before[i], workspace->after[i])) {
            return NULL;
        }
        x = workspace->after[i];
    }
    return workspace->before[mlp->layer_count - 1];
}

/* The padding behind each part belongs to the vector, so its gradient is written too. */
static void padding_clear(const struct mlp_layer *layer, float *gradient)
{
    size_t weights = (size_t)layer->inputs * layer->outputs;
    memset(gradient + layer->weights + weights, 0,
           (layer->bias - layer->weights - weights) * sizeof(*gradient));
    memset(gradient + layer->bias + layer->outputs, 0,
           (padded(layer->outputs) - layer->outputs) * sizeof(*gradient));
}

bool mlp_backward(const struct mlp *mlp, struct mlp_workspace *workspace, const struct gate *gate,
                  uint32_t rows, const float *inputs, const uint32_t *labels,
                  const float *parameters, float scale, float *gradient, struct loss_sums *ret_sums)
{
    float *dy = workspace->slopes[0];
    float *dx = workspace->slopes[1];
    uint32_t last = mlp->layer_count - 1;
    if (!softmax_cross_entropy(gate, rows, mlp->widths[last + 1], workspace->before[last], labels,
                               scale, dy, ret_sums)) {
        return false;
    }
    for (uint32_t i = last + 1; i-- > 0;) {
        struct mlp_layer layer = mlp_layer(mlp, i);
        const float *x = i > 0 ? workspace->after[i - 1] : inputs;
        float *swap = dy;
        padding_clear(&layer, gradient);
        if (!linear_backward(gate, rows, layer.inputs, layer.outputs, x, parameters + layer.weights,
                             dy, i > 0 ? dx : NULL, gradient + layer.weights,
                             gradient + layer.bias)) {
            return false;
        }
        if (i > 0 && !activation_backward(gate, mlp->activation, (size_t)rows * layer.inputs,
                                          workspace->before[i - 1], dx)) {
            return false;
        }
        dy = dx;
        dx = swap;
    }
    return true;
}
