#include "clients/sim/names.h"

#include <stdlib.h>
#include <string.h>

/* Where the name is in the sorted order, or where it belongs. */
static uint32_t place_find(const struct trace_names *names, const char *name, bool *ret_found)
{
    uint32_t low = 0, high = names->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(names->names[names->sorted[middle]], name);
        if (order == 0) {
            *ret_found = true;
            return middle;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    *ret_found = false;
    return low;
}

bool names_find(const struct trace_names *names, const char *name, uint32_t *ret_index)
{
    bool found;
    uint32_t place = place_find(names, name, &found);
    if (found) {
        *ret_index = names->sorted[place];
    }
    return found;
}

static int room_make(struct trace_names *names)
{
    if (names->count < names->capacity) {
        return 0;
    }
    uint32_t larger = 2 * names->capacity + 16;
    char **texts = reallocarray(names->names, larger, sizeof(*texts));
    names->names = texts != NULL ? texts : names->names;
    uint32_t *sorted = reallocarray(names->sorted, larger, sizeof(*sorted));
    names->sorted = sorted != NULL ? sorted : names->sorted;
    if (texts == NULL || sorted == NULL) {
        return -(int)ERROR_RESOURCE_EXHAUSTED;
    }
    names->capacity = larger;
    return 0;
}

int names_intern(struct trace_names *names, const char *name, uint32_t maximum, uint32_t *ret_index)
{
    bool found;
    uint32_t place = place_find(names, name, &found);
    if (found) {
        *ret_index = names->sorted[place];
        return 0;
    }
    if (names->count >= maximum) {
        return -(int)ERROR_OUT_OF_RANGE;
    }
    char *copy = strdup(name);
    if (copy == NULL || room_make(names) < 0) {
        free(copy);
        return -(int)ERROR_RESOURCE_EXHAUSTED;
    }
    memmove(names->sorted + place + 1, names->sorted + place,
            (names->count - place) * sizeof(*names->sorted));
    names->sorted[place] = names->count;
    names->names[names->count] = copy;
    *ret_index = names->count++;
    return 0;
}

void names_fini(struct trace_names *names)
{
    for (uint32_t i = 0; i < names->count; i++) {
        free(names->names[i]);
    }
    free(names->names);
    free(names->sorted);
    *names = (struct trace_names){0};
}
