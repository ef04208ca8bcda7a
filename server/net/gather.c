#include "server/net/gather.h"

#include <stdlib.h>
#include <string.h>

bool gather_init(struct gather *gather)
{
    *gather = (struct gather){0};
    return gather_reserve(gather, GATHER_BYTES_MAX);
}

void gather_fini(struct gather *gather)
{
    free(gather->data);
}

bool gather_reserve(struct gather *gather, size_t length)
{
    if (gather->capacity - gather->length >= length) {
        return true;
    }
    size_t capacity = gather->capacity * 2 + length;
    unsigned char *data = realloc(gather->data, capacity);
    if (data == NULL) {
        return false;
    }
    gather->data = data;
    gather->capacity = capacity;
    return true;
}

bool gather_add(struct gather *gather, const void *bytes, size_t length)
{
    if (!gather_reserve(gather, length)) {
        return false;
    }
    memcpy(gather->data + gather->length, bytes, length);
    gather->length += length;
    return true;
}
