/* export.h: puts a trained model into a model repository in Triton's layout. */
#ifndef TIDEPOOL_TRAIN_EXPORT_H
#define TIDEPOOL_TRAIN_EXPORT_H

#include "server/train/specification.h"

/* Writes <repository>/<name>/config.json if the specification has one, then
 * <repository>/<name>/<version>/model.onnx; a reader sees each whole or not at all.
 * ret_path has `size` bytes. */
int export_write(const struct specification *specification, const float *parameters, char *ret_path,
                 size_t size, struct error *error);

#endif
