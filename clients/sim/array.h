/* array.h: arrays that grow.
 * Use:     array = array_room(array, count, &capacity, sizeof(*array), limit) before adding one;
 *          NULL: there are `limit` elements already, or no memory; then the old array still holds.
 * Thread:  plain values. */
#ifndef TIDEPOOL_CLIENTS_SIM_ARRAY_H
#define TIDEPOOL_CLIENTS_SIM_ARRAY_H

#include <stddef.h>

void *array_room(void *array, size_t count, size_t *capacity, size_t size, size_t limit);

#endif
