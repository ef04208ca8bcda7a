/* names.h: names to numbers, numbered in order of appearance (struct trace_names of trace.h).
 * Thread:  plain values. */
#ifndef TIDEPOOL_CLIENTS_SIM_NAMES_H
#define TIDEPOOL_CLIENTS_SIM_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/sim/trace.h"

bool names_find(const struct trace_names *names, const char *name, uint32_t *ret_index);
/* Finds or adds. Negative: there are `maximum` others already (ERROR_OUT_OF_RANGE), or no memory;
 * nothing changed. */
int names_intern(struct trace_names *names, const char *name, uint32_t maximum,
                 uint32_t *ret_index);
void names_fini(struct trace_names *names); /* a zeroed one is fine */

#endif
