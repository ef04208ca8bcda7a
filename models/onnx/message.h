/* message.h: the library's error texts made fit for clients: one line, valid UTF-8, without the
 * places in its source, its C++ signatures and what wraps the message proper.
 * Thread: any; no shared state. */
#ifndef TIDEPOOL_MODELS_ONNX_MESSAGE_H
#define TIDEPOOL_MODELS_ONNX_MESSAGE_H

#include <stddef.h>

/* Writes the cleaned text, cut to fit. "an unnamed error" when nothing is left. */
void onnx_message_clean(const char *message, char *ret_text, size_t size);

#endif
