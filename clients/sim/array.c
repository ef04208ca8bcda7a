#include "clients/sim/array.h"

#include <stdlib.h>

void *array_room(void *array, size_t count, size_t *capacity, size_t size, size_t limit)
{
    if (count >= limit) {
        return NULL;
    }
    if (count < *capacity) {
        return array;
    }
    size_t larger = 2 * *capacity + 64;
    void *grown = reallocarray(array, larger, size);
    *capacity = grown != NULL ? larger : *capacity;
    return grown;
}
