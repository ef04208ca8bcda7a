/* agenda.h: what is going to happen, the earliest first, of equal times what was added first.
 * Capacity: grows as needed. Thread: plain values. */
#ifndef TIDEPOOL_CLIENTS_SIM_AGENDA_H
#define TIDEPOOL_CLIENTS_SIM_AGENDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct moment {
    uint64_t time_ns;
    uint64_t sequence; /* set by agenda_add */
    uint32_t kind;     /* the owner's */
    uint32_t object;
    uint64_t detail;
};

struct agenda {
    struct moment *heap;
    size_t count, capacity;
    uint64_t sequence;
};

/* All zero is an empty one. */
void agenda_fini(struct agenda *agenda);
int agenda_add(struct agenda *agenda, struct moment moment); /* -1: no memory, nothing added */
/* The earliest, or false: there is none. It stays until agenda_pop. */
bool agenda_first(const struct agenda *agenda, struct moment *ret_moment);
void agenda_pop(struct agenda *agenda);

#endif
