/* dataset.h: the rows and labels of a job, from all its files, held-out part set aside.
 * Order:   rows are cut by a permutation of the data's seed: the first part is trained on, the rest
 *          is held out; inside, dataset_train_row follows the order of the epochs.
 * Thread:  open and close: one; the rest: any number at once. */
#ifndef TIDEPOOL_TRAIN_DATASET_H
#define TIDEPOOL_TRAIN_DATASET_H

#include "server/train/specification.h"

struct dataset;

/* Shapes and headers of all files against the model; reads no row yet. */
int dataset_check(const struct data_specification *data, uint32_t inputs, struct error *error);
int dataset_open(const struct data_specification *data, uint32_t inputs, uint32_t classes,
                 struct dataset **ret_dataset, struct error *error);
void dataset_close(struct dataset *dataset); /* NULL is fine */

uint64_t dataset_train_rows(const struct dataset *dataset);
uint64_t dataset_held_out_rows(const struct dataset *dataset);
/* Of shapes, labels and a sample of the rows: to notice other data under the same names. */
uint64_t dataset_hash(const struct dataset *dataset);

/* `count` samples from position `position` of the endless shuffled training order on. */
int dataset_train_read(const struct dataset *dataset, uint64_t position, uint32_t count,
                       float *ret_inputs, uint32_t *ret_labels, struct error *error);
int dataset_held_out_read(const struct dataset *dataset, uint64_t first, uint32_t count,
                          float *ret_inputs, uint32_t *ret_labels, struct error *error);

#endif
