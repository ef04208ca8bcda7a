/* infer_message.h: requests of ModelInfer from JSON or from a model's metadata, answers as JSON:
 * the KServe v2 REST shape, {"inputs": [{"name", "shape", "datatype", "data"}]}, {"outputs": […]}.
 * Data:     nested lists or one flat list in row-major order; always raw on the wire.
 * Bounds:   a request holds at most 64 MiB of tensors; sizes are checked before memory is taken.
 * Errors:   0 or a negative enum error_code; texts name the tensor.
 * Thread:   plain values. */
#ifndef TIDEPOOL_CLIENTS_INFER_MESSAGE_H
#define TIDEPOOL_CLIENTS_INFER_MESSAGE_H

#include <jansson.h>

#include "inference/inference.pb-c.h"
#include "server/base/error.h"

#define INFER_PATH "/inference.GRPCInferenceService/ModelInfer"
#define INFER_METADATA_PATH "/inference.GRPCInferenceService/ModelMetadata"
#define INFER_BYTES_MAX (64u << 20)

/* An encoded ModelInferRequest; free(*ret_body). */
int infer_request_from_json(const json_t *object, const char *model, unsigned char **ret_body,
                            size_t *ret_length, struct error *error);
/* The same with random inputs (in [0, 1); integers 0 or 1; BYTES empty) of `rows` rows: a first
 * dimension of -1 becomes `rows`, other dimensions of -1 become 1. */
int infer_request_from_metadata(const Inference__ModelMetadataResponse *metadata, uint32_t rows,
                                uint64_t seed, unsigned char **ret_body, size_t *ret_length,
                                struct error *error);
/* NULL with `error` when the answer does not fit its own shapes. */
json_t *infer_response_to_json(const Inference__ModelInferResponse *response, struct error *error);

#endif
