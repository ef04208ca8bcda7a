/* json_names.h: what writing and reading of messages as JSON share. Inside json_message*.c only. */
#ifndef TIDEPOOL_BASE_JSON_NAMES_H
#define TIDEPOOL_BASE_JSON_NAMES_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

struct json_name {
    char text[96];
};

/* "start_wall_ns" → "startWallNs" */
void json_name_of(const char *field, struct json_name *ret_name);
/* Bytes of one value in a message or a list. */
size_t json_value_size(ProtobufCType type);

#endif
