/* order.h: the order in which rows are trained on: a permutation per epoch that needs no memory.
 * Position p of the job's endless row of samples is row order_row(seed, p / count, p % count).
 * It depends on the seed alone, so a resumed job goes on exactly where it stood. */
#ifndef TIDEPOOL_TRAIN_ORDER_H
#define TIDEPOOL_TRAIN_ORDER_H

#include <stdint.h>

/* A bijection of 0 … count − 1 (count ≥ 1). */
uint64_t order_row(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t count);

#endif
