/* csv.h: reads a table of numbers with commas between them; a header line is optional.
 * Trust:   none: every field is checked; errors name file, line and column (both from 1).
 * Memory:  grows with what was really read. */
#ifndef TIDEPOOL_TRAIN_CSV_H
#define TIDEPOOL_TRAIN_CSV_H

#include <stdint.h>

#include "server/base/error.h"

struct csv_table {
    uint64_t rows;
    float *inputs;    /* rows × inputs */
    uint32_t *labels; /* rows */
};

/* `label_column` is a name of the header line or a number from 0; the other columns are the inputs,
 * in their order. */
int csv_read(const char *path, const char *label_column, uint32_t inputs, uint32_t classes,
             struct csv_table *ret_table, struct error *error);
void csv_free(struct csv_table *table);

#endif
