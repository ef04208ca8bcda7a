/* texts.h: what protobuf-c cannot show: a string with a NUL byte in it ends there for its reader,
 * who would take "model\0x" for "model". */
#ifndef TIDEPOOL_NET_TEXTS_H
#define TIDEPOOL_NET_TEXTS_H

#include <protobuf-c/protobuf-c.h>

#include "server/base/error.h"
#include "server/base/wire.h"

/* INVALID_ARGUMENT, naming the field: a string of the message, or of one in it, has a NUL byte.
 * INTERNAL: it does not parse. */
int texts_check(const ProtobufCMessageDescriptor *descriptor, struct wire_text message,
                struct error *error);

#endif
