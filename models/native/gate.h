/* gate.h: the place between two pieces of work where training may be stopped.
 * Every operation calls gate_open before each piece; a piece is at most about 2 ms long, and its
 * size follows from the shapes alone, so that stopping never changes a bit of the result. */
#ifndef TIDEPOOL_MODELS_NATIVE_GATE_H
#define TIDEPOOL_MODELS_NATIVE_GATE_H

#include <stdbool.h>
#include <stddef.h>

struct gate {
    /* May block (stand still). false: give the work up; what was written so far is thrown away. */
    bool (*may_run)(void *context);
    void *context;
};

/* NULL: never stopped. */
static inline bool gate_open(const struct gate *gate)
{
    return gate == NULL || gate->may_run(gate->context);
}

#endif
