/* json_message.h: any protobuf message as JSON, in proto3's JSON mapping: lowerCamelCase names,
 * 64-bit integers as text, enums by name, bytes as base64, NaN and infinities as text. Fields with
 * their default value are written too, so that scripts find every key; messages that are not set
 * are null, members of a oneof that are not chosen are left out.
 * Thread:  plain values. */
#ifndef TIDEPOOL_CLIENTS_JSON_MESSAGE_H
#define TIDEPOOL_CLIENTS_JSON_MESSAGE_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

json_t *json_from_message(const ProtobufCMessage *message); /* NULL: no memory */
json_t *json_from_text(const char *text); /* a text that says so where it is not UTF-8 */
json_t *json_from_double(double number);  /* NaN and infinities as text */

#endif
