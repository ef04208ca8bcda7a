/* operators.h: what is known of ONNX's operators.
 * Thread: any; no state. */
#ifndef TIDEPOOL_MODELS_ONNX_OPERATORS_H
#define TIDEPOOL_MODELS_ONNX_OPERATORS_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the shapes of its inputs bound the operator's time and the size of its outputs, whatever
 * the values. An unknown one is not steady. The name need not end with a NUL. */
bool onnx_operator_is_steady(const char *name, size_t length);

#endif
