/* npy.h: reads NumPy's .npy files (versions 1 to 3; little-endian f4, f8, u1, i4, i8; C order).
 * Trust:   none: header length, shape and file size are checked against each other before use.
 * Reading: by pread, so that a file that shrinks under us is an error and not a SIGBUS.
 * Thread:  npy_read from any number at once. */
#ifndef TIDEPOOL_TRAIN_NPY_H
#define TIDEPOOL_TRAIN_NPY_H

#include <stdint.h>

#include "server/base/error.h"

enum npy_type { NPY_F4, NPY_F8, NPY_U1, NPY_I4, NPY_I8 };

struct npy {
    int fd;
    char *path;
    enum npy_type type;
    uint32_t item_bytes;
    uint64_t rows;    /* first dimension */
    uint64_t columns; /* product of the others; 1 for a vector */
    uint64_t data_offset;
};

int npy_open(const char *path, struct npy *ret_npy, struct error *error);
void npy_close(struct npy *npy); /* a zeroed one with fd −1 is fine */

/* Raw items of `count` rows from `row` on into `items` (count · columns · item_bytes). */
int npy_read(const struct npy *npy, uint64_t row, uint64_t count, void *items, struct error *error);
/* `count` items as float32. */
void npy_to_float(enum npy_type type, const void *items, uint64_t count, float *ret_values);
/* One item as a label: -1 when it is not a whole number from 0 on. */
int64_t npy_to_label(enum npy_type type, const void *items, uint64_t index);

#endif
