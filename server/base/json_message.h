/* json_message.h: any protobuf message as JSON and back, in proto3's JSON mapping: lowerCamelCase
 * names, 64-bit integers as text, enums by name, bytes as base64, NaN and infinities as text.
 * Writing: fields with their default value are written too, so that scripts find every key;
 *          messages that are not set are null, members of a oneof that are not chosen are left out.
 * Reading: names as written in the .proto file count too; numbers, true and false may be texts, an
 *          enum its number; null is as if left out. An unknown key is an error
 * that names it and the nearest known one. Thread:  plain values. */
#ifndef TIDEPOOL_BASE_JSON_MESSAGE_H
#define TIDEPOOL_BASE_JSON_MESSAGE_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "server/base/error.h"

json_t *json_from_message(const ProtobufCMessage *message); /* NULL: no memory */
json_t *json_from_text(const char *text); /* a text that says so where it is not UTF-8 */
json_t *json_from_double(double number);  /* NaN and infinities as text */

/* The message is freed with protobuf_c_message_free_unpacked(…, NULL). INVALID_ARGUMENT names the
 * place: "terms.expiresInS: …". Of a message within messages at most 32 levels are read. */
int json_to_message(const json_t *value, const ProtobufCMessageDescriptor *type,
                    ProtobufCMessage **ret_message, struct error *error);

#endif
