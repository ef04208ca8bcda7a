/* agenda.c: a binary heap in an array. */
#include "clients/sim/agenda.h"

#include <stdlib.h>

void agenda_fini(struct agenda *agenda)
{
    free(agenda->heap);
    *agenda = (struct agenda){0};
}

static bool moment_before(const struct moment *a, const struct moment *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->sequence < b->sequence;
}

int agenda_add(struct agenda *agenda, struct moment moment)
{
    if (agenda->count == agenda->capacity) {
        size_t capacity = agenda->capacity == 0 ? 256 : agenda->capacity * 2;
        struct moment *heap = realloc(agenda->heap, capacity * sizeof *heap);
        if (heap == NULL) {
            return -1;
        }
        agenda->heap = heap;
        agenda->capacity = capacity;
    }
    moment.sequence = agenda->sequence++;
    size_t place = agenda->count++;
    while (place > 0 && moment_before(&moment, &agenda->heap[(place - 1) / 2])) {
        agenda->heap[place] = agenda->heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    agenda->heap[place] = moment;
    return 0;
}

bool agenda_first(const struct agenda *agenda, struct moment *ret_moment)
{
    if (agenda->count == 0) {
        return false;
    }
    *ret_moment = agenda->heap[0];
    return true;
}

void agenda_pop(struct agenda *agenda)
{
    struct moment last = agenda->heap[--agenda->count];
    size_t place = 0;
    for (;;) {
        size_t child = 2 * place + 1;
        if (child + 1 < agenda->count &&
            moment_before(&agenda->heap[child + 1], &agenda->heap[child])) {
            child++;
        }
        if (child >= agenda->count || !moment_before(&agenda->heap[child], &last)) {
            break;
        }
        agenda->heap[place] = agenda->heap[child];
        place = child;
    }
    agenda->heap[place] = last;
}
